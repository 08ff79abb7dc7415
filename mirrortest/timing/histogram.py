"""Latency distributions: log-linear buckets, exact counts, quantiles within 0.4 %, mergeable.

Each octave has 128 buckets. A bucket is the top bits of the value's float64, so finding the buckets
of a batch is one conversion and one shift. Each integer below 128 ns has its own bucket. A bucket's
middle is at most 1/256 = 0.39 % from any value in it.

Negative values (clocks that disagree) are neither clipped nor dropped: `negative` counts them, and
they have the lowest ranks in every quantile.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from operator import mul
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Counts: TypeAlias = NDArray[np.int64]

_SHIFT = 45  # keeps 7 of float64's 52 fraction bits: 128 buckets per octave
_ONE = 1023 << 7  # the exponent and top bits of 1.0
_FLOAT64, _BITS = Struct("=d"), Struct("=q")
BUCKETS = 63 * 128 + 2
"""One for 0, 128 for each of 63 octaves, and one for 2**63 itself."""

PROMETHEUS_SECONDS: tuple[float, ...] = (
    *(digit * 10**power for power in range(-3, 4) for digit in (1, 2, 5)),
    7200,
    14400,
)  # fmt: skip
"""The bounds of published buckets: 1-2-5 per decade from 1 ms to 5000 s, then 2 and 4 hours."""
PROMETHEUS_NS: tuple[int, ...] = tuple(round(bound * 1e9) for bound in PROMETHEUS_SECONDS)


class Sparse(NamedTuple):
    """The filled buckets of a distribution.

    `negative` counts the values below 0. Bucket 0 is for the value 0, and bucket b > 0 for values
    from `lower_bound(b)` up to `lower_bound(b + 1)`. `counts` has one number for each bucket.
    """

    negative: int = 0
    buckets: Sequence[int] = ()
    counts: Sequence[int] = ()


class Histogram:
    """A distribution of int nanoseconds (or of any integers).

    Attributes:
        count: how many values, negative ones included.
        negative: how many of them are below zero.
        total: the exact sum of all values; `negative_total` is that of the negative ones.
        minimum, maximum: exact; 0 while there is no value.
        off_ns: by how much values may be too low or too high, because clocks were set meanwhile.
        unmeasured: how many further values are unknown, because another process measured them.
    """

    __slots__ = (
        "_above", "_below", "count", "maximum", "minimum", "negative", "negative_total", "off_ns",
        "total", "unmeasured",
    )  # fmt: skip

    def __init__(self) -> None:
        self._above: Counts = np.zeros(BUCKETS, np.int64)
        self._below: Counts | None = None  # rarely needed
        self.count = 0
        self.negative = 0
        self.total = 0
        self.negative_total = 0
        self.minimum = 0
        self.maximum = 0
        self.off_ns = 0
        self.unmeasured = 0

    def add(self, values_ns: ArrayLike) -> None:
        """Count a batch of values: array work only."""
        self.take(Counted.of(values_ns))

    def take(self, counted: Counted) -> None:
        """Add values that were counted once, possibly for several histograms."""
        if not counted.size:
            return
        self._stretch(counted.minimum, counted.maximum)
        self.count += counted.size
        self.total += counted.total
        if counted.above is not None:
            _add(self._above, counted.above)
        if counted.below is not None:
            _add(self._mirrored(), counted.below)
            self.negative += counted.negative
            self.negative_total += counted.negative_total

    def merge(self, other: Histogram) -> None:
        """Add another histogram's values."""
        self.off_ns = max(self.off_ns, other.off_ns)
        self.unmeasured += other.unmeasured
        if not other.count:
            return
        self._stretch(other.minimum, other.maximum)
        self._above += other._above
        if other._below is not None:
            self._mirrored()[:] += other._below
        self.count += other.count
        self.negative += other.negative
        self.total += other.total
        self.negative_total += other.negative_total

    def quantile(self, q: float | Fraction) -> int:
        """The value in ns at rank ``ceil(q * count)``, within 0.4 %; negative values rank lowest.

        q = 0 and q = 1 give the exact extremes. Raises ValueError if there are no values, or if q
        is not in [0, 1].
        """
        if not self.count:
            raise ValueError("no values, so no quantile")
        return self.at_rank(rank_of(q, self.count))

    def at_rank(self, rank: int) -> int:
        """The value in ns at a rank from 1 to `count`, within 0.4 %; the extremes are exact."""
        if rank == 1:
            return self.minimum
        if rank == self.count:
            return self.maximum
        if rank <= self.negative:
            # The mirrored buckets count from zero downwards: the lowest value is in the last.
            estimate = -middle(_at_rank(self._mirrored(), self.negative - rank + 1))
        else:
            estimate = middle(_at_rank(self._above, rank - self.negative))
        return min(max(estimate, self.minimum), self.maximum)

    @property
    def mean(self) -> float:
        """The mean, negative values included; 0.0 without values."""
        return self.total / self.count if self.count else 0.0

    def sparse(self) -> Sparse:
        """The filled buckets, ascending."""
        return Sparse(self.negative, *_listed(_Filled(0, self._above)))

    def since(self, earlier: Histogram) -> Sparse:
        """The values added since `earlier`, which is an older copy of this histogram."""
        counts = _Filled(0, self._above - earlier._above)
        return Sparse(self.negative - earlier.negative, *_listed(counts))

    @classmethod
    def of(cls, sparse: Sparse, off_ns: int = 0, unmeasured: int = 0) -> Histogram:
        """Rebuild from filled buckets; a bucket may occur more than once.

        Counts are exact; sum and extremes are computed from the buckets' middles. Negative values
        count as -1 ns, because their size is unknown. Raises ValueError for a bucket that does not
        exist, for a count below 0, or if there are not as many counts as buckets.
        """
        negative, buckets, counts = sparse
        histogram = cls()
        histogram.off_ns, histogram.unmeasured = off_ns, unmeasured
        index = np.asarray(buckets, dtype=np.int64)
        number = np.asarray(counts, dtype=np.int64)
        if index.shape != number.shape or index.ndim != 1:
            raise ValueError("as many counts as buckets")
        if negative < 0 or (number < 0).any() or (index < 0).any() or (index >= BUCKETS).any():
            raise ValueError("no such bucket, or a count below 0")
        np.add.at(histogram._above, index, number)
        for bucket, count in zip(*histogram.sparse()[1:], strict=True):
            value = middle(bucket)
            histogram._stretch(value, value)
            histogram.count += count
            histogram.total += value * count
        if negative:
            histogram._stretch(-1, -1)
            histogram.count += negative
            histogram.total -= negative
            histogram.negative = negative
            histogram.negative_total = -negative
            histogram._mirrored()[1] = negative
        return histogram

    def cumulative(self, bounds_ns: Sequence[int] = PROMETHEUS_NS) -> list[int]:
        """How many values are in [0, bound] for each ascending bound; exact to a bucket's width.

        Negative values are not included: `negative` counts them.
        """
        running = np.concatenate([[0], np.cumsum(self._above)])
        return [int(running[_middles_up_to(bound)]) for bound in bounds_ns]

    def _mirrored(self) -> Counts:
        if self._below is None:
            self._below = np.zeros(BUCKETS, np.int64)
        return self._below

    def _stretch(self, low: int, high: int) -> None:
        """Widen the extremes; to be called before `count` grows."""
        self.minimum = min(self.minimum, low) if self.count else low
        self.maximum = max(self.maximum, high) if self.count else high


def rank_of(q: float | Fraction, count: int) -> int:
    """The rank of a quantile among `count` values. Raises ValueError if q is not in [0, 1]."""
    # A float counts as its decimal text: 0.07 of 100 values is rank 7, not 8.
    share = Fraction(repr(q)) if isinstance(q, float) else Fraction(q)
    if not 0 <= share <= 1:
        raise ValueError("a quantile must be between 0 and 1")
    return max(ceil(share * count), 1)


class _Filled(NamedTuple):
    """Counts of consecutive buckets from `first` on; a single number is the count of `first`."""

    first: int
    counts: Counts | int


class Counted(NamedTuple):
    """A batch of int nanoseconds, counted once for all histograms that add it.

    `size` is the number of values. `above` has the buckets of values from 0 on, `below` those of
    the negative values' sizes. The other fields are as in `Histogram`.
    """

    size: int
    minimum: int = 0
    maximum: int = 0
    total: int = 0
    negative: int = 0
    negative_total: int = 0
    above: _Filled | None = None
    below: _Filled | None = None

    @classmethod
    def of(cls, values_ns: ArrayLike, times: Counts | None = None) -> Counted:
        """Count values, each once or `times` times (at least once): array work only."""
        values = np.atleast_1d(np.asarray(values_ns, dtype=np.int64))
        if not values.size:
            return cls(0)
        size = _size(values, times)
        low, high = int(values.min()), int(values.max())
        total = _exact_sum(values, times, low, high)
        if low >= 0:
            return cls(size, low, high, total, above=_filled(values, times, low))
        signs = (values < 0, values >= 0)
        below, above = (values[sign] for sign in signs)
        times_below, times_above = (None if times is None else times[sign] for sign in signs)
        negative = _size(below, times_below)
        negative_total = _exact_sum(below, times_below, low, -1)
        # As float64, because the lowest int64 has no positive counterpart.
        mirrored = _filled(-below.astype(np.float64), times_below, -int(below.max()))
        filled = _filled(above, times_above, int(above.min())) if above.size else None
        return cls(size, low, high, total, negative, negative_total, filled, mirrored)

    @classmethod
    def repeated(cls, times: Mapping[int, int]) -> Counted:
        """Count values by how often each occurs (at least once), at a cost independent of that."""
        if len(times) != 1:
            values, counts = times.keys(), times.values()
            return cls.of(
                np.fromiter(values, np.int64, len(times)), np.fromiter(counts, np.int64, len(times))
            )
        ((value, size),) = times.items()
        filled, total = _Filled(bucket_of(abs(value)), size), value * size
        if value < 0:
            return cls(size, value, value, total, size, total, below=filled)
        return cls(size, value, value, total, above=filled)


def sparse_groups(values_ns: Counts, group: Counts, groups: int) -> list[Sparse]:
    """The sparse histograms of many groups of values at once.

    `group` is each value's group (ascending, 0 to `groups` - 1). The cost grows with the number of
    values, not of groups.
    """
    below = values_ns < 0
    negative = np.bincount(group[below], minlength=groups).tolist()
    if below.any():
        values_ns, group = values_ns[~below], group[~below]
    if not values_ns.size:
        return [Sparse(each, [], []) for each in negative]
    found = _buckets(values_ns.astype(np.float64))
    first = int(found.min())
    found -= first
    span = int(found.max()) + 1
    found += group * span
    if groups * span <= 8 * found.size + 4096:  # latencies are usually close together
        counts = np.bincount(found)
        filled = np.flatnonzero(counts)
        counts = counts[filled]
    else:
        filled, counts = np.unique(found, return_counts=True)
    bounds = np.searchsorted(filled, np.arange(groups + 1) * span).tolist()
    buckets, numbers = (filled % span + first).tolist(), counts.tolist()
    return [
        Sparse(negative[at], buckets[lo:hi], numbers[lo:hi])
        for at, (lo, hi) in enumerate(pairwise(bounds))
    ]


def sparse_of(parts: Sequence[Counted]) -> Sparse:
    """The sparse histogram of all parts' values."""
    negative = sum(part.negative for part in parts)
    found = [part.above for part in parts if part.above is not None]
    if not found:
        return Sparse(negative, [], [])
    if len(found) == 1:
        return Sparse(negative, *_listed(found[0]))
    first = min(each.first for each in found)
    end = max(each.first + np.size(each.counts) for each in found)
    counts = np.zeros(end - first, np.int64)
    for each in found:
        _add(counts, _Filled(each.first - first, each.counts))
    return Sparse(negative, *_listed(_Filled(first, counts)))


def bucket_of(value: int) -> int:
    """The bucket of a value, as `sparse` numbers them; for a negative one, -1 times its size's."""
    if value < 0:
        return -bucket_of(-value)
    (bits,) = _BITS.unpack(_FLOAT64.pack(value))  # as `_buckets`, at a tenth of an array's cost
    return int(max((bits >> _SHIFT) - (_ONE - 1), 0))


def buckets_of(values_ns: ArrayLike) -> Counts:
    """The bucket of each value, as `sparse` numbers them. Raises ValueError for negative values."""
    values = np.atleast_1d(np.asarray(values_ns, dtype=np.int64))
    if values.size and int(values.min()) < 0:
        raise ValueError("negative values have no bucket")
    return _buckets(values.astype(np.float64))


def lower_bound(bucket: int) -> int:
    """The lowest integer in a bucket (from 0 on), or in a higher one if it contains no integer."""
    if bucket == 0:
        return 0
    (value,) = _FLOAT64.unpack(_BITS.pack((bucket - 1 + _ONE) << _SHIFT))
    return ceil(float(value))


def middle(bucket: int) -> int:
    """The integer in the middle of a bucket (from 0 on), within 0.4 % of all integers in it."""
    first = lower_bound(bucket)
    return (first + max(lower_bound(bucket + 1) - 1, first)) // 2


def _buckets(sizes: NDArray[np.float64], first: int = 0) -> Counts:
    """The buckets of non-negative values, counted from `first`, their lowest bucket."""
    # The top bits of a float64 grow with its value.
    found = sizes.view(np.int64) >> _SHIFT
    found -= _ONE - 1 + first
    # The bits of 0.0 are all zero, far below those of 1.0: they become bucket 0.
    return found if first else np.maximum(found, 0)


def _filled(
    sizes: NDArray[np.int64] | NDArray[np.float64], times: Counts | None, least: int
) -> _Filled:
    """Count non-negative values by bucket; `least` is the lowest of them."""
    first = bucket_of(least)
    # A batch's latencies are close together: count only their range.
    found = np.bincount(_buckets(sizes.astype(np.float64), first), times)
    # Weighted counts are float64, which is exact up to 2**53.
    return _Filled(first, found.astype(np.int64, copy=False))


def _size(values: Counts, times: Counts | None) -> int:
    return values.size if times is None else int(times.sum())


def _add(into: Counts, filled: _Filled) -> None:
    first, counts = filled
    if isinstance(counts, int):
        into[first] += counts
    else:
        into[first : first + counts.size] += counts


def _listed(filled: _Filled) -> tuple[list[int], list[int]]:
    """The non-empty buckets, ascending, and their counts."""
    first, counts = filled
    if isinstance(counts, int):
        return [first], [counts]
    at = counts.nonzero()[0]
    return (at + first).tolist(), counts[at].tolist()


def _at_rank(counts: Counts, rank: int) -> int:
    return int(np.searchsorted(np.cumsum(counts), rank))


@lru_cache(maxsize=1024)  # there are few bounds, needed at each scrape
def _middles_up_to(bound: int) -> int:
    """How many buckets, from 0 on, have their middle at or below a bound."""
    if bound < 0:
        return 0
    bucket = min(bucket_of(bound), BUCKETS - 1)
    return bucket + (middle(bucket) <= bound)


def _exact_sum(values: Counts, times: Counts | None, low: int, high: int) -> int:
    if times is not None:
        return sum(map(mul, values.tolist(), times.tolist()))
    if max(-low, high) * values.size < 1 << 63:
        return int(values.sum())
    # Sums of latencies overflow 64 bits only in theory; sums of their 32-bit halves never do.
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
