"""Logs of structlog and of the libraries, on stderr.

Control characters and line ends in logged texts are escaped.
"""

from __future__ import annotations

import logging
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

import structlog

from mirrortest.cli.console import err
from mirrortest.cli.streams import outlive_readers
from mirrortest.config.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict


class _CurrentStderr:
    """The stream that stderr is at the time of a write.

    A live display replaces stderr, and prints what is written there above itself. A reference to
    the earlier stream would write into the display.
    """

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_LOGS = _CurrentStderr()
_SHOW_SECRETS = ("aiokafka.conn", "py4j")
"""Loggers that dump entire requests at DEBUG, with passwords, tokens and Spark's settings."""


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
    if verbose:
        for name in _SHOW_SECRETS:
            logging.getLogger(name).setLevel(logging.INFO)
    else:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_not_interrupt)


def _visible_entry(_logger: object, _method: str, entry: EventDict) -> EventDict:
    """Escape a log entry into one line; only a traceback keeps its lines."""
    return {
        name: (_trace if name == "exception" else visible)(value)
        if isinstance(value, str)
        else value  # is shown by its repr, which is printable
        for name, value in entry.items()
    }


def _trace(text: str) -> str:
    """Indent a traceback: none of its lines looks like the start of an entry."""
    return textwrap.indent(visible_lines(text), "    ")


class _Formatter(logging.Formatter):
    """The same escaping for what libraries log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        return _trace(super().formatException(ei))


def _is_not_interrupt(record: logging.LogRecord) -> bool:
    """Whether a record is about something other than the user's interrupt of a library's call."""
    error = None if record.exc_info is None else record.exc_info[1]
    while error is not None:
        # The signal's handler used the stream that the interrupted call was using.
        reentrant = isinstance(error, RuntimeError) and str(error).startswith("reentrant call")
        if reentrant or isinstance(error, KeyboardInterrupt):
            return False
        error = error.__cause__ or error.__context__
    return True


def worker_logging() -> Callable[[], None]:
    """A picklable function that sets up logging in a worker's process as in this one."""
    return partial(_configure_worker, verbose=logging.getLogger().level <= logging.DEBUG)


def _configure_worker(*, verbose: bool) -> None:
    outlive_readers()
    configure_logging(verbose=verbose)
