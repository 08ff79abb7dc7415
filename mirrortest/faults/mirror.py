"""The faulty mirror at work: from the source through the courses to the destination.

One life after another: where a cluster goes away, a life ends, and the next one goes on from the
truth as it was last saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.faults.replicator import Replicator
from mirrortest.faults.report import FaultyMirrorReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.faults.options import FaultyMirrorOptions

_log = structlog.get_logger()

_PAUSE_SECONDS = 1.0


async def run(
    options: FaultyMirrorOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[object], None] = lambda _: None,
) -> FaultyMirrorReport:
    """Mirror until `stop` is set, or nothing has come for the idle timeout.

    Raises:
        ClusterError: a cluster cannot be reached at the start.
        UsageError: the truth's directory is another specification's, or cannot be written.
        RefusedError: the destination refuses a record.
    """
    started_ns = time.monotonic_ns()
    worked = False
    told = ""
    while True:
        life = Replicator(options, on_progress)
        try:
            await life.run(stop)
            break
        except ClusterError as error:
            worked = worked or life.worked
            if not worked:
                raise
            if str(error) != told:  # once, however long it lasts
                told = str(error)
                _log.warning("mirroring broke off and goes on from the truth", why=told)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _PAUSE_SECONDS)
        if stop.is_set():
            raise MirrortestError(
                "stopped while a cluster was away: the truth is as it was last saved; start again "
                "to complete it"
            )
    return FaultyMirrorReport.of(options, time.monotonic_ns() - started_ns)
