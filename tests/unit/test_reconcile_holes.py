"""Many holes: packed beside the files, and what is plainly lost settled without statements."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile import holes, plain
from mirrortest.reconcile.compact import Compactor
from mirrortest.reconcile.holes import NO_PACKING, Packing
from mirrortest.reconcile.intervals import INTERVALS
from mirrortest.reconcile.plain import GONE, PLAIN, Settling
from mirrortest.reconcile.spans import Spans
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from mirrortest.seqlog.rows import Row

STREAM = StreamId("t", "r1", "p", 1, 0)
BITS = 3
"""Buckets of eight numbers."""
MINUTE = 60_000_000_000
HORIZON = 50
"""What was acknowledged at this time, in ns of its minute, or before is due."""
EVERY = Packing(0, 0)
NUMBERS = 40


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (holes, plain):
        monkeypatch.setattr(module, "BUCKET_BITS", BITS)


def compacted(log: list[Row], packing: Packing, task: int) -> list[pa.RecordBatch]:
    """A session's intervals."""
    made = Compactor("r1", 0, task, np.array([HORIZON]), packing=packing)
    return [*made.add(batch_of(log)), *made.close()]


def one(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows that say something of the stream."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    told = ("seen", "sent", "claimed", "found")
    return [row for row in rows if row["kind"] in told and row["seq_lo"] is not None]


def bucketed(found: list[dict[str, Any]]) -> pa.RecordBatch:
    """As `settling` gives them to the workers: once for each bucket, and what stood before."""
    made: list[dict[str, Any]] = []
    for row in found:
        before = [
            other["seq_hi"]
            for other in found
            if row["kind"] == other["kind"] == "seen"
            and (other["partition"], other["offset_lo"]) < (row["partition"], row["offset_lo"])
            and other["partition"] == row["partition"]
        ]
        above = max(before, default=0)
        lost = row["kind"] == "claimed" or row["findings"] == int(Finding.LOST)
        cut = row["kind"] in {"claimed", "found"} and lost and row["holes"] is None
        first = row["seq_lo"] >> BITS
        for bucket in range(first, ((row["seq_hi"] - 1) >> BITS) + 1):
            mine = {**row, "bucket": bucket, "above": above}
            if cut:
                mine["seq_lo"] = max(row["seq_lo"], bucket << BITS)
                mine["seq_hi"] = min(row["seq_hi"], (bucket + 1) << BITS)
            if row["kind"] == "seen" and bucket != first:
                mine |= {"holes": None, "packed": None}
            made.append(mine)
    extra = [pa.field("bucket", pa.int64()), pa.field("above", pa.int64())]
    schema = pa.schema([*INTERVALS, *extra])
    made.sort(key=lambda row: row["bucket"])
    return pa.Table.from_pylist(made, schema).combine_chunks().to_batches()[0]


def by_number(found: list[dict[str, Any]]) -> dict[int, Counter[Any]]:
    """What rows say of each number; claims are sets."""
    told: dict[int, Counter[Any]] = {}
    for row in found:
        for number in range(row["seq_lo"], row["seq_hi"]):
            at = told.setdefault(number, Counter())
            key = (row["kind"], row["partition"], row["outcome"], row["findings"] or 0)
            at[key] = 1 if row["kind"] in {"claimed", "found"} else at[key] + 1
    return told


def disordered(found: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """(partition, number) whose first copy stands behind a greater number's first copy."""
    late, first = set(), dict[tuple[int, int], int]()
    for row in found:
        if row["kind"] == "seen":
            for number in range(row["seq_lo"], row["seq_hi"]):
                key = (row["partition"], number)
                first[key] = min(first.get(key, 1 << 60), row["offset_lo"])
    for row in found:
        if row["kind"] == "seen":
            for number in range(row["seq_lo"], row["seq_hi"]):
                at = first[row["partition"], number]
                if any(
                    p == row["partition"] and n > number and o < at for (p, n), o in first.items()
                ):
                    late.add((row["partition"], number))
    return late


def seen(lo: int, hi: int, offset: int, partition: int, findings: int) -> Row:
    """A `seen` row."""
    at = minute_of(lo) * MINUTE + 1
    row = SeenRow(STREAM, lo, hi, offset, offset + hi - lo, findings, at, at, 1, 1, 1, 1)
    return rows.seen(row, topic="t", partition=partition, topic_identity="0", latencies=None)


def minute_of(number: int) -> int:
    """The minute in which a number was meant to be sent."""
    return number // 11


@st.composite
def logs(draw: st.DrawFn) -> list[list[Row]]:
    """A producer's log, and that of a consumer in two tasks."""
    producer: list[Row] = []
    bounds = sorted(draw(st.sets(st.integers(1, NUMBERS - 1), max_size=2)))
    cuts = sorted({0, NUMBERS, *bounds, *range(11, NUMBERS, 11)})
    common = st.sampled_from([Outcome.ACKED] * 6 + [Outcome.UNKNOWN])
    for lo, hi in pairwise(cuts):
        times = (minute_of(lo) * MINUTE, minute_of(lo) * MINUTE)
        acknowledged = draw(st.sampled_from([(1, 1)] * 6 + [(HORIZON + 1,) * 2]))
        outcome = draw(common)
        told = acknowledged if outcome is Outcome.ACKED else None
        producer.append(
            rows.sent(STREAM, lo, hi, partition=0, outcome=outcome, offset_lo=None,
                      intended=times, acknowledged=told)
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
    tells = st.sets(st.sampled_from(sorted(lost)), max_size=18) if lost else st.just(set[int]())
    tasks[1] += [rows.claimed(STREAM, n, n + 1) for n in draw(tells)]
    tasks[1] += [rows.found(STREAM, n, n + 1, Finding.LOST) for n in sorted(draw(tells))]
    if draw(st.booleans()):
        tasks[1].append(rows.claimed(STREAM, 3, 3 + draw(st.integers(1, 20))))
    if draw(st.integers(0, 3)) == 0:
        tasks[1].append(rows.found(STREAM, 5, 9, Finding.IN_FLIGHT))
    return [producer, *tasks]


@settings(max_examples=80)
@given(logs(), st.booleans())
def test_what_is_plainly_lost_leaves_and_nothing_else_changes(
    written: list[list[Row]], known: bool
) -> None:
    """By number: what is settled is lost for sure; of all others everything is told as before."""
    before = one(
        [each for at, log in enumerate(written) for each in compacted(log, NO_PACKING, at)]
    )
    packed = one([each for at, log in enumerate(written) for each in compacted(log, EVERY, at)])
    settling = Settling({"t": HORIZON} if known else {}, frozenset({("p", 1)}))
    batch = bucketed(packed)
    halves = [batch.slice(0, batch.num_rows // 2), batch.slice(batch.num_rows // 2)]
    settled = [row for each in settling.settle(halves) for row in each.to_pylist()]
    gone = {
        number
        for row in settled
        if row["kind"] == GONE
        for spans in [Spans.packed(pa.RecordBatch.from_pylist([row], plain.SETTLED))]
        for lo, hi in zip(spans.lo.tolist(), spans.hi.tolist(), strict=True)
        for number in range(lo, hi)
    }
    rest = [row for row in settled if row["kind"] not in {GONE, PLAIN}]
    assert not any(row["holes"] for row in rest)
    told, now = by_number(before), by_number(rest)
    acked = ("sent", 0, int(Outcome.ACKED), 0)
    claim, found = ("claimed", None, None, 0), ("found", None, None, int(Finding.LOST))
    for number in range(NUMBERS):
        if number in gone:
            assert told[number][acked] == 1
            assert set(told[number]) <= {acked, claim, found}
            due = any(
                row["kind"] == "sent" and row["seq_lo"] <= number < row["seq_hi"]
                and row["last_ns"] <= HORIZON for row in before
            )  # fmt: skip
            assert due or told[number][claim]
            assert now[number] == Counter({acked: 1, ("seen", 0, None, 0): 1})
        else:
            assert now.get(number) == told.get(number), number
    assert disordered(rest) == disordered(before)
    counts: Counter[int] = Counter()
    unnoticed = 0
    for row in settled:
        if row["kind"] == PLAIN:
            counts[row["minute"]] += row["messages"]
            unnoticed += row["unnoticed"]
    assert counts == Counter(minute_of(number) for number in gone)
    assert unnoticed == sum(not (told[n][claim] or told[n][found]) for n in gone)


def test_losses_apart_from_all_else_are_settled_whole() -> None:
    """Of single losses all over a clean stream those alone stay that lie between two buckets."""
    lost = [*range(2, NUMBERS - 1, 3)]
    seens = [n for n in range(NUMBERS) if n not in lost]
    producer = [
        rows.sent(STREAM, 0, NUMBERS, partition=0, outcome=Outcome.ACKED, offset_lo=None,
                  intended=(0, 0), acknowledged=(1, 1))
    ]  # fmt: skip
    log = [seen(n, n + 1, at, 0, 0) for at, n in enumerate(seens)]
    log += [rows.claimed(STREAM, n, n + 1) for n in lost]
    packed = one([*compacted(producer, EVERY, 0), *compacted(log, EVERY, 1)])
    settling = Settling({"t": HORIZON}, frozenset({("p", 1)}))
    settled = [row for each in settling.settle([bucketed(packed)]) for row in each.to_pylist()]
    gone = sum(row["messages"] for row in settled if row["kind"] == PLAIN)
    buckets = NUMBERS >> BITS
    assert len(lost) - buckets < gone < len(lost)
    assert sum(row["kind"] == "claimed" for row in settled) == len(lost) - gone
    assert sum(row["kind"] == "seen" for row in settled) == buckets


def test_few_chains_are_not_packed() -> None:
    """A usual task's intervals are as they were."""
    log = [seen(n, n + 1, at, 0, 0) for at, n in enumerate(range(0, NUMBERS, 2))]
    assert compacted(log, holes.PACKING, 0) == compacted(log, NO_PACKING, 0)
