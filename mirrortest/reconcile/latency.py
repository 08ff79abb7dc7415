"""Latency histograms of `seen` rows: how many, and summed by topic and intended minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.batches import filled
from mirrortest.timing.histogram import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.stretch import Longs
    from mirrortest.seqlog.totals import Total


def latencies(rows: pa.RecordBatch) -> Longs:
    """By row, how many latencies it has."""
    lists = rows["latency_count"]
    sizes = filled(pc.list_value_length(lists), 0)
    sums = np.append(0, np.cumsum(filled(lists.flatten(), 0)))
    ends = np.cumsum(sizes)
    found: Longs = sums[ends] - sums[ends - sizes] + filled(rows["negative"], 0)
    return found


class LatencySums:
    """Sums of latency histograms, added up."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], Longs] = {}
        self._negative: dict[tuple[str, int], int] = {}

    def add(self, totals: Iterable[Total]) -> None:
        """Add sums of one run's rows."""
        for each in totals:
            key = each.topic, each.minute
            counts = self._counts.setdefault(key, np.zeros(BUCKETS, dtype=np.int64))
            # Within one sum each bucket occurs once.
            counts[np.array(each.buckets, dtype=np.int64)] += np.array(each.counts, dtype=np.int64)
            self._negative[key] = self._negative.get(key, 0) + each.negative

    def sums(self) -> Iterator[tuple[str, int, int, Longs, Longs]]:
        """(topic, minute, number below zero, buckets, their counts)."""
        for (topic, minute), counts in sorted(self._counts.items()):
            buckets = np.flatnonzero(counts)
            yield topic, minute, self._negative[topic, minute], buckets, counts[buckets]
