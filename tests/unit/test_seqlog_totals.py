"""Sums of latencies equal a sum row by row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.seqlog.schema import ROWS
from mirrortest.seqlog.totals import NO_MINUTE, Total, totals
from mirrortest.timing.histogram import BUCKETS

_COLUMNS = ("run", "topic", "intended_first", "negative")
_MINUTE = 60_000_000_000
_ROW = st.fixed_dictionaries(
    {
        "run": st.none() | st.sampled_from("rs"),
        "topic": st.sampled_from("tu"),
        "intended_first": st.none() | st.integers(0, 40 * _MINUTE),
        "negative": st.none() | st.integers(0, 3),
        "latency": st.none() | st.dictionaries(st.integers(0, 8000), st.integers(1, 9), max_size=3),
    }
)


def _list(latency: dict[int, int] | None, part: Any) -> list[int] | None:
    return None if latency is None else list(part(latency))


@given(st.lists(_ROW, max_size=30), st.booleans(), st.integers(0, 3))
def test_sums_are_those_of_the_rows(drawn: list[dict[str, Any]], coded: bool, skipped: int) -> None:
    """It sums by run, topic and minute, also dictionary-encoded texts and slices of batches."""
    columns = {
        **{name: [row[name] for row in drawn] for name in _COLUMNS},
        "latency_bucket": [_list(row["latency"], dict.keys) for row in drawn],
        "latency_count": [_list(row["latency"], dict.values) for row in drawn],
    }
    names = (*_COLUMNS, "latency_bucket", "latency_count")
    arrays = [pa.array(columns[name], ROWS.field(name).type) for name in names]
    if coded:
        arrays[:2] = [each.dictionary_encode() for each in arrays[:2]]
    batch = pa.record_batch(arrays, names=list(names)).slice(skipped)
    expected: dict[tuple[Any, ...], tuple[int, Counter[int]]] = {}
    for row in drawn[skipped:]:
        if row["negative"] or row["latency"]:
            at = row["intended_first"]
            key = row["run"], row["topic"], NO_MINUTE if at is None else at // _MINUTE
            under, counts = expected.get(key, (0, Counter()))
            expected[key] = under + (row["negative"] or 0), counts + Counter(row["latency"] or {})
    found = totals(batch)
    assert len(found) == len(expected)
    for each in found:
        assert isinstance(each, Total)
        under, counts = expected[each.run, each.topic, each.minute]
        assert each.negative == under
        assert each.buckets == sorted(counts)
        assert dict(zip(each.buckets, each.counts, strict=True)) == counts


@pytest.mark.parametrize(
    ("buckets", "counts", "error"),
    [
        ([1], [1, 2], "without counts"),
        ([-1], [1], "beyond"),
        ([BUCKETS], [1], "beyond"),
        ([1 << 30], [1], "beyond"),
        ([1], None, "without counts"),
        ([1, None], [1, 2], "null"),
        ([1], [None], "null"),
    ],
)
def test_lists_that_make_no_sense(
    buckets: list[int | None], counts: list[int | None] | None, error: str
) -> None:
    """Buckets without counts, and buckets that no histogram has, are errors."""
    columns = (["r"], ["t"], [0], [0], [buckets], [counts])
    names = (*_COLUMNS, "latency_bucket", "latency_count")
    arrays = [
        pa.array(values, ROWS.field(name).type) for name, values in zip(names, columns, strict=True)
    ]
    with pytest.raises(ValueError, match=error):
        totals(pa.record_batch(arrays, names=list(names)))


def test_lengths_that_are_equal_in_total_alone() -> None:
    """Each row must have as many counts as buckets; equal totals are not enough."""
    columns: tuple[list[Any], ...] = (
        ["r"] * 2, ["t"] * 2, [0] * 2, [0] * 2, [[1, 2], [3]], [[1], [4, 5]],
    )  # fmt: skip
    names = (*_COLUMNS, "latency_bucket", "latency_count")
    arrays = [
        pa.array(values, ROWS.field(name).type) for name, values in zip(names, columns, strict=True)
    ]
    with pytest.raises(ValueError, match="without counts"):
        totals(pa.record_batch(arrays, names=list(names)))
