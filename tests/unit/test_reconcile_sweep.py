"""The sweep line, compared with a loop over every number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, Sweep, highest_before, united

if TYPE_CHECKING:
    from collections.abc import Sequence

SPAN = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6)).map(
    lambda each: (each[0], each[1], each[1] + each[2])
)
SPANS = st.lists(SPAN, max_size=8)


def spans(listed: Sequence[tuple[int, int, int]]) -> Spans:
    """As arrays."""
    return Spans(*np.array(listed, dtype=np.int64).reshape(-1, 3).T)


@given(SPANS, SPANS)
def test_segments_sum_up_what_covers_them(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    """For each key and number: how many spans of a group cover it, and the sum of their weights."""
    sweep = Sweep(one=spans(one), other=spans(other))
    weights = np.arange(1, len(one) + 1)
    sums = (sweep.sum("one"), sweep.sum("one", weights), sweep.sum("other"))
    summed = {
        (key, number): tuple(int(each[at]) for each in sums)
        for at, (key, lo, hi) in enumerate(
            zip(*(each.tolist() for each in sweep.segments), strict=True)
        )
        for number in range(lo, hi)
    }
    for key in range(3):
        for number in range(20):
            mine = [at for at, (k, lo, hi) in enumerate(one) if k == key and lo <= number < hi]
            others = sum(k == key and lo <= number < hi for k, lo, hi in other)
            right = (len(mine), sum(at + 1 for at in mine), others)
            assert summed.get((key, number), (0, 0, 0)) == right


@given(st.lists(st.tuples(SPAN, st.integers(0, 9), st.booleans()), max_size=8))
def test_the_lowest_value_over_a_segment_is_that_of_the_chosen_spans(
    listed: list[tuple[tuple[int, int, int], int, bool]],
) -> None:
    """Where none covers it there is no value."""
    sweep = Sweep(one=spans([span for span, *_ in listed]))
    values = np.array([value for _, value, _ in listed], dtype=np.int64)
    chosen = np.array([flag for *_, flag in listed], dtype=bool)
    lowest = sweep.lowest("one", values, chosen).tolist()
    segments = zip(*(each.tolist() for each in sweep.segments), lowest, strict=True)
    for key, lo, hi, found in segments:
        covering = [v for (k, a, b), v, flag in listed if flag and k == key and a <= lo and hi <= b]
        assert found == min(covering, default=NONE)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 62)), max_size=12))
def test_the_highest_before_is_that_of_the_same_key(values: list[tuple[int, int]]) -> None:
    """It is 0 for each key's first value."""
    values = sorted(values, key=lambda each: each[0])
    key, value = np.array(values, dtype=np.int64).reshape(-1, 2).T
    right = [
        max((v for k, v in values[:at] if k == mine), default=0)
        for at, (mine, _) in enumerate(values)
    ]
    assert highest_before(key, value).tolist() == right


@given(SPANS)
def test_united_spans_have_the_same_numbers_once(listed: list[tuple[int, int, int]]) -> None:
    """They do not touch, and each has the index of a span with the same beginning."""
    listed = [each for each in listed if each[1] < each[2]]
    key, lo, hi = spans(listed)
    at, low, high = united(key, lo, hi)
    found = [*zip(key[at].tolist(), low.tolist(), high.tolist(), strict=True)]
    numbers = [(k, number) for k, first, last in found for number in range(first, last)]
    assert sorted(numbers) == sorted({(k, n) for k, a, b in listed for n in range(a, b)})
    assert all((k, last) not in numbers for k, _, last in found)
    assert lo[at].tolist() == low.tolist()
