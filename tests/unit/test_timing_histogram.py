"""The histogram, compared with sorted lists of its values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.timing.histogram import (
    BUCKETS,
    PROMETHEUS_NS,
    PROMETHEUS_SECONDS,
    Counted,
    Histogram,
    Sparse,
    bucket_of,
    buckets_of,
    lower_bound,
    middle,
    sparse_groups,
    sparse_of,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
LATENCY = st.integers(-(10**10), 20_000 * 10**9)
VALUES = st.lists(INT64 | LATENCY | st.integers(-5, 200), max_size=60)
QUANTILE = st.sampled_from([0, 0.07, 0.5, 0.9, 0.99, 0.999, 1, Fraction(1, 3)])


def filled(values: list[int]) -> Histogram:
    """A histogram of one batch."""
    histogram = Histogram()
    histogram.add(np.array(values, dtype=np.int64))
    return histogram


def facts(histogram: Histogram) -> tuple[object, ...]:
    """Everything that a histogram reports."""
    return (
        histogram.count,
        histogram.negative,
        histogram.total,
        histogram.negative_total,
        histogram.minimum,
        histogram.maximum,
        histogram.sparse(),
        [histogram.quantile(q / 100) for q in range(101)] if histogram.count else None,
    )


@given(VALUES)
def test_counts_sum_and_extremes_are_exact(values: list[int]) -> None:
    """The sum may exceed 64 bits; negative values are counted separately, and not clipped."""
    histogram = filled(values)
    assert histogram.count == len(values)
    assert histogram.total == sum(values)
    assert histogram.negative == sum(value < 0 for value in values)
    assert histogram.negative_total == sum(value for value in values if value < 0)
    assert histogram.minimum == min(values, default=0)
    assert histogram.maximum == max(values, default=0)


@given(VALUES.filter(bool), QUANTILE)
def test_quantiles_are_within_half_a_percent_of_the_sorted_list(
    values: list[int], q: float | Fraction
) -> None:
    """The rank is ceil(q n); negative values rank lowest."""
    share = Fraction(repr(q)) if isinstance(q, float) else Fraction(q)
    expected = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
    assert abs(filled(values).quantile(q) - expected) <= abs(expected) * 0.005


@given(st.lists(VALUES, max_size=4))
def test_merging_is_adding(batches: list[list[int]]) -> None:
    """Adding batches to one histogram equals merging one histogram per batch."""
    together, merged = Histogram(), Histogram()
    for batch in batches:
        together.add(np.array(batch, dtype=np.int64))
        merged.merge(filled(batch))
    assert (
        facts(merged)
        == facts(together)
        == facts(filled([value for batch in batches for value in batch]))
    )


@given(VALUES)
def test_the_sparse_form_is_rebuilt(values: list[int]) -> None:
    """Counts and buckets survive; sums are within the buckets' width."""
    histogram = filled(values)
    sparse = histogram.sparse()
    rebuilt = Histogram.of(sparse)
    assert rebuilt.sparse() == sparse
    assert (rebuilt.count, rebuilt.negative) == (histogram.count, histogram.negative)
    positive = sum(value for value in values if value >= 0)
    assert abs(rebuilt.total - rebuilt.negative_total - positive) <= positive * 0.005
    assert sum(sparse.counts) + sparse.negative == len(values)


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_groups_at_once_are_as_histograms_of_each(groups: list[list[int]]) -> None:
    """Values may be close together or far apart; an empty group gets an empty histogram."""
    together = np.array([value for values in groups for value in values], dtype=np.int64)
    index = np.repeat(np.arange(len(groups)), [len(values) for values in groups])
    found = sparse_groups(together, index, len(groups))
    assert found == [filled(values).sparse() for values in groups]


TIMES = st.dictionaries(INT64 | LATENCY | st.integers(-5, 200), st.integers(1, 10**12), max_size=6)


@given(TIMES.map(lambda times: {value: 1 + count % 7 for value, count in times.items()}))
def test_repeated_values_are_as_added_one_by_one(times: dict[int, int]) -> None:
    """There may be one value or several, also negative ones."""
    one_by_one, taken = Histogram(), Histogram()
    for value, count in times.items():
        for _ in range(count):
            one_by_one.add(value)
    taken.take(Counted.repeated(times))
    assert facts(taken) == facts(one_by_one)


@given(TIMES)
def test_how_often_a_value_is_repeated_is_exact(times: dict[int, int]) -> None:
    """Counts may be far too large to add one by one."""
    taken = Histogram()
    taken.take(Counted.repeated(times))
    assert taken.count == sum(times.values())
    assert taken.total == sum(value * count for value, count in times.items())
    assert taken.negative == sum(count for value, count in times.items() if value < 0)
    assert sum(taken.sparse().counts) == taken.count - taken.negative


@given(st.lists(VALUES | TIMES.map(lambda times: dict.fromkeys(times, 3)), max_size=5))
def test_portions_are_counted_once_for_all_who_take_them(
    portions: list[list[int] | dict[int, int]],
) -> None:
    """Histograms, also filled ones, and one sparse form can add the same counted portions."""
    added, first, second = Histogram(), Histogram(), Histogram()
    counted = []
    for portion in portions:
        if isinstance(portion, dict):
            counted.append(Counted.repeated(portion))
            added.add([value for value, count in portion.items() for _ in range(count)])
        else:
            counted.append(Counted.of(portion))
            added.add(portion)
        first.take(counted[-1])
    for each in reversed(counted):
        second.take(each)
    assert facts(first) == facts(second) == facts(added)
    assert sparse_of(counted) == added.sparse()


def test_buckets_that_come_twice_add_up() -> None:
    """Sparse forms of many rows can be concatenated."""
    rebuilt = Histogram.of(Sparse(0, [5, 5, 6], [1, 2, 3]))
    assert rebuilt.sparse() == Sparse(0, [5, 6], [3, 3])


@pytest.mark.parametrize(
    ("buckets", "counts", "negative"),
    [([BUCKETS], [1], 0), ([-1], [1], 0), ([1], [-1], 0), ([1], [], 0), ([], [], -1)],
)
def test_an_unsound_sparse_form_is_refused(
    buckets: list[int], counts: list[int], negative: int
) -> None:
    """Unknown buckets, negative counts and lists of different lengths are refused."""
    with pytest.raises(ValueError, match="bucket"):
        Histogram.of(Sparse(negative, buckets, counts))


@given(st.integers(0, (1 << 53)))
def test_a_value_lies_in_its_bucket(value: int) -> None:
    """It is from the bucket's lower bound up to the next one's; the middle is within 0.4 %."""
    bucket = bucket_of(value)
    assert lower_bound(bucket) <= value < lower_bound(bucket + 1)
    assert abs(middle(bucket) - value) <= value / 256
    assert bucket_of(middle(bucket)) == bucket
    assert bucket_of(-value) == -bucket
    assert buckets_of(value).tolist() == [bucket]


def test_small_integers_have_buckets_of_their_own() -> None:
    """Below 128 nothing is rounded."""
    assert [middle(bucket_of(value)) for value in range(128)] == list(range(128))


@given(VALUES)
def test_cumulative_counts_are_within_a_buckets_width(values: list[int]) -> None:
    """They count the values from 0 on, and never decrease."""
    counts = filled(values).cumulative()
    assert counts == sorted(counts)
    for bound, count in zip(PROMETHEUS_NS, counts, strict=True):
        assert sum(0 <= value <= bound * 0.995 for value in values) <= count
        assert count <= sum(0 <= value <= bound * 1.005 for value in values)


def test_cumulative_of_small_bounds() -> None:
    """They are exact where each integer has its own bucket; a negative bound counts no value."""
    assert filled([-1, 0, 1, 5, 127]).cumulative([-1, 0, 1, 126, 127]) == [0, 1, 2, 3, 4]
    assert filled([0, (1 << 63) - 1]).cumulative([1 << 64]) == [2]


def test_published_bounds() -> None:
    """They are 1-2-5 per decade from a millisecond to 5000 s, then two and four hours."""
    assert PROMETHEUS_SECONDS[:4] == (0.001, 0.002, 0.005, 0.01)
    assert PROMETHEUS_SECONDS[-4:] == (2000, 5000, 7200, 14400)
    assert len(PROMETHEUS_SECONDS) == 23
    assert list(PROMETHEUS_NS) == sorted(PROMETHEUS_NS)


def test_an_empty_histogram_has_no_quantile() -> None:
    """`quantile` raises an error instead of returning 0."""
    with pytest.raises(ValueError, match="no value"):
        Histogram().quantile(0.5)
    assert Histogram().mean == 0


@pytest.mark.parametrize("q", [-0.1, 1.1])
def test_a_quantile_beyond_its_range_is_refused(q: float) -> None:
    """A quantile is in [0, 1]."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        filled([1]).quantile(q)


def test_the_mean_counts_negative_values() -> None:
    """They are neither clipped nor left out."""
    assert filled([-2, 4]).mean == 1
