"""Run an application in an event loop, until it returns or a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from typing import TYPE_CHECKING, TypeVar

import uvloop

from mirrortest.cli import compiled
from mirrortest.cli.console import err
from mirrortest.cli.interrupt import end_at_once
from mirrortest.errors import ClusterError, InterruptedRunError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_ABORT_SECONDS = 3.0
_INTERRUPTED = "a second signal ended the run at once: the drain is not complete"


def run_application(main: Callable[[asyncio.Event], Awaitable[T]], *, writes: bool = True) -> T:
    """Run an application until it returns.

    The first SIGINT or SIGTERM sets the event that `main` gets: the application drains and returns.
    The second one cancels it. A third one ends the process, as do `_ABORT_SECONDS` without success.
    An application that does not write (`writes`) has nothing to drain: the first signal cancels it.

    Raises:
        InstallationError: a compiled module was compiled from another source.
        InterruptedRunError: a signal ended the run at once.
        ClusterError: the client library cancelled its own tasks.
    """
    compiled.check()  # of the modules that the application has imported
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Imported modules are never garbage: do not search them again and again.
    gc.freeze()

    interrupted = _INTERRUPTED if writes else "interrupted: nothing was written"

    async def supervised() -> T:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main(stop))
        ended_by: signal.Signals | None = None

        def on_signal(number: signal.Signals) -> None:
            nonlocal ended_by
            if writes and not stop.is_set():
                err.print(
                    f"[yellow]{number.name}: draining; a second signal ends the run at once[/]"
                )
                stop.set()
            elif ended_by is None:
                ended_by = number
                task.cancel()
                loop.call_later(_ABORT_SECONDS, abort, number)
            else:
                abort(number)

        def abort(number: signal.Signals) -> None:
            err.print(f"[bold red]error:[/] {interrupted}")
            end_at_once(number)

        # The handlers stay until the loop is closed: they also end the clean-up after the run.
        for number in before:
            loop.add_signal_handler(number, on_signal, number)
        with contextlib.suppress(asyncio.CancelledError):
            return await task
        if ended_by is not None:
            raise InterruptedRunError(interrupted, ended_by)
        # No signal did it: the client library cancelled its own tasks.
        raise ClusterError(
            "the run stopped while it was waiting for a broker: the sequence logs are incomplete, "
            "they end here"
        )

    try:
        return uvloop.run(supervised())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
