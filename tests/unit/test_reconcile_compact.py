"""The compactor reduces rows to fewer intervals of the same content."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.compact import Compactor, Zone, columns_of
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.stretch import ENDED, alike
from mirrortest.seqlog import parquet, rows
from mirrortest.seqlog.batches import batch_of, explode
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.timing.histogram import Sparse
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.seqlog.rows import Row

STREAM = StreamId("t", "r1", "p", 1, 0)
OTHER = StreamId("t", "r1", "q", 1, 0)


def compacted(
    *written: list[Row] | pa.RecordBatch,
    run: str = "r1",
    horizons: Sequence[int] = (),
    zones: Sequence[Zone] = (),
    role: Role | None = None,
) -> list[dict[str, Any]]:
    """The intervals of some batches as dictionaries."""
    task = Compactor(run, 3, 7, np.array(horizons, dtype=np.int64), zones)
    batches = [batch_of(each) if isinstance(each, list) else each for each in written]
    if role is not None:
        batches = [each.select(columns_of(role, placed=False)) for each in batches]
    found = [out for batch in batches for out in task.add(batch)]
    return [row for batch in (*found, *task.close()) for row in batch.to_pylist()]


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The intervals of some kinds; by default, the chains."""
    return [row for row in found if row["kind"] in (kinds or ("sent", "seen"))]


def seen(
    lo: int,
    hi: int,
    offset: int,
    *,
    of: StreamId = STREAM,
    findings: int | Finding = 0,
    minute: int = 0,
    latencies: Sparse | None = None,
    identity: str = "0",
) -> Row:
    """A `seen` row of partition 0."""
    at = minute * 60_000_000_000 + 1
    row = SeenRow(of, lo, hi, offset, offset + hi - lo, findings, at, at, 1, 1, 1, 1)
    return rows.seen(row, topic="t", partition=0, topic_identity=identity, latencies=latencies)


def sent(
    lo: int, hi: int, outcome: Outcome = Outcome.ACKED, *, minute: int = 0, latencies: None = None
) -> Row:
    """A `sent` row at source offsets 100 above its seqs."""
    at = minute * 60_000_000_000
    return rows.sent(
        STREAM, lo, hi, partition=0, outcome=outcome, offset_lo=lo + 100,
        intended=(at, at + hi), latencies=latencies,
    )  # fmt: skip


def test_what_continues_is_one_whatever_stands_between() -> None:
    """Seqs of a stream without a gap are one chain, across batches and minutes; a gap ends it."""
    first = [sent(10, 20), rows.reserved(STREAM, 0, 90), sent(20, 30, minute=1)]
    found = compacted(first, [sent(30, 40, minute=1), sent(41, 50, minute=2)])
    assert [
        (row["seq_lo"], row["seq_hi"], row["mark_seq"], row["mark_minute"])
        for row in of_kind(found)
    ] == [(10, 40, [10, 20], [0, 1]), (41, 50, [41], [2])]
    assert {(row["session"], row["task"]) for row in found} == {(3, 7)}
    counted = {row["minute"]: row["messages"] for row in of_kind(found, "acked")}
    assert counted == {0: 10, 1: 20, 2: 9}


def test_two_streams_side_by_side_are_two_chains() -> None:
    """Each of two interleaved streams is one chain, which may span more offsets than seqs."""
    turns = [(STREAM, 0, 0), (OTHER, 0, 10), (STREAM, 10, 20), (OTHER, 10, 31)]
    found = compacted([seen(lo, lo + 10, at, of=of) for of, lo, at in turns])
    assert sorted(
        (row["producer"], row["seq_lo"], row["seq_hi"], row["offset_lo"], row["offset_hi"])
        for row in of_kind(found)
    ) == [("p", 0, 20, 0, 30), ("q", 0, 20, 10, 41)]
    assert [(row["offset_lo"], row["offset_hi"]) for row in of_kind(found, "range")] == [(0, 41)]


def test_a_chain_ends_where_the_order_or_the_findings_do() -> None:
    """A repeated or reordered message, or one with a finding, is a chain of its own."""
    found = compacted(
        [
            seen(0, 10, 0),
            seen(5, 6, 10),
            seen(11, 15, 11),
            seen(10, 11, 15),
            seen(15, 16, 16, findings=Finding.CORRUPTED),
            seen(16, 20, 17),
        ]
    )
    assert sorted((row["offset_lo"], row["seq_lo"], row["seq_hi"]) for row in of_kind(found)) == [
        (0, 0, 10), (10, 5, 6), (11, 11, 15), (15, 10, 11), (16, 15, 16), (17, 16, 20),
    ]  # fmt: skip


def test_horizons_part_what_was_acknowledged_before_and_after() -> None:
    """A chain's last acknowledgement must not hide that its first messages are due."""
    at = 60_000_000_000
    written = [sent(0, 10), sent(10, 20, minute=1)]
    assert len(of_kind(compacted(written))) == 1
    parted = of_kind(compacted(written, horizons=[at]))
    assert [(row["seq_lo"], row["seq_hi"]) for row in parted] == [(0, 10), (10, 20)]


def test_zones_keep_seq_and_offset_side_by_side() -> None:
    """In a zone each message's offset is exact, and a repeated reading adds no latencies."""
    sums = Sparse(0, (5,), (10,))
    turns = [(STREAM, 0, 0), (OTHER, 0, 10), (STREAM, 10, 20), (OTHER, 10, 30)]
    written = [seen(lo, lo + 10, at, of=of, latencies=sums) for of, lo, at in turns]
    zones = [Zone("t", 0, 0, 15, 25, ((3, 7, 0),)), Zone("t", 0, 0, 18, 18)]
    found = compacted(written, zones=zones)
    assert sorted(
        (row["offset_lo"], row["offset_hi"], row["producer"], row["seq_lo"], row["seq_hi"])
        for row in of_kind(found)
    ) == [
        (0, 10, "p", 0, 10),
        (10, 15, "q", 0, 5),
        (15, 18, "q", 5, 8),
        (18, 20, "q", 8, 10),
        (20, 25, "p", 10, 15),
        (25, 30, "p", 15, 20),
        (30, 40, "q", 10, 20),
    ]
    timed = of_kind(found, "latency")
    assert [(row["latency_bucket"], row["latency_count"]) for row in timed] == [([5], [30])]


def test_a_log_that_goes_back_is_in_its_next_turn() -> None:
    """Its ranges show what a session read a second time, and what it passed over."""
    found = compacted(
        [seen(0, 10, 0), seen(10, 20, 10)],
        [seen(5, 15, 5), seen(15, 20, 15), seen(20, 30, 9000)],
    )
    assert [
        (row["turn"], row["offset_lo"], row["offset_hi"]) for row in of_kind(found, "range")
    ] == [(0, 0, 20), (1, 5, 20), (1, 9000, 9010)]


def test_what_a_session_passed_over_separates_its_ranges() -> None:
    """Offsets that it saw before it found them deleted stay in a range."""
    found = compacted(
        [seen(0, 10, 0), rows.unread("t", 0, 10, 12, topic_identity="0"), seen(12, 20, 12)],
        [seen(30, 40, 22), rows.unread("t", 0, 5, 25, topic_identity="0"), seen(25, 30, 25)],
    )
    assert [
        (row["turn"], row["offset_lo"], row["offset_hi"]) for row in of_kind(found, "range")
    ] == [(0, 0, 10), (0, 12, 32), (1, 25, 30)]


def test_rows_of_another_run_go_and_those_of_none_stay() -> None:
    """Offsets that were read belong to every run."""
    other = STREAM._replace(run="r2")
    kept = compacted([rows.reserved(other, 0, 5), rows.read("t", 0, 0, 5), rows.read("t", 0, 5, 9)])
    assert [(row["kind"], row["offset_lo"], row["offset_hi"]) for row in kept] == [("read", 0, 9)]


def test_verdicts_of_different_times_are_not_mixed() -> None:
    """`found` rows keep their next offset; `tail` and `end` rows are not merged."""
    kept = compacted(
        [
            rows.found(STREAM, 0, 5, Finding.REORDERED, partition=0, next_offset=50),
            rows.found(STREAM, 5, 8, Finding.REORDERED, partition=0, next_offset=60),
            rows.tail("t", 0, 50),
            rows.tail("t", 0, 50),
            rows.end(STREAM, 9),
        ]
    )
    assert sorted((row["kind"], row["offset_hi"]) for row in kept if row["kind"] == "found") == [
        ("found", 50),
        ("found", 60),
    ]
    assert [row["kind"] for row in kept].count("tail") == 2


def test_what_a_topic_made_again_took_is_not_what_retention_took() -> None:
    """Only one has an end: merged, they would look like a partition that no log covers."""
    written = [rows.unread("t", 0, 0, 2), rows.unread("t", 0, 2, ENDLESS)]
    found = of_kind(compacted(written), "unread")
    assert [(row["offset_lo"], row["offset_hi"]) for row in found] == [(0, 2), (2, ENDLESS)]


def test_latencies_are_summed_by_minute() -> None:
    """Buckets add up, and so do the counts below zero."""
    sparse = Sparse
    written = [
        seen(0, 3, 0, latencies=sparse(1, (5, 7), (1, 1))),
        seen(3, 5, 3, latencies=sparse(0, (7,), (2,))),
        seen(9, 10, 5, minute=1, latencies=sparse(0, (5,), (1,))),
        seen(10, 12, 6, minute=2, latencies=sparse(2, (), ())),
    ]
    assert [
        (row["minute"], row["negative"], row["latency_bucket"], row["latency_count"])
        for row in of_kind(compacted(written), "latency")
    ] == [(0, 1, [5, 7], [1, 3]), (1, 0, [5], [1]), (2, 2, [], [])]


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9), st.sampled_from(Outcome)), max_size=12
)


@given(SPANS, st.booleans(), st.integers(1, 5))
def test_no_number_appears_or_vanishes(
    spans: list[tuple[int, int, Outcome]], messages: bool, size: int
) -> None:
    """Whatever the rows, their order, detail and batches: the same seqs with the same outcomes."""

    def numbers(entries: Iterator[Any]) -> list[tuple[int, int]]:
        return sorted((seq, outcome) for lo, hi, outcome in entries for seq in range(lo, hi))

    written = [sent(lo, lo + count, outcome) for lo, count, outcome in spans]
    parts = [batch_of(written[at : at + size]) for at in range(0, len(written), size)]
    parts = [explode(part) if messages else part for part in parts]
    kept = compacted(*parts, role=Role.PRODUCER)
    assert numbers(
        (row["seq_lo"], row["seq_hi"], row["outcome"]) for row in of_kind(kept)
    ) == numbers((lo, lo + count, int(outcome)) for lo, count, outcome in spans)
    assert all(set(row) == set(INTERVALS.names) for row in kept)


def _by_side(intervals: list[dict[str, Any]], horizons: Sequence[int]) -> list[dict[str, Any]]:
    """Replace each last time by its place among the horizons."""
    return [
        {**row, "last_ns": row["last_ns"] and bisect.bisect_left(horizons, row["last_ns"])}
        for row in intervals
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["seen", "sent", "reserved", "end"]),
            st.sampled_from([STREAM, STREAM, OTHER]),
            st.integers(0, 9),
            st.integers(1, 2),
            st.sampled_from([0, 0, 1]),
        ),
        min_size=1,
        max_size=16,
    ),
    st.integers(1, 6),
    st.sampled_from([(), (0, 60_000_000_003), (3,)]),
)
def test_from_a_file_it_is_the_same(
    entries: list[tuple[str, StreamId, int, int, int]], group: int, horizons: tuple[int, ...]
) -> None:
    """Values from a file's footer, which are not decoded, give the same intervals."""
    written = []
    for number, (kind, of, lo, count, code) in enumerate(entries):
        if kind == "seen":
            sums = Sparse(code, (lo, 10), (1, 2)) if number % 3 else None
            row = seen(
                lo, lo + count, number * 2, of=of, findings=code, minute=code, latencies=sums
            )
        elif kind == "sent":
            outcome = Outcome.ACKED if code else Outcome.FAILED
            ended = 60_000_000_000 * code + number if number % 4 else None
            row = sent(lo, lo + count, outcome, minute=code)
            row = row._replace(producer=of.producer, arrived_last=ended)
        else:
            row = rows.reserved(of, lo, lo + count) if kind == "reserved" else rows.end(of, lo)
        written.append(row._replace(run=("r1", "r1", "r1", "r2", None)[(number + lo) % 5]))
    asked = [*columns_of(Role.PRODUCER, placed=True), *columns_of(Role.CONSUMER, placed=True)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", group)
        sink = pa.BufferOutputStream()
        parquet.write_parquet([batch_of(written)], sink)
        marked = parquet.Marked(ENDED, alike(horizons), totals=True)
        with parquet.open_parquet(pa.py_buffer(sink.getvalue()), marked) as file:
            columns = list(dict.fromkeys(asked))
            found = list(parquet.read_groups(file, columns, marked))
    expected = compacted(batch_of(written).select(columns), horizons=horizons)
    assert _by_side(compacted(*found, horizons=horizons), horizons) == _by_side(expected, horizons)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 5)), max_size=14),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=3),
)
def test_every_message_keeps_its_place_in_zones(
    runs: list[tuple[bool, int, int]], bounds: list[tuple[int, int]]
) -> None:
    """No seen message is added or lost, and within zones their offsets stay exact."""
    written, offset, truth = [], 0, []
    for ours, lo, count in runs:
        of = STREAM if ours else OTHER
        written.append(seen(lo, lo + count, offset, of=of))
        truth += [(of.producer, lo + n, offset + n) for n in range(count)]
        offset += count
    zones = [Zone("t", 0, 0, lo, lo + count) for lo, count in bounds]
    chains = of_kind(compacted(written, zones=zones)) if written else []
    got = sorted(
        (row["producer"], seq) for row in chains for seq in range(row["seq_lo"], row["seq_hi"])
    )
    assert got == sorted((producer, seq) for producer, seq, _ in truth)
    for zone in zones:
        inside = {
            (row["producer"], row["seq_lo"] + n, row["offset_lo"] + n)
            for row in chains
            if zone.lo <= row["offset_lo"] and row["offset_hi"] <= zone.hi
            for n in range(row["offset_hi"] - row["offset_lo"])
        }
        assert inside == {each for each in truth if zone.lo <= each[2] < zone.hi}
        assert not any(
            row["offset_lo"] < at < row["offset_hi"] for row in chains for at in zone[3:5]
        )
