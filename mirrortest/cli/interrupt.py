"""Signal handlers that end the process: at once, or by an exception."""

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
    """Exit with the code of a process that this signal killed; flush stdout and stderr first."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the signal may have interrupted a write
            stream.flush()
    # Not by an exception: it could surface anywhere, in an import or at the interpreter's end.
    os._exit(ExitCode.killed(number))


def interrupt(number: int, _frame: FrameType | None = None) -> NoReturn:
    """Raise KeyboardInterrupt with the signal's number; a second signal ends the process."""
    signal.signal(number, end_at_once)
    raise KeyboardInterrupt(number)
