"""Schedules, compared with exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.timing.schedule import ConstantRate, exact_rate

RATES = st.fractions(Fraction(1, 10**5), 10**8) | st.floats(0.001, 1e8).map(
    lambda rate: Fraction(repr(rate))
)
START = st.integers(0, 2 * 10**18)
INDEX = st.integers(0, 10**9)


def oracle(rate: Fraction, index: int) -> int:
    """When message `index` is due after the start, in ns, rounded down."""
    return int(index * 10**9 / rate)


@given(RATES, START, INDEX, st.integers(0, 300))
def test_times_are_exact(rate: Fraction, start: int, lo: int, count: int) -> None:
    """Each message is at the floor of its exact time, in arrays and one by one, without drift."""
    hi = lo + count
    schedule = ConstantRate(rate, start)
    if oracle(rate, hi) + start >= 1 << 62:
        return
    expected = [start + oracle(rate, index) for index in range(lo, hi)]
    assert schedule.intended(lo, hi).tolist() == expected
    assert [schedule.next_time(index) for index in range(lo, hi)] == expected


@given(RATES, START, st.integers(-(10**6), 10**12))
def test_due_is_exactly_what_has_come(rate: Fraction, start: int, elapsed: int) -> None:
    """The last message due is not in the future, and the next one is."""
    due = ConstantRate(rate, start).due(start + elapsed)
    if elapsed < 0:
        assert due == 0
    else:
        assert oracle(rate, due - 1) <= elapsed < oracle(rate, due)


def test_debt_stays_due() -> None:
    """After a pause of a minute, a sender owes the minute's messages, with their old times."""
    schedule = ConstantRate(Fraction(100), 0)
    assert schedule.due(60 * 10**9) == 6001
    assert schedule.intended(0, 2).tolist() == [0, 10**7]


def test_a_rate_of_many_digits_does_not_overflow() -> None:
    """Python's integers are used instead of int64."""
    rate = Fraction(10**40 + 7, 10**36 + 3)
    times = ConstantRate(rate, 5).intended(10**6, 10**6 + 3)
    assert times.tolist() == [5 + oracle(rate, 10**6 + i) for i in range(3)]


@pytest.mark.parametrize("rate", [0, -1])
def test_no_rate_at_all_is_refused(rate: int) -> None:
    """A rate is a number above zero."""
    with pytest.raises(ValueError, match="rate"):
        ConstantRate(Fraction(rate), 0)


def test_a_float_means_its_writing() -> None:
    """A float counts as its decimal text: 0.1 is exactly a tenth."""
    assert exact_rate(0.1) == Fraction(1, 10)
