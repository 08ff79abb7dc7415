"""What became of batches: rows for the sequence log, and the numbers of the report.

Batches that follow each other in seq and offset become one row, which ends at each minute of
intended time, where the warm-up ends, and whenever the log is synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.check.verdict import Outcome
from mirrortest.produce.statistics import Gathered, Tally
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, exact
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from mirrortest.produce.clock import Clock
    from mirrortest.produce.lane import Flight, Lane
    from mirrortest.seqlog.rows import Row

_MINUTE = 60_000_000_000


@dataclass
class Window:
    """What happened since the last progress line."""

    acked: int = 0
    value_bytes: int = 0
    latency_sum: int = 0
    latency_max: int = 0

    def clear(self) -> None:
        """Begin anew."""
        self.acked = self.value_bytes = self.latency_sum = self.latency_max = 0


@dataclass
class TopicNumbers:
    """A topic's numbers: `warm` holds the warm-up, `steady` the rest.

    `ack_latency` (from the actual send) and `schedule_lag` are of both, in ns, for the metrics.
    """

    warmup: int
    lanes: int
    value_size: int
    wire_bytes: int = 0
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
class _Open:
    """A row that may still grow; times are the wall's."""

    outcome: Outcome
    seq_lo: int
    seq_hi: int
    offset_lo: int
    minute: int
    steady: bool
    intended: tuple[int, int]
    sent: tuple[int, int]
    ended: tuple[int, int]
    from_intended: Gathered = field(default_factory=Gathered)


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
        window: Window,
        each: bool,
        append: Callable[[list[Row]], None],
        append_arrays: Callable[[Columns], None],
    ) -> None:
        self._lane = lane
        self._numbers = numbers
        self._warmup = warmup
        self._clock = clock
        self._window = window
        self._each = each
        self._append = append
        self._append_arrays = append_arrays
        self._open: _Open | None = None

    def ended(self, flight: Flight, outcome: Outcome, base_offset: int, ended: int) -> None:
        """A batch has its outcome; `ended` is when, monotonic ns."""
        self._numbers.wire_bytes += flight.wire_bytes
        for lo, hi in self._pieces(flight):
            intended = flight.intended[lo:hi]
            latency = ended - intended
            self._count(flight, lo, intended, latency, outcome, ended)
            self._log(flight, lo, intended, latency, outcome, base_offset, ended)

    def close_row(self) -> None:
        """Hand the open row to the log."""
        row, self._open = self._open, None
        if row is not None:
            self._append([self._row(row)])

    def _pieces(self, flight: Flight) -> Iterator[tuple[int, int]]:
        """Cut a batch where a minute of intended time begins, and where the warm-up ends."""
        cuts = set()
        minutes = (flight.intended + flight.wall_offset_ns) // _MINUTE
        if minutes[0] != minutes[-1]:
            cuts.update((np.flatnonzero(np.diff(minutes)) + 1).tolist())
        warm = self._warmup - flight.index_lo
        if 0 < warm < flight.count:
            cuts.add(warm)
        lo = 0
        for cut in (*sorted(cuts), flight.count):
            yield lo, cut
            lo = cut

    def _count(
        self,
        flight: Flight,
        lo: int,
        intended: NDArray[np.int64],
        latency: NDArray[np.int64],
        outcome: Outcome,
        ended: int,
    ) -> None:
        count = len(intended)
        steady = flight.index_lo + lo >= self._warmup
        tally = self._numbers.steady if steady else self._numbers.warm
        tally.outcomes[outcome] += count
        tally.span(int(intended[0]), ended)
        tally.schedule_lag.add(flight.sent - intended)
        if outcome is not Outcome.ACKED:
            return
        size = count * self._numbers.value_size
        tally.value_bytes += size
        tally.from_intended.add(latency)
        tally.from_sent.add(np.full(count, ended - flight.sent, dtype=np.int64))
        window = self._window
        window.acked += count
        window.value_bytes += size
        window.latency_sum += int(latency.sum())
        window.latency_max = max(window.latency_max, int(latency[0]))

    def _log(
        self,
        flight: Flight,
        lo: int,
        intended: NDArray[np.int64],
        latency: NDArray[np.int64],
        outcome: Outcome,
        base_offset: int,
        ended: int,
    ) -> None:
        wall = flight.wall_offset_ns
        sent_wall, ended_wall = flight.sent + wall, self._clock.wall(ended)
        first = int(intended[0]) + wall
        piece = _Open(
            outcome=outcome,
            seq_lo=flight.seq_lo + lo,
            seq_hi=flight.seq_lo + lo + len(intended),
            offset_lo=base_offset + lo if base_offset >= 0 else -1,
            minute=first // _MINUTE,
            steady=flight.index_lo + lo >= self._warmup,
            intended=(first, int(intended[-1]) + wall),
            sent=(sent_wall, sent_wall),
            ended=(ended_wall, ended_wall),
        )
        if self._each:
            self._add_latency(piece, latency)
            self._append_arrays(exact(self._row(piece), intended=intended + wall))
            return
        row = self._open
        if row is not None and _follows(row, piece):
            row.seq_hi = piece.seq_hi
            row.intended = (row.intended[0], piece.intended[1])
            row.sent = (row.sent[0], sent_wall)
            row.ended = (row.ended[0], ended_wall)
            self._add_latency(row, latency)
            return
        self.close_row()
        self._add_latency(piece, latency)
        self._open = piece

    @staticmethod
    def _add_latency(row: _Open, latency: NDArray[np.int64]) -> None:
        if row.outcome is Outcome.ACKED:
            row.from_intended.add(latency)

    def _row(self, row: _Open) -> Row:
        acked = row.outcome is Outcome.ACKED
        latencies = None
        if acked:
            histogram = row.from_intended.histogram
            latencies = rows.Latencies(histogram.negative, *histogram.sparse())
        return rows.sent(
            self._lane.stream,
            row.seq_lo,
            row.seq_hi,
            partition=self._lane.partition,
            outcome=row.outcome,
            offset_lo=row.offset_lo,
            intended=row.intended,
            sent=row.sent,
            acknowledged=row.ended if acked else None,
            latencies=latencies,
        )


def _follows(row: _Open, piece: _Open) -> bool:
    known = row.offset_lo >= 0
    offset = row.offset_lo + row.seq_hi - row.seq_lo if known else -1
    return (row.outcome, row.seq_hi, offset, row.minute, row.steady) == (
        piece.outcome,
        piece.seq_lo,
        piece.offset_lo,
        piece.minute,
        piece.steady,
    )
