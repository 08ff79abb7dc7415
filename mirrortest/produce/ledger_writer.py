"""Writes reservations and outcomes in rounds: to the sequence log first, then to the ledger.

Everything else relies on this order. Numbers are in the sequence log and in the ledger before one
of them is sent. An outcome is in the sequence log before it is in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirrortest.errors import ClusterError
from mirrortest.host.waiting import before_stop
from mirrortest.seqlog import rows
from mirrortest.verify.ledger_parts import LaneParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrortest.produce.clock import Clock
    from mirrortest.produce.lane import Lane
    from mirrortest.produce.ledger_view import LedgerView
    from mirrortest.produce.recording import LaneRecorder
    from mirrortest.seqlog.rows import Row
    from mirrortest.verify.ledger_record import Registration

ROUND_SECONDS = 0.5
PUBLISH_NS = 1_000_000_000
"""How often outcomes are written to the ledger."""
SIGN_OF_LIFE_NS = 20_000_000_000
"""A running producer writes at least this often, so that one that pauses does not seem dead."""


class Log(Protocol):
    """The interface of a sequence log (`seqlog.writer.SequenceLog`)."""

    @property
    def durable_rows(self) -> int:
        """Rows made durable so far."""

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows."""

    async def sync(self) -> None:
        """Make all rows appended so far durable. Raises SequenceLogError."""


@dataclass(eq=False)
class RecordedLane:
    """A lane and its recorder."""

    lane: Lane
    recorder: LaneRecorder


class LedgerWriter:
    """Writes what one incarnation reserves and how its sends end; `run` must run as a task."""

    def __init__(
        self,
        log: Log,
        view: LedgerView,
        registration: Registration,
        recorded: Sequence[RecordedLane],
        clock: Clock,
    ) -> None:
        self._log = log
        self._view = view
        self.registration = registration
        """The incarnation's registration."""
        self._recorders = [each.recorder for each in recorded]
        self._lanes = [each.lane for each in recorded]
        self._parts = {lane.stream: LaneParts() for lane in self._lanes}
        self._clock = clock
        self._published_ns = clock.now()
        self.written_ns = clock.now()
        """When the ledger was last written, monotonic ns."""
        self._urgent = asyncio.Event()

    @property
    def durable_rows(self) -> int:
        """How many rows of the log are durable, of all incarnations."""
        return self._log.durable_rows

    @property
    def tries(self) -> int:
        """How often a ledger record's write was tried."""
        return self._view.tries

    def starved(self) -> None:
        """Start the next round at once: a lane has too few reserved numbers."""
        self._urgent.set()

    async def run(self) -> None:
        """Run a round every half second, and at once if a lane lacks numbers; for ever.

        Raises:
            SequenceLogError: the log cannot be written.
            FencedError: another process has taken this incarnation's place.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._urgent.wait()
            self._urgent.clear()
            await self.round()

    async def round(self) -> None:
        """Reserve the requested blocks, and publish outcomes if it is time; see `run`."""
        await self._view.restore()
        now = self._clock.now()
        requesting = [lane for lane in self._lanes if lane.reservation.consider(lane.next_seq, now)]
        due = now - self._published_ns >= PUBLISH_NS
        publishing = [lane for lane in self._lanes if lane.dirty] if due else []
        if due:
            self._published_ns = now
            if not publishing and now - self.written_ns >= SIGN_OF_LIFE_NS:
                publishing = self._lanes[:1]
        marks = [(lane, lane.reservation.requested) for lane in requesting]
        await self._write({*requesting, *publishing}, requesting)
        self._view.check_fence(self.registration)
        for lane, mark in marks:
            lane.reservation.grant(mark)
            lane.notify()
        if due:
            await self._view.refresh(now)

    async def finish(self, *, ended: bool) -> bool:
        """Make all outcomes durable and publish them; with end marks if the lanes are `ended`.

        After its end mark no more messages come in a lane. Once all lanes have end marks, and no
        registration announces others, the run is over for consumers. Returns True, always.

        Raises:
            FencedError: another process has taken this incarnation's place, so consumers may have
                ended before its last messages. The outcomes are published all the same.
        """
        await self._view.restore(others=ended)
        if ended:
            for lane in self._lanes:
                lane.close()
                self._log.append([rows.end(lane.stream, lane.next_seq, partition=lane.partition)])
        await self._write([lane for lane in self._lanes if lane.dirty], ())
        await self._view.restore(others=ended)
        if ended:
            self._view.check_fence(self.registration)
        return True

    def close_rows(self) -> None:
        """Hand all open rows to the log. Raises SequenceLogError."""
        for recorder in self._recorders:
            recorder.close_row()

    async def _write(self, lanes: Iterable[Lane], reserving: Iterable[Lane]) -> None:
        """Write the log, then the ledger; the ledger's records are built before the log's sync."""
        self.close_rows()
        self._log.append(
            rows.reserved(
                lane.stream,
                lane.reservation.granted,
                lane.reservation.requested,
                partition=lane.partition,
            )
            for lane in reserving
        )
        written = list(lanes)
        records = [
            record for lane in written for record in self._parts[lane.stream].records(lane.record())
        ]
        for lane in written:
            lane.dirty = False
        try:
            await self._log.sync()
            if records:
                await self._view.write(*records)
                self.written_ns = self._clock.now()
        except BaseException:
            for lane in written:
                lane.dirty = True
                self._parts[lane.stream].forget()
            raise


async def write_end_marks(
    ledger_writers: Sequence[LedgerWriter], stop: asyncio.Event, *, grace_seconds: float
) -> None:
    """Write outcomes and end marks to the ledger; only a stop sets a deadline.

    Raises:
        ClusterError: they could not be written within `grace_seconds` after `stop`.
    """
    for each in ledger_writers:
        if not await before_stop(each.finish(ended=True), stop, grace_seconds=grace_seconds):
            raise ClusterError(
                "could not write the end marks to the ledger: consumers will not see this "
                "producer's end; its sequence log is complete"
            )
