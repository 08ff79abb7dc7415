"""Latencies for the charts: the figures of histograms, for many at once."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.report.html.latencies import MOST_BINS, Distribution, Latencies
from mirrortest.timing.histogram import Histogram, lower_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARES = [Fraction(1, 1000), Fraction(1, 2), Fraction(99, 100), Fraction(1)]


def rows(*values: NDArray[np.int64] | list[int]) -> pa.Table:
    """A table with one histogram in each row."""
    entries = []
    for each in values:
        histogram = Histogram()
        histogram.add(each)
        _, buckets, counts = histogram.sparse()
        entries.append(
            {"negative": histogram.negative, "latency_bucket": buckets, "latency_count": counts}
        )
    schema = pa.schema(
        [
            ("negative", pa.int64()),
            ("latency_bucket", pa.list_(pa.int32())),
            ("latency_count", pa.list_(pa.int64())),
        ]
    )
    return pa.Table.from_pylist(entries, schema)


def latencies(
    values: list[NDArray[np.int64] | list[int]],
    topic: list[int],
    slot: list[int],
    shape: tuple[int, int],
) -> Latencies:
    """Latencies of rows, each of a topic and a slot."""
    return Latencies.of_rows(np.array(topic), np.array(slot), rows(*values), shape=shape)


@settings(max_examples=60)
@given(st.lists(st.integers(-(10**6), 10**13), min_size=1, max_size=40))
def test_quantiles_are_the_histograms(values: list[int]) -> None:
    """Each rank is in the same bucket; values below zero are None: the axis is logarithmic."""
    histogram = Histogram()
    histogram.add(values)
    restored = Histogram.of(histogram.sparse())
    distribution = latencies([values], [0], [0], (1, 1)).distribution()
    assert distribution.count == restored.count
    for share in SHARES:
        expected = restored.quantile(share)
        assert distribution.quantile(share) == (None if expected < 0 else expected)


def test_each_slot_has_its_own_quantiles() -> None:
    """Rows of one slot are summed, topics can be taken together or one by one."""
    found = latencies([[10], [30], [1000], [20]], [0, 1, 0, 0], [0, 0, 2, 0], (2, 3))
    both = found.of_topics([0, 1])
    assert both.quantiles([Fraction(1, 2), Fraction(1)]) == [[20, None, 1001], [30, None, 1001]]
    assert found.of_topics([1]).distribution().quantile(1) == 30
    assert found.of_topics([1]).quantiles([Fraction(1)]) == [[30, None, None]]


@pytest.mark.parametrize(
    "values", [[5], [10**6, 10**6 + 1], [1, 10**12], list(range(10**6, 10**8, 10**6))]
)
def test_bins_hold_everything_once_and_are_few(values: list[int]) -> None:
    """Every message is in one bin, the fastest in the lowest; the bins reach beyond the slowest."""
    found = latencies([values], [0], [0], (1, 1))
    bins = found.bins()
    assert 1 <= bins.count <= MOST_BINS
    assert len(bins.edges_ns) == bins.count + 1
    assert sum(count for *_, count in found.cells(bins)) == len(values)
    assert all(0 <= number < bins.count for _, number, _ in found.cells(bins))
    assert bins.edges_ns[-1] > max(values)


def test_the_curve_rises_to_the_last_message() -> None:
    """A thinned cumulative distribution: ascending, few points, and the last has all messages."""
    random = np.random.default_rng(7)
    values = random.lognormal(17, 1, 100_000).astype(np.int64)
    distribution = latencies([values], [0], [0], (1, 1)).distribution()
    points = distribution.curve()
    assert [point.below for point in points] == sorted({point.below for point in points})
    assert points[-1].below == 100_000
    assert len(points) < 400
    exact = np.searchsorted(np.sort(values), [point.latency_ns for point in points], "right")
    off = np.abs(exact - [point.below for point in points]) / 100_000
    assert off.max() < 0.01


def test_nothing_measured_says_nothing() -> None:
    """Without latencies there is no quantile, no mean, no cell and no curve."""
    nothing = Latencies.of_rows(np.array([], int), np.array([], int), rows(), shape=(1, 2))
    assert nothing.distribution().quantile(0.5) is None
    assert nothing.distribution().mean is None
    assert nothing.distribution().curve() == []
    assert nothing.of_topics([0]).cells(nothing.bins()) == []
    assert Distribution(np.array([]), np.array([]), negative=3).quantile(1) is None


def test_edges_are_the_buckets_own() -> None:
    """A bin begins where its first bucket does."""
    found = latencies([[10**6, 3 * 10**9]], [0], [0], (1, 1))
    bins = found.bins()
    assert bins.edges_ns[0] == lower_bound(bins.first << bins.shift)
