"""Many holes: packed where the files are read, unpacked where they are judged."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile import holes, result_tables
from mirrortest.reconcile.attribution import assumed
from mirrortest.reconcile.compact import Compactor
from mirrortest.reconcile.given import Given
from mirrortest.reconcile.holes import NO_PACKING, Packing
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.judgement import judge
from mirrortest.reconcile.online import compared
from mirrortest.reconcile.slices import slices
from mirrortest.reconcile.stream_rows import StreamRows
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from mirrortest.seqlog.rows import Row

STREAM = StreamId("t", "r1", "p", 1, 0)
MINUTE = 60_000_000_000
HORIZON = 50
"""A message that was acknowledged at this time (ns), or before, is due."""
EVERY = Packing(0, 0)
NUMBERS = 40


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use buckets of eight numbers."""
    monkeypatch.setattr(holes, "_BUCKET_BITS", 3)


def compacted(log: list[Row], packing: Packing, task: int) -> list[pa.RecordBatch]:
    """A session's intervals."""
    made = Compactor("r1", 0, task, np.array([HORIZON]), packing=packing)
    return [*made.add(batch_of(log)), *made.close()]


def judged(sessions: list[list[pa.RecordBatch]], *, known: bool) -> list[list[str]]:
    """Every table of the judgement, sorted: partial sums have no order."""
    table = pa.Table.from_batches([batch for each in sessions for batch in each], INTERVALS)
    unpacked = StreamRows.of_table(table)
    given = Given(complete=frozenset({("p", 1, "t")}), horizons={"t": HORIZON} if known else {})
    judgement = judge(unpacked, given)
    made = (
        result_tables.by_stream,
        result_tables.by_partition,
        result_tables.by_minute,
        result_tables.findings,
        assumed,
    )
    tables_made = [*(make(judgement) for make in made), compared(judgement, given)]
    return [sorted(map(str, each.to_pylist())) for each in tables_made]


def seen(lo: int, hi: int, offset: int, partition: int, findings: int) -> Row:
    """A `seen` row."""
    at = minute_of(lo) * MINUTE + 1
    row = SeenRow(STREAM, lo, hi, offset, offset + hi - lo, findings, at, at, 1, 1, 1, 1)
    return rows.seen(row, topic="t", partition=partition, topic_identity="0", latencies=None)


def minute_of(number: int) -> int:
    """The minute of a number's intended time."""
    return number // 11


@st.composite
def logs(draw: st.DrawFn) -> list[list[Row]]:
    """A producer's log, and a consumer's log in two tasks."""
    producer: list[Row] = []
    bounds = sorted(draw(st.sets(st.integers(1, NUMBERS - 1), max_size=2)))
    cuts = sorted({0, NUMBERS, *bounds, *range(11, NUMBERS, 11)})
    common = st.sampled_from([Outcome.ACKED] * 6 + [Outcome.UNKNOWN])
    for lo, hi in pairwise(cuts):
        times = (minute_of(lo) * MINUTE, minute_of(lo) * MINUTE)
        acknowledged = draw(st.sampled_from([(1, 1)] * 6 + [(HORIZON + 1,) * 2]))
        outcome = draw(common)
        ack_times = acknowledged if outcome is Outcome.ACKED else None
        producer.append(
            rows.sent(STREAM, lo, hi, partition=0, outcome=outcome, offset_lo=None,
                      intended=times, acknowledged=ack_times)
        )  # fmt: skip
    lost = draw(st.sets(st.integers(0, NUMBERS - 1), max_size=18))
    order = [number for number in range(NUMBERS) if number not in lost]
    for at, what in draw(
        st.lists(
            st.tuples(
                st.integers(0, NUMBERS - 1), st.sampled_from(["again", "away", "late", "bad"])
            ),
            max_size=3,
        )
    ):
        if what == "late" and at in order:
            order.remove(at)
        order.insert(min(at + 3, len(order)), at if what != "bad" else ~at)
        if what == "away":
            order[min(at + 3, len(order) - 1)] = at + 1000
    tasks: list[list[Row]] = [[], []]
    ends = [0, 0]
    split = draw(st.integers(0, len(order)))
    for place, coded in enumerate(order):
        partition = 1 if coded >= 1000 else 0
        number = coded - 1000 if coded >= 1000 else max(coded, ~coded)
        findings = int(Finding.ALTERED_KEY) if coded < 0 else 0
        tasks[place >= split].append(seen(number, number + 1, ends[partition], partition, findings))
        ends[partition] += 1
    some_lost = st.sets(st.sampled_from(sorted(lost)), max_size=18) if lost else st.just(set[int]())
    tasks[1] += [rows.claimed(STREAM, n, n + 1) for n in draw(some_lost)]
    tasks[1] += [rows.found(STREAM, n, n + 1, Finding.LOST) for n in sorted(draw(some_lost))]
    if draw(st.booleans()):
        tasks[1].append(rows.claimed(STREAM, 3, 3 + draw(st.integers(1, 20))))
    if draw(st.integers(0, 3)) == 0:
        tasks[1].append(rows.found(STREAM, 5, 9, Finding.IN_FLIGHT))
    return [producer, *tasks]


@settings(max_examples=80)
@given(logs(), st.booleans())
def test_packed_or_not_all_is_judged_the_same(written: list[list[Row]], known: bool) -> None:
    """Every table: sums by stream, partition and minute, ids, attributions, the comparison."""
    before = [compacted(log, NO_PACKING, at) for at, log in enumerate(written)]
    packed = [compacted(log, EVERY, at) for at, log in enumerate(written)]
    assert judged(packed, known=known) == judged(before, known=known)


def test_single_losses_all_over_a_stream_are_few_rows() -> None:
    """One for each bucket of numbers, both of `seen` rows and of claims."""
    lost = [*range(2, NUMBERS - 1, 3)]
    kept = [n for n in range(NUMBERS) if n not in lost]
    log = [seen(n, n + 1, at, 0, 0) for at, n in enumerate(kept)]
    log += [rows.claimed(STREAM, n, n + 1) for n in lost]
    packed = pa.Table.from_batches(compacted(log, EVERY, 0), INTERVALS)
    kinds = Counter(packed["kind"].to_pylist())
    assert kinds["seen"] == kinds["claimed"] == NUMBERS // 8
    unpacked = StreamRows.of_table(packed)
    assert len(unpacked.of(Kind.CLAIMED)) == len(lost)
    assert unpacked.seq_lo[unpacked.of(Kind.SEEN)].tolist() == [0, *(n + 1 for n in lost)]


def test_a_stream_in_slices_is_at_home_where_most_of_its_messages_are() -> None:
    """Holes and duplicates do not count: missing messages were counted under another partition."""
    log = [seen(n, n + 1, copy + n // 2, 0, 0) for copy in (0, 50) for n in range(0, NUMBERS, 2)]
    log += [seen(n, n + 1, n, 1, 0) for n in range(NUMBERS, NUMBERS + 30)]
    packed = pa.Table.from_batches(compacted(log, EVERY, 0), INTERVALS)
    sliced = list(slices(packed, 4))
    assert len(sliced) > 2
    assert {home for rows in sliced for home in rows.home.tolist()} == {1}


def test_few_chains_are_not_packed() -> None:
    """The intervals of a typical task stay unchanged."""
    log = [seen(n, n + 1, at, 0, 0) for at, n in enumerate(range(0, NUMBERS, 2))]
    assert compacted(log, holes.PACKING, 0) == compacted(log, NO_PACKING, 0)
