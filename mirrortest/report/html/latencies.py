"""Latencies by topic and slot as filled buckets: their sums, quantiles, and bins for charts.

The buckets are those of `timing.histogram`. The results are those of a `Histogram` of the same
buckets (a test checks this), computed for thousands of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log10
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.timing.histogram import BUCKETS, lower_bound, middle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

MOST_BINS = 36
MOST_POINTS = 160
_WIDEST = 7  # a bin of one octave: 128 buckets

_middle = lru_cache(maxsize=None)(middle)


class Point(NamedTuple):
    """`below` messages of a distribution have a latency of at most `latency_ns`."""

    latency_ns: int
    below: int


@dataclass(frozen=True)
class Distribution:
    """One distribution: filled buckets, ascending, their counts, and how many are below zero."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]
    negative: int = 0

    @property
    def count(self) -> int:
        """How many messages there are, including those below zero."""
        return int(self.counts.sum()) + self.negative

    def quantile(self, share: Fraction | float) -> int | None:
        """The latency at rank ``ceil(share * count)``, ns; None: there is none, or below zero."""
        rank = max(ceil(share * self.count), 1)
        if not self.count or rank <= self.negative:
            return None
        at = int(np.searchsorted(np.cumsum(self.counts), rank - self.negative))
        return _middle(int(self.buckets[at]))

    @property
    def mean(self) -> float | None:
        """The mean of those that are not below zero, ns; None: there are none."""
        if not self.counts.sum():
            return None
        middles = np.array([_middle(int(bucket)) for bucket in self.buckets], dtype=np.float64)
        return float((middles * self.counts).sum() / self.counts.sum())

    def curve(self) -> list[Point]:
        """The cumulative distribution, thinned evenly in shares and in nines (90 %, 99 %, ...)."""
        count = self.count
        if not self.buckets.size:
            return []
        running = np.cumsum(self.counts) + self.negative
        # The share that is in each bucket or slower: the chart's axis shows its nines.
        slower = 1 - (running - self.counts) / count
        nines = -np.log10(np.maximum(slower, 1 / count))
        steps = np.floor(nines * MOST_POINTS / max(log10(count), 1))
        shares = np.floor(slower * MOST_POINTS)
        moved = (steps[1:] != steps[:-1]) | (shares[1:] != shares[:-1])
        kept = np.flatnonzero(np.concatenate([moved, [True]]))
        kept = np.unique(np.concatenate([[0], kept]))
        return [Point(_middle(int(self.buckets[at])), int(running[at])) for at in kept]


@dataclass(frozen=True)
class Latencies:
    """Cells (topic, slot, bucket, count), sorted by the first three.

    `negative` is an array [topic, slot]: how many latencies are below zero.
    """

    topic: NDArray[np.int64]
    slot: NDArray[np.int64]
    bucket: NDArray[np.int64]
    count: NDArray[np.int64]
    negative: NDArray[np.int64]

    @classmethod
    def of_rows(
        cls,
        topic: NDArray[np.int64],
        slot: NDArray[np.int64],
        rows: pa.Table,
        *,
        shape: tuple[int, int],
    ) -> Latencies:
        """Sum rows with columns `latency_bucket`, `latency_count` and `negative`.

        Row i belongs to (topic[i], slot[i]); `shape` is how many topics and slots there are.
        """
        parents = pc.list_parent_indices(rows["latency_bucket"]).to_numpy()
        bucket = pc.list_flatten(rows["latency_bucket"]).to_numpy().astype(np.int64)
        count = pc.list_flatten(rows["latency_count"]).to_numpy().astype(np.int64)
        negative = np.zeros(shape, np.int64)
        np.add.at(negative, (topic, slot), rows["negative"].fill_null(0).to_numpy())
        return cls.of_cells(topic[parents], slot[parents], bucket, count, negative)

    @classmethod
    def of_cells(
        cls,
        topic: NDArray[np.int64],
        slot: NDArray[np.int64],
        bucket: NDArray[np.int64],
        count: NDArray[np.int64],
        negative: NDArray[np.int64],
    ) -> Latencies:
        """Sum the counts of the same topic, slot and bucket."""
        slots = negative.shape[1]
        # One number per cell: sorting rows of three numbers takes twenty times as long.
        cells, place = np.unique((topic * slots + slot) * BUCKETS + bucket, return_inverse=True)
        sums = np.bincount(place, weights=count, minlength=len(cells)).astype(np.int64)
        places, buckets = np.divmod(cells, BUCKETS)
        return cls(*np.divmod(places, max(slots, 1)), buckets, sums, negative)

    @cached_property
    def together(self) -> Latencies:
        """All topics merged into one (number 0)."""
        return self.of_topics(range(len(self.negative)))

    def of_topics(self, topics: Sequence[int]) -> Latencies:
        """These topics merged into one (number 0)."""
        chosen: slice | NDArray[np.bool_]
        if len(topics) == 1:
            chosen = slice(*np.searchsorted(self.topic, [topics[0], topics[0] + 1]))
        else:
            chosen = np.isin(self.topic, topics)
        return self.of_cells(
            np.zeros_like(self.topic[chosen]),
            self.slot[chosen],
            self.bucket[chosen],
            self.count[chosen],
            self.negative[list(topics)].sum(axis=0, keepdims=True),
        )

    def distribution(self) -> Distribution:
        """All cells as one distribution."""
        buckets, place = np.unique(self.bucket, return_inverse=True)
        sums = np.bincount(place, weights=self.count, minlength=len(buckets)).astype(np.int64)
        return Distribution(buckets, sums, int(self.negative.sum()))

    def quantiles(self, shares: Iterable[Fraction | float]) -> list[list[int | None]]:
        """The quantile of each share in each slot, ns; only for a single topic."""
        bounds = np.searchsorted(self.slot, np.arange(self.negative.shape[1] + 1))
        slots = [
            Distribution(self.bucket[lo:hi], self.count[lo:hi], int(below))
            for lo, hi, below in zip(bounds[:-1], bounds[1:], self.negative[0], strict=True)
        ]
        return [[each.quantile(share) for each in slots] for share in shares]

    def bins(self) -> Bins:
        """Bins of whole buckets for all latencies, as fine as `MOST_BINS` bins allow."""
        if not self.bucket.size:
            return Bins(0, 0, 0)
        first, last = int(self.bucket.min()), int(self.bucket.max())
        for shift in range(_WIDEST + 1):
            low, high = first >> shift, last >> shift
            if high - low < MOST_BINS:
                return Bins(shift, low, high - low + 1)
        # From nanoseconds to hours: what is faster than the widest bins cover is in the lowest.
        return Bins(_WIDEST, (last >> _WIDEST) - MOST_BINS + 1, MOST_BINS)

    def cells(self, bins: Bins) -> list[tuple[int, int, int]]:
        """(slot, bin, count) for each bin that is not empty; only for a single topic."""
        of_bin = np.maximum((self.bucket >> bins.shift) - bins.first, 0)
        cells, place = np.unique(self.slot * MOST_BINS + of_bin, return_inverse=True)
        sums = np.bincount(place, weights=self.count, minlength=len(cells)).astype(np.int64)
        slots, numbers = np.divmod(cells, MOST_BINS)
        return list(zip(slots.tolist(), numbers.tolist(), sums.tolist(), strict=True))


@dataclass(frozen=True)
class Bins:
    """`count` bins of ``1 << shift`` buckets each, from bin `first`."""

    shift: int
    first: int
    count: int

    @property
    def edges_ns(self) -> list[int]:
        """The start of each bin, and the end of the last one, ns."""
        return [
            lower_bound((self.first + number) << self.shift) for number in range(self.count + 1)
        ]
