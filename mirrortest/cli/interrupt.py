"""The end by a signal: at once, or by an exception."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from mirrortest.model.verdict import ExitCode

if TYPE_CHECKING:
    from types import FrameType


def end_at_once(number: int, _frame: FrameType | None = None) -> NoReturn:
    """End as a shell expects of a program that a signal ended; what was printed is kept."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be amid a write
            stream.flush()
    # Not by an exception: it might come up anywhere, in an import or at the interpreter's end.
    os._exit(ExitCode.killed(number))


def interrupt(number: int, _frame: FrameType | None = None) -> NoReturn:
    """Handle a signal by a KeyboardInterrupt with its number; a second one ends the process."""
    signal.signal(number, end_at_once)
    raise KeyboardInterrupt(number)
