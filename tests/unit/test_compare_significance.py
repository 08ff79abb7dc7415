"""Intervals, chances and false alarms of comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from mirrortest.compare import significance
from mirrortest.compare.comparison import compare
from mirrortest.compare.document import Change
from mirrortest.compare.repeat import Side
from mirrortest.compare.significance import (
    adjusted,
    difference,
    relative,
    student,
    t_test,
    two_sided,
)
from tests.compared import drawn, recorded

PAIRS = 100


@pytest.mark.parametrize(
    ("t", "freedom", "chance"),
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (3.355, 8, 0.01), (2.306, 8, 0.05), (1.0, 1, 0.5)],
)
def test_students_distribution_is_that_of_the_tables(
    t: float, freedom: float, chance: float
) -> None:
    """The chance of a t and the t of a chance both match."""
    assert two_sided(t, freedom) == pytest.approx(chance, rel=1e-3)
    assert student(chance, freedom) == pytest.approx(t, rel=1e-3)


def test_far_tails_are_not_zero() -> None:
    """They decide among many figures; two degrees of freedom have a closed form to compare with."""
    t = 1e4
    assert two_sided(t, 2) == pytest.approx(1 - t / (2 + t * t) ** 0.5, rel=1e-3)


def test_students_t_is_as_published() -> None:
    """It matches two examples worked out by hand; both samples together give the variance."""
    # Means 2 and 6, variances 1 and 4 of three values each: pooled 2.5, t = 4/sqrt(2.5 * 2/3).
    assert t_test([1, 2, 3], [4, 6, 8]) == pytest.approx(two_sided(4 / (5 / 3) ** 0.5, 4))
    # Of two values against four: pooled (0.5 + 3 * 5/3) / 4, t = 3/sqrt(1.375 * 3/4).
    assert t_test([1, 2], [3, 4, 5, 6]) == pytest.approx(two_sided(3 / 1.03125**0.5, 4))


def test_chances_are_adjusted_for_their_number() -> None:
    """The factor depends on the rank; no chance exceeds that of the next greater one."""
    assert adjusted([0.01, 0.04, 0.03, 0.5]) == pytest.approx(
        [0.04, 0.04 * 4 / 3, 0.04 * 4 / 3, 0.5]
    )
    assert adjusted([0.02, 0.9, 0.021]) == pytest.approx([0.0315, 0.9, 0.0315])
    assert adjusted([]) == []


def test_a_difference_is_a_share_of_the_base() -> None:
    """For a base of 0 it is infinite, or 0 if both are 0."""
    assert relative([1, 3], [3, 3]) == 0.5
    assert relative([0, 0], [1, 0]) == float("inf")
    assert relative([0, 0], [0, 0]) == 0.0


def test_the_same_values_give_the_same_interval() -> None:
    """Its draws are seeded: another process would draw the same."""
    values = ([1.0, 1.2, 0.9, 1.1], [1.3, 1.5, 1.2, 1.6])
    before = difference(*values)
    significance._resamples.cache_clear()
    assert difference(*values) == before


def test_less_than_a_measures_resolution_is_no_difference() -> None:
    """Percentiles are exact to 0.4 %: if each side is in one bucket, it has no spread at all."""
    found = difference([1.0, 1.0, 1.0], [1.003, 1.003, 1.003])
    assert found.chance == 1.0
    assert found.low == 0
    assert found.high == pytest.approx(0.003)
    assert difference([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])[:3] == (0, 0, 0)


@pytest.mark.parametrize("repeats", range(3, 7))
def test_equal_means_of_values_that_spread_have_an_interval(repeats: int) -> None:
    """It leaves a threshold undecided; an interval of [0, 0] let it pass."""
    values = [12.0, 4.0, *range(repeats - 2)]
    found = difference(values, values[::-1])
    assert found.estimate == 0
    assert found.low < -0.1
    assert found.high > 0.1


def test_something_where_there_was_nothing_is_a_difference() -> None:
    """For a base of 0, the difference has a sign, but no size."""
    found = difference([0.0] * 5, [9.0, 11.0, 10.0, 9.5, 10.5])
    assert found.low == found.high == float("inf")
    assert found.chance < 1e-4


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.85), (5, 0.91), (10, 0.92)])
def test_intervals_contain_the_true_difference(repeats: int, least: float) -> None:
    """They do as often as promised, less for three repeats: they stay in the values' range."""
    draws = np.random.default_rng(20)
    inside = 0
    for _ in range(300):
        base, new = draws.lognormal(0, 0.3, repeats), 1.2 * draws.lognormal(0, 0.3, repeats)
        found = difference(list(base), list(new))
        inside += found.low <= 0.2 <= found.high
    assert inside / 300 >= least


@pytest.mark.parametrize("repeats", [3, 5])
def test_equal_runs_do_not_differ(repeats: int) -> None:
    """Of 100 pairs of one distribution at least 95 have no figure that differs."""
    draws = np.random.default_rng(repeats)
    equal = 0
    for _ in range(PAIRS):
        sides = [Side("", [drawn(draws) for _ in range(repeats)]) for _ in range(2)]
        (pair,) = compare(sides[0], sides[1:]).pairs
        equal += pair.change is Change.NONE
    assert equal >= 95


@pytest.mark.parametrize("repeats", [4, 6])
def test_a_slow_down_is_found_and_named(repeats: int) -> None:
    """Nearly all pairs show that acknowledgements take twice as long, and hardly anything else."""
    draws = np.random.default_rng(repeats)
    found, named = 0, list[str]()
    for _ in range(20):
        base = Side("", [drawn(draws) for _ in range(repeats)])
        (pair,) = compare(base, [Side("", [drawn(draws, slow=2) for _ in range(repeats)])]).pairs
        worse = {each.name for each in pair.figures if each.change is Change.WORSE}
        found += "ack_latency.p(50)" in worse
        named += worse
    assert found >= 18
    wrong = [name for name in named if not name.startswith("ack_latency.")]
    assert len(wrong) <= 0.05 * len(named)


@pytest.mark.parametrize("repeats", [3, 5])
def test_equal_real_runs_do_not_differ(repeats: int) -> None:
    """At least 95 of 100 pairs drawn from one run's recorded repeats have no difference."""
    draws = np.random.default_rng(repeats)
    base = recorded()["base"]
    equal = 0
    for _ in range(PAIRS):
        drawn_runs = draws.integers(0, len(base), (2, repeats))
        sides = [Side("", [base[at] for at in chosen]) for chosen in drawn_runs]
        (pair,) = compare(sides[0], sides[1:]).pairs
        equal += pair.change is Change.NONE
    assert equal >= 95


def test_three_repeats_find_a_real_slow_down_more_often_than_not() -> None:
    """Slower figures also spread more: Welch's test found only one slow-down in four."""
    draws = np.random.default_rng(4)
    found = 0
    for _ in range(20):
        sides = [
            Side("", [repeats[at] for at in draws.permutation(len(repeats))[:3]])
            for repeats in (recorded()["base"], recorded()["slow"])
        ]
        (pair,) = compare(sides[0], sides[1:]).pairs
        found += pair.change in {Change.WORSE, Change.BETTER, Change.DIFFERS}
    assert found >= 11


def test_a_real_slow_down_is_found_and_named() -> None:
    """Batches that wait longer change the schedule lag, the batches' size and the CPU."""
    sides = recorded()
    (pair,) = compare(Side("", sides["base"]), [Side("", sides["slow"])]).pairs
    changed = {each.name: each.change for each in pair.figures}
    assert changed["schedule_lag.p(50)"] is Change.WORSE
    assert changed["batch_messages"] is Change.DIFFERS
    assert changed["produce_cpu"] is Change.BETTER
    assert pair.change is Change.WORSE
