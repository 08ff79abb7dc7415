"""What happened when: counts and latencies by topic and slot of intended time.

This timeline comes from the result's tables by minute; in a long run, a slot is several minutes.
`log_timeline` has the timeline of a short run by the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.config.units import SECOND_NS
from mirrortest.report.html.latencies import Latencies
from mirrortest.seqlog.batches import filled, positions
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray


MOST_SLOTS = 180
_STEPS = tuple(
    SECOND_NS * seconds
    for seconds in (
        *(1, 2, 5, 10, 15, 30),
        *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    )
)


Steps: TypeAlias = "NDArray[np.float64]"
"""A figure as an array [slot], or [topic or series, slot]."""


_Slot = TypeVar("_Slot", int, "NDArray[np.int64]")


class Cuts(NamedTuple):
    """Intervals cut at the slots' borders: each piece's row, slot, length and share of the row."""

    row: NDArray[np.int64]
    slot: NDArray[np.int64]
    seconds: Steps
    share: Steps


@dataclass(frozen=True)
class Slots:
    """`count` slots of time, each `step_ns` long, from `start_ns` (ns since the epoch)."""

    start_ns: int
    step_ns: int
    count: int

    @classmethod
    def over_intervals(
        cls, times: Collection[tuple[NDArray[np.int64], NDArray[np.int64]]], length_ns: float
    ) -> Slots:
        """Slots over all intervals, whose length (`length_ns`) is a little more than asked for."""
        first = min(int(begin.min()) for begin, _ in times)
        last = max(int(np.maximum(end - 1, begin).max()) for begin, end in times)
        return cls.over(first, last, int(length_ns / 1.1))

    @classmethod
    def over(cls, first_ns: int, last_ns: int, finest_ns: int) -> Slots:
        """At most `MOST_SLOTS` round slots over [first, last], none finer than `finest_ns`."""
        day = _STEPS[-1] * 2
        steps = [step for step in _STEPS if step >= finest_ns]
        for step in (*steps, *(day << power for power in range(40))):
            start = first_ns // step * step
            count = (last_ns - start) // step + 1
            if count <= MOST_SLOTS:
                return cls(start, step, count)
        raise ValueError("no time is that long")

    def of(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of each time; the times must be within the slots."""
        slots: NDArray[np.int64] = (times_ns - self.start_ns) // self.step_ns
        return slots

    def begin(self, slot: _Slot) -> _Slot:
        """The start of a slot, or of each slot, ns since the epoch."""
        return self.start_ns + slot * self.step_ns

    def last(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last slot of each interval; one that ends at a slot's border has no part after it."""
        return self.of(np.maximum(end - 1, begin))

    def cuts(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Cuts:
        """Cut intervals at the slots' borders; one of length 0 is in one slot, with share 1."""
        first, last = self.of(begin), self.last(begin, end)
        count = last - first + 1
        row, nth = positions(count)
        slot = first[row] + nth
        left = self.begin(slot)
        overlap = np.minimum(end[row], left + self.step_ns) - np.maximum(begin[row], left)
        share = np.where(count[row] == 1, 1.0, overlap / np.maximum(end - begin, 1)[row])
        return Cuts(row, slot, overlap / SECOND_NS, share)


@dataclass(frozen=True)
class Timeline:
    """Counts of messages by name, each an array [topic, slot], and latencies.

    `unplaced` are the counts of messages whose intended time is unknown, by name. `latencies` is
    None if there is no table of them. `cause_before` has, by name and topic's number, the time (ns)
    before which the cause of the first such message must have come: the arrival of the first one
    whose row shows the finding or, without one, of the first such message or a later one of its
    stream; if none arrived, its intended time. It is empty if only minutes are known.
    """

    slots: Slots
    topics: tuple[str, ...]
    counts: Mapping[str, NDArray[np.int64]]
    unplaced: Mapping[str, int]
    latencies: Latencies | None
    from_logs: bool = False
    cause_before: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def drawn_latencies(self) -> Latencies | None:
        """The latencies if there are some to draw; a logarithmic scale has none below zero."""
        return self.latencies if self.latencies and self.latencies.bucket.size else None

    def total(self, name: str) -> NDArray[np.int64]:
        """A count by slot, over all topics."""
        counts = self.counts.get(name)
        if counts is None:
            return np.zeros(self.slots.count, np.int64)
        summed: NDArray[np.int64] = counts.sum(axis=0)
        return summed


def from_minutes(by_minute: pa.Table | None, latency: pa.Table | None) -> Timeline | None:
    """Read the tables `by_minute` and `latency`; None if no message has an intended time."""
    minutes, numbers = _placed(by_minute)
    histograms, _ = _placed(latency)
    times = [_nanoseconds(table) for table in (minutes, histograms) if table is not None]
    all_times = np.concatenate(times) if times else np.empty(0, np.int64)
    if not all_times.size:
        return None
    slots = Slots.over(int(all_times.min()), int(all_times.max()), MINUTE_NS)
    tables = [table for table in (minutes, histograms) if table is not None]
    topics = tuple(sorted({topic for table in tables for topic in table["topic"].to_pylist()}))
    counts: dict[str, NDArray[np.int64]] = {}
    if minutes is not None:
        row = topic_numbers(minutes["topic"], topics)
        column = slots.of(_nanoseconds(minutes))
        for name in _counted(minutes):
            values = minutes[name].fill_null(0).to_numpy()
            counts[name] = np.zeros((len(topics), slots.count), np.int64)
            np.add.at(counts[name], (row, column), values)
    latencies = None
    if histograms is not None:
        latencies = Latencies.of_rows(
            topic_numbers(histograms["topic"], topics),
            slots.of(_nanoseconds(histograms)),
            histograms,
            shape=(len(topics), slots.count),
        )
    return Timeline(slots, topics, counts, numbers, latencies)


def topic_numbers(column: pa.ChunkedArray, topics: Sequence[str]) -> NDArray[np.int64]:
    """Each row's topic as an index into `topics`; -1 if it is not among them."""
    places = pc.index_in(column, pa.array(topics, pa.string()))
    return filled(places, -1).astype(np.int64)


def times_of(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The starts and ends of intervals, ns since the epoch; no end is before its start."""
    begin: NDArray[np.int64] = rows["started_ns"].to_numpy()
    # A wall clock may have been set back.
    return begin, np.maximum(rows["ended_ns"].to_numpy(), begin)


def _placed(table: pa.Table | None) -> tuple[pa.Table | None, dict[str, int]]:
    """The rows that have a minute, and the sums of those without."""
    if table is None:
        return None, {}
    without = table.filter(pc.is_null(table["minute"]))
    sums = {name: int(pc.sum(without[name]).as_py() or 0) for name in _counted(table)}
    placed = table.filter(pc.is_valid(table["minute"]))
    return placed if placed.num_rows else None, {name: n for name, n in sums.items() if n}


def _counted(table: pa.Table) -> list[str]:
    """The columns that count messages; the others are latencies."""
    return [
        field.name
        for field in table.schema
        if field.type == pa.int64() and not field.name.endswith("_ns")
    ]


def _nanoseconds(table: pa.Table) -> NDArray[np.int64]:
    at = table["minute"].cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    values: NDArray[np.int64] = at.to_numpy()
    return values
