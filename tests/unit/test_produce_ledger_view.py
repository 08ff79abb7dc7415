"""The ledger as a producer writes it, into topics that are deleted or lose records."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import ClusterError, FencedError
from mirrortest.kafka import follower
from mirrortest.model.intervals import IntervalSet
from mirrortest.produce import ledger_view
from mirrortest.produce.ledger_view import REFRESH_NS
from mirrortest.produce.registration import publish_closed
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import (
    LaneRecord,
    Registration,
    lane_key,
    lane_value,
    registration_key,
    registration_value,
)
from mirrortest.wire.stream import StreamId
from tests.unit.producing import LANES, MemorySender, World, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(ledger_view, "_RETRY_SECONDS", 0)
    async with World.followed() as world:
        yield world


@pytest.mark.parametrize("missing", [True, False], ids=["deleted", "created again by others"])
@pytest.mark.parametrize("silent", [False, True], ids=["noticed", "unnoticed"])
@pytest.mark.parametrize("records", [4, 7, 9])
async def test_a_ledger_that_is_deleted_amid_a_run_is_written_again(
    world: World, records: int, *, missing: bool, silent: bool
) -> None:
    """However far the run is, the producer ends, and the new topic has all its records.

    That includes registrations, records of an earlier incarnation, and those of other producers
    of the run that have ended and cannot write them again.
    """
    bob, carl = (StreamId("t", run, "bob", 1, 1) for run in ("r", "other"))
    for stream in (bob, carl):
        claim = Registration(stream.run, "bob", 1, "s", {"t": (1,)})
        await world.topic.write(registration_key(claim), registration_value(claim))
        ended = LaneRecord(stream, 3, IntervalSet([(0, 3)]), end=3)
        await world.topic.write(lane_key(stream), lane_value(ended))
    earlier, _ = await world.incarnation(MemorySender(), total=100)
    await earlier.run(asyncio.Event())
    before = dict(world.topic.ledger().lanes)
    sender = MemorySender()
    life, lanes = await world.incarnation(sender, total=1000)
    deleted: list[int] = []

    def delete(*_: object) -> None:
        if len(sender.sent) > records and not deleted:
            deleted.append(len(world.topic.records))
            world.topic.delete(missing=missing, silent=silent)

    sender.before = delete
    async with asyncio.timeout(30):
        await life.run(asyncio.Event())
    assert deleted
    assert world.topic.created == missing
    ledger = world.topic.ledger()
    assert ledger.complete("r", ["p", "bob"])
    claims = [(claim.producer, claim.incarnation) for claim in ledger.registrations("r")]
    assert claims == [("bob", 1), ("p", 1), ("p", 2)]
    assert ledger.lanes[bob].acked == IntervalSet([(0, 3)])
    assert carl not in ledger.lanes
    del before[carl]
    for stream, record in before.items():
        assert ledger.lanes[stream] == record
    for lane in lanes:
        assert ledger.lanes[lane.stream].acked == IntervalSet([(0, 500)])


async def test_a_write_that_went_down_with_the_topic_is_written_again(world: World) -> None:
    """If the topic is deleted after the ack, before the read, the wait for the record ends."""
    claim = await world.claim("a")
    again = registration_key(claim), registration_value(claim)
    world.topic.wrote = lambda *_: None if world.topic.created else world.topic.delete()
    async with asyncio.timeout(30):
        await world.view.write(again)
    assert world.topic.records == [again]


async def test_a_record_whose_offset_became_anothers_is_written_again(world: World) -> None:
    """An unclean election removes it before it is read back, and another record gets its offset.

    Once, the producer ended, and consumers waited forever for its end marks (long/155912).
    """
    claim = await world.claim("a")
    record = registration_key(claim), registration_value(replace(claim, failed=True))
    taken: list[int] = []

    def take(*_: object) -> None:
        if len(taken) < 2:
            taken.append(len(world.topic.records))
            world.topic.records[-1] = (b"other", b"somebody else's")

    world.topic.wrote = take
    async with asyncio.timeout(30):
        await world.view.write(record)
    assert world.topic.records[-3:] == [(b"other", b"somebody else's")] * 2 + [record]


async def test_a_ledger_that_cannot_be_created_again_ends_the_run(world: World) -> None:
    """The error names the topic's wrong setting."""
    life, _ = await world.incarnation(MemorySender(), total=None)
    world.topic.delete()
    world.topic.refusal = ClusterError("topic 'ledger' has cleanup.policy=delete")
    async with asyncio.timeout(30):
        with pytest.raises(ClusterError, match=r"cleanup\.policy=delete"):
            await life.run(asyncio.Event())


async def test_who_claimed_first_in_the_new_topic_fences_the_other(world: World) -> None:
    """Two producers of one name never use the same number; the first one there wins."""
    life, _ = await world.incarnation(MemorySender(), total=None)
    world.topic.delete(missing=False)
    other = Registration("r", "p", 1, "other", LANES)
    await world.topic.write(registration_key(other), registration_value(other))
    async with asyncio.timeout(30):
        with pytest.raises(FencedError, match="taken over"):
            await life.run(asyncio.Event())
    winner = world.topic.ledger().winner("r", "p", 1)
    assert winner is not None
    assert winner.session == "other"


async def test_a_registration_that_an_unclean_election_took_is_written_again(world: World) -> None:
    """An earlier registration of the same name, which is then the newest, fences nobody."""
    first, second = (Registration("r", "p", n, f"s{n}", LANES) for n in (1, 2))
    for each in (first, second):
        await world.view.write((registration_key(each), registration_value(each)))
    world.topic.delete(missing=False)
    await world.topic.write(registration_key(first), registration_value(first))
    await until(lambda: world.view.ledger.latest("r", "p") == first)
    world.view.check_fence(second)
    await world.view.restore()
    assert world.topic.ledger().latest("r", "p") == second


async def test_a_number_of_which_only_a_lane_is_left_is_taken(world: World) -> None:
    """Messages carry it: two processes with one number would duplicate each other's messages."""
    lane = LaneRecord(StreamId("t", "r", "p", 4, 0), 8)
    await world.topic.write(lane_key(lane.stream), lane_value(lane))
    await world.view.wait_until_read(0)
    assert (await world.claim("a")).incarnation == 5


async def test_what_was_acknowledged_before_a_kill_outlives_a_replay(world: World) -> None:
    """A mirror replays a killed producer's old records last, and compaction keeps those."""
    life, lanes = await world.incarnation(MemorySender(), total=1000)
    old = list(world.topic.records)
    running = asyncio.create_task(life.run(asyncio.Event()))
    await until(lambda: sum(lane.record().acked.count for lane in lanes) == 1000)
    await life.ledger_writer.finish(ended=False)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await publish_closed(world.view, await world.claim("next"))
    copy = Ledger()
    for key, value in dict(world.topic.records + old).items():
        copy.apply(key, value)
    for lane in lanes:
        record = copy.lanes[lane.stream]
        assert (record.acked, record.end) == (IntervalSet([(0, 500)]), lane.reservation.granted)


async def test_a_record_that_an_old_one_displaces_is_written_again(world: World) -> None:
    """Otherwise, the next producer after a kill would not see the later reservations."""
    stream = StreamId("t", "r", "p", (await world.claim("a")).incarnation, 0)
    old, newest = ((lane_key(stream), lane_value(LaneRecord(stream, mark))) for mark in (8, 16))
    for record in (old, newest):
        await world.view.write(record)
    await world.topic.write(*old)
    await world.view.wait_until_read(len(world.topic.records) - 1)
    await world.view.restore()
    assert world.topic.records[-2:] == [old, newest]


async def test_every_record_is_written_again_in_its_turn(world: World) -> None:
    """The copy's retention drops records that are written once: registrations, idle lanes."""
    life, _ = await world.incarnation(MemorySender(), total=100)
    await life.run(asyncio.Event())
    lost = Registration("r", "p", 1, "loser", LANES)
    await world.view.write((registration_key(lost), registration_value(lost)))
    table = dict(world.topic.records)
    await world.view.refresh(0)
    start = len(world.topic.records)
    rounds = 100
    for number in range(1, rounds + 1):
        await world.view.refresh(number * REFRESH_NS // rounds)
        assert len(world.topic.records) - start <= -(-number * len(table) // rounds)
    again = dict(world.topic.records[start:])
    del table[registration_key(lost)]
    assert again == table


async def test_what_others_lost_is_left_to_them_for_a_while(world: World) -> None:
    """Running producers write their own records; later, any survivor writes the rest."""
    await world.claim("a")
    others = [Registration("r", f"p{number}", 1, "s", {"t": (1,)}) for number in range(600)]
    await world.view.write(
        *((registration_key(claim), registration_value(claim)) for claim in others)
    )
    world.topic.delete()
    await until(lambda: world.view._follower.epoch)
    await world.view.restore()
    sizes = []
    for seconds in (0, 4, 5, 6, 7):
        await world.view.refresh(seconds * 1_000_000_000)
        sizes.append(len(world.topic.records))
    assert sizes == [1, 1, 501, 601, 601]
    assert len(dict(world.topic.records)) == 601


async def test_what_others_write_after_they_were_helped_stays(world: World) -> None:
    """A producer writes displaced records again only if they are its own."""
    await world.claim("a")
    bob = StreamId("t", "r", "bob", 1, 0)
    old, newest = ((lane_key(bob), lane_value(LaneRecord(bob, mark))) for mark in (8, 16))
    await world.view.write(old)
    await world.topic.write(*newest)
    await world.view.wait_until_read(len(world.topic.records) - 1)
    for seconds in (0, 10, 20):
        await world.view.refresh(seconds * 1_000_000_000)
    assert world.topic.records[-1] == newest


async def test_nothing_is_refreshed_before_its_time(world: World) -> None:
    """A producer without new outcomes writes almost nothing."""
    await world.claim("a")
    await world.view.refresh(0)
    await world.view.refresh(REFRESH_NS // 2)
    assert len(world.topic.records) == 1


async def test_a_write_that_is_given_up_says_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a producer ends during a write to the ledger, no traceback reaches the terminal."""
    begun, errors = asyncio.Event(), list[dict[str, object]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def write(*_: bytes | None) -> int:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(world.topic, "write", write)
    writing = asyncio.create_task(world.view.write((b"a", b"b"), (b"c", b"d")))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    del writing
    await asyncio.sleep(0)
    gc.collect()
    assert errors == []


async def test_a_slow_write_looks_for_the_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client silently repeats requests that are refused because the topic is missing."""
    monkeypatch.setattr(ledger_view, "SLOW_SECONDS", 0.01)
    world.topic.delete()
    world.topic.frozen.clear()
    writing = asyncio.create_task(world.claim("a"))
    await until(lambda: world.topic.created)
    world.topic.frozen.set()
    assert (await writing).incarnation == 1
