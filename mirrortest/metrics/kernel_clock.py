"""What the kernel says of its wall clock's error.

NTP daemons tell the kernel a bound, root distance included, which it lets grow by 500 ppm until
they tell again. The two machines' bounds together are the error bar of every latency between them.
"""

from __future__ import annotations

import ctypes
import sys

_ERROR = -1
_NOT_KNOWN_SECONDS = 16


class _Timex(ctypes.Structure):
    """The head of Linux's `struct timex`; the rest is room for what it writes beyond."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("beyond", ctypes.c_byte * 256),
    )


def clock_error_bound() -> float | None:
    """The most that the wall clock is off, seconds; None where the kernel does not say.

    16 s is the kernel's "not known": nothing disciplines the clock.
    """
    if not sys.platform.startswith("linux"):
        return None
    told = _Timex()  # modes = 0: only ask, which needs no privilege
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(told))
    except (OSError, AttributeError):
        return None
    return None if state == _ERROR else told.maxerror / 1e6


def known_clock_error_ns() -> int | None:
    """The most that the wall clock is off, ns; None where the kernel does not know."""
    bound = clock_error_bound()
    return None if bound is None or bound >= _NOT_KNOWN_SECONDS else int(bound * 1e9)
