"""Sums of the latency histograms in a log's rows, by run, topic and minute of intended time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.batches import filled
from mirrortest.timing.histogram import BUCKETS
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]

NO_MINUTE = -1
_TABLE = 1 << 17


class Total(NamedTuple):
    """The summed latency histogram of one run, topic and minute.

    `minute` counts from the epoch; it is `NO_MINUTE` for rows without an intended time. `negative`
    counts latencies below zero. `buckets` are indices of `timing.histogram`.
    """

    run: str | None
    topic: str
    minute: int
    negative: int
    buckets: list[int]
    counts: list[int]


def totals(rows: pa.RecordBatch) -> list[Total]:
    """Sum a batch's latencies by run, topic and minute; skip rows without latencies.

    Raises ValueError if a row's lists are not a histogram: their lengths differ, a bucket is
    invalid, or a number is null.
    """
    lists, numbers = rows["latency_bucket"], rows["latency_count"]
    own = filled(pc.list_value_length(lists), 0)
    if not np.array_equal(own, filled(pc.list_value_length(numbers), 0)):
        raise ValueError("buckets without counts")
    below = filled(rows["negative"], 0)
    at = np.flatnonzero((own > 0) | (below > 0))
    if not len(at):
        return []
    # Rows that are left out have no buckets, so these lists match the rows at `at`.
    flat, counted = lists.flatten(), numbers.flatten()
    if flat.null_count or counted.null_count:
        raise ValueError("buckets or counts that are null")
    buckets = flat.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = counted.to_numpy(zero_copy_only=False)
    if len(buckets) and (buckets.min() < 0 or buckets.max() >= BUCKETS):
        raise ValueError("buckets beyond those of a histogram")
    intended = filled(rows["intended_first"], NO_MINUTE)[at]
    minutes = np.where(intended < 0, NO_MINUTE, intended // MINUTE_NS)
    run, topic = (rows[name].take(pa.array(at)) for name in ("run", "topic"))
    first, group = _groups(_codes(run), _codes(topic), minutes)
    if len(first) > 1:
        buckets += np.repeat(group * BUCKETS, own[at])
    keys, sums = _summed(buckets, counts, len(first) * BUCKETS)
    bounds = np.searchsorted(keys, np.arange(len(first) + 1) * BUCKETS).tolist()
    under = np.zeros(len(first), dtype=np.int64)
    np.add.at(under, group, np.maximum(below[at], 0))
    return [
        Total(
            run[place].as_py(),
            topic[place].as_py(),
            int(minutes[place]),
            int(under[number]),
            (keys[lo:hi] - number * BUCKETS).tolist(),
            sums[lo:hi].tolist(),
        )
        for number, (place, (lo, hi)) in enumerate(
            zip(first.tolist(), pairwise(bounds), strict=True)
        )
    ]


def _summed(keys: Longs, counts: Longs, size: int) -> tuple[Longs, Longs]:
    """The distinct keys (below `size`), in ascending order, and the sum of each one's counts."""
    if size <= max(len(keys), _TABLE):
        table = np.bincount(keys, weights=counts, minlength=size).astype(np.int64)
        filled = np.flatnonzero(table)
        return filled, table[filled]
    # With many minutes or topics most buckets are empty: a table of all would take gigabytes.
    filled, place = np.unique(keys, return_inverse=True)
    return filled, np.bincount(place.reshape(-1), weights=counts).astype(np.int64)


def _groups(*columns: NDArray[Any]) -> tuple[Longs, Longs]:
    """Group rows by their combination of values: each group's first row, and each row's group."""
    group = np.zeros(len(columns[0]), dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for values in columns:
        if (values == values[0]).all():
            continue
        own, numbers = np.unique(values, return_inverse=True)
        pairs = group * len(own) + numbers.reshape(-1)
        _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
        group = group.reshape(-1)
    return first, group


def _codes(texts: pa.Array) -> NDArray[Any]:
    return filled(texts.dictionary_encode().indices, -1)
