"""Recent rates and latencies: differences between samples."""

from __future__ import annotations

from mirrortest.timing.histogram import Histogram
from mirrortest.timing.recent import RECENT_NS, Latencies, Recent

SECOND = 1_000_000_000


def _of(*values: int) -> Histogram:
    histogram = Histogram()
    histogram.add(values)
    return histogram


def test_the_first_sample_says_nothing_of_a_rate() -> None:
    """What a restored count already contains did not happen now."""
    grown = Recent().sample(5 * SECOND, (1_000_000,), _of(7))
    assert grown.per_second == (0.0,)
    assert grown.latencies.recent.counts == []
    assert grown.latencies.all.counts == [1]


def test_rates_and_latencies_are_of_the_last_seconds() -> None:
    """They cover `RECENT_NS`; what happened before that does not count."""
    recent = Recent()
    values: list[int] = []
    for second in range(30):
        values += [1000 if second < 15 else 10] * 100
        grown = recent.sample(second * SECOND, (100 * second,), _of(*values))
    span = RECENT_NS // SECOND
    assert grown.per_second == (100.0,)
    assert sum(grown.latencies.recent.counts) == 100 * span
    assert len(grown.latencies.recent.buckets) == 1  # the thousands are too old
    assert sum(grown.latencies.all.counts) == 3000
    assert len(recent._samples) == span + 1


def test_values_below_zero_are_counted_apart() -> None:
    """`all` and `recent` have their numbers, as in a histogram."""
    recent = Recent()
    recent.sample(0, (), _of(-5))
    grown = recent.sample(SECOND, (), _of(-5, -7, 3))
    assert (grown.latencies.all.negative, grown.latencies.recent.negative) == (2, 1)


def test_those_of_several_processes_are_one_distribution() -> None:
    """Each process's values count once."""
    one = Recent().sample(0, (), _of(5, -1)).latencies
    two = Recent().sample(0, (), _of(5, 9)).latencies
    merged = Latencies.merged([one, two], []).all
    again = Histogram.of(merged)
    assert (again.count, again.negative) == (4, 1)
    assert again.sparse() == _of(-1, 5, 5, 9).sparse()
