"""What an incarnation sends and when: batches, shapes, sizes, timers."""

from __future__ import annotations

import asyncio
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.config.shape import Step, Steps, Uniform
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.incarnation import Backlog, Incarnation
from mirrortest.produce.message_sizes import MessageSizes
from mirrortest.produce.pace import pace_of
from mirrortest.timing.shaped_rate import ShapedRate
from mirrortest.wire.record_batch import decode_records
from tests.unit.producing import MemorySender, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mirrortest.wire.batch import EncodedBatch


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World.followed() as world:
        yield world


@pytest.mark.parametrize("throughput", [None, 5000])
async def test_batches_have_exactly_the_messages_that_are_asked_for(
    world: World, throughput: float | None
) -> None:
    """Only the last one is smaller, with a rate and without one."""
    sender = MemorySender()
    times: list[int] = []
    sender.before = lambda *_: times.append(world.clock.now())
    incarnation, lanes = await world.incarnation(
        sender, total=100, throughput=throughput, batches=7
    )
    for lane in lanes:
        lane.pace.start(world.clock.now())
    await incarnation.run(asyncio.Event())
    assert [lane.end for lane in lanes] == [50, 50]
    for partition in (0, 1):
        sent = [count for _, to, count in sender.sent if to == partition]
        assert sent == [7] * 7 + [1]


async def test_a_lane_that_waits_for_its_exact_batch_is_not_behind(world: World) -> None:
    """It is behind once the batch is complete, and not sent: since its last message was due."""
    second = 1_000_000_000
    paces = [pace_of(20, index=index, lanes=2, total=50, batch=10) for index in range(2)]
    incarnation, lanes = await world.incarnation(MemorySender(), paces=paces, batches=10)
    for lane in lanes:
        lane.pace.start(0)
    at = TopicPartition("t", 0)
    # This lane's messages are due at 0, 0.1 s, 0.2 s, ...; its batches are complete at 0.9 s, ...
    for tenths, due, lag in ((1, 2, 0), (8, 9, 0), (9, 10, 0), (12, 13, 3)):
        now = tenths * second // 10
        assert incarnation.backlogs(now)[at] == Backlog(0, due, lag * second // 10), tenths
        assert incarnation.idle(now) == (due < 10)
    for lane in lanes:
        lane.pace.take(10, second)
        lane.pace.take(10, second)
    # The last batch has the 5 messages that are left.
    for tenths, due, lag in ((23, 4, 0), (26, 5, 2)):
        now = tenths * second // 10
        assert incarnation.backlogs(now)[at] == Backlog(0, due, lag * second // 10), tenths


async def test_a_shape_is_sent_at_its_times(world: World) -> None:
    """For two bursts: the first message is in the first burst, the last one's time is exact."""
    bursts = Steps(
        (
            Step(Fraction(500), 100_000_000),
            Step(Fraction(0), 300_000_000),
            Step(Fraction(1000), 100_000_000),
        )
    )
    schedule = ShapedRate(bursts, seed=0, topic="t")
    paces = [pace_of(schedule, index=index, lanes=2) for index in range(2)]
    sender = MemorySender()
    incarnation, lanes = await world.incarnation(sender, paces=paces)
    began = world.clock.now()
    for pace in paces:
        pace.start(began)
    await incarnation.run(asyncio.Event())
    assert [lane.end for lane in lanes] == [75, 75]
    wall = began + world.clock.offset_ns
    for lane in lanes:
        rows = [row for row in world.log.durable if row.lane == lane.stream.lane]
        sent = [row for row in rows if row.outcome is not None]
        assert min(row.intended_first or 0 for row in sent) - wall < 100_000_000
        last = schedule.next_time(149 if lane is lanes[1] else 148)
        assert max(row.intended_last or 0 for row in sent) - wall == last


async def test_messages_have_the_sizes_that_are_drawn(world: World) -> None:
    """A size depends on the message's index in the topic; the totals count the bytes."""
    sizes = MessageSizes(Uniform(93, 100, 1), seed=3, topic="t")
    expected = sizes.of(np.arange(1000, dtype=np.int64))
    sender = MemorySender()
    batches: dict[int, list[int]] = {0: [], 1: []}

    def keep(_topic: str, partition: int, encoded: EncodedBatch) -> None:
        batches[partition] += decode_records(encoded.buffer).value_len.tolist()

    sender.before = keep
    incarnation, lanes = await world.incarnation(sender, sizes=sizes)
    await incarnation.run(asyncio.Event())
    assert [lane.end for lane in lanes] == [500, 500]
    assert batches == {0: expected[::2].tolist(), 1: expected[1::2].tolist()}
    assert world.numbers.overall.value_bytes == expected.sum()


async def test_lanes_that_wait_for_the_same_tick_share_a_timer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack does not wake a lane that waits for its tick: each wakes once per batch."""
    loop, timers, visits = asyncio.get_running_loop(), Counter[str](), 0
    usual_timer, usual_visit = type(loop).call_later, Incarnation._visit

    def timer(self: Any, delay: float, callback: Any, *args: Any, **more: Any) -> Any:
        timers[getattr(callback, "__name__", "")] += 1
        return usual_timer(self, delay, callback, *args, **more)

    def visit(self: Incarnation, recorded: Any) -> None:
        nonlocal visits
        visits += 1
        usual_visit(self, recorded)

    monkeypatch.setattr(type(loop), "call_later", timer)
    monkeypatch.setattr(Incarnation, "_visit", visit)
    sender = MemorySender()
    incarnation, _ = await world.incarnation(sender, throughput=400, total=80, linger_ms=20)
    await incarnation.run(asyncio.Event())
    assert sum(count for _, _, count in sender.sent) == 80
    assert timers["_wake"] <= len(sender.sent) / 2 + 2
    assert visits <= len(sender.sent) + 4
