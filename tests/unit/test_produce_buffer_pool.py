"""Turns for a partition's buffer memory: in order, bounded, and never lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.produce.buffer_pool import TURN_BYTES, BufferPool, BufferPools
from mirrortest.produce.topic_plan import TopicPlan

if TYPE_CHECKING:
    from mirrortest.produce.lane import Lane

SIZE = 100


class _Lane:
    """Requests a turn when it is notified, and keeps the memory that it then takes."""

    def __init__(self, pool: BufferPool, number: int, size: int, began: list[int]) -> None:
        self.pool, self.number, self.size, self._began = pool, number, size, began
        self.notified = self.underway = False

    def notify(self) -> None:
        self.notified = True

    def visit(self) -> None:
        self.notified = False
        if self.pool.turn(cast("Lane", self)):
            self.pool.take(self.size)
            self.underway = True
            self._began.append(self.number)

    def leave(self) -> None:
        self.notified = False
        self.pool.leave(cast("Lane", self))

    def end(self) -> None:
        self.underway = False
        self.pool.give(self.size)


@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=12),
    leaving=st.sets(st.integers(0, 11)),
    seed=st.integers(0, 1 << 16),
)
def test_batches_begin_in_the_order_they_came_and_stay_within_the_memory(
    sizes: list[int], leaving: set[int], seed: int
) -> None:
    """For any sizes and leaving lanes, batches begin in order, at most one beyond the limit.

    At the end, all memory is returned.
    """
    pool, began, chance = BufferPool(SIZE), list[int](), random.Random(seed)
    lanes = [_Lane(pool, *each, began) for each in enumerate(sizes)]
    coming, left = list(lanes), set[int]()
    while True:
        steps = [lane.visit for lane in lanes if lane.notified]
        steps += [lane.end for lane in lanes if lane.underway]
        if coming:
            steps.append(coming[0].visit)
        waiting = [lane for lane in lanes if lane not in coming and lane.number not in began]
        steps += [each.leave for each in waiting if each.number in leaving - left]
        if not steps:
            break
        step = chance.choice(steps)
        lane: _Lane = step.__self__  # type: ignore[attr-defined]  # bound methods
        if coming and step == coming[0].visit:
            coming.pop(0)
        elif step == lane.leave:
            left.add(lane.number)
        step()
        underway = [lane.size for lane in lanes if lane.underway]
        assert sum(underway) <= SIZE + max(underway, default=0)
    assert began == sorted(began)
    assert set(began) | left == set(range(len(sizes)))
    assert pool._free == SIZE


def test_a_lane_that_leaves_passes_its_turn_on() -> None:
    """A lane that has nothing to send any more when it is notified does not block others."""
    pool, began = BufferPool(SIZE), list[int]()
    first, second, third = (_Lane(pool, number, SIZE, began) for number in range(3))
    for lane in (first, second, third):
        lane.visit()
    first.end()
    assert second.notified
    assert not third.notified
    second.leave()
    assert third.notified
    third.visit()
    assert began == [0, 2]


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
    """Its cost is thus spread over hundreds of messages, however many lanes there are."""
    assert BufferPools([plan("t", 4, lanes)], 32 << 20).batch_bytes == expected


def test_each_partition_has_a_pool_of_its_own() -> None:
    """All lanes of a partition share one; the pools divide the memory."""
    pools = BufferPools([plan("t", 2, 6), plan("u", 2, 2)], 400)
    topic = plan("t", 2, 6)
    assert {id(pools.of("t", partition)) for partition in topic.partitions} == {
        id(pools.of("t", 0)),
        id(pools.of("t", 1)),
    }
    assert pools.of("t", 0) is not pools.of("u", 0)
    assert [pools.of(name, at)._free for name in "tu" for at in (0, 1)] == [100] * 4
    assert pools.batch_bytes == 50
