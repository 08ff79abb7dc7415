"""Signal handlers that end the process: at once, or by an exception."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from mirrortest.model.verdict import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def exit_code_of(interrupted: KeyboardInterrupt) -> int:
    """The exit code for the signal that `interrupt` raised it with; for SIGINT if Python did."""
    *_, number = (signal.SIGINT, *interrupted.args)
    return ExitCode.killed(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM end what runs in this context by an exception, so it can clean up."""
    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt as interrupted:
        raise typer.Exit(exit_code_of(interrupted)) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
