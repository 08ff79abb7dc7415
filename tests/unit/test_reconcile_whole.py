"""Many streams: their chains joined over tasks and sessions, and those left out that are whole."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.bundle import BUNDLE, TOLD, bundled
from mirrortest.reconcile.compact import Compactor, Zone
from mirrortest.reconcile.holes import Packing
from mirrortest.reconcile.intervals import INTERVALS
from mirrortest.reconcile.whole import JOINED, WHOLE, Joining, opening
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirrortest.seqlog.rows import Row

MINUTE = 60_000_000_000
HORIZON = 50
"""What was acknowledged at this time, in ns, or before is due."""
KNOWN = frozenset({("p0", 1), ("p1", 1), ("p2", 1)})
EDITS = ("drop", "again", "swap", "away", "bad")
NEVER = 1 << 62

Copy = tuple[int, int, int]
"""A message that stands somewhere: its stream's place, its number, its findings."""


class Told(NamedTuple):
    """Of one stream what its producer did: (outcome, last ns) of each number, and its log."""

    stream: StreamId
    sent: list[tuple[Outcome, int]]
    reserved: int
    ended: int | None
    vouched: list[tuple[int, int, Outcome | None]]
    claimed: list[tuple[int, int]]
    found: list[tuple[int, int]]


class Run(NamedTuple):
    """Streams, what stood where by partition, what each task reads, and what is read twice."""

    streams: list[Told]
    partitions: list[list[Copy | None]]
    tasks: list[list[Row]]
    zones: list[Zone]


def minute_of(number: int) -> int:
    """The minute in which a number was meant to be sent."""
    return number // 5


@st.composite
def told(draw: st.DrawFn, name: int) -> Told:
    """A stream, mostly with nothing against it."""
    count = draw(st.integers(1, 14))
    odd = st.integers(0, 6).map(lambda n: n == 0)
    outcomes = [
        (
            Outcome.FAILED if draw(odd) and draw(odd) else Outcome.ACKED,
            HORIZON + draw(st.booleans()),
        )
        for _ in range(count)
    ]
    span = st.tuples(st.integers(0, count - 1), st.integers(1, 4)).map(lambda t: (t[0], sum(t)))
    vouch = st.tuples(span, st.sampled_from([None, Outcome.ACKED])).map(
        lambda t: (t[0][0], min(t[0][1], count), t[1])
    )
    return Told(
        StreamId("t", "r1", f"p{name}", 1, name % 2),
        outcomes,
        count + (draw(st.integers(0, 3)) if draw(odd) else 0),
        count if draw(st.booleans()) else None,
        draw(st.lists(vouch, max_size=3)),
        [draw(span)] if draw(odd) else [],
        [draw(span)] if draw(odd) else [],
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Streams copied into two partitions, read by sessions of which one may read some again."""
    streams = [draw(told(name)) for name in range(draw(st.integers(1, 4)))]
    copies: list[list[Copy]] = []
    for name, stream in enumerate(streams):
        copy = [(name, number, 0) for number in range(len(stream.sent))]
        for _ in range(draw(st.sampled_from([0, 0, 1]))):
            at = draw(st.integers(0, len(copy) - 1))
            match draw(st.sampled_from(EDITS)):
                case "drop":
                    copy[at : at + 1] = []
                case "again":
                    copy.insert(draw(st.integers(at, len(copy))), copy[at])
                case "swap":
                    copy[at : at + 2] = copy[at : at + 2][::-1]
                case "away":
                    copy[at] = (name, copy[at][1], -1)
                case "bad":
                    copy[at] = (name, copy[at][1], int(Finding.ALTERED_KEY))
            if not copy:
                break
        copies.append(copy)
    partitions: list[list[Copy | None]] = [[], []]
    while any(copies):
        name = draw(st.sampled_from([n for n, copy in enumerate(copies) if copy]))
        for _ in range(draw(st.integers(1, 6))):
            if copies[name]:
                _, number, findings = copies[name].pop(0)
                place = partitions[(name + (findings < 0)) % 2]
                place.extend([None] * draw(st.sampled_from([0, 0, 0, 2])))
                place.append((name, number, max(findings, 0)))
    tasks: list[list[Row]] = [[*logged(stream)] for stream in streams]
    zones: list[Zone] = []
    for partition, log in enumerate(partitions):
        cuts = sorted({0, len(log), *draw(st.sets(st.integers(0, len(log)), max_size=2))})
        reading = [*pairwise(cuts)]
        lo, hi = sorted((draw(st.integers(0, len(log))), draw(st.integers(0, len(log)))))
        if lo < hi and draw(st.booleans()):
            reading.append((lo, hi))
            zones.append(Zone("t", partition, 0, lo, hi))
        tasks += [
            [
                seen(streams[each[0]].stream, each[1], offset, partition, each[2])
                for offset, each in enumerate(log[lo:hi], lo)
                if each is not None
            ]
            for lo, hi in reading
        ]
    return Run(streams, partitions, [task for task in tasks if task], zones)


def logged(stream: Told) -> list[Row]:
    """What producer, ledger and consumers say of it."""
    of = stream.stream
    written = [rows.reserved(of, 0, stream.reserved, partition=3)]
    for number, (outcome, last) in enumerate(stream.sent):
        at = minute_of(number) * MINUTE
        written.append(
            rows.sent(of, number, number + 1, partition=3, outcome=outcome, offset_lo=None,
                      intended=(at, at),
                      acknowledged=(last, last) if outcome is Outcome.ACKED else None)
        )  # fmt: skip
    if stream.ended is not None:
        written.append(rows.end(of, stream.ended, partition=3))
    written += [rows.vouched(of, *each) for each in stream.vouched]
    written += [rows.claimed(of, *each) for each in stream.claimed]
    return written + [rows.found(of, *each, Finding.LOST) for each in stream.found]


def seen(of: StreamId, number: int, offset: int, partition: int, findings: int) -> Row:
    """A `seen` row of one message."""
    at = minute_of(number) * MINUTE + 1
    row = SeenRow(of, number, number + 1, offset, offset + 1, findings, at, at, 1, 1, 1, 1)
    return rows.seen(row, topic="t", partition=partition, topic_identity="0", latencies=None)


def intervals(run: Run, least: int) -> list[pa.RecordBatch]:
    """What the tasks give; from `least` rows on in bundles."""
    found: list[pa.RecordBatch] = []
    for number, log in enumerate(run.tasks):
        task = Compactor("r1", number, number, np.array([HORIZON]), run.zones)
        found += bundled([*task.add(batch_of(log)), *task.close()], least)
    return found


def of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Its stream."""
    return (row["topic"], row["producer"], row["incarnation"], row["lane"])


def by_number(found: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], Counter[Any]]:
    """What rows say of each number of each stream; what the ledger and claims say are sets."""
    told: dict[tuple[Any, ...], Counter[Any]] = {}
    for row in found:
        if row["seq_lo"] is None:
            continue
        due = row["kind"] == "sent" and row["last_ns"] <= HORIZON
        key = (row["kind"], row["partition"], row["identity"], row["outcome"], row["findings"] or 0)
        counted = row["kind"] in {"seen", "sent", "reserved"}
        marks = zip(row["mark_seq"] or [], row["mark_minute"] or [], strict=True)
        minutes = {seq: minute for first, minute in marks for seq in range(first, row["seq_hi"])}
        for number in range(row["seq_lo"], row["seq_hi"]):
            at = told.setdefault((*of(row), number), Counter())
            full = (*key, due, minutes.get(number))
            at[full] = at[full] + 1 if counted else 1
    return told


def in_order(found: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Copies in the order of their partitions, as far as chains tell it."""
    seen = sorted(
        (row["partition"], *of(row), row["offset_lo"], row["seq_lo"], row["seq_hi"])
        for row in found
        if row["kind"] == "seen"
    )
    return [(*row[:5], number) for row in seen for number in range(row[-2], row[-1])]


def once(found: list[dict[str, Any]], zones: Sequence[Zone]) -> list[dict[str, Any]]:
    """Rows without those that another one tells alike, of what was read twice."""
    names = ("kind", "producer", "partition", "offset_lo", "seq_lo", "seq_hi", "findings")
    kept: dict[Any, dict[str, Any]] = {}
    for at, row in enumerate(found):
        twice = row["kind"] == "seen" and any(
            zone.partition == row["partition"]
            and zone.lo <= row["offset_lo"]
            and row["offset_hi"] <= zone.hi
            for zone in zones
        )
        kept[tuple(row[name] for name in names) if twice else at] = row
    return [*kept.values()]


def one_by_one(found: list[dict[str, Any]], zones: Sequence[Zone]) -> list[dict[str, Any]]:
    """Within zones, where seq and offset stay side by side, a row for each message."""
    made: list[dict[str, Any]] = []
    for row in found:
        inside = row["kind"] == "seen" and any(
            zone.partition == row["partition"]
            and zone.lo <= row["offset_lo"]
            and row["offset_hi"] <= zone.hi
            for zone in zones
        )
        if not inside:
            made.append(row)
            continue
        for at in range(row["seq_hi"] - row["seq_lo"]):
            lo, offset = row["seq_lo"] + at, row["offset_lo"] + at
            minute = {"mark_seq": [lo], "mark_minute": [minute_of(lo)]}
            bounds = {"seq_lo": lo, "seq_hi": lo + 1, "offset_lo": offset, "offset_hi": offset + 1}
            made.append({**row, **bounds, **minute})
    return made


def is_whole(run: Run, name: int) -> bool:
    """By the definition: all acknowledged, there once and in order, nothing against it."""
    stream = run.streams[name]
    count = len(stream.sent)
    copies = [
        [each[1:] for each in log if each is not None and each[0] == name] for log in run.partitions
    ]
    return (
        (stream.stream.producer, 1) in KNOWN
        and sorted(copies, key=len) == [[], [(number, 0) for number in range(count)]]
        and all(outcome is Outcome.ACKED for outcome, _ in stream.sent)
        and (stream.reserved == count or stream.ended is not None)
        and not stream.claimed
        and not stream.found
    )


def joining(zones: Sequence[Zone] = (), doubtful: frozenset[str] = frozenset()) -> Joining:
    """Of what is known here."""
    return Joining(KNOWN, doubtful, (HORIZON,), tuple(zones), placed=False)


@settings(max_examples=60)
@given(runs(), st.sampled_from([0, 3, NEVER]))
def test_whole_streams_leave_and_of_others_nothing_changes(run: Run, least: int) -> None:
    """By number, minute and order; what was read twice, at the same offsets, is there once."""
    before = [row for each in intervals(run, NEVER) for row in each.to_pylist()]
    made = [*joining(run.zones).join(intervals(run, least))]
    assert all(batch.schema == JOINED for batch in made)
    after = [row for batch in made for row in batch.to_pylist()]
    whole = {of(row): row for row in after if row["kind"] == WHOLE}
    for name, stream in enumerate(run.streams):
        key = ("t", stream.stream.producer, 1, stream.stream.lane)
        # Half of a zone's chain may lie within another one's: such a stream stays.
        assert not run.zones or is_whole(run, name) or key not in whole
        if not run.zones:
            assert (key in whole) == is_whole(run, name)
        if key in whole:
            row = whole[key]
            stands = {each[0] for each in run.partitions[row["partition"]] if each is not None}
            assert name in stands
            assert (row["messages"], row["source"]) == (len(stream.sent), 3)
    kept = [row for row in before if of(row) not in whole]
    rest = [row for row in after if row["kind"] != WHOLE]
    assert not {of(row) for row in rest} & set(whole)
    assert Counter(row["kind"] for row in rest if row["producer"] is None) == Counter(
        row["kind"] for row in kept if row["producer"] is None
    )
    kept, rest = (once(one_by_one(each, run.zones), run.zones) for each in (kept, rest))
    assert by_number(rest) == by_number(kept)
    assert in_order(rest) == in_order(kept)
    ends = [
        sorted((of(r), r["seq_hi"]) for r in each if r["kind"] == "end") for each in (kept, rest)
    ]
    assert ends[0] == ends[1]


def clean(tasks: int = 4, streams: int = 3, each: int = 6) -> Run:
    """Streams that alternate in one partition, read in turn by so many sessions."""
    told = [
        Told(
            StreamId("t", "r1", f"p{name}", 1, 0),
            [(Outcome.ACKED, 1)] * each,
            each,
            None,
            [],
            [],
            [],
        )
        for name in range(streams)
    ]
    log: list[Copy | None] = [(name, n, 0) for n in range(each) for name in range(streams)]
    share = len(log) // tasks
    parts = [log[at : at + share] for at in range(0, len(log), share)]
    reading = [
        [
            seen(told[name].stream, number, part * share + at, 0, 0)
            for at, (name, number, _) in enumerate(filter(None, mine))
        ]
        for part, mine in enumerate(parts)
    ]
    return Run(told, [log], [*map(logged, told), *reading], [])


def test_a_clean_run_leaves_a_row_for_each_stream() -> None:
    """However many sessions read it: nothing but what tells of offsets stays to be judged."""
    run = clean()
    after = [r for b in joining().join(intervals(run, 0)) for r in b.to_pylist()]
    kinds = Counter(row["kind"] for row in after)
    assert kinds[WHOLE] == 3
    assert not kinds.keys() & {"seen", "sent", "reserved", "vouched"}


def test_where_compaction_takes_messages_no_stream_leaves() -> None:
    """Their last messages explain what of others is missing."""
    run = clean()
    after = [
        row
        for batch in joining(doubtful=frozenset({"t"})).join(intervals(run, 0))
        for row in batch.to_pylist()
    ]
    kinds = Counter(row["kind"] for row in after)
    assert (kinds[WHOLE], kinds["seen"], kinds["sent"]) == (0, 3, 3)


def test_streams_of_which_nobody_logged_a_message_stay() -> None:
    """The ledger's word alone, of a producer whose log is missing: told once, and not whole."""
    of = StreamId("t", "r1", "p0", 1, 0)
    words = [[rows.vouched(of, 0, 9, Outcome.ACKED)], [rows.vouched(of, 4, 12, Outcome.ACKED)]]
    made = joining().join(intervals(Run([], [], words, []), 0))
    (row,) = [row for batch in made for row in batch.to_pylist()]
    assert (row["kind"], row["seq_lo"], row["seq_hi"]) == ("vouched", 0, 12)


def test_a_bundle_tells_what_it_holds_and_is_opened_as_it_was() -> None:
    """An overview beside it counts its rows by kind; few rows are in none."""
    run = clean()
    usual = [row for batch in intervals(run, NEVER) for row in batch.to_pylist()]
    bundles = intervals(run, 0)
    packed = [row for batch in bundles for row in batch.to_pylist()]
    counted = Counter[str]()
    for row in packed:
        if row["kind"] == TOLD:
            counted[row["text"]] += row["messages"]
    assert {row["kind"] for row in packed} > {BUNDLE, TOLD}
    assert not {row["kind"] for row in packed} & counted.keys()
    told = Counter(row["kind"] for row in usual)
    assert counted == Counter({kind: told[kind] for kind in counted})
    again = [row for batch in opening(bundles) for row in batch.to_pylist()]
    assert sorted(map(str, again)) == sorted(map(str, usual))
    assert all(batch.schema == INTERVALS for batch in opening(bundles))


def test_packed_holes_are_in_no_bundle_and_keep_their_stream() -> None:
    """They may be megabytes: what joins chains is told of them, and gives none of them back."""
    of = StreamId("t", "r1", "p0", 1, 0)
    log = [seen(of, number, offset, 0, 0) for offset, number in enumerate(range(0, 20, 2))]
    task = Compactor("r1", 0, 0, np.array([HORIZON]), packing=Packing(0, 0))
    made = [*bundled([*task.add(batch_of([*log, rows.end(of, 20)])), *task.close()], 0)]
    packed = [row for batch in made for row in batch.to_pylist() if row["holes"]]
    assert [(row["kind"], row["seq_lo"], row["seq_hi"]) for row in packed] == [("seen", 0, 19)]
    left = [row["kind"] for batch in joining().join(made) for row in batch.to_pylist()]
    assert sorted(left) == ["end", "range"]


def test_what_is_more_than_a_task_may_hold_stays_as_it_is(monkeypatch: Any) -> None:
    """Nothing is joined, nothing is lost."""
    monkeypatch.setattr("mirrortest.reconcile.whole._MOST_ROWS", 5)
    run = clean()
    usual = [row for batch in intervals(run, NEVER) for row in batch.to_pylist()]
    after = [row for batch in joining().join(intervals(run, 0)) for row in batch.to_pylist()]
    for row in after:
        assert row.pop("source") is None
    assert sorted(map(str, after)) == sorted(map(str, usual))
