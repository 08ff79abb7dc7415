"""How `buffer.memory` is shared by the batches underway: a pool for each partition.

With a pool of its own a partition whose broker is away holds up no other's lanes. In a pool, lanes
take turns. To give each lane its own share instead would make batches small where lanes are many,
and a batch costs about the same whatever it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.produce.lane import MAX_IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.produce.lane import Lane
    from mirrortest.produce.topic_plan import TopicPlan

TURN_BYTES = 64 << 10
"""What a lane's batch may hold even where that is more than the lane's own share of the memory."""


class BufferPool:
    """The bytes that batches underway to one partition may take; first come, first served.

    A batch may begin while any byte is free, so that they take one batch more at most.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: dict[Lane, None] = {}
        """In the order of their turns."""

    def turn(self, lane: Lane) -> bool:
        """Whether it is the lane's turn: then it must `take`, else it is notified when it may be.

        A lane that waits keeps its place until its turn, or until it leaves.
        """
        if self._free > 0 and next(iter(self._waiting), lane) is lane:
            self._waiting.pop(lane, None)
            return True
        self._waiting[lane] = None
        return False

    def leave(self, lane: Lane) -> None:
        """A lane has nothing to send any more."""
        self._waiting.pop(lane, None)
        self._call()

    def take(self, size: int) -> None:
        """Take bytes for a batch."""
        self._free -= size
        self._call()

    def give(self, size: int) -> None:
        """A batch that took so many bytes has its outcome, or was not sent."""
        self._free += size
        self._call()

    def _call(self) -> None:
        if self._waiting and self._free > 0:
            next(iter(self._waiting)).notify()


class BufferPools:
    """The pools of a producer's lanes, and how large a batch may be.

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
        """The pool of a partition to which some lane belongs."""
        return self._pools[topic, partition]

    @property
    def batch_bytes(self) -> int:
        """What a batch may hold at most: a lane's share, or a turn's where that is more."""
        return max(self._share, min(TURN_BYTES, self._size // 2))
