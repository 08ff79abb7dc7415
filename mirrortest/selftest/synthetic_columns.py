"""What the logs of both sides have in common: names, minutes, latencies, rows of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrortest.selftest.synthetic_run import SECOND
from mirrortest.seqlog.batches import explode
from mirrortest.timing.histogram import buckets_of
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_run import Timeline

    Longs = NDArray[np.int64]

MILLISECOND = SECOND // 1000
_EXPLODED_ROWS = 1 << 17
"""Rows of a batch in detail `messages`, about."""


def producer_name(number: int) -> str:
    """A producer's name."""
    return f"p{number}"


def consumer_name(number: int) -> str:
    """A consumer's name."""
    return f"c{number}"


def topics(timeline: Timeline, partition: Longs) -> Any:
    """Topic names of partitions that are counted over all topics."""
    topics = timeline.options.topics
    if len(topics) == 1:
        return topics[0]
    return pa.array(topics).take(pa.array(partition // timeline.options.lanes))


def producers(timeline: Timeline, stream: Longs) -> Any:
    """Producers' names of streams."""
    count = timeline.options.producers
    names = pa.array([producer_name(number) for number in range(count)])
    return names.take(pa.array(stream % count))


def by_minute(
    timeline: Timeline, phase: int, stream: Longs, lo: Longs, hi: Longs
) -> tuple[Longs, Longs, Longs]:
    """Cut rows where a minute of intended time begins: (row, seq_lo, seq_hi)."""
    begun = timeline.intended(phase, stream, lo) // MINUTE_NS
    ended = timeline.intended(phase, stream, hi - 1) // MINUTE_NS
    row = np.arange(len(lo))
    if not (ended > begun).any():
        return row, lo, hi
    parts = ended - begun + 1
    row = np.repeat(row, parts)
    part = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    batch, of = timeline.options.batch, stream[row]
    began = timeline.intended(phase, of, np.zeros_like(of))
    step = timeline.step_ns[phase][of] * batch

    def first_of(minute: Longs) -> Longs:
        batches: Longs = -((began - minute * MINUTE_NS) // step)
        return np.clip(batches * batch, lo[row], hi[row])

    starts = np.where(part > 0, first_of(begun[row] + part), lo[row])
    ends = np.where(part < parts[row] - 1, first_of(begun[row] + part + 1), hi[row])
    kept = np.flatnonzero(starts < ends)
    return row[kept], starts[kept], ends[kept]


def latencies(
    batch: int, lo: Longs, hi: Longs, latency: Any, *, backwards: bool = False
) -> dict[str, Any]:
    """Sparse histograms of rows whose batches have one latency each.

    `latency(row, step)` gives it in ns; it must grow with `step`, which counts a row's
    batches from its first, or `backwards` from its last.
    """
    first, last = lo // batch, (hi - 1) // batch
    sizes = last - first + 1
    row = np.repeat(np.arange(len(lo)), sizes)
    step = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    number = last[row] - step if backwards else first[row] + step
    count = np.minimum(hi[row], (number + 1) * batch) - np.maximum(lo[row], number * batch)
    bucket = buckets_of(latency(row, step))
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (bucket[1:] != bucket[:-1])
    at = np.flatnonzero(new)
    bounds = np.searchsorted(row[at], np.arange(len(lo) + 1)).astype(np.int32)
    return {
        "negative": 0,
        "latency_bucket": pa.ListArray.from_arrays(
            pa.array(bounds), pa.array(bucket[at].astype(np.int32))
        ),
        "latency_count": pa.ListArray.from_arrays(
            pa.array(bounds), pa.array(np.add.reduceat(count, at))
        ),
    }


def exploded(batch: pa.RecordBatch, lengths: Longs) -> Iterator[tuple[pa.RecordBatch, Longs]]:
    """One row per message, and to which row of the batch each belongs, some rows at a time."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _EXPLODED_ROWS)))
        part = batch.slice(start, stop - start)
        yield explode(part), np.repeat(np.arange(start, stop), lengths[start:stop])
        start = stop
