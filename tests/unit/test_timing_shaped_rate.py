"""Shaped schedules, compared with their definitions: integrals, and fixed-seed distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.config.shape import Burst, Gaussian, Ramp, RateShape, Sine, Step, Steps
from mirrortest.errors import UsageError
from mirrortest.timing.draws import Draws
from mirrortest.timing.shaped_rate import UNIT, EveryNth, ShapedRate

SECOND = 1_000_000_000
RATE = st.integers(0, 5000).map(Fraction) | st.fractions(0, 100, max_denominator=50)
POSITIVE = RATE.filter(lambda rate: rate > Fraction(1, 10))
TIME = st.integers(100_000_000, 100 * SECOND)
ENDLESS: st.SearchStrategy[RateShape] = st.one_of(
    st.builds(Gaussian, POSITIVE, RATE, TIME),
    st.builds(Ramp, RATE, POSITIVE, TIME),
    st.builds(lambda base, peak, a, b: Burst(base, peak, a + b, b), RATE, POSITIVE, TIME, TIME),
    st.builds(lambda mean, part, time: Sine(mean, mean * part, time), POSITIVE,
              st.fractions(0, 1, max_denominator=9), TIME),
)  # fmt: skip
STEPS = st.lists(st.builds(Step, RATE, TIME), min_size=1, max_size=6).map(
    lambda steps: Steps((*steps, Step(Fraction(7), 3 * SECOND)))
)
SHAPES = ENDLESS | STEPS


def schedule(shape: RateShape, seed: int = 1) -> ShapedRate:
    return ShapedRate(shape, seed=seed, topic="t")


def integral(shape: RateShape, ns: int) -> float:
    """How many messages are due by a time, by the definition of a shape that is not random."""
    t = ns / SECOND
    match shape:
        case Ramp():
            start, end, lasts = float(shape.start), float(shape.end), shape.duration / SECOND
            within = min(t, lasts)
            return start * within + (end - start) * within**2 / 2 / lasts + end * (t - within)
        case Burst():
            periods, rest = divmod(ns, shape.every)
            peaks = periods * shape.lasting + min(rest, shape.lasting)
            return float(peaks * shape.peak + (ns - peaks) * shape.base) / SECOND
        case Sine():
            turn = 2 * math.pi * SECOND / shape.period
            return float(shape.mean) * t + float(shape.amplitude) * (1 - math.cos(turn * t)) / turn
        case Steps():
            total = Fraction(0)
            for rate, duration in shape.steps:
                lasted = ns if duration is None else min(ns, duration)
                total += rate * lasted / SECOND
                ns -= lasted
            return float(total)
        case _:
            raise AssertionError(shape)


@given(SHAPES, st.integers(0, 500_000), st.integers(1, 300))
def test_times_and_counts_are_inverse(shape: RateShape, first: int, count: int) -> None:
    """A message is due at its time, and not a nanosecond earlier; times never decrease."""
    found = schedule(shape)
    if found.limit is not None:
        first = min(first, max(found.limit - 1, 0))
        count = min(count, found.limit - first)
    times = found.times(first, count, 1)
    assert times.tolist() == [found.next_time(each) for each in range(first, first + count)]
    assert (np.diff(times) >= 0).all()
    for index, time in zip(range(first, first + count), times.tolist(), strict=True):
        assert found.due(time) > index
        assert found.due(time - 1) <= index


@given(SHAPES, st.integers(0, 400 * SECOND))
def test_what_is_due_is_the_rates_integral(shape: RateShape, now: int) -> None:
    """The count is within a message of the definition, at any time, without earlier calls."""
    if isinstance(shape, Gaussian):
        return
    rate = max(1.0, schedule(shape).highest)
    # The line is straight between knots, and fractions of a message are rounded at knots.
    slack = rate / 10_000 + 0.01 + 1e-9 * integral(shape, now)
    due = schedule(shape).due(now)
    assert integral(shape, now) - slack <= due <= integral(shape, now) + 1 + slack


@given(SHAPES, st.integers(1, 9), st.integers(0, 10**6), st.integers(0, 200))
def test_lanes_part_a_topics_messages(shape: RateShape, lanes: int, at: int, count: int) -> None:
    """Each message belongs to one lane, at the topic's time; due counts add up to the topic's."""
    found = schedule(shape)
    parts = [EveryNth(found, index=index, of=lanes) for index in range(lanes)]
    now = at * 100_000
    assert sum(part.due(now) for part in parts) == found.due(now)
    lo = min(part.due(now) for part in parts)
    hi = lo + count
    if found.limit is not None:
        hi = min(hi, *(part.limit or 0 for part in parts))
        lo = min(lo, hi)
    together = np.array([part.intended(lo, hi) for part in parts]).T.ravel()
    assert together.tolist() == found.times(lo * lanes, (hi - lo) * lanes, 1).tolist()
    for part in parts:
        assert [part.next_time(each) for each in range(lo, hi)] == part.intended(lo, hi).tolist()


def test_lanes_that_ask_for_one_moment_share_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count what is due is what a schedule costs; each tick asks for all lanes."""
    full, counted = schedule(Ramp(Fraction(1), Fraction(9), 10 * SECOND)), []
    usual = full._count_due

    def count(now_ns: int) -> int:
        counted.append(now_ns)
        return usual(now_ns)

    monkeypatch.setattr(full, "_count_due", count)
    lanes = [EveryNth(full, index=index, of=50) for index in range(50)]
    for now in (SECOND, 9 * SECOND, SECOND):
        assert sum(lane.due(now) for lane in lanes) == usual(now)
    assert counted == [SECOND, 9 * SECOND, SECOND]


@given(STEPS)
def test_steps_end_with_their_messages(shape: Steps) -> None:
    """All messages of the steps are due, and none after them."""
    found = schedule(shape)
    exact = sum(rate * (duration or 0) / SECOND for rate, duration in shape.steps)
    assert found.limit == math.ceil(Fraction(math.floor(exact * UNIT + Fraction(1, 2)), UNIT))
    assert found.due(1 << 60) == found.limit
    assert found.next_time(found.limit) is None
    with pytest.raises(ValueError, match="past the end"):
        found.times(found.limit, 1, 1)


def test_a_pause_is_kept_and_the_last_step_may_stay() -> None:
    """Nothing is due in a step of rate 0, only after it; a last step may have no end."""
    pause = Steps((Step(Fraction(0), SECOND), Step(Fraction(2), SECOND), Step(Fraction(0), SECOND)))
    found = schedule(Steps((*pause.steps, Step(Fraction(4), None))))
    assert [found.next_time(each) for each in range(4)] == [
        SECOND, 3 * SECOND // 2, 3 * SECOND, 13 * SECOND // 4,
    ]  # fmt: skip
    assert found.due(SECOND - 1) == 0
    assert found.rate(SECOND // 2) == 0
    assert found.rate(4 * SECOND) == 4
    assert found.limit is None
    assert schedule(pause).limit == 2


def test_windows_have_their_rates_in_any_order() -> None:
    """A window has the same messages whether or not earlier ones were read; seeds differ."""
    shape = Gaussian(Fraction(500), Fraction(50), 10 * SECOND)
    late, reached = schedule(shape), schedule(shape)
    at = 3_000 * SECOND
    for second in range(0, 3_000, 7):
        reached.due(second * SECOND)
    assert late.due(at) == reached.due(at)
    assert schedule(shape, seed=2).due(at) != late.due(at)
    assert ShapedRate(shape, seed=1, topic="u").due(at) != late.due(at)


def windows(shape: Gaussian, count: int) -> np.ndarray:
    """The rates of the first windows, from the messages that are due in each."""
    found = schedule(shape)
    due = [found.due(number * shape.every - 1) for number in range(count + 1)]
    return np.diff(due) / (shape.every / SECOND)


def test_gaussian_windows_are_gaussian() -> None:
    """68, 95 and 99.7 % are within 1, 2 and 3 deviations; the Kolmogorov-Smirnov test passes."""
    shape = Gaussian(Fraction(500), Fraction(50), 10 * SECOND)
    rates = windows(shape, 4000)
    deviations = np.abs(rates - 500) / 50
    for most, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        found = (deviations < most).mean()
        assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / 4000) + 0.002
    assert kolmogorov(rates, lambda x: 0.5 * (1 + math.erf((x - 500) / 50 / math.sqrt(2)))) < 1.63


def kolmogorov(values: np.ndarray, expected: object) -> float:
    """The Kolmogorov-Smirnov statistic times the square root of n: 1.63 is the 1 % level."""
    assert callable(expected)
    ordered = np.sort(values)
    n = len(ordered)
    of = np.array([expected(each) for each in ordered])
    above = (np.arange(1, n + 1) / n - of).max()
    return float(max(above, (of - np.arange(n) / n).max()) * math.sqrt(n))


def test_draws_are_uniform_normal_and_by_number() -> None:
    """The draw for a number does not depend on which other numbers are drawn with it."""
    draws = Draws(7, "a", "b")
    numbers = np.arange(5000, dtype=np.int64)
    assert kolmogorov(draws.uniform(numbers), lambda x: x) < 1.63
    normal = draws.normal(numbers)
    assert kolmogorov(normal, lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))) < 1.63
    assert draws.normal(numbers[4321:4322]) == normal[4321]
    assert (Draws(7, "ab").uniform(numbers) != draws.uniform(numbers)).all()
    correlated = np.corrcoef(draws.uniform(numbers, 0), draws.uniform(numbers, 1))[0, 1]
    assert abs(correlated) < 4 / math.sqrt(5000)


def test_a_rate_below_zero_is_zero() -> None:
    """A wide Gaussian has windows without messages, and others."""
    rates = windows(Gaussian(Fraction(1), Fraction(1000), SECOND), 1000)
    assert rates.min() == 0
    assert 0.4 < (rates == 0).mean() < 0.6


@settings(max_examples=20)
@given(st.sampled_from([Ramp, Steps, Burst, Gaussian]))
def test_what_cannot_be_counted_is_refused(kind: type[RateShape]) -> None:
    """The shapes have a billion messages/s for a century."""
    century, rate = 100 * 365 * 86400 * SECOND, Fraction(10**9)
    shapes: dict[type[RateShape], RateShape] = {
        Ramp: Ramp(rate, rate, century),
        Steps: Steps((Step(rate, century),)),
        Burst: Burst(rate, rate, century, SECOND),
        Gaussian: Gaussian(rate, rate, century),
    }
    with pytest.raises(UsageError, match="more than can be counted"):
        schedule(shapes[kind])


@pytest.mark.parametrize("mean", [Fraction(1, 10**6), Fraction(5, 10**6), Fraction(1, 10**5)])
def test_a_slow_gaussian_sends_at_its_rate_however_short_its_windows_are(mean: Fraction) -> None:
    """Rounding each window must not change the rate.

    Each window was rounded to no message, and the producer searched for ever. At a rate five times
    as high, it sent 1.9 times as much as was asked for.
    """
    found = schedule(Gaussian(mean, Fraction(0), SECOND // 10))
    assert found.next_time(1) == pytest.approx(SECOND / mean, rel=0.002)


@pytest.mark.parametrize(
    "shape",
    [
        Burst(Fraction(0), Fraction(1, 10**6), SECOND, SECOND // 10),
        Sine(Fraction(1, 10**6), Fraction(0), SECOND // 10),
    ],
)
def test_a_period_with_next_to_no_message_is_refused(shape: RateShape) -> None:
    """Such a load ended at once, without a message or a reason."""
    with pytest.raises(UsageError, match="less than one message in 4,096 periods"):
        schedule(shape)


@given(st.integers(1, 40).map(lambda n: Fraction(n, 4096)), st.booleans())
def test_slow_periods_that_are_taken_keep_their_rate(mean: Fraction, sine: bool) -> None:
    """The count is right within 0.2 % and one message: each period's messages are rounded."""
    shape = Sine(mean, mean, SECOND) if sine else Burst(Fraction(0), mean * 2, SECOND, SECOND // 2)
    periods = 1000 / mean
    assert schedule(shape).due(int(periods) * SECOND) == pytest.approx(1000, abs=3)


def test_times_that_no_clock_counts_are_refused() -> None:
    """Two steps that together last more than 292 years ended with an internal error."""
    step = Step(Fraction(1, 10**6), 1 << 62)
    with pytest.raises(UsageError, match="longer than 292 years in all"):
        schedule(Steps((step, step)))
