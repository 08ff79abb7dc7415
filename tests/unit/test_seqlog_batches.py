"""Rows as record batches, and intervals as rows of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Outcome
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Columns, batch_of, conform, exact, explode
from mirrortest.seqlog.schema import ROWS, Kind
from mirrortest.timing.histogram import Sparse
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from mirrortest.seqlog.rows import Row

STREAM = StreamId("orders", "r1", "alpha", 1, 0)


@st.composite
def any_row(draw: st.DrawFn) -> rows.Row:
    """A row of any kind, with intervals of up to nine messages."""
    lo, count, offset = draw(st.tuples(st.integers(0, 99), st.integers(1, 9), st.integers(0, 99)))
    row = rows.sent(
        STREAM,
        lo,
        lo + count,
        partition=draw(st.integers(0, 3)),
        outcome=draw(st.sampled_from(Outcome)),
        offset_lo=draw(st.sampled_from([None, offset])),
        intended=(10, 20),
        sent=draw(st.sampled_from([None, (11, 21)])),
        latencies=draw(st.sampled_from([None, Sparse(2, [4], [count])])),
    )
    kind = draw(st.sampled_from(["sent", "seen", "foreign", "read", "reserved", "end"]))
    if kind == "seen":
        return row._replace(kind="seen", offset_lo=offset, offset_hi=offset + count)
    if kind == "foreign":
        alone = rows.Row("seen", "orders", partition=1, arrived_first=1, arrived_last=2)
        return alone._replace(offset_lo=offset, offset_hi=offset + count, findings=1)
    if kind == "read":
        return rows.read("orders", 0, offset, offset + count)
    if kind == "reserved":
        return rows.reserved(STREAM, lo, lo + count)
    return rows.end(STREAM, count) if kind == "end" else row


def exploded_one_by_one(row: rows.Row) -> list[rows.Row]:
    """What `explode` does, row by row."""
    if row.kind not in {"sent", "seen"}:
        return [row]
    lo, hi = (row.seq_lo, row.seq_hi) if row.seq_lo is not None else (row.offset_lo, row.offset_hi)
    assert lo is not None
    assert hi is not None
    result = []
    for step in range(hi - lo):
        one = row
        if row.seq_lo is not None:
            one = one._replace(seq_lo=row.seq_lo + step, seq_hi=row.seq_lo + step + 1)
        if row.offset_lo is not None:
            one = one._replace(offset_lo=row.offset_lo + step, offset_hi=row.offset_lo + step + 1)
        if step:
            one = one._replace(negative=None, latency_bucket=None, latency_count=None)
        result.append(one)
    return result


def back(batch: pa.RecordBatch) -> list[rows.Row]:
    """A batch's rows."""
    return [rows.Row(**line) for line in batch.to_pylist()]


@given(st.lists(any_row(), max_size=12))
def test_rows_survive_the_batch(some: list[Row]) -> None:
    """Rows come out of a batch as they went in, in their order, under the schema."""
    batch = batch_of(some)
    assert batch.schema.equals(ROWS)
    assert back(batch) == some


@given(st.lists(any_row(), max_size=12))
def test_explode_equals_one_by_one(some: list[Row]) -> None:
    """Exploding whole batches equals exploding row by row, and sums stay the same."""
    batch = explode(batch_of(some))
    batch.validate(full=True)
    assert batch.schema.equals(ROWS)
    assert back(batch) == [one for row in some for one in exploded_one_by_one(row)]
    assert sum(row.negative or 0 for row in back(batch)) == sum(row.negative or 0 for row in some)


@given(st.lists(any_row(), max_size=6))
def test_exploding_again_changes_nothing(some: list[Row]) -> None:
    """Rows of single messages stay as they are."""
    once = explode(batch_of(some))
    assert back(explode(once)) == back(once)


def test_explode_refuses_unequal_lengths() -> None:
    """Three seqs at two offsets are not an interval."""
    row = rows.reserved(STREAM, 0, 3)._replace(kind="sent", offset_lo=5, offset_hi=7)
    with pytest.raises(ValueError, match="not as many seqs as offsets"):
        explode(batch_of([row]))


def test_exact_gives_each_message_its_own_times() -> None:
    """With arrays each message has its time; without, the interval's bounds stay."""
    row = rows.sent(
        STREAM,
        5,
        8,
        partition=0,
        outcome=Outcome.ACKED,
        offset_lo=50,
        intended=(1, 3),
        sent=(4, 4),
        acknowledged=(9, 9),
        latencies=Sparse(0, [7], [3]),
    )
    batch = exact(row, intended=np.array([1, 2, 3])).batch()
    expected = [
        one._replace(intended_first=step + 1, intended_last=step + 1)
        for step, one in enumerate(exploded_one_by_one(row))
    ]
    assert back(batch) == expected


@given(any_row().filter(lambda row: row.kind in {"sent", "seen"}))
def test_exact_without_arrays_is_explode(row: Row) -> None:
    """The two ways to rows of messages agree if no exact time is known."""
    assert back(exact(row).batch()) == back(explode(batch_of([row])))


def test_exact_refuses_other_kinds_and_lengths() -> None:
    """Only `sent` and `seen` rows have messages, and each message has exactly one time."""
    with pytest.raises(ValueError, match="has no messages"):
        exact(rows.read("t", 0, 1, 2))
    row = rows.reserved(STREAM, 0, 3)._replace(kind="seen")
    with pytest.raises(ValueError, match="2 values of intended_first for 3 rows"):
        exact(row, intended=np.array([1, 2]))
    with pytest.raises(ValueError, match="without seqs and offsets"):
        exact(row._replace(seq_lo=None))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"topic": "t", "seq": 1}, "no columns"),
        ({"topic": "t", "kind": "sent"}, "no columns"),
        ({"seq_lo": 1}, "needs its topic"),
        ({"topic": "t", "seq_lo": [1, 2]}, "2 values of seq_lo for 3 rows"),
    ],
)
def test_columns_refuse_what_no_row_has(values: dict[str, Any], what: str) -> None:
    """A wrong name or length is found when the columns are created, not when they are written."""
    with pytest.raises(ValueError, match=what):
        Columns(Kind.SENT, 3, values)


def test_columns_take_arrays_lists_and_scalars() -> None:
    """A scalar applies to all rows, an array gives one value each, the rest is null."""
    batch = Columns(
        Kind.SEEN,
        2,
        {"topic": "t", "seq_lo": np.array([1, 2]), "lane": pa.array([3, None]), "findings": [0, 4]},
    ).batch()
    assert back(batch) == [
        rows.Row("seen", "t", seq_lo=1, lane=3, findings=0),
        rows.Row("seen", "t", seq_lo=2, findings=4),
    ]


def test_conform_reads_other_versions_columns() -> None:
    """Columns that another version added are dropped, missing ones are null, the rest is cast."""
    other = pa.record_batch(
        {"kind": ["end"], "topic": ["t"], "seq_hi": pa.array([4], pa.int32()), "novel": [1.5]}
    )
    assert back(conform(other)) == [rows.Row("end", "t", seq_hi=4)]
    assert conform(other, ["seq_hi", "lane"]).to_pylist() == [{"seq_hi": 4, "lane": None}]
