"""How batches in flight share `buffer.memory`: one pool for each partition.

Partitions have separate pools, so a broker that is down blocks only the lanes of its own
partitions. Within a pool, lanes take turns. A fixed share for each lane would make batches small
where lanes are many, and a batch costs about the same whatever its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.produce.lane import MAX_IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.produce.lane import Lane
    from mirrortest.produce.topic_plan import TopicPlan

TURN_BYTES = 64 << 10
"""A lane's batch may reach this size even if it exceeds the lane's own share of the memory."""


class BufferPool:
    """The memory of batches in flight to one partition; first come, first served.

    A batch may begin while any byte is free, so the pool is exceeded by one batch at most.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: dict[Lane, None] = {}
        """The waiting lanes, in the order of their turns."""

    def turn(self, lane: Lane) -> bool:
        """Whether it is the lane's turn: if so, it must call `take`; if not, it is notified later.

        A waiting lane keeps its place in the queue until its turn, or until it leaves.
        """
        if self._free > 0 and next(iter(self._waiting), lane) is lane:
            self._waiting.pop(lane, None)
            return True
        self._waiting[lane] = None
        return False

    def leave(self, lane: Lane) -> None:
        """Remove a lane that has nothing more to send."""
        self._waiting.pop(lane, None)
        self._notify_next()

    def take(self, size: int) -> None:
        """Take bytes for a batch."""
        self._free -= size
        self._notify_next()

    def give(self, size: int) -> None:
        """Return the bytes of a batch that has its outcome, or was not sent."""
        self._free += size
        self._notify_next()

    def _notify_next(self) -> None:
        if self._waiting and self._free > 0:
            next(iter(self._waiting)).notify()


class BufferPools:
    """The pools of a producer's partitions, and the largest size of a batch.

    Args:
        plans: the topics, with their lanes.
        memory: `buffer.memory`, in bytes.
    """

    def __init__(self, plans: Sequence[TopicPlan], memory: int) -> None:
        places = {(plan.topic, partition) for plan in plans for partition in plan.partitions}
        self._size = memory // max(len(places), 1)
        self._pools = {place: BufferPool(self._size) for place in places}
        self._share = memory // (MAX_IN_FLIGHT * max(sum(len(plan.lanes) for plan in plans), 1))

    def of(self, topic: str, partition: int) -> BufferPool:
        """The pool of a partition that a lane writes to."""
        return self._pools[topic, partition]

    @property
    def batch_bytes(self) -> int:
        """The largest size of a batch: a lane's share, or a turn's bytes if these are more."""
        return max(self._share, min(TURN_BYTES, self._size // 2))
