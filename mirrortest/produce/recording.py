"""Records how batches ended: rows for the sequence log, and numbers for the report.

Batches that continue each other in seq and offset become one row. A row ends at each minute of
intended time, at the end of the warm-up, and whenever the log is synced or an interval ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mirrortest.model.findings import Outcome
from mirrortest.produce.statistics import BufferedHistogram, Tally, merged
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, exact
from mirrortest.timing.histogram import Histogram
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from mirrortest.model.failure import Failure
    from mirrortest.produce.clock import Clock
    from mirrortest.produce.lane import Flight, Lane
    from mirrortest.produce.statistics import Part
    from mirrortest.seqlog.rows import Row

_Start: TypeAlias = tuple[Outcome, int, int, int, bool]
"""Outcome, seq and offset (-1: unknown) of a message, its minute, and whether it is steady."""


@dataclass
class TopicNumbers:
    """A topic's numbers: `warm` counts the warm-up, `steady` the rest.

    `value_size` is bytes of a record value if all have one size. `ack_latency` (from the actual
    send) and `schedule_lag` cover both tallies, in ns, for the metrics.
    """

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
                from_sent=BufferedHistogram(also=self.ack_latency),
                schedule_lag=BufferedHistogram(also=self.schedule_lag),
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
    def value_bytes(self) -> int:
        """Bytes of acknowledged values."""
        return self.warm.value_bytes + self.steady.value_bytes

    @property
    def failures(self) -> Counter[Failure]:
        """Messages that were not acknowledged, by category."""
        return self.warm.failures + self.steady.failures

    def flush(self) -> None:
        """Bring the metrics' histograms up to date."""
        for tally in (self.warm, self.steady):
            for gathered in (tally.from_sent, tally.schedule_lag):
                gathered.flush()

    @property
    def overall(self) -> Tally:
        """The run, warm-up included."""
        return merged((self.warm, self.steady))


@dataclass(slots=True)
class _OpenRow:
    """A row that may still grow; times are wall time."""

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
    """Latencies of acknowledged messages, from their intended times."""

    @property
    def continuation(self) -> _Start:
        """The start of the messages that would continue this row."""
        offset = self.offset_lo + self.count if self.offset_lo >= 0 else -1
        return (self.outcome, self.seq_lo + self.count, offset, self.minute, self.steady)


class LaneRecorder:
    """Records the ended batches of one lane.

    `append` takes rows, `append_arrays` columns (see `SequenceLog`). With `per_message`, the log
    gets a row for each message. The lane's first `warmup` messages are its warm-up.
    """

    def __init__(
        self,
        lane: Lane,
        numbers: TopicNumbers,
        *,
        warmup: int,
        clock: Clock,
        per_message: bool,
        append: Callable[[list[Row]], None],
        append_arrays: Callable[[Columns], None],
    ) -> None:
        self._lane = lane
        self._numbers = numbers
        self._warmup = warmup
        self._clock = clock
        self._per_message = per_message
        self._append = append
        self._append_arrays = append_arrays
        self._open: _OpenRow | None = None

    def record_outcome(
        self,
        flight: Flight,
        outcome: Outcome,
        base_offset: int,
        ended: int,
        failure: Failure | None = None,
    ) -> None:
        """Record a batch's outcome at `ended` (monotonic ns); `failure` is why it has no ack."""
        self._numbers.wire_bytes += flight.wire_bytes
        self._numbers.batches += 1
        for lo, hi in self._pieces(flight):
            intended = flight.intended[lo:hi]
            first = intended.item(0)
            # Intended times never decrease: if the first and the last are equal, all are.
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
        # Intended times never decrease: if both ends are in one minute, all are.
        if (intended.item(0) + wall) // MINUTE_NS != (intended.item(-1) + wall) // MINUTE_NS:
            cuts.update((np.flatnonzero(np.diff((intended + wall) // MINUTE_NS)) + 1).tolist())
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
        start = (outcome, flight.seq_lo + lo, offset, first // MINUTE_NS, steady)
        row = self._open
        if row is not None and row.continuation == start:
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
            # Before the log gets anything: messages that it refuses are counted all the same.
            latencies.add(latency, count)
        times = (first, last), (sent_wall, sent_wall), (ended_wall, ended_wall)
        piece = _OpenRow(*start, count, *times, latencies)
        if self._per_message:
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
