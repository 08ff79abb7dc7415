"""Makes glibc keep large buffers instead of returning them to the system after each use.

A fetch response, a produce request or a column of a log takes hundreds of kB: above malloc's
threshold for a mapping of its own. Each mapping would cost page faults, which can take more CPU
than processing the buffer.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_BYTES = 256 * 1024 * 1024
_TRIM_BYTES = 512 * 1024 * 1024


@functools.cache
def keep_large_buffers() -> bool:
    """Raise malloc's thresholds once for this process; returns whether that was possible.

    They stay as they are if the environment sets any (``MALLOC_*``), and without glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    # With one arena, these pages are kept once, not once for each thread.
    wanted = (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, _MMAP_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_BYTES),
    )
    return all(mallopt(option, value) for option, value in wanted)


def release_free_memory() -> None:
    """Return free memory to the system, once no large buffers will follow."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
