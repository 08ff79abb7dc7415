"""The ledger merges by union: order, repetition and damage do no harm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import (
    CLOSED,
    ClosedLane,
    LaneRecord,
    Registration,
    lane_key,
    lane_value,
    parse,
    registration_key,
    registration_value,
)
from mirrortest.verify.untrusted import MOST_RECORD_BYTES
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
        stamped=draw(st.booleans()),
    )


def written(ledger: Ledger, *things: Registration | LaneRecord) -> Ledger:
    for thing in things:
        if isinstance(thing, LaneRecord):
            ledger.apply(lane_key(thing.stream), lane_value(thing))
        else:
            ledger.apply(registration_key(thing), registration_value(thing))
    return ledger


def claim(
    incarnation: int = 1,
    session: str = "s",
    producer: str = "a",
    **about: Any,
) -> Registration:
    return Registration(
        "r", producer, incarnation, session, about.pop("lanes", {"t": (0,)}), **about
    )


@given(records(), records(), records())
def test_merging_is_a_union(one: LaneRecord, two: LaneRecord, three: LaneRecord) -> None:
    """Merging is idempotent, commutative and associative."""
    assert one.merge(one) == one
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))


@given(records(), records())
def test_what_was_acknowledged_stays_so(one: LaneRecord, two: LaneRecord) -> None:
    """Acked wins over failed, and failed over unknown; each seq has one outcome."""
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
    """The lanes are the same whatever the order and the repetitions of the records."""
    things: list[Registration | LaneRecord] = [*listed, claim()]
    if closed:
        things.append(claim(2, closes=(ClosedLane("t", 0, 18),)))
    again = data.draw(st.permutations(things + data.draw(st.lists(st.sampled_from(things)))))
    one, two = written(Ledger(), *things), written(Ledger(), *again)
    assert one.lanes == two.lanes
    assert one.complete("r") == two.complete("r")
    assert one.malformed == two.malformed == 0


@given(records(), st.integers(0, 25))
def test_a_closed_incarnation_leaves_nothing_open(record: LaneRecord, mark: int) -> None:
    """Reserved seqs without an outcome become unknown, and the lane has its end."""
    ledger = written(Ledger(), claim(), record, claim(2, "s2", closes=(ClosedLane("t", 0, mark),)))
    lane = ledger.lanes[STREAM]
    assert lane.end == (record.end if record.end is not None else max(record.reserved, mark))
    known = ids(record.acked) | ids(record.failed)
    assert ids(lane.unknown) == ids(record.unknown) | (set(range(lane.end)) - known)
    assert lane.acked == record.acked


@given(records(), st.integers(0, 25))
def test_a_successor_that_knew_an_old_record_alone_takes_nothing_back(
    record: LaneRecord, mark: int
) -> None:
    """It closes the lane with less than others have read; they keep that, in either order."""
    record = replace(record, end=None)
    old = LaneRecord(STREAM, min(mark, record.reserved)).closed(0)
    last_word = lane_key(STREAM, CLOSED), lane_value(old)
    ledger = written(Ledger(), claim(), claim(2, "s2"), record)
    before = ledger.lanes[STREAM]
    ledger.apply(*last_word)
    again = Ledger()
    again.apply(*last_word)
    written(again, claim(2, "s2"), claim(), record)
    assert ledger.lanes[STREAM] == again.lanes[STREAM]
    assert (ledger.lanes[STREAM].end, ledger.lanes[STREAM].acked) == (before.end, before.acked)
    assert ids(ledger.lanes[STREAM].unknown) == ids(before.unknown)


def test_a_lane_never_written_to_is_closed_empty() -> None:
    """An incarnation that registered and died at once is closed at seq 0."""
    ledger = written(Ledger(), claim(), claim(2, "s2"))
    lane = ledger.lanes[STREAM]
    assert (lane.reserved, lane.end) == (0, 0)
    assert StreamId("t", "r", "a", 2, 0) not in ledger.lanes


def test_complete() -> None:
    """Complete: a producer registered, all expected ones did, and every lane has its end."""
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
    """Of two sessions with one number, the first applied wins; withdrawn ones leave no trace."""
    first, second = claim(session="x"), claim(session="y", lanes={"u": (4,)})
    ledger = written(Ledger(), first, second, first)
    assert ledger.winner("r", "a", 1) == first
    assert ledger.registrations("r") == [first]
    assert ledger.latest("r", "a") == first
    ledger.apply(registration_key(second), None)
    ledger.apply(registration_key(second), None)
    assert ledger.winner("r", "a", 1) == first
    ledger.apply(registration_key(first), None)
    assert ledger.winner("r", "a", 1) is None
    assert ledger.producers("r") == set()


def test_two_sessions_of_one_incarnation_contest_a_topic_until_one_withdraws() -> None:
    """A topic to which only one session writes has only that session's messages."""
    other = claim(session="y", lanes={"t": (4,), "u": (0,)})
    ledger = written(Ledger(), claim(session="x"), claim(2), claim(producer="b"))
    assert ledger.contested("r") == []
    written(ledger, claim(session="z", lanes={"v": (0,)}))
    assert ledger.contested("r") == []
    written(ledger, other, other)
    assert ledger.contested("r") == ["a"]
    assert ledger.contested("another") == []
    ledger.apply(registration_key(other), None)
    assert ledger.contested("r") == []


def test_a_claim_that_failed_closes_its_own_lanes() -> None:
    """It closes them at their marks, as a successor's would; a successor reopens the run."""
    ledger = Ledger()
    claim = Registration("r", "a", 1, "s", {"t": (0, 1)})
    acked = LaneRecord(STREAM, 5, of(range(3)))
    failed = replace(claim, failed=True)
    for first, second in ((claim, failed), (failed, claim)):
        written(ledger, first, acked, second)
        assert ledger.complete("r")
        assert ledger.failed("r") == ["a"]
        lane = ledger.lanes[STREAM]
        assert (lane.end, lane.acked, lane.unknown) == (5, of(range(3)), of([3, 4]))
    written(ledger, Registration("r", "a", 2, "t", {"t": (0,)}))
    assert not ledger.complete("r")
    assert not ledger.failed("r")


def test_a_withdrawn_successor_closes_nothing() -> None:
    """A withdrawn registration reopens what it had closed."""
    ledger = written(Ledger(), claim(), LaneRecord(STREAM, 9))
    late = claim(2, "late", closes=(ClosedLane("t", 0, 9),))
    written(ledger, late)
    assert ledger.lanes[STREAM].end == 9
    ledger.apply(registration_key(late), None)
    assert ledger.lanes[STREAM].end is None


def test_a_claim_may_add_lanes() -> None:
    """A session's registration, written again after partitions were added, adds its lanes."""
    ledger = written(Ledger(), claim(), claim(lanes={"t": (1,), "u": (0,)}))
    winner = ledger.winner("r", "a", 1)
    assert winner is not None
    assert set(winner.lanes) == {"t", "u"}
    assert winner.lanes == {"t": (0, 1), "u": (0,)}


def test_a_lanes_tombstone_takes_nothing_back() -> None:
    """What was acknowledged stays acknowledged."""
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
        (registration_key(claim()), b'{"v":1,"lanes":{"t":["x"]},"closes":[]}'),
        (registration_key(claim()), b'{"v":1,"lanes":[],"closes":[]}'),
        (registration_key(claim()), b'{"v":1,"lanes":{"..":[0]},"closes":[]}'),
        (registration_key(claim()), b'{"v":1,"lanes":{"t":[4294967296]},"closes":[]}'),
        (registration_key(claim()), b'{"v":1,"lanes":{"t":[0]},"closes":[["t",0,9]]}'),
        (registration_key(claim(producer="\ud800")), registration_value(claim())),
        (registration_key(claim(producer="a\n")), registration_value(claim())),
        (registration_key(claim(1_000_000_000)), registration_value(claim())),
        (registration_key(claim(session="a\x1b[2J")), registration_value(claim())),
        (registration_key(claim()), registration_value(claim(lanes={"t": tuple(range(100_001))}))),
        (lane_key(STREAM._replace(producer="\ud800")), lane_value(LaneRecord(STREAM))),
        (lane_key(STREAM._replace(run="R")), lane_value(LaneRecord(STREAM))),
        (lane_key(STREAM._replace(topic="a b")), lane_value(LaneRecord(STREAM))),
        (lane_key(STREAM._replace(incarnation=1 << 31)), lane_value(LaneRecord(STREAM))),
        (lane_key(STREAM._replace(lane=1 << 32)), lane_value(LaneRecord(STREAM))),
        (KEY, json.dumps(VALUE | {"reserved": 1 << 62}).encode()),
        (KEY, json.dumps(VALUE | {"reserved": 5.0}).encode()),
        (KEY, json.dumps(VALUE | {"end": 1, "acked": [0, 2]}).encode()),
        (KEY, json.dumps(VALUE | {"source_partitions": 1 << 31}).encode()),
        (KEY, json.dumps(VALUE | {"told": 6}).encode()),
        (KEY, json.dumps(VALUE).replace("5", "Infinity").encode()),
        (KEY, json.dumps(VALUE).replace("5", "1e999").encode()),
        (b"[" * 2_000, b"{}"),
        (KEY, lane_value(LaneRecord(STREAM)) + b" " * MOST_RECORD_BYTES),
    ],
)
def test_damaged_records_are_counted(key: bytes, value: bytes) -> None:
    """A record that is not the ledger's changes only the count of malformed records.

    A producer's name with half of a surrogate pair, or an incarnation beyond 32 bits, ended
    the run's consumers: their logs can store neither.
    """
    ledger = Ledger()
    ledger.apply(key, value)
    assert (ledger.malformed, ledger.lanes, ledger.registrations("r")) == (1, {}, [])


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_no_bytes_raise(key: bytes, value: bytes | None) -> None:
    """Applying any bytes raises no error."""
    Ledger().apply(key, value)


@given(records())
def test_records_survive_their_bytes(record: LaneRecord) -> None:
    """What a producer writes is what a reader gets."""
    assert written(Ledger(), record)._records == {STREAM: record}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["claim", "withdraw", "lane", "ask"]),
            st.integers(1, 4),
            st.sampled_from(["x", "y"]),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_lanes_do_not_depend_on_when_they_are_asked_for(
    acts: list[tuple[str, int, str, int]],
) -> None:
    """What registrations close is computed when lanes are read, with the same result."""
    asked, last = Ledger(), Ledger()
    for act, incarnation, session, number in acts:
        closes = (ClosedLane("t", 0, number),) if incarnation > 1 else ()
        made = claim(incarnation, session, closes=closes)
        stream = STREAM._replace(incarnation=incarnation)
        for ledger in (asked, last):
            if act == "claim":
                written(ledger, made)
            elif act == "withdraw":
                ledger.apply(registration_key(made), None)
            elif act == "lane":
                written(ledger, LaneRecord(stream, number, of(range(number)), end=number or None))
        _ = asked.lanes
    assert asked.lanes == last.lanes == _found_anew(last)
    assert dict(asked.lanes_of("r")) == dict(asked.lanes)
    assert asked.complete("r") == last.complete("r")


def _found_anew(ledger: Ledger) -> dict[StreamId, LaneRecord]:
    """The lanes by the rules alone, from everything that was applied, without cached results."""
    newest = max((won.incarnation for won in ledger.registrations("r")), default=0)
    found = {}
    for stream in {*ledger._records, *ledger._marks, *_claimed_ever(ledger)}:
        record = ledger._records.get(stream)
        if stream.incarnation < newest:
            found[stream] = (record or LaneRecord(stream, repeats=True)).closed(
                ledger._marks.get(stream, 0)
            )
        elif record is not None:
            found[stream] = record if record.end is None else record.closed(0)
    return found


def _claimed_ever(ledger: Ledger) -> set[StreamId]:
    producers = ledger._producers.get("r", {}).values()
    return {s for known in producers for streams in known.streams.values() for s in streams}


def test_a_claim_costs_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 small registrations of a producer cost 23 s: each resolved all others' lanes."""
    found: list[StreamId] = []
    resolve = Ledger._resolve

    def counted(ledger: Ledger, stream: StreamId, *rest: Any) -> None:
        found.append(stream)
        resolve(ledger, stream, *rest)

    monkeypatch.setattr(Ledger, "_resolve", counted)
    ledger = Ledger()
    for incarnation in range(1, 1001):
        closes = (ClosedLane("t", 0, incarnation),) if incarnation > 1 else ()
        written(ledger, claim(incarnation, f"s{incarnation}", closes=closes))
    assert len(ledger.lanes) == 999
    assert all(lane.end == lane.stream.incarnation + 1 for lane in ledger.lanes.values())
    for _ in range(1000):
        late = claim(2000, "late")
        written(ledger, late)
        ledger.apply(registration_key(late), None)
    assert len(ledger.lanes) == 999
    assert len(found) <= 3 * 1000


def test_a_part_that_tells_of_more_than_there_is_can_be_given_up() -> None:
    """One forged part kept a run incomplete for ever."""
    ledger = written(Ledger(), claim(), LaneRecord(STREAM, 5, of(range(5)), end=5))
    assert ledger.complete("r")
    forged = LaneRecord(STREAM, 9, of([7]), end=9, outcomes=9)
    ledger.apply(lane_key(STREAM, 4), lane_value(forged))
    assert not ledger.complete("r")
    assert ledger.partial("r") == {STREAM}
    assert ledger.complete("r", given_up=ledger.partial("r"))
    assert ledger.lanes[STREAM].end is None


def test_the_ledger_says_how_far_a_producers_clock_was_set() -> None:
    """It is the greatest of a lane's records, also once the lane is closed; 0 is not written."""
    never, set_once = LaneRecord(STREAM, 8), LaneRecord(STREAM, 8, clock_set_ns=3 * 10**9)
    assert b"clock" not in lane_value(never)
    read = parse(lane_key(STREAM), lane_value(set_once))
    assert isinstance(read, LaneRecord)
    assert read.merge(never).clock_set_ns == never.merge(read).clock_set_ns == 3 * 10**9
    assert read.closed(8).clock_set_ns == 3 * 10**9
