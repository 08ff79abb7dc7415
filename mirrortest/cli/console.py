"""What every verb shares: consoles, logging, signals, and errors turned into exit codes.

Results go to stdout, everything else to stderr. Rich honours NO_COLOR and leaves colours out
where the stream is no terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import structlog
import uvloop
from rich.console import Console

from mirrortest.errors import ClusterError, InterruptedRunError, MirrortestError

if TYPE_CHECKING:
    from pathlib import Path

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

T = TypeVar("T")


def configure_logging(*, verbose: bool = False) -> None:
    """Send structlog's and the libraries' logs to stderr; the libraries' only from WARNING on."""
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=err.color_system is not None),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    # aiokafka logs an error for each request that a dead broker does not answer; the applications
    # tell of an outage themselves.
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not verbose:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def write_report(path: Path, text: str) -> None:
    """Write a summary to the file of `--report`; MirrortestError where that cannot be."""
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise MirrortestError(f"--report {path}: {error.strerror}") from error


def run_application(main: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run an application until it returns.

    The first SIGINT or SIGTERM sets the event it was given: it drains and returns. The second
    cancels it.

    Raises:
        InterruptedRunError: a second signal ended the run at once.
    """

    async def supervised() -> T:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main(stop))
        interrupted = False

        def on_signal(name: str) -> None:
            nonlocal interrupted
            if stop.is_set():
                interrupted = True
                task.cancel()
            else:
                err.print(f"[yellow]{name}: draining; a second signal ends the run at once[/]")
                stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number.name)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                return await task
            if interrupted:
                raise InterruptedRunError(
                    "ended at once by a second signal: the drain is not complete"
                )
            # Nobody asked for it: the client library's own tasks were cancelled under us.
            raise ClusterError(
                "the run broke off while it was waiting for a broker: what was logged until then "
                "is in the sequence logs, its end is missing"
            )
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    return uvloop.run(supervised())
