"""One incarnation with a ledger and a log in memory: order of durability, fences, deaths, ends."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import FencedError, SequenceLogError
from mirrortest.kafka.sender import Sent
from mirrortest.metrics import names
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.produce import ledger_writer
from mirrortest.produce.context import ProducerContext
from mirrortest.produce.housekeeping import ProducerMetrics
from mirrortest.produce.lane import Flight
from mirrortest.produce.ledger_view import CompactedLog, LedgerView
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.registration import register
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.ledger_parts import LaneParts
from mirrortest.verify.ledger_record import LaneRecord, lane_key, lane_value, parse
from tests.unit.producing import LANES, MemorySender, World, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mirrortest.wire.batch import EncodedBatch


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World.followed() as world:
        yield world


async def test_the_first_claim_wins_and_the_next_closes(world: World) -> None:
    """Incarnation numbers rise; each registration closes the previous one at its reserved marks."""
    first = await world.claim("a")
    assert (first.incarnation, first.closes) == (1, ())
    _, lanes = await world.incarnation(MemorySender())
    second = await world.claim("c")
    assert second.incarnation == 3
    assert [(c.lane, c.reserved) for c in second.closes] == [
        (lane.stream.lane, lane.reservation.granted) for lane in lanes
    ]


async def test_two_claimants_at_once_get_two_incarnations(world: World) -> None:
    """The second registration in the ledger takes the next number, and withdraws its first one."""
    other = LedgerView(cast("CompactedLog", world.topic), "r", "p")
    task = asyncio.create_task(other.follow())
    claims = await asyncio.gather(
        world.claim("a"),
        register(other, run="r", producer="p", session="b", lanes=LANES),
    )
    task.cancel()
    assert sorted(claim.incarnation for claim in claims) == [1, 2]
    ledger = world.topic.ledger()
    for claim in claims:
        assert ledger.winner("r", "p", claim.incarnation) == claim


async def test_a_mark_that_moves_under_a_claim_is_closed_where_it_came_to_stand(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reservation between a producer's read of the ledger and its registration is not lost."""
    _, lanes = await world.incarnation(MemorySender())
    stream = lanes[0].stream
    moved = LaneRecord(stream, reserved=9999)
    write = world.topic.write

    raced: list[bytes] = []

    async def racing(key: bytes, value: bytes | None) -> int:
        if b'"claim"' in key and not raced:
            raced.append(key)
            await write(lane_key(stream), lane_value(moved))
        return await write(key, value)

    monkeypatch.setattr(world.topic, "write", racing)
    claim = await world.claim("next")
    assert (stream.topic, stream.lane, 9999) in claim.closes


async def test_a_lane_with_many_holes_is_vouched_for_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record would exceed its size, and a producer without its ledger sends nothing."""
    monkeypatch.setattr(ledger_writer, "LaneParts", partial(LaneParts, 5))
    monkeypatch.setattr(ledger_writer, "PUBLISH_NS", 0)
    sender = MemorySender()

    def every_other(_topic: str, partition: int, _encoded: EncodedBatch) -> None:
        turn = sum(to == partition for _, to, _ in sender.sent) % 2
        sender.outcome = (Outcome.ACKED, Outcome.UNKNOWN)[turn]

    sender.before = every_other
    incarnation, lanes = await world.incarnation(sender)
    await incarnation.run(asyncio.Event())
    keys = {key for key, _ in world.topic.records if key.startswith(b'["lane"')}
    assert len(keys) > len(lanes)
    for lane in lanes:
        assert len(lane.record().acked) > 5
        entry = world.topic.ledger().lanes[lane.stream]
        assert (entry.acked, entry.unknown, entry.end) == (
            lane.record().acked,
            lane.record().unknown,
            lane.end,
        )


async def test_a_producer_that_pauses_gives_a_sign_of_life(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats a record after some time without a write: its ledger is not dead."""
    monkeypatch.setattr(ledger_writer, "PUBLISH_NS", 0)
    incarnation, lanes = await world.incarnation(MemorySender())
    writer = incarnation.ledger_writer
    before = world.topic.ledger().lanes
    await writer.round()
    count = len(world.topic.records)
    await writer.round()
    assert len(world.topic.records) == count
    began = writer.written_ns
    monkeypatch.setattr(world.clock, "now", lambda: began + ledger_writer.SIGN_OF_LIFE_NS)
    for _ in range(2):
        await writer.round()
        assert len(world.topic.records) == count + 1
    assert world.topic.records[-1][0] == lane_key(lanes[0].stream)
    assert world.topic.ledger().lanes == before


async def test_lanes_of_a_partition_take_turns_where_its_memory_is_small(world: World) -> None:
    """Lanes send one batch at a time, in turn; a batch of any outcome frees its memory."""
    sender = MemorySender(holding=True)
    incarnation, lanes = await world.incarnation(sender, total=400, memory=1)
    for lane in lanes:
        lane.reservation.grant(200)  # or they would wait for reservations, too
    running = asyncio.create_task(incarnation.run(asyncio.Event()))
    answered = 0
    while not running.done():
        await until(lambda n=answered: len(sender.unanswered) > n or running.done())
        if running.done():
            break
        assert len(sender.unanswered) == answered + 1
        outcome = (Outcome.ACKED, Outcome.UNKNOWN)[answered // 2 % 2]
        sender.unanswered[answered].set_result(Sent(outcome, 0))
        answered += 1
    await running
    partitions = [partition for _, partition, _ in sender.sent]
    assert len(partitions) > 4
    # The first lane queues for its second batch before the other one does, which thus is last.
    assert all(one != other for one, other in pairwise(partitions[1:-1]))
    assert all(lane.record().end == 200 for lane in lanes)
    assert {lane.pool._free for lane in lanes} == {1}


async def test_the_end_of_a_drain_calls_nobody_who_waits_for_memory(world: World) -> None:
    """The batch without a response frees its memory; the lane that waits for it sends nothing."""
    sender = MemorySender(holding=True)
    incarnation, lanes = await world.incarnation(sender, total=None, memory=1, drain=0.01)
    stop = asyncio.Event()
    running = asyncio.create_task(incarnation.run(stop))
    await until(lambda: sender.unanswered)
    stop.set()
    await running
    assert len(sender.sent) == 1
    assert [lane.next_seq > 0 for lane in lanes] == [True, False]
    assert {lane.pool._free for lane in lanes} == {1}


async def test_a_clean_life(world: World) -> None:
    """All messages are acked, and all lanes end; the log has each fact before the ledger."""

    def log_first(key: bytes, value: bytes | None) -> None:
        record = None if value is None else parse(key, value)
        if isinstance(record, LaneRecord):
            assert not record.acked - world.log.numbers(record.stream, Kind.SENT, Outcome.ACKED)
            reserved = world.log.numbers(record.stream, Kind.RESERVED)
            assert record.reserved == reserved.end

    world.topic.wrote = log_first
    sender = MemorySender()
    incarnation, lanes = await world.incarnation(sender)

    def reserved_first(_topic: str, partition: int, _encoded: EncodedBatch) -> None:
        lane = lanes[partition]
        durable = world.log.numbers(lane.stream, Kind.RESERVED)
        vouched = world.topic.ledger().lanes[lane.stream].reserved
        assert lane.next_seq <= min(durable.end, vouched)

    sender.before = reserved_first
    await incarnation.run(asyncio.Event())
    assert sum(count for _, _, count in sender.sent) == 1000
    ledger = world.topic.ledger()
    for lane in lanes:
        record = ledger.lanes[lane.stream]
        assert record.acked == IntervalSet([(0, 500)])
        assert record.end == 500
    assert ledger.complete("r", ["p"])
    assert sum(row.kind == Kind.END for row in world.log.durable) == 2


async def test_a_stop_waits_for_acknowledgements_but_not_for_ever(world: World) -> None:
    """At the drain's deadline, unanswered messages are unknown in log and ledger; lanes end."""
    sender = MemorySender(holding=True)
    incarnation, lanes = await world.incarnation(sender)
    stop = asyncio.Event()
    task = asyncio.create_task(incarnation.run(stop))
    await until(lambda: sender.unanswered)
    stop.set()
    await task
    ledger = world.topic.ledger()
    for lane in lanes:
        record = ledger.lanes[lane.stream]
        assert record.unknown == IntervalSet([(0, lane.next_seq)])
        assert record.end == lane.next_seq > 0
        assert world.log.numbers(lane.stream, Kind.SENT, Outcome.UNKNOWN) == record.unknown


async def test_a_second_signal_leaves_lanes_open(world: World) -> None:
    """After a cancellation, the ledger has no acks that are not known, and no end mark."""
    sender = MemorySender(holding=True)
    incarnation, lanes = await world.incarnation(sender)
    task = asyncio.create_task(incarnation.run(asyncio.Event()))
    await until(lambda: sender.unanswered)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ledger = world.topic.ledger()
    for lane in lanes:
        record = ledger.lanes[lane.stream]
        assert record.end is None
        assert not record.acked
        assert lane.next_seq <= record.reserved


async def test_a_dead_sender_hands_the_schedule_on(world: World) -> None:
    """The incarnation ends with its messages unknown; the next one continues the schedule.

    It writes no end marks, since consumers would take the run for complete.
    """
    sender = MemorySender(holding=True)
    incarnation, lanes = await world.incarnation(sender, total=1000)
    task = asyncio.create_task(incarnation.run(asyncio.Event()))
    await until(lambda: len(sender.unanswered) >= 2)
    sender.die()
    await task
    assert incarnation.died == "it died"
    used = [lane.next_seq for lane in lanes]
    assert all(lane.next_seq == lane.pace.position for lane in lanes)
    assert not world.topic.ledger().complete("r")
    second = MemorySender()
    again, newer = await world.incarnation(second, paces=[lane.pace for lane in lanes])
    await again.run(asyncio.Event())
    assert [lane.next_seq for lane in newer] == [500 - count for count in used]
    ledger = world.topic.ledger()
    assert ledger.complete("r", ["p"])
    assert {stream.incarnation for stream in ledger.lanes} == {1, 2}


async def test_the_metric_of_durable_rows_counts_those_of_all_incarnations(world: World) -> None:
    """Once, it did not rise after a restart until the new incarnation had more rows than the old.

    Rows that the log writes by itself, as from a full buffer, count, too.
    """
    client = ClientConfig(bootstrap_servers=("b:1",))
    options = ProduceOptions(run="r", name="p", client=client, topics=("t",))
    metrics = ProducerMetrics(ProducerContext(options))
    counter = metrics._metrics.counter(names.LOG_ROWS)
    for total in (1000, 10):
        incarnation, _ = await world.incarnation(MemorySender(), total=total)
        await incarnation.run(asyncio.Event())
        incarnation.ledger_writer.close_rows()
        await world.log.sync()
        metrics.publish(incarnation, {}, 0, world.clock.now())
        assert counter.value == len(world.log.rows)


async def test_a_fenced_life_ends(world: World) -> None:
    """Another session's registration ends it at its next round, before it reserves more."""
    incarnation, lanes = await world.incarnation(MemorySender(), total=None)
    task = asyncio.create_task(incarnation.run(asyncio.Event()))
    await asyncio.sleep(0)
    other = LedgerView(cast("CompactedLog", world.topic), "r", "p")
    follower = asyncio.create_task(other.follow())
    await until(lambda: other.ledger.latest("r", "p"))
    claim = await register(other, run="r", producer="p", session="zz", lanes=LANES)
    follower.cancel()
    with pytest.raises(FencedError, match="taken over"):
        await task
    marks = {closed.lane: closed.reserved for closed in claim.closes}
    assert all(lane.next_seq <= marks[lane.stream.lane] for lane in lanes)
    assert all(lane.end is None for lane in lanes)


async def test_who_finds_at_its_end_that_it_was_taken_over_does_not_end_well(world: World) -> None:
    """If it was paused, consumers may end with its successor before its last messages come."""
    incarnation, _ = await world.incarnation(MemorySender(), total=100)

    async def taken_over() -> None:
        other = LedgerView(cast("CompactedLog", world.topic), "r", "p")
        follower = asyncio.create_task(other.follow())
        await until(lambda: other.ledger.latest("r", "p"))
        await register(other, run="r", producer="p", session="zz", lanes=LANES)
        follower.cancel()

    incarnation.before_end = taken_over
    with pytest.raises(FencedError, match="taken over"):
        await incarnation.run(asyncio.Event())


async def test_a_log_that_cannot_be_written_ends_the_run(world: World) -> None:
    """A full disk is an error, and the ledger has no acks that the log lacks."""
    incarnation, lanes = await world.incarnation(MemorySender(), total=None)
    world.log.error = SequenceLogError("disk full")
    with pytest.raises(SequenceLogError, match="disk full"):
        await incarnation.run(asyncio.Event())
    for lane in lanes:
        record = world.topic.ledger().lanes[lane.stream]
        assert not record.acked
        assert lane.next_seq <= record.reserved


async def test_refused_messages_are_failed(world: World) -> None:
    """A refusal is an outcome like others: the lane goes on, and the reasons are counted."""
    incarnation, lanes = await world.incarnation(MemorySender(outcome=Outcome.FAILED), total=100)
    await incarnation.run(asyncio.Event())
    assert [lane.record().failed.count for lane in lanes] == [50, 50]
    assert incarnation._reasons == {"no": 100}
    assert world.numbers.failures == {Failure.REFUSED: 100}
    record = world.topic.ledger().lanes[lanes[0].stream]
    assert record.failed == IntervalSet([(0, 50)])


async def test_a_lane_refuses_numbers_that_are_not_reserved(world: World) -> None:
    """The lane itself checks its reservation, for any caller."""
    _, lanes = await world.incarnation(MemorySender())
    lane = lanes[0]
    beyond = np.zeros(lane.reservation.granted + 1, dtype=np.int64)
    with pytest.raises(AssertionError, match="not reserved"):
        lane.begin_send(Flight(0, 0, beyond, 0, 0, 0))


async def test_progress_is_what_is_sent_answered_or_tried(world: World) -> None:
    """Sends and acks raise `steps`; it is idle only once all are answered."""
    sender = MemorySender(holding=True)
    incarnation, _ = await world.incarnation(sender, total=100)
    before = incarnation.steps
    assert not incarnation.idle(world.clock.now())
    stop = asyncio.Event()
    running = asyncio.create_task(incarnation.run(stop))
    await until(lambda: sender.unanswered)
    assert incarnation.steps > before
    steps = incarnation.steps
    await asyncio.sleep(0)
    assert not incarnation.idle(world.clock.now())
    for future in sender.unanswered:
        future.set_result(Sent(Outcome.ACKED, 10))
    sender.holding = False
    await running
    assert incarnation.steps > steps
    assert incarnation.idle(world.clock.now())


async def test_what_nobody_expected_ends_the_life_and_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait forever for batches in flight; the ledger has no acks that the log lacks."""

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    for sending in (True, False):
        sender = MemorySender(before=fail if sending else None)
        incarnation, lanes = await world.incarnation(sender)
        if not sending:
            for recorded in incarnation._recorded:
                monkeypatch.setattr(recorded.recorder, "record_outcome", fail)
        with pytest.raises(RuntimeError, match="a fault of ours"):
            async with asyncio.timeout(10):
                await incarnation.run(asyncio.Event())
        assert not any(lane.flights or lane.record().acked for lane in lanes)
        assert any(lane.record().unknown for lane in lanes)
        ledger = world.topic.ledger()
        assert all(not ledger.lanes[lane.stream].acked for lane in lanes)
