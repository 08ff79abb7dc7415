"""Turns at a partition's memory: in order, bounded, and never lost."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.produce.buffer_pool import TURN_BYTES, BufferPool, BufferPools
from mirrortest.produce.topic_plan import TopicPlan

SIZE = 100


@dataclass
class _Seen:
    """What the lanes of a test did, in order."""

    asked: list[int] = field(default_factory=list)
    began: list[int] = field(default_factory=list)
    underway: int = 0
    most: int = 0
    largest: int = 0


@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=12),
    cancelled=st.sets(st.integers(0, 11)),
    seed=st.integers(0, 1 << 16),
)
def test_batches_begin_in_the_order_they_came_and_stay_within_the_memory(
    sizes: list[int], cancelled: set[int], seed: int
) -> None:
    """Whatever the sizes, whoever gives up: the rest begin in order, one batch beyond at most.

    At the end all is given back.
    """

    async def run() -> None:
        pool, seen, chance = BufferPool(SIZE), _Seen(), random.Random(seed)

        async def lane(number: int, size: int) -> None:
            seen.asked.append(number)
            await pool.turn()
            pool.take(size)
            seen.began.append(number)
            seen.underway += size
            seen.most = max(seen.most, seen.underway)
            seen.largest = max(seen.largest, size)
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            seen.underway -= size
            pool.give(size)

        tasks = [asyncio.create_task(lane(*each)) for each in enumerate(sizes)]
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        for number in cancelled & set(range(len(tasks))):
            if number in seen.asked and number not in seen.began:
                tasks[number].cancel()
        async with asyncio.timeout(10):
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for number, outcome in enumerate(ended):
            assert (number in seen.began) == (outcome is None)
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        assert seen.began == sorted(seen.began)
        assert seen.most <= SIZE + seen.largest
        assert pool._free == SIZE

    asyncio.run(run())


async def test_a_turn_that_brings_no_batch_is_passed_on() -> None:
    """Who has nothing to send any more, by the time it is called, holds up nobody."""
    pool = BufferPool(SIZE)
    await pool.turn()
    pool.take(SIZE)
    waiting = [asyncio.create_task(pool.turn()) for _ in range(2)]
    await asyncio.sleep(0)
    pool.give(SIZE)
    await waiting[0]
    assert not waiting[1].done()
    pool.take(0)
    await waiting[1]


def plan(topic: str, source: int, destination: int) -> TopicPlan:
    return TopicPlan(
        topic=topic,
        source_partitions=source,
        destination_partitions=destination,
        max_batch_bytes=1 << 20,
    )


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [(4, 4 << 20), (64, 256 << 10), (1_000, TURN_BYTES), (10_000, TURN_BYTES)],
)
def test_a_batch_holds_a_lanes_share_and_a_turns_where_lanes_are_many(
    lanes: int, expected: int
) -> None:
    """So that its cost is spread over hundreds of messages, however many lanes there are."""
    assert BufferPools([plan("t", 4, lanes)], 32 << 20).batch_bytes == expected


def test_each_partition_has_a_pool_of_its_own() -> None:
    """All lanes of a partition share one; together they are the memory."""
    pools = BufferPools([plan("t", 2, 6), plan("u", 2, 2)], 400)
    topic = plan("t", 2, 6)
    assert {id(pools.of("t", partition)) for partition in topic.partitions} == {
        id(pools.of("t", 0)),
        id(pools.of("t", 1)),
    }
    assert pools.of("t", 0) is not pools.of("u", 0)
    assert [pools.of(name, at)._free for name in "tu" for at in (0, 1)] == [100] * 4
    assert pools.batch_bytes == 50
