"""Keep glibc from giving large buffers back to the system after each use.

A fetch response, a produce request or a column of a log is hundreds of kB, above malloc's threshold
for a mapping of its own: each one costs fresh page faults, which may be more CPU than all that is
done with its bytes.
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
    """Raise malloc's thresholds once for this process; whether that was possible.

    Left alone where the user has set them by the environment, and where there is no glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    # Pages that are kept are kept once: not for each thread that writes a log now and then.
    wanted = (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, _MMAP_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_BYTES),
    )
    return all(mallopt(option, value) for option, value in wanted)


def give_back() -> None:
    """Give the system what is free now: what comes next needs no large buffers any more."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
