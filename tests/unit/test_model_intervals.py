"""Interval sets, compared with Python's sets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.intervals import IntervalSet

NUMBERS = st.integers(0, 40)
SETS = st.frozensets(NUMBERS, max_size=30)
SPANS = st.tuples(NUMBERS, NUMBERS)


def of(numbers: frozenset[int]) -> IntervalSet:
    return IntervalSet((n, n + 1) for n in sorted(numbers))


def numbers_of(ids: IntervalSet) -> set[int]:
    listed = [n for lo, hi in ids.intervals() for n in range(lo, hi)]
    spans = list(ids.intervals())
    assert all(lo < hi for lo, hi in spans)
    assert all(spans[k][1] < spans[k + 1][0] for k in range(len(spans) - 1))
    assert ids.count == len(listed)
    assert len(ids) == len(spans)
    return set(listed)


@given(st.lists(SPANS))
def test_adding(steps: list[tuple[int, int]]) -> None:
    """Any sequence of adds leaves the right numbers, disjoint, sorted and joined.

    Each says by how many intervals the set has grown.
    """
    ids, model = IntervalSet(), set()
    for lo, hi in steps:
        before = len(ids)
        assert ids.add(lo, hi) == len(ids) - before
        model |= set(range(lo, hi))
        assert numbers_of(ids) == model


@given(SETS, SETS)
def test_algebra(left: frozenset[int], right: frozenset[int]) -> None:
    """Union, intersection, difference and update are those of sets, and leave both sides alone."""
    one, two = of(left), of(right)
    assert numbers_of(one | two) == left | right
    assert numbers_of(one & two) == left & right
    assert numbers_of(one - two) == left - right
    assert (one == two) == (left == right)
    updated = one.copy()
    assert updated.update(two) == len(updated) - len(one)
    assert numbers_of(updated) == left | right
    assert (numbers_of(one), numbers_of(two)) == ({*left}, {*right})


@given(SETS, SPANS)
def test_windows(numbers: frozenset[int], span: tuple[int, int]) -> None:
    """`within`, `missing`, `below` and `count_within` agree with Python's sets for any span."""
    ids, window = of(numbers), set(range(*span))
    assert numbers_of(ids.within(*span)) == numbers & window
    assert numbers_of(ids.missing(*span)) == window - numbers
    assert ids.count_within(*span) == len(numbers & window)
    assert numbers_of(ids.below(span[0])) == {n for n in numbers if n < span[0]}


@given(SETS, NUMBERS)
def test_membership_and_ends(numbers: frozenset[int], number: int) -> None:
    """Membership, least and end agree with the set; an empty set has no least."""
    ids = of(numbers)
    assert (number in ids) == (number in numbers)
    assert bool(ids) == bool(numbers)
    if numbers:
        assert (ids.min, ids.end) == (min(numbers), max(numbers) + 1)
    else:
        assert ids.end == 0
        with pytest.raises(ValueError, match="empty"):
            _ = ids.min


@given(SETS)
def test_round_trip(numbers: frozenset[int]) -> None:
    """A set equals what is read back from its JSON list."""
    ids = of(numbers)
    assert IntervalSet.from_list(json.loads(json.dumps(ids.to_list()))) == ids


@pytest.mark.parametrize(
    "damaged", [[1], [1, 0], [1, -1], [1, 1, 0, 1], ["1", 1], [1.0, 1], [True, 1]]
)
def test_damaged_lists_are_refused(damaged: list[Any]) -> None:
    """Odd lengths, steps that do not ascend and other types are no interval list."""
    with pytest.raises(ValueError, match="interval list"):
        IntervalSet.from_list(damaged)


def test_a_long_clean_stream_is_one_interval() -> None:
    """Numbers appended at the end extend its interval."""
    ids = IntervalSet()
    for lo in range(0, 100_000, 100):
        ids.add(lo, lo + 100)
    assert (len(ids), ids.count) == (1, 100_000)
    assert repr(ids) == "IntervalSet([(0, 100000)])"
