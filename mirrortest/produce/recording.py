"""What became of batches: rows for the sequence log, and the numbers of the report.

Batches that follow each other in seq and offset become one row, which ends at each minute of
intended time, where the warm-up ends, and whenever the log is synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mirrortest.model.findings import Outcome
from mirrortest.produce.statistics import Gathered, Tally
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, exact
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from mirrortest.model.failure import Failure
    from mirrortest.produce.clock import Clock
    from mirrortest.produce.lane import Flight, Lane
    from mirrortest.produce.statistics import Part
    from mirrortest.seqlog.rows import Row

_MINUTE = 60_000_000_000

_Start: TypeAlias = tuple[Outcome, int, int, int, bool]
"""Outcome, seq and offset (-1: unknown) of a message, its minute, and whether it is steady."""


@dataclass
class TopicNumbers:
    """A topic's numbers: `warm` holds the warm-up, `steady` the rest.

    `value_size` is bytes of a record value where all have one size. `ack_latency` (from the actual
    send) and `schedule_lag` are of both, in ns, for the metrics.
    """

    lanes: int
    value_size: int
    wire_bytes: int = 0
    batches: int = 0
    ack_latency: Histogram = field(default_factory=Histogram)
    schedule_lag: Histogram = field(default_factory=Histogram)
    warm: Tally = field(init=False)
    steady: Tally = field(init=False)

    def __post_init__(self) -> None:
        """Let both tallies feed the histograms."""
        self.warm, self.steady = (
            Tally(
                from_sent=Gathered(also=self.ack_latency),
                schedule_lag=Gathered(also=self.schedule_lag),
            )
            for _ in range(2)
        )

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """Messages by outcome."""
        return {
            outcome: self.warm.outcomes[outcome] + self.steady.outcomes[outcome]
            for outcome in Outcome
        }

    @property
    def failures(self) -> Counter[Failure]:
        """Messages that were not acknowledged, by why."""
        return self.warm.failures + self.steady.failures

    def flush(self) -> None:
        """Bring the histograms up to date."""
        for tally in (self.warm, self.steady):
            for gathered in (tally.from_sent, tally.schedule_lag):
                gathered.flush()

    @property
    def whole(self) -> Tally:
        """The whole run."""
        total = Tally()
        total.merge(self.warm)
        total.merge(self.steady)
        return total


@dataclass(slots=True)
class _OpenRow:
    """A row that may still grow; times are the wall's."""

    outcome: Outcome
    seq_lo: int
    offset_lo: int
    minute: int
    steady: bool
    count: int
    intended: tuple[int, int]
    sent: tuple[int, int]
    ended: tuple[int, int]
    latencies: Part | None
    """Of acknowledged messages, from their intended times."""

    @property
    def next(self) -> _Start:
        """How messages start that this row can take in."""
        offset = self.offset_lo + self.count if self.offset_lo >= 0 else -1
        return (self.outcome, self.seq_lo + self.count, offset, self.minute, self.steady)


class LaneRecorder:
    """Takes in the ended batches of one lane.

    `append` takes rows, `append_arrays` columns, as a sequence log does; `each` says that the log
    has a row for each message. `warmup` is how many messages of the lane are the warm-up's.
    """

    def __init__(
        self,
        lane: Lane,
        numbers: TopicNumbers,
        *,
        warmup: int,
        clock: Clock,
        each: bool,
        append: Callable[[list[Row]], None],
        append_arrays: Callable[[Columns], None],
    ) -> None:
        self._lane = lane
        self._numbers = numbers
        self._warmup = warmup
        self._clock = clock
        self._each = each
        self._append = append
        self._append_arrays = append_arrays
        self._open: _OpenRow | None = None

    def ended(
        self,
        flight: Flight,
        outcome: Outcome,
        base_offset: int,
        ended: int,
        failure: Failure | None = None,
    ) -> None:
        """A batch has its outcome; `ended` is when, monotonic ns, `failure` why it has no ack."""
        self._numbers.wire_bytes += flight.wire_bytes
        self._numbers.batches += 1
        for lo, hi in self._pieces(flight):
            intended = flight.intended[lo:hi]
            first = intended.item(0)
            # Intended times never fall: where the ends are the same, all are.
            latency = ended - (first if first == intended.item(-1) else intended)
            steady = flight.index_lo + lo >= self._warmup
            tally = self._numbers.steady if steady else self._numbers.warm
            self._count(tally, flight, lo, intended, latency, outcome, ended)
            if failure is not None:
                tally.failures[failure] += hi - lo
            self._log(tally, flight, lo, intended, latency, outcome, base_offset, ended)

    def close_row(self) -> None:
        """Hand the open row to the log."""
        row, self._open = self._open, None
        if row is not None:
            self._append([self._row(row)])

    def _pieces(self, flight: Flight) -> Iterable[tuple[int, int]]:
        """Cut a batch where a minute of intended time begins, and where the warm-up ends."""
        intended, wall, count = flight.intended, flight.wall_offset_ns, flight.count
        warm = self._warmup - flight.index_lo
        cuts = {warm} if 0 < warm < count else set()
        # Intended times never fall: those in between are in the minute of both ends.
        if (intended.item(0) + wall) // _MINUTE != (intended.item(-1) + wall) // _MINUTE:
            cuts.update((np.flatnonzero(np.diff((intended + wall) // _MINUTE)) + 1).tolist())
        return pairwise((0, *sorted(cuts), count)) if cuts else ((0, count),)

    def _count(
        self,
        tally: Tally,
        flight: Flight,
        lo: int,
        intended: NDArray[np.int64],
        latency: NDArray[np.int64] | int,
        outcome: Outcome,
        ended: int,
    ) -> None:
        """Count messages; their latencies from the intended times are counted with their row."""
        count, from_sent = len(intended), ended - flight.sent
        tally.outcomes[outcome] += count
        tally.span(intended.item(0), ended)
        tally.schedule_lag.add(latency - from_sent, count)
        if outcome is not Outcome.ACKED:
            return
        sizes = flight.sizes
        if sizes is None:
            size = count * self._numbers.value_size
        else:
            size = int(sizes[lo : lo + count].sum())
        tally.value_bytes += size
        tally.from_sent.add(from_sent, count)

    def _log(
        self,
        tally: Tally,
        flight: Flight,
        lo: int,
        intended: NDArray[np.int64],
        latency: NDArray[np.int64] | int,
        outcome: Outcome,
        base_offset: int,
        ended: int,
    ) -> None:
        wall, count = flight.wall_offset_ns, len(intended)
        sent_wall, ended_wall = flight.sent + wall, self._clock.wall(ended)
        first, last = intended.item(0) + wall, intended.item(-1) + wall
        offset = base_offset + lo if base_offset >= 0 else -1
        steady = tally is self._numbers.steady
        start = (outcome, flight.seq_lo + lo, offset, first // _MINUTE, steady)
        row = self._open
        if row is not None and row.next == start:
            row.count += count
            row.intended = (row.intended[0], last)
            row.sent = (row.sent[0], sent_wall)
            row.ended = (row.ended[0], ended_wall)
            if row.latencies is not None:
                row.latencies.add(latency, count)
            return
        latencies = None
        if outcome is Outcome.ACKED:
            latencies = tally.from_intended.begin()
            # Before the log is asked to take anything: what it refuses is counted all the same.
            latencies.add(latency, count)
        times = (first, last), (sent_wall, sent_wall), (ended_wall, ended_wall)
        piece = _OpenRow(*start, count, *times, latencies)
        if self._each:
            self._append_arrays(exact(self._row(piece), intended=intended + wall))
            return
        self.close_row()
        self._open = piece

    def _row(self, row: _OpenRow) -> Row:
        acknowledged = latencies = None
        if row.latencies is not None:
            acknowledged, latencies = row.ended, row.latencies.close()
        return rows.sent(
            self._lane.stream,
            row.seq_lo,
            row.seq_lo + row.count,
            partition=self._lane.partition,
            outcome=row.outcome,
            offset_lo=row.offset_lo,
            intended=row.intended,
            sent=row.sent,
            acknowledged=acknowledged,
            latencies=latencies,
        )
