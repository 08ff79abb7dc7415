"""Fetched batches that wait to be judged together.

At a moderate rate a fetch brings a few messages of a partition, and judging a few costs as much as
judging a thousand. Waiting changes no latency, because each batch has its arrival time already. It
delays no metric either, because these are published once a second.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrortest.kafka.fetched import FetchedBatches
    from mirrortest.model.topic_partition import TopicPartition

WAIT_SECONDS = 0.5
"""How long a batch waits if few partitions have batches."""
WAIT_EACH = 0.005
"""With many partitions a batch waits this long for each of them: five times as long as judging a
few messages takes, which is a millisecond."""
MOST_SECONDS = 1.0
"""The longest wait of a batch."""
ENOUGH_BYTES = 16 << 20
"""From this many bytes on, nothing waits. At 50 MB/s, a quarter of it costs a third more CPU."""
MOST_MESSAGES = 1 << 14
"""The most messages that are judged together, unless one batch has more: the arrays of more
messages exceed the processor's cache."""
LARGE_BYTES = 1 << 19
"""Judging a memory block of this size by itself costs less than copying it behind another."""


class FetchBuffer:
    """Waiting batches, by partition and in offset order; times are monotonic seconds.

    Each partition is judged when its own wait is over. Judging all of them in one go would block
    fetching.
    """

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, list[FetchedBatches]] = {}
        """By turn: partitions whose batches came first, then those of which a part was judged."""
        self._since: dict[TopicPartition, float] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether so much waits that some of it must be judged now."""
        return self._bytes >= ENOUGH_BYTES

    def add(self, at: TopicPartition, batch: FetchedBatches, now: float) -> None:
        """Add a batch behind the waiting ones of its partition."""
        self._batches.setdefault(at, []).append(batch)
        self._since.setdefault(at, now)
        self._bytes += _size(batch)

    def due_in(self, now: float) -> float:
        """Seconds until something must be judged; infinite if nothing waits."""
        if not self._batches:
            return float("inf")
        if self.is_full:
            return 0.0
        wait = min(max(WAIT_SECONDS, WAIT_EACH * len(self._batches)), MOST_SECONDS)
        return max(0.0, min(self._since.values()) + wait - now)

    def drop(self, at: TopicPartition) -> None:
        """Drop a partition's waiting batches: they are read again, or are another consumer's."""
        self._since.pop(at, None)
        for batch in self._batches.pop(at, ()):
            self._bytes -= _size(batch)

    def take(self) -> tuple[TopicPartition, list[FetchedBatches]] | None:
        """Take the batches to judge together next, of the partition whose turn it is.

        None if nothing waits. The rest of the partition's batches goes behind the other partitions:
        a partition that is filled faster than it is judged must not block them.
        """
        if not self._batches:
            return None
        at = next(iter(self._batches))
        batches = self._batches[at]
        count = _together(batches)
        if count == len(batches):
            self.drop(at)
            return at, batches
        del self._batches[at]
        self._batches[at] = batches[count:]
        taken = batches[:count]
        self._bytes -= sum(map(_size, taken))
        return at, taken


def _together(batches: list[FetchedBatches]) -> int:
    """How many of these batches, from the first on, are best judged together."""
    taken = messages = 0
    for _, group in groupby(batches, _memory):
        together = list(group)
        size = sum(map(_size, together))
        if taken and size >= LARGE_BYTES:
            return taken
        for batch in together:
            if batch.unread is not None:
                return max(taken, 1)  # alone: it has no records to judge
            if messages and messages + batch.count > MOST_MESSAGES:
                return taken
            taken += 1
            messages += batch.count
        if size >= LARGE_BYTES:
            return taken
    return taken


def _memory(batch: FetchedBatches) -> int:
    return 0 if batch.buffer is None else id(memoryview(batch.buffer).obj)


def _size(batch: FetchedBatches) -> int:
    return 0 if batch.buffer is None else len(batch.buffer)
