"""A Spark session for a command: an interrupt ends it, and no process remains."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.cli.interrupt import interrupt
from mirrortest.errors import MirrortestError
from mirrortest.reconcile import spark_session as reconcile_session
from mirrortest.reconcile.options import DEFAULT_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = structlog.get_logger()
_LONGEST = 200


@contextlib.contextmanager
def spark_session(master: str | None = None, driver_memory: str = DEFAULT_MEMORY) -> Iterator[Any]:
    """The reconciliation's session; SIGINT raises KeyboardInterrupt, a second one ends the process.

    Raises:
        MirrortestError: the session cannot start, or Spark failed.
    """
    text = ""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, interrupt)
    try:
        with reconcile_session.spark_session(master, driver_memory) as session:
            # PySpark has installed its own handler, which calls Java even during another call: that
            # ends in a traceback.
            signal.signal(signal.SIGINT, interrupt)
            try:
                yield session
            except Exception as error:
                if _is_spark_error(error):
                    # PySpark gets an error's text from Java: read it while Java still runs.
                    with contextlib.suppress(Exception):
                        text = _last_line(error)
                raise
    except Exception as error:
        if not _is_spark_error(error):
            raise
        _log.debug("Spark failed", exc_info=True)
        raise MirrortestError(
            "the logs could not be reconciled: Spark failed: "
            f"{text or _last_line(error)}; to see Spark's log, use --verbose "
            "(mirrortest --verbose reconcile ...)"
        ) from error
    finally:
        signal.signal(signal.SIGINT, before)


def _is_spark_error(error: Exception) -> bool:
    """Whether PySpark raised an error; PySpark is an extra, and is not imported here."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


def _last_line(error: Exception) -> str:
    """The last line of a worker's traceback, or of Java's error."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # Java has ended, as when Spark does not start
        return "the lines of its log above have the reason"
    lines = [line.strip() for line in text.splitlines()]
    # Java's own traces come after the message.
    found = [line for line in lines if line and not line.startswith(("at ", "...", "JVM stack"))]
    return (found or [type(error).__name__])[-1][:_LONGEST]
