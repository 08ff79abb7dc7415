"""Latency histograms of a task's rows, summed by topic and minute of intended time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.stretch import MINUTE_NS, NONE, column, integers
from mirrortest.timing.histogram import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]


class Latencies:
    """Sums over `seen` rows; `add` takes a batch, `sums` gives what came together."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], Longs] = {}
        self._negative: dict[tuple[int, int], int] = {}

    def add(self, rows: pa.RecordBatch, topic: NDArray[np.int32]) -> None:
        """Add rows; `topic` is each one's number."""
        told = column(rows, "latency_bucket")
        below = column(rows, "negative")
        if told is None or below is None:
            return
        which = pc.or_(pc.is_valid(told), pc.is_valid(below))
        at = np.flatnonzero(which.to_numpy(zero_copy_only=False))
        if not len(at):
            return
        intended = integers(rows["intended_first"])
        times = np.full(len(at), NONE) if intended is None else intended[at]
        minute = np.where(times < 0, NONE, times // MINUTE_NS)
        group, member = _groups(topic[at], minute)
        lists = told if len(at) == len(told) else told.take(pa.array(at))
        counted = rows["latency_count"]
        counted = counted if len(at) == len(counted) else counted.take(pa.array(at))
        lengths = integers(pc.fill_null(pc.list_value_length(lists), 0))
        buckets = lists.flatten().to_numpy(zero_copy_only=False)
        counts = counted.flatten().to_numpy(zero_copy_only=False)
        if len(group) > 1 and lengths is not None:
            # One row of the result for each group, side by side.
            buckets = buckets + np.repeat(member * BUCKETS, lengths)
        sums = np.bincount(buckets, weights=counts, minlength=len(group) * BUCKETS)
        table = sums.astype(np.int64).reshape(len(group), BUCKETS)
        negatives = integers(below)
        under = np.zeros(len(group), dtype=np.int64)
        if negatives is not None:
            np.add.at(under, member, np.maximum(negatives[at], 0))
        for key, row, number in zip(group, table, under.tolist(), strict=True):
            known = self._counts.get(key)
            self._counts[key] = row.copy() if known is None else known + row
            self._negative[key] = self._negative.get(key, 0) + number

    def sums(self) -> Iterator[tuple[int, int, int, Longs, Longs]]:
        """(topic, minute, number below zero, buckets, their counts)."""
        for (topic, minute), counts in sorted(self._counts.items()):
            buckets = np.flatnonzero(counts)
            yield topic, minute, self._negative[topic, minute], buckets, counts[buckets]


def _groups(topic: NDArray[np.int32], minute: Longs) -> tuple[list[tuple[int, int]], Longs]:
    """The pairs that occur, and each row's place among them."""
    first = topic[0], minute[0]
    if bool((topic == first[0]).all()) and bool((minute == first[1]).all()):
        return [(int(first[0]), int(first[1]))], np.zeros(len(topic), dtype=np.int64)
    least = int(minute.min())
    span = int(minute.max()) - least + 1
    pairs, member = np.unique(topic.astype(np.int64) * span + (minute - least), return_inverse=True)
    group = [(int(pair) // span, int(pair) % span + least) for pair in pairs]
    return group, member.reshape(-1).astype(np.int64)
