"""What every verb shares: consoles, logging, signals, and errors turned into exit codes.

Results go to stdout, everything else to stderr. Rich honours NO_COLOR, and prints no colours where
the stream is not a terminal. Texts of others are escaped before they are shown: `_Console` escapes
control characters, the log processors and the formatter also line ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import json
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import structlog
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.segment import Segment

from mirrortest.cli.interrupt import end_at_once
from mirrortest.config.visible import visible, visible_lines
from mirrortest.errors import ClusterError, InterruptedRunError, MirrortestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rich.console import ConsoleOptions, RenderableType
    from structlog.typing import EventDict

_UNBOUNDED = 160
"""Columns of a file or a pipe, which have no width of their own: no table needs more."""


def _width() -> int | None:
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNBOUNDED


class _Console(Console):
    """Rich's, with what cannot be printed escaped in every text that it shows."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See rich."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else visible_lines(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)


out = _Console(width=_width(), soft_wrap=True, highlight=False)
err = _Console(stderr=True, soft_wrap=True, highlight=False)

T = TypeVar("T")

_ABORT_SECONDS = 3.0
_INTERRUPTED = "a second signal ended the run at once: the drain is not complete"


class _CurrentStderr:
    """Whatever stderr is at the moment.

    A live display puts itself in its place, and prints what is written above itself. A stream that
    was taken before would write into the display.
    """

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_LOGS = _CurrentStderr()


def configure_logging(*, verbose: bool = False) -> None:
    """Send structlog's and the libraries' logs to stderr; the libraries' only from WARNING on."""
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _visible_entry,
            structlog.dev.ConsoleRenderer(
                colors=err.color_system is not None,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _LOGS)),
        cache_logger_on_first_use=False,
    )
    # aiokafka logs an error for each request that a dead broker does not answer; the applications
    # report an outage themselves.
    logging.basicConfig(
        stream=cast("TextIO", _LOGS),
        level=logging.DEBUG if verbose else logging.WARNING,
    )
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if not verbose:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_no_interrupt)


def _visible_entry(_logger: object, _method: str, entry: EventDict) -> EventDict:
    """A log entry in one line, but for a traceback."""
    return {
        name: (_trace if name == "exception" else visible)(value)
        if isinstance(value, str)
        else value  # is shown by its repr, which is printable
        for name, value in entry.items()
    }


def _trace(text: str) -> str:
    """A traceback none of whose lines looks like an entry's first."""
    return textwrap.indent(visible_lines(text), "    ")


class _Formatter(logging.Formatter):
    """The same for what libraries log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # its name there
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # its name there
        return _trace(super().formatException(ei))


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether a record is more than the trace of a user's interrupt in a library's call."""
    error = None if record.exc_info is None else record.exc_info[1]
    while error is not None:
        # A signal's handler that asks what was being asked when the signal came.
        reentrant = isinstance(error, RuntimeError) and str(error).startswith("reentrant call")
        if reentrant or isinstance(error, KeyboardInterrupt):
            return False
        error = error.__cause__ or error.__context__
    return True


_EXTRAS = {"lab": "jgo", "report": "jinja2", "spark": "pyspark"}
"""Extra of the package -> a module that comes with it."""


def worker_logging() -> Callable[[], None]:
    """What sets up the logging of a worker's process as it is here; picklable."""
    return partial(configure_logging, verbose=logging.getLogger().level <= logging.DEBUG)


def require(*extras: str) -> None:
    """Fail early, and not minutes later: MirrortestError names what to install.

    `extras` are those of the package that a verb will need.
    """
    missing = [extra for extra in extras if importlib.util.find_spec(_EXTRAS[extra]) is None]
    if missing:
        raise MirrortestError(
            f"an extra is not installed: pip install 'mirrortest[{','.join(missing)}]'"
        )


def warn(lines: Iterable[str]) -> None:
    """Print warnings; they may contain the user's own words."""
    for line in lines:
        err.print(f"[yellow]warning:[/] {escape(visible(line))}")


def show(
    summary: Mapping[str, object], view: RenderableType, *, as_json: bool, report: Path | None
) -> None:
    """Print a result, for people or as JSON; and write its summary to the file of `--report`.

    Raises:
        MirrortestError: the file cannot be written.
    """
    if as_json:
        out.print(json.dumps(summary), markup=False)
    else:
        out.print(view)
    if report is not None:
        write_report(report, json.dumps(summary, indent=2))


def write_report(path: Path, text: str) -> None:
    """Write a summary to the file of `--report`; MirrortestError where that cannot be."""
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise MirrortestError(f"--report {path}: {error.strerror}") from error


def run_application(main: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run an application until it returns.

    The first SIGINT or SIGTERM sets the event it was given: it drains and returns. The second
    cancels it, and ends the process if that takes longer than a moment; so does a third.

    Raises:
        InterruptedRunError: a second signal ended the run at once.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    # Imported modules are never garbage: do not search them again and again.
    gc.freeze()

    async def supervised() -> T:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main(stop))
        ended_by: signal.Signals | None = None

        def on_signal(number: signal.Signals) -> None:
            nonlocal ended_by
            if not stop.is_set():
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
            err.print(f"[bold red]error:[/] {_INTERRUPTED}")
            end_at_once(number)

        # They stay until the loop is closed, so that they also end the clean-up after the run.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        with contextlib.suppress(asyncio.CancelledError):
            return await task
        if ended_by is not None:
            raise InterruptedRunError(_INTERRUPTED, ended_by)
        # No signal did it: the client library cancelled its own tasks.
        raise ClusterError(
            "the run stopped while it was waiting for a broker: the sequence logs are incomplete, "
            "they end here"
        )

    try:
        return uvloop.run(supervised())
    finally:
        signal.signal(signal.SIGINT, interrupt)
