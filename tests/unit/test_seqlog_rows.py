"""Rows by kind: what each constructor fills in, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.model.findings import Finding, Outcome
from mirrortest.seqlog import rows
from mirrortest.seqlog.schema import ROWS
from mirrortest.timing.histogram import Sparse
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = StreamId("orders", "r1", "alpha", 2, 7)
STREAM_COLUMNS = {"topic": "orders", "run": "r1", "producer": "alpha", "incarnation": 2, "lane": 7}


def non_null(row: rows.Row) -> dict[str, Any]:
    """The columns of a row that are not null."""
    return {name: value for name, value in row._asdict().items() if value is not None}


def test_a_row_has_the_columns_of_the_schema_in_their_order() -> None:
    """A row's fields are the schema's columns, so that rows can be zipped into arrays."""
    assert rows.Row._fields == tuple(ROWS.names)


def test_reserved_vouched_claimed_found_and_end() -> None:
    """Rows about seqs have the stream and the seqs, and what their kind adds."""
    numbers = STREAM_COLUMNS | {"seq_lo": 3, "seq_hi": 9}
    assert non_null(rows.reserved(STREAM, 3, 9)) == numbers | {"kind": "reserved"}
    assert non_null(rows.claimed(STREAM, 3, 9)) == numbers | {"kind": "claimed"}
    assert non_null(rows.vouched(STREAM, 3, 9, Outcome.ACKED)) == numbers | {
        "kind": "vouched",
        "outcome": 1,
    }
    assert non_null(rows.vouched(STREAM, 3, 9, None))["outcome"] == rows.RESERVED_ONLY
    assert non_null(
        rows.found(STREAM, 3, 9, Finding.LATE, partition=4, next_offset=50)
    ) == numbers | {
        "kind": "found",
        "findings": int(Finding.LATE),
        "partition": 4,
        "offset_hi": 50,
    }
    assert non_null(rows.end(STREAM, 9)) == STREAM_COLUMNS | {"kind": "end", "seq_hi": 9}
    assert non_null(rows.end(STREAM, 0))["seq_hi"] == 0


def test_sent_counts_its_offsets_from_the_first() -> None:
    """A `sent` row has one offset for each seq; the acknowledgement is its arrival."""
    row = rows.sent(
        STREAM,
        3,
        9,
        partition=1,
        outcome=Outcome.ACKED,
        offset_lo=100,
        intended=(10, 20),
        sent=(11, 21),
        acknowledged=(12, 22),
        latencies=Sparse(1, (5, 6), (2, 3)),
    )
    assert non_null(row) == STREAM_COLUMNS | {
        "kind": "sent",
        "seq_lo": 3,
        "seq_hi": 9,
        "partition": 1,
        "offset_lo": 100,
        "offset_hi": 106,
        "outcome": 1,
        "intended_first": 10,
        "intended_last": 20,
        "sent_first": 11,
        "sent_last": 21,
        "arrived_first": 12,
        "arrived_last": 22,
        "negative": 1,
        "latency_bucket": (5, 6),
        "latency_count": (2, 3),
    }


@pytest.mark.parametrize("offset", [None, -1])
def test_sent_without_an_offset(offset: int | None) -> None:
    """A send for which no broker returned an offset has none, not -1."""
    row = rows.sent(
        STREAM, 0, 1, partition=0, outcome=Outcome.UNKNOWN, offset_lo=offset, intended=None
    )
    assert row.offset_lo is None
    assert row.offset_hi is None


def test_seen_takes_the_consumers_row() -> None:
    """A `seen` row has the values of the checker's row; a sent time of 0 becomes null."""
    row = SeenRow(STREAM, 3, 5, 40, 42, int(Finding.MISROUTED), 10, 20, 0, 0, 30, 31)
    assert non_null(
        rows.seen(row, topic="orders", partition=6, topic_identity="x")
    ) == STREAM_COLUMNS | {
        "kind": "seen",
        "seq_lo": 3,
        "seq_hi": 5,
        "partition": 6,
        "offset_lo": 40,
        "offset_hi": 42,
        "topic_identity": "x",
        "findings": int(Finding.MISROUTED),
        "intended_first": 10,
        "intended_last": 20,
        "arrived_first": 30,
        "arrived_last": 31,
    }


def test_seen_without_a_stream_has_no_numbers() -> None:
    """A foreign message's row has the topic, the offsets and the arrival, and no stream."""
    row = SeenRow(None, 0, 0, 40, 43, int(Finding.FOREIGN), 0, 0, 0, 0, 30, 31)
    assert non_null(rows.seen(row, topic="orders", partition=6)) == {
        "kind": "seen",
        "topic": "orders",
        "partition": 6,
        "offset_lo": 40,
        "offset_hi": 43,
        "findings": int(Finding.FOREIGN),
        "arrived_first": 30,
        "arrived_last": 31,
    }


def test_rows_about_offsets() -> None:
    """`read`, `unread` and `tail` rows have only the topic, the partition and the offsets."""
    where = {"topic": "orders", "partition": 2, "offset_lo": 5, "offset_hi": 9}
    assert non_null(rows.read("orders", 2, 5, 9)) == where | {"kind": "read"}
    assert non_null(rows.unread("orders", 2, 5, 9)) == where | {"kind": "unread"}
    assert non_null(rows.tail("orders", 2, 9, judged_to=5)) == where | {"kind": "tail"}
    past = rows.tail("orders", 2, 9, judged_to=12)
    assert past == rows.tail("orders", 2, 9)
    assert non_null(past) == where | {"kind": "tail", "offset_lo": 9}


@pytest.mark.parametrize(
    "make",
    [
        lambda: rows.reserved(STREAM, 5, 5),
        lambda: rows.claimed(STREAM, -1, 5),
        lambda: rows.read("t", 0, 7, 6),
        lambda: rows.tail("t", 0, -1),
        lambda: rows.end(STREAM, -1),
        lambda: rows.seen(SeenRow(STREAM, 0, 2, 5, 8, 0, 1, 1, 1, 1, 1, 1), topic="t", partition=0),
        lambda: rows.seen(SeenRow(None, 0, 0, 5, 5, 1, 0, 0, 0, 0, 1, 1), topic="t", partition=0),
        lambda: rows.sent(
            STREAM,
            0,
            1,
            partition=0,
            outcome=Outcome.ACKED,
            offset_lo=0,
            intended=None,
            latencies=Sparse(0, (1,), ()),
        ),
    ],
)
def test_intervals_that_are_none_are_refused(make: Callable[..., Any]) -> None:
    """Empty intervals, and seqs that do not match their offsets, are mistakes of the caller."""
    with pytest.raises(ValueError, match=r"is empty or negative|offsets for seq|end|bucket"):
        make()
