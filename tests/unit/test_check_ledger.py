"""The ledger merges by union: order, repetition and damage do no harm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.check.intervals import IntervalSet
from mirrortest.check.ledger import (
    Claim,
    ClosedLane,
    LaneRecord,
    Ledger,
    claim_key,
    claim_value,
    lane_key,
    lane_value,
)
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = StreamId("t", "r", "a", 1, 0)
OUTCOMES = st.dictionaries(st.integers(0, 15), st.sampled_from(["acked", "failed", "unknown"]))


def ids(intervals: IntervalSet) -> set[int]:
    return {n for lo, hi in intervals.intervals() for n in range(lo, hi)}


def of(numbers: list[int] | range) -> IntervalSet:
    return IntervalSet((n, n + 1) for n in numbers)


@st.composite
def records(draw: Callable[..., Any], stream: StreamId = STREAM) -> LaneRecord:
    """A lane's record as a producer could write it."""
    outcomes = draw(OUTCOMES)
    reserved = draw(st.integers(max(outcomes, default=-1) + 1, 20))
    acked, failed, unknown = (
        of([n for n, o in outcomes.items() if o == name]) for name in ("acked", "failed", "unknown")
    )
    return LaneRecord(
        stream,
        reserved,
        acked,
        failed,
        unknown,
        draw(st.sampled_from([None, max(outcomes, default=-1) + 1])),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
        compacted=draw(st.booleans()),
    )


def written(ledger: Ledger, *things: Claim | LaneRecord) -> Ledger:
    for thing in things:
        if isinstance(thing, LaneRecord):
            ledger.apply(lane_key(thing.stream), lane_value(thing))
        else:
            ledger.apply(claim_key(thing), claim_value(thing))
    return ledger


def claim(
    incarnation: int = 1,
    session: str = "s",
    producer: str = "a",
    **about: Any,
) -> Claim:
    return Claim("r", producer, incarnation, session, about.pop("lanes", {"t": (0,)}), **about)


@given(records(), records(), records())
def test_merging_is_a_union(one: LaneRecord, two: LaneRecord, three: LaneRecord) -> None:
    """Merging is idempotent, commutative and associative."""
    assert one.merge(one) == one
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))


@given(records(), records())
def test_what_was_acknowledged_stays_so(one: LaneRecord, two: LaneRecord) -> None:
    """Acked stands before failed and failed before unknown; each number has one outcome."""
    merged = one.merge(two)
    acked = ids(one.acked) | ids(two.acked)
    failed = (ids(one.failed) | ids(two.failed)) - acked
    assert ids(merged.acked) == acked
    assert ids(merged.failed) == failed
    assert ids(merged.unknown) == (ids(one.unknown) | ids(two.unknown)) - acked - failed


@given(st.lists(records(), min_size=1, max_size=4), st.booleans(), st.data())
def test_any_order_and_any_repetition(
    listed: list[LaneRecord], closed: bool, data: st.DataObject
) -> None:
    """The lanes are the same however often and in whatever order the records come."""
    things: list[Claim | LaneRecord] = [*listed, claim()]
    if closed:
        things.append(claim(2, closes=(ClosedLane("t", 0, 18),)))
    again = data.draw(st.permutations(things + data.draw(st.lists(st.sampled_from(things)))))
    one, two = written(Ledger(), *things), written(Ledger(), *again)
    assert one.lanes == two.lanes
    assert one.complete("r") == two.complete("r")
    assert one.malformed == two.malformed == 0


@given(records(), st.integers(0, 25))
def test_a_closed_incarnation_leaves_nothing_open(record: LaneRecord, mark: int) -> None:
    """Reserved numbers without outcome become unknown, and the lane has its end."""
    ledger = written(Ledger(), claim(), record, claim(2, "s2", closes=(ClosedLane("t", 0, mark),)))
    lane = ledger.lanes[STREAM]
    assert lane.end == (record.end if record.end is not None else max(record.reserved, mark))
    known = ids(record.acked) | ids(record.failed)
    assert ids(lane.unknown) == ids(record.unknown) | (set(range(lane.end)) - known)
    assert lane.acked == record.acked


def test_a_lane_never_written_to_is_closed_empty() -> None:
    """An incarnation that claimed and died at once is closed at zero."""
    ledger = written(Ledger(), claim(), claim(2, "s2"))
    lane = ledger.lanes[STREAM]
    assert (lane.reserved, lane.end) == (0, 0)
    assert StreamId("t", "r", "a", 2, 0) not in ledger.lanes


def test_complete() -> None:
    """Complete: somebody claimed, all expected did, and every claimed lane has its end."""
    ledger = Ledger()
    assert not ledger.complete("r")
    written(ledger, claim(lanes={"t": (0, 1)}))
    assert not ledger.complete("r")
    written(ledger, LaneRecord(STREAM, 5, of(range(5)), end=5))
    assert not ledger.complete("r")
    written(ledger, LaneRecord(STREAM._replace(lane=1), 0, end=0))
    assert ledger.complete("r")
    assert ledger.complete("r", ["a"])
    assert not ledger.complete("r", ["a", "b"])
    assert not ledger.complete("another")
    written(ledger, LaneRecord(STREAM._replace(topic="more"), 3))
    assert not ledger.complete("r")
    assert ledger.producers("r") == {"a"}


def test_the_first_claim_wins_and_the_loser_withdraws() -> None:
    """Two sessions under one number: the first applied wins; a withdrawn one leaves no trace."""
    first, second = claim(session="x"), claim(session="y", lanes={"u": (4,)})
    ledger = written(Ledger(), first, second, first)
    assert ledger.winner("r", "a", 1) == first
    assert ledger.claims("r") == [first]
    assert ledger.latest("r", "a") == first
    ledger.apply(claim_key(second), None)
    ledger.apply(claim_key(second), None)
    assert ledger.winner("r", "a", 1) == first
    ledger.apply(claim_key(first), None)
    assert ledger.winner("r", "a", 1) is None
    assert ledger.producers("r") == set()


def test_a_withdrawn_successor_closes_nothing() -> None:
    """A claim that is withdrawn opens again what it had closed."""
    ledger = written(Ledger(), claim(), LaneRecord(STREAM, 9))
    late = claim(2, "late", closes=(ClosedLane("t", 0, 9),))
    written(ledger, late)
    assert ledger.lanes[STREAM].end == 9
    ledger.apply(claim_key(late), None)
    assert ledger.lanes[STREAM].end is None


def test_a_claim_may_add_lanes() -> None:
    """The same session's claim, written again when partitions were added, adds its lanes."""
    ledger = written(Ledger(), claim(), claim(lanes={"t": (1,), "u": (0,)}))
    winner = ledger.winner("r", "a", 1)
    assert winner is not None
    assert winner.topics == ("t", "u")
    assert winner.lanes == {"t": (0, 1), "u": (0,)}


def test_a_lanes_tombstone_takes_nothing_back() -> None:
    """What was vouched for stays vouched for."""
    ledger = written(Ledger(), LaneRecord(STREAM, 5, of([1])))
    ledger.apply(lane_key(STREAM), None)
    assert ledger.lanes[STREAM].acked == of([1])


KEY = lane_key(STREAM)
VALUE = json.loads(lane_value(LaneRecord(STREAM, 5, of([1]))))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\xff", b"{}"),
        (KEY, b"no json"),
        (KEY, b"[" * 100_000),
        (KEY, b"[]"),
        (b"{}", lane_value(LaneRecord(STREAM))),
        (b'["lane"]', lane_value(LaneRecord(STREAM))),
        (b'["other",1]', lane_value(LaneRecord(STREAM))),
        (b'["lane","r","a",0,"t",0]', lane_value(LaneRecord(STREAM))),
        (b'["lane","r","",1,"t",0]', lane_value(LaneRecord(STREAM))),
        (KEY, json.dumps(VALUE | {"v": 2}).encode()),
        (KEY, json.dumps(VALUE | {"acked": [1]}).encode()),
        (KEY, json.dumps(VALUE | {"acked": [4, 2]}).encode()),
        (KEY, json.dumps(VALUE | {"acked": [-1, 1]}).encode()),
        (KEY, json.dumps(VALUE | {"reserved": True}).encode()),
        (KEY, json.dumps(VALUE | {"end": 6}).encode()),
        (claim_key(claim()), b'{"v":1,"lanes":{"t":["x"]},"closes":[]}'),
        (claim_key(claim()), b'{"v":1,"lanes":[],"closes":[]}'),
    ],
)
def test_damaged_records_are_counted(key: bytes, value: bytes) -> None:
    """What is no record of the ledger changes nothing but a count."""
    ledger = Ledger()
    ledger.apply(key, value)
    assert (ledger.malformed, ledger.lanes, ledger.claims("r")) == (1, {}, [])


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_no_bytes_raise(key: bytes, value: bytes | None) -> None:
    """Any bytes at all are survived."""
    Ledger().apply(key, value)


@given(records())
def test_records_survive_their_bytes(record: LaneRecord) -> None:
    """What a producer writes is what a reader gets."""
    assert written(Ledger(), record)._records == {STREAM: record}
