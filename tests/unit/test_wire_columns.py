"""Columns: the same bytes, whether the positions are regular or not."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.columns import Columns, rows_at

steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), max_size=30)


@given(steps, st.integers(0, 5), st.data())
def test_columns_are_the_bytes_at_each_position(
    runs: list[tuple[int, int]], offset: int, data: st.DataObject
) -> None:
    """Any mixture of strides: words, bytes, rows and comparisons are those of slices."""
    gaps = [step for step, repeat in runs for _ in range(repeat)]
    starts = list(itertools.accumulate(gaps, initial=3))
    raw = bytes((i * 37 + i // 7) % 5 for i in range(starts[-1] + 16))
    columns = Columns(np.frombuffer(raw, np.uint8), np.array(starts, np.int64))
    (words,) = columns.words([offset])
    want = [int.from_bytes(raw[s + offset : s + offset + 8], "little") for s in starts]
    assert words.tolist() == want
    assert columns.bytes_at(offset).tolist() == [raw[s + offset] for s in starts]
    lo = data.draw(st.integers(0, len(starts) - 1))
    hi = data.draw(st.integers(lo + 1, len(starts)))
    width = data.draw(st.integers(1, 11))
    rows = rows_at(np.frombuffer(raw, np.uint8), np.array(starts[lo:hi]) + offset, width)
    assert [row.tobytes() for row in rows] == [
        raw[s + offset : s + offset + width] for s in starts[lo:hi]
    ]
    expected = raw[starts[lo] + offset : starts[lo] + offset + width]
    assert columns.equal(offset, expected).tolist() == [
        raw[s + offset : s + offset + width] == expected for s in starts
    ]
