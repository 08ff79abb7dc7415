"""A lane record in parts: merged, they are the lane; a missing part is always noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_parts import LaneParts
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable

STREAM = StreamId("t", "r", "a", 1, 0)
MOST = 3

OUTCOMES = st.lists(st.sampled_from(["acked", "acked", "failed", "unknown", ""]), max_size=60)
ORDERS = st.lists(st.integers(0, 5), max_size=60)


def record(outcomes: list[str], known: Iterable[int], *, ended: bool) -> LaneRecord:
    """The record of a producer that knows the outcomes of these seqs."""
    sets = {name: IntervalSet() for name in ("acked", "failed", "unknown")}
    for number in known:
        if outcomes[number]:
            sets[outcomes[number]].add(number, number + 1)
    end = len(outcomes) if ended else None
    return LaneRecord(STREAM, len(outcomes), sets["acked"], sets["failed"], sets["unknown"], end)


def ledger_of(records: Iterable[tuple[bytes, bytes | None]]) -> Ledger:
    ledger = Ledger()
    for key, value in records:
        ledger.apply(key, value)
    assert not ledger.malformed
    return ledger


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[tuple[bytes, bytes]], LaneRecord]:
    """All records of a lane whose outcomes became known roughly in order, and its last record."""
    outcomes, late = draw(OUTCOMES), draw(ORDERS)
    order = sorted(range(len(outcomes)), key=lambda at: at + (late[at] if at < len(late) else 0))
    stops = sorted({*draw(st.lists(st.integers(0, len(order)), max_size=4)), len(order)})
    parts, written = LaneParts(MOST), []
    for stop in stops:
        written += parts.records(record(outcomes, order[:stop], ended=False))
        if draw(st.integers(0, 4)) == 0:
            parts.forget()
    last = record(outcomes, order, ended=True)
    written += parts.records(last)
    return written, last


@given(lives(), st.data())
def test_parts_united_are_the_lane(
    life: tuple[list[tuple[bytes, bytes]], LaneRecord], data: st.DataObject
) -> None:
    """They may be in any order, repeated, or only the newest record of each key."""
    written, last = life
    expected = last.closed(0)
    again = data.draw(st.permutations(written + data.draw(st.lists(st.sampled_from(written)))))
    for records in (written, again, dict(written).items()):
        (lane,) = ledger_of(records).lanes.values()
        assert (lane.reserved, lane.end) == (expected.reserved, expected.end)
        assert (lane.acked, lane.failed, lane.unknown) == (
            expected.acked,
            expected.failed,
            expected.unknown,
        )


@given(lives(), st.data())
def test_what_arrives_once_more_displaces_no_last_word(
    life: tuple[list[tuple[bytes, bytes]], LaneRecord], data: st.DataObject
) -> None:
    """A mirror replays old records after the newest, and compaction keeps the old ones."""
    written, last = life
    replayed = written + data.draw(st.lists(st.sampled_from(written), max_size=9))
    (lane,) = ledger_of(dict(replayed).items()).lanes.values()
    expected = last.closed(0)
    assert (lane.acked, lane.failed, lane.unknown, lane.end) == (
        expected.acked,
        expected.failed,
        expected.unknown,
        expected.end,
    )


@given(lives(), st.data())
def test_a_lane_of_which_a_part_is_missing_has_not_ended(
    life: tuple[list[tuple[bytes, bytes]], LaneRecord], data: st.DataObject
) -> None:
    """Whichever records are missing, the lane is complete or has no end; no outcome is wrong."""
    written, last = life
    arrived = [each for each in written if data.draw(st.booleans())]
    for lane in ledger_of(arrived).lanes.values():
        assert not lane.acked - last.acked
        assert not lane.failed - last.failed
        if lane.end is None:
            assert not lane.unknown - last.unknown
        else:
            assert (lane.acked, lane.failed) == (last.acked, last.failed)


def test_as_many_holes_as_one_likes_fit_into_records() -> None:
    """Brokers refuse what is larger than 1 MB, and a producer without its ledger sends nothing."""
    count = 300_000
    acked = IntervalSet((number, number + 1) for number in range(0, count, 2))
    lane = LaneRecord(STREAM, count, acked, end=count)
    written = LaneParts().records(lane)
    assert len(written) > 1
    assert max(len(value) for _, value in written) < 1_000_000
    assert len({key for key, _ in written}) == len(written)
    assert ledger_of(written).lanes[STREAM].acked == acked


def test_only_what_is_news_is_written_again() -> None:
    """Complete parts are written once; the end is written to all parts."""
    parts = LaneParts(MOST)
    sizes = []
    for after in range(10, 60, 10):
        acked = IntervalSet((number, number + 1) for number in range(0, after, 2))
        sizes.append(len(parts.records(LaneRecord(STREAM, after, acked))))
    assert max(sizes) <= 3
    acked = IntervalSet((number, number + 1) for number in range(0, 50, 2))
    assert len(parts.records(LaneRecord(STREAM, 50, acked, end=50))) == 9
