"""The rows that `produce` and `consume` would have logged for a synthetic run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrortest.model.findings import Finding, Outcome
from mirrortest.selftest.synthetic_mirror import Copies, Mirror, Seeded
from mirrortest.selftest.synthetic_run import RANDOM_ACKS, RANDOM_ARRIVALS, SECOND
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, explode, positions
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.schema import Kind
from mirrortest.timing.histogram import buckets_of
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_run import Chunk, SyntheticRun

    Longs = NDArray[np.int64]

_MILLISECOND = SECOND // 1000
_EXPLODED_ROWS = 1 << 17
"""Rows of a batch in detail `messages`, about."""
_RESERVED_NS = 2 * SECOND
"""How long a block of reserved seqs lasts."""
_IDENTITY = "0"
"""The topics are their first incarnations."""


def producer_name(number: int) -> str:
    """A producer's name."""
    return f"p{number}"


def consumer_name(number: int) -> str:
    """A consumer's name."""
    return f"c{number}"


def producer_names(run: SyntheticRun, stream: Longs) -> Any:
    """The producers' names of streams."""
    count = run.options.producers
    names = pa.array([producer_name(number) for number in range(count)])
    return names.take(pa.array(stream % count))


def topic_names(run: SyntheticRun, partition: Longs) -> Any:
    """Topic names of partitions that are numbered over all topics."""
    topics = run.options.topics
    if len(topics) == 1:
        return topics[0]
    return pa.array(topics).take(pa.array(partition // run.options.lanes))


def _of_streams(
    run: SyntheticRun, kind: Kind, phase: int, stream: Longs, values: dict[str, Any]
) -> Columns:
    """A row for each stream, with these values."""
    stream_columns = {
        "topic": topic_names(run, stream // run.options.producers),
        "run": run.options.run,
        "producer": producer_names(run, stream),
        "incarnation": phase + 1,
        "lane": run.lane[stream],
    }
    return Columns(kind, len(stream), stream_columns | values)


class SyntheticProducerLog:
    """The log of one incarnation of one producer."""

    def __init__(self, run: SyntheticRun, producer: int, phase: int) -> None:
        self._run = run
        self._producer = producer
        self._phase = phase
        self._counts = run.counts[phase]
        self._block = np.maximum(8, _RESERVED_NS // run.step_ns[phase] + 1)
        self._reserved = np.zeros(run.options.streams, dtype=np.int64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        mine = self._run.producer == self._producer
        for chunk in self._run.chunks(phase=self._phase, slots=mine):
            yield from self._reservations(chunk)
            if len(chunk.slot):
                yield from self._sent(chunk)
        options = self._run.options
        stream = np.arange(self._producer, options.streams, options.producers)
        yield self._rows(Kind.END, stream, {"seq_hi": self._counts[stream]})

    def _rows(self, kind: Kind, stream: Longs, values: dict[str, Any]) -> pa.RecordBatch:
        options = self._run.options
        partition = stream // options.producers % options.lanes
        values = {"partition": partition, **values}
        return _of_streams(self._run, kind, self._phase, stream, values).batch()

    def _reservations(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        needed = self._reserved.copy()
        np.maximum.at(needed, self._run.stream[chunk.slot], chunk.seq_hi)
        # The next block is reserved when half a block is left.
        needed = np.where(needed > self._reserved, needed + self._block // 2, needed)
        needed = np.minimum(needed, self._counts)
        stream = np.flatnonzero(needed > self._reserved)
        if not len(stream):
            return
        block, before = self._block[stream], self._reserved[stream]
        blocks = -(-(needed[stream] - before) // block)
        at, step = positions(blocks)
        lo = before[at] + step * block[at]
        hi = np.minimum(lo + block[at], self._counts[stream[at]])
        self._reserved[stream] = np.minimum(before + blocks * block, self._counts[stream])
        yield self._rows(Kind.RESERVED, stream[at], {"seq_lo": lo, "seq_hi": hi})

    def _sent(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        run, options = self._run, self._run.options
        rng = np.random.default_rng([options.seed, RANDOM_ACKS, chunk.number, self._producer])
        delay = rng.integers(3 * _MILLISECOND, 20 * _MILLISECOND, len(chunk.slot))
        stream = run.stream[chunk.slot]
        row, lo, hi = _by_minute(run, chunk.phase, stream, chunk.seq_lo, chunk.seq_hi)
        stream, delay = stream[row], delay[row]
        first = run.intended(chunk.phase, stream, lo)
        last = run.intended(chunk.phase, stream, hi - 1)
        # Each batch is acknowledged a little later than the one before it.
        steps = (hi - 1) // options.batch - lo // options.batch
        latencies = _latencies(
            options.batch, lo, hi, lambda at, step: delay[at] + step * (delay[at] >> 5)
        )
        offset = chunk.offset[row] + lo - chunk.seq_lo[row]
        values = {
            "seq_lo": lo,
            "seq_hi": hi,
            "offset_lo": offset,
            "offset_hi": offset + hi - lo,
            "outcome": int(Outcome.ACKED),
            "intended_first": first,
            "intended_last": last,
            "sent_first": first,
            "sent_last": last,
            "arrived_first": first + delay,
            "arrived_last": last + delay + steps * (delay >> 5),
            **latencies,
        }
        batch = self._rows(Kind.SENT, stream, values)
        if options.detail is Detail.INTERVALS:
            yield batch
            return
        for piece, at in _exploded(batch, hi - lo):
            seq = piece["seq_lo"].to_numpy(zero_copy_only=False)
            own = pa.array(run.intended(chunk.phase, stream[at], seq))
            columns = {name: piece[name] for name in piece.schema.names}
            columns |= {"intended_first": own, "intended_last": own}
            yield pa.record_batch(list(columns.values()), schema=piece.schema)


class SyntheticConsumerLog:
    """The log of one consumer, which reads every n-th partition."""

    def __init__(self, run: SyntheticRun, consumer: int) -> None:
        self._run = run
        self._mine = np.arange(run.partitions) % run.options.consumers == consumer

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        mirror = Mirror(self._run)
        for chunk in self._run.chunks():
            before = mirror.ends.copy()
            copies, seeded = mirror.copy(chunk)
            yield from self._seen(chunk.number, copies)
            read = np.flatnonzero(self._mine & (mirror.ends > before))
            if len(read):
                offsets = {"offset_lo": before[read], "offset_hi": mirror.ends[read]}
                yield self._of_partitions(Kind.READ, read, offsets | {"findings": 0})
            for each in seeded:
                if each.finding in {Finding.LOST, Finding.LATE}:
                    yield from self._of_seeded(Kind.CLAIMED, chunk.phase, each, {})
        # The findings come last. They are computed again: kept, they could exceed the memory.
        for chunk in self._run.chunks():
            for each in mirror.seeded(chunk):
                yield from self._found(chunk.phase, each, mirror.ends)
        yield from self._of_ledger(Kind.EXPIRED, {})
        mine = np.flatnonzero(self._mine)
        ends = {"offset_lo": mirror.ends[mine], "offset_hi": mirror.ends[mine]}
        yield self._of_partitions(Kind.TAIL, mine, ends)
        for outcome in (int(Outcome.ACKED), rows.RESERVED_ONLY):
            yield from self._of_ledger(Kind.VOUCHED, {"outcome": outcome})

    def _seen(self, number: int, copies: Copies) -> Iterator[pa.RecordBatch]:
        run, options, phase = self._run, self._run.options, copies.phase
        kept = np.flatnonzero(self._mine[copies.partition])
        if not len(kept):
            return
        stream = run.stream[copies.slot[kept]]
        full_lo, full_hi = copies.seq_lo[kept], copies.seq_hi[kept]
        row, lo, hi = _by_minute(run, phase, stream, full_lo, full_hi)
        kept, stream = kept[row], stream[row]
        arrived = self._arrivals(number, copies)[kept]
        offset = copies.offset[kept] + lo - full_lo[row]
        first, last = run.intended(phase, stream, lo), run.intended(phase, stream, hi - 1)
        shortest = arrived - last
        pace = run.step_ns[phase][stream] * options.batch
        latencies = _latencies(
            options.batch, lo, hi, lambda at, step: shortest[at] + step * pace[at], backwards=True
        )
        values = {
            "seq_lo": lo,
            "seq_hi": hi,
            # A misrouted message is in another partition of its topic.
            "partition": copies.partition[kept] % options.lanes,
            "offset_lo": offset,
            "offset_hi": offset + hi - lo,
            "topic_identity": _IDENTITY,
            "findings": copies.findings[kept],
            "intended_first": first,
            "intended_last": last,
            "sent_first": first,
            "sent_last": last,
            "arrived_first": arrived,
            "arrived_last": arrived,
            **latencies,
        }
        batch = _of_streams(run, Kind.SEEN, phase, stream, values).batch()
        if options.detail is Detail.INTERVALS:
            yield batch
            return
        for piece, _ in _exploded(batch, hi - lo):
            yield piece

    def _arrivals(self, number: int, copies: Copies) -> Longs:
        """Arrival times: all rows of a fetch, 0.5 to 2 s after its newest intended time."""
        last = self._run.intended(copies.phase, self._run.stream[copies.slot], copies.seq_hi - 1)
        rng = np.random.default_rng([self._run.options.seed, RANDOM_ARRIVALS, number])
        starts = np.flatnonzero(np.diff(copies.turn, prepend=-1))
        newest = np.maximum.reduceat(last, starts)
        newest += rng.integers(500 * _MILLISECOND, 2 * SECOND, len(starts))
        return np.repeat(newest, np.diff(starts, append=len(last)))

    def _of_partitions(
        self, kind: Kind, partition: Longs, values: dict[str, Any]
    ) -> pa.RecordBatch:
        partition_columns = {
            "topic": topic_names(self._run, partition),
            "partition": partition % self._run.options.lanes,
            "topic_identity": _IDENTITY,
        }
        return Columns(kind, len(partition), partition_columns | values).batch()

    def _of_seeded(
        self, kind: Kind, phase: int, seeded: Seeded, values: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        mine = np.flatnonzero(self._mine[seeded.partition])
        if len(mine):
            seqs = {"seq_lo": seeded.seq_lo[mine], "seq_hi": seeded.seq_hi[mine]}
            arrays = {
                name: value[mine] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
            yield _of_streams(self._run, kind, phase, seeded.stream[mine], seqs | arrays).batch()

    def _found(self, phase: int, seeded: Seeded, ends: Longs) -> Iterator[pa.RecordBatch]:
        if seeded.finding in {Finding.PHANTOM, Finding.LATE}:
            return
        values: dict[str, Any] = {"findings": int(seeded.finding)}
        if seeded.finding is not Finding.LOST:
            values["partition"] = seeded.partition % self._run.options.lanes
            values["offset_hi"] = ends[seeded.partition]
            values["topic_identity"] = _IDENTITY
        yield from self._of_seeded(Kind.FOUND, phase, seeded, values)

    def _of_ledger(self, kind: Kind, values: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """A row for each stream, with all its seqs: every message was acknowledged."""
        for phase, counts in enumerate(self._run.counts):
            stream = np.flatnonzero(counts)
            numbers = {"seq_lo": np.zeros_like(stream), "seq_hi": counts[stream]}
            yield _of_streams(self._run, kind, phase, stream, numbers | values).batch()


def _by_minute(
    run: SyntheticRun, phase: int, stream: Longs, lo: Longs, hi: Longs
) -> tuple[Longs, Longs, Longs]:
    """Cut rows where a minute of intended time begins: (row, seq_lo, seq_hi)."""
    begun = run.intended(phase, stream, lo) // MINUTE_NS
    ended = run.intended(phase, stream, hi - 1) // MINUTE_NS
    if not (ended > begun).any():
        return np.arange(len(lo)), lo, hi
    parts = ended - begun + 1
    row, part = positions(parts)
    batch, of = run.options.batch, stream[row]
    began = run.intended(phase, of, np.zeros_like(of))
    step = run.step_ns[phase][of] * batch

    def first_of(minute: Longs) -> Longs:
        batches: Longs = -((began - minute * MINUTE_NS) // step)
        return np.clip(batches * batch, lo[row], hi[row])

    starts = np.where(part > 0, first_of(begun[row] + part), lo[row])
    ends = np.where(part < parts[row] - 1, first_of(begun[row] + part + 1), hi[row])
    kept = np.flatnonzero(starts < ends)
    return row[kept], starts[kept], ends[kept]


def _latencies(
    batch: int, lo: Longs, hi: Longs, latency: Any, *, backwards: bool = False
) -> dict[str, Any]:
    """Sparse latency histograms of rows; each batch of a row has one latency.

    `latency(row, step)` gives it in ns; it must grow with `step`, which counts a row's
    batches from its first, or `backwards` from its last.
    """
    first, last = lo // batch, (hi - 1) // batch
    row, step = positions(last - first + 1)
    number = last[row] - step if backwards else first[row] + step
    count = np.minimum(hi[row], (number + 1) * batch) - np.maximum(lo[row], number * batch)
    bucket = buckets_of(latency(row, step))
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (bucket[1:] != bucket[:-1])
    at = np.flatnonzero(new)
    bounds = pa.array(np.searchsorted(row[at], np.arange(len(lo) + 1)).astype(np.int32))
    buckets, counts = pa.array(bucket[at].astype(np.int32)), np.add.reduceat(count, at)
    return {
        "negative": 0,
        "latency_bucket": pa.ListArray.from_arrays(bounds, buckets),
        "latency_count": pa.ListArray.from_arrays(bounds, pa.array(counts)),
    }


def _exploded(batch: pa.RecordBatch, lengths: Longs) -> Iterator[tuple[pa.RecordBatch, Longs]]:
    """One row per message, and the batch's row that each comes from; some rows at a time."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _EXPLODED_ROWS)))
        part = batch.slice(start, stop - start)
        yield explode(part), np.repeat(np.arange(start, stop), lengths[start:stop])
        start = stop
