"""The kernel's bound on its wall clock's error.

NTP daemons give the kernel a bound, root distance included. It grows by 500 ppm until the next
update. The bounds of two machines together are the error bar of every latency between them.
"""

from __future__ import annotations

import ctypes
import sys

_ERROR = -1
_UNKNOWN_SECONDS = 16


class _Timex(ctypes.Structure):
    """The first fields of Linux's `struct timex`; `beyond` is room for the others."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("beyond", ctypes.c_byte * 256),
    )


def clock_error_bound() -> float | None:
    """The most that the wall clock is off, in seconds; None if the system has no such call.

    16 s is the kernel's "unknown": no daemon disciplines the clock.
    """
    if not sys.platform.startswith("linux"):
        return None
    timex = _Timex()  # modes = 0: only read, which needs no privilege
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    return None if state == _ERROR else timex.maxerror / 1e6


def known_clock_error_ns() -> int | None:
    """The most that the wall clock is off, in ns; None: unknown."""
    bound = clock_error_bound()
    return None if bound is None or bound >= _UNKNOWN_SECONDS else int(bound * 1e9)
