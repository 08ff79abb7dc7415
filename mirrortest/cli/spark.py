"""Spark, as verbs use it: an interrupt ends the work, and nothing of it stays."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from mirrortest.cli.start import end_at_once
from mirrortest.reconcile import session as reconcile_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextlib.contextmanager
def spark_session(
    master: str | None = None, driver_memory: str = reconcile_session.DEFAULT_MEMORY
) -> Iterator[Any]:
    """The reconciliation's session; SIGINT is a KeyboardInterrupt in it, a second one ends at once.

    Raises MirrortestError where it cannot start.
    """
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with reconcile_session.spark_session(master, driver_memory) as session:
            # By now PySpark has a handler of its own. It asks something of Java, be it amid the
            # answer to another question, and what comes of that is a traceback.
            signal.signal(signal.SIGINT, _interrupt)
            yield session
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, end_at_once)
    raise KeyboardInterrupt
