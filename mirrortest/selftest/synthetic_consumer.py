"""A consumer's log: what `mirrortest consume` would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirrortest.model.findings import Finding, Outcome
from mirrortest.selftest.synthetic_columns import (
    MILLISECOND,
    by_minute,
    exploded,
    latencies,
    producers,
    topics,
)
from mirrortest.selftest.synthetic_mirror import Anomalies, Copies, Mirror
from mirrortest.selftest.synthetic_run import SECOND
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, Detail
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_run import Timeline

    Longs = NDArray[np.int64]

_ARRIVED = 4
"""The random stream of arrivals; each part of a run has one of its own."""
_IDENTITY = "0"
"""The topics are their first incarnations."""


class Consuming:
    """The log of one consumer, who has every n-th partition."""

    def __init__(self, timeline: Timeline, consumer: int) -> None:
        self._timeline = timeline
        self._options = timeline.options
        mine = np.arange(timeline.partitions) % self._options.consumers == consumer
        self._mine = mine
        self._partitions = np.flatnonzero(mine)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        mirror = Mirror(self._timeline)
        for chunk in self._timeline.chunks():
            before = mirror.ends.copy()
            copies, anomalies = mirror.copy(chunk)
            yield from self._seen(chunk.number, copies)
            yield from self._read(before, mirror.ends)
            for each in anomalies:
                if each.finding in {Finding.LOST, Finding.LATE}:
                    yield from self._told(Kind.CLAIMED, chunk.phase, each, {})
        ends = mirror.ends
        # What it found is told in the end: computed again, since it may be more than fits memory.
        for chunk in self._timeline.chunks():
            for each in mirror.anomalies(chunk):
                yield from self._found(chunk.phase, each, ends)
        yield from self._of_ledger(Kind.EXPIRED, {})
        mine = ends[self._partitions]
        yield self._of_partitions(Kind.TAIL, {"offset_lo": mine, "offset_hi": mine})
        for outcome in (int(Outcome.ACKED), rows.RESERVED_ONLY):
            yield from self._of_ledger(Kind.VOUCHED, {"outcome": outcome})

    def _seen(self, number: int, copies: Copies) -> Iterator[pa.RecordBatch]:
        timeline, options, phase = self._timeline, self._options, copies.phase
        kept = np.flatnonzero(self._mine[copies.partition])
        if not len(kept):
            return
        slot = copies.slot[kept]
        stream = timeline.stream[slot]
        lo, hi = copies.seq_lo[kept], copies.seq_hi[kept]
        arrived = self._arrivals(number, copies)[kept]
        row, cut_lo, cut_hi = by_minute(timeline, phase, stream, lo, hi)
        offset = copies.offset[kept][row] + cut_lo - lo[row]
        stream, arrived, lo, hi = stream[row], arrived[row], cut_lo, cut_hi
        first = timeline.intended(phase, stream, lo)
        last = timeline.intended(phase, stream, hi - 1)
        reach = arrived - last
        pace = timeline.step_ns[phase][stream] * options.batch
        told = latencies(
            options.batch, lo, hi, lambda at, step: reach[at] + step * pace[at], backwards=True
        )
        partition = copies.partition[kept][row]
        batch = Columns(
            Kind.SEEN,
            len(lo),
            {
                "topic": topics(timeline, partition),
                "run": options.run,
                "producer": producers(timeline, stream),
                "incarnation": phase + 1,
                "lane": timeline.lane[timeline.first_slot[stream]],
                "seq_lo": lo,
                "seq_hi": hi,
                "partition": partition % options.lanes,
                "offset_lo": offset,
                "offset_hi": offset + hi - lo,
                "topic_identity": _IDENTITY,
                "findings": copies.findings[kept][row],
                "intended_first": first,
                "intended_last": last,
                "sent_first": first,
                "sent_last": last,
                "arrived_first": arrived,
                "arrived_last": arrived,
                **told,
            },
        ).batch()
        if options.detail is Detail.INTERVALS:
            yield batch
            return
        for piece, _ in exploded(batch, hi - lo):
            yield piece

    def _arrivals(self, number: int, copies: Copies) -> Longs:
        """When each run arrived: all of a fetch at once, a second or two after they were meant."""
        last = self._timeline.intended(
            copies.phase, self._timeline.stream[copies.slot], copies.seq_hi - 1
        )
        rng = np.random.default_rng([self._options.seed, _ARRIVED, number])
        starts = np.flatnonzero(np.diff(copies.turn, prepend=-1))
        newest = np.maximum.reduceat(last, starts)
        newest += rng.integers(500 * MILLISECOND, 2 * SECOND, len(starts))
        return np.repeat(newest, np.diff(starts, append=len(last)))

    def _read(self, before: Longs, after: Longs) -> Iterator[pa.RecordBatch]:
        mine = np.flatnonzero(self._mine & (after > before))
        if len(mine):
            yield self._of_partitions(
                Kind.READ,
                {"offset_lo": before[mine], "offset_hi": after[mine], "findings": 0},
                mine,
            )

    def _of_partitions(
        self, kind: Kind, values: dict[str, Any], partitions: Longs | None = None
    ) -> pa.RecordBatch:
        at = self._partitions if partitions is None else partitions
        about = {
            "topic": topics(self._timeline, at),
            "partition": at % self._options.lanes,
            "topic_identity": _IDENTITY,
        }
        return Columns(kind, len(at), {**about, **values}).batch()

    def _told(
        self, kind: Kind, phase: int, found: Anomalies, values: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        mine = np.flatnonzero(self._mine[found.partition])
        if len(mine):
            yield self._of_streams(
                kind,
                phase,
                found.stream[mine],
                {
                    "seq_lo": found.seq_lo[mine],
                    "seq_hi": found.seq_hi[mine],
                    **{
                        name: value[mine] if isinstance(value, np.ndarray) else value
                        for name, value in values.items()
                    },
                },
            )

    def _found(self, phase: int, found: Anomalies, ends: Longs) -> Iterator[pa.RecordBatch]:
        if found.finding in {Finding.PHANTOM, Finding.LATE}:
            return
        values: dict[str, Any] = {"findings": int(found.finding)}
        if found.finding is not Finding.LOST:
            values["partition"] = found.partition % self._options.lanes
            values["offset_hi"] = ends[found.partition]
            values["topic_identity"] = _IDENTITY
        yield from self._told(Kind.FOUND, phase, found, values)

    def _of_ledger(self, kind: Kind, values: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """A row for each stream, of all its numbers: each was acknowledged."""
        for phase, counts in enumerate(self._timeline.counts):
            stream = np.flatnonzero(counts)
            numbers = {"seq_lo": np.zeros_like(stream), "seq_hi": counts[stream]}
            yield self._of_streams(kind, phase, stream, numbers | values)

    def _of_streams(
        self, kind: Kind, phase: int, stream: Longs, values: dict[str, Any]
    ) -> pa.RecordBatch:
        timeline = self._timeline
        about = {
            "topic": topics(timeline, stream // self._options.producers),
            "run": self._options.run,
            "producer": producers(timeline, stream),
            "incarnation": phase + 1,
            "lane": timeline.lane[timeline.first_slot[stream]],
        }
        return Columns(kind, len(stream), {**about, **values}).batch()
