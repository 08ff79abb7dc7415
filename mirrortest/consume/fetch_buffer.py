"""Batches that were fetched and wait to be judged together.

At a moderate rate a fetch brings a few messages of a partition, and to judge a few costs as much
as to judge a thousand. Each batch was stamped when it arrived, so that waiting alters no latency,
and nobody sees it: what is published is published once a second.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrortest.kafka.fetched import FetchedBatches
    from mirrortest.model.topic_partition import TopicPartition

WAIT_SECONDS = 0.5
"""How long a batch waits, of few partitions."""
WAIT_EACH = 0.005
"""And of many, for each of them: to judge little takes a millisecond, which is a fifth of it."""
MOST_SECONDS = 1.0
"""The longest that a batch waits."""
ENOUGH_BYTES = 16 << 20
"""From so many on, nothing waits. At 50 MB/s a quarter of it costs a third more CPU."""
MOST_MESSAGES = 1 << 14
"""Judged at once, or one batch: the columns of more leave the processor's cache."""
LARGE_BYTES = 1 << 19
"""To judge a memory of so many bytes by itself costs less than to copy it behind another."""


class FetchBuffer:
    """What waits, by partition and in the order of its offsets; times are monotonic seconds.

    Each partition waits for itself, so that they are not all judged in one go: meanwhile nothing
    would be fetched.
    """

    def __init__(self) -> None:
        self._batches: dict[TopicPartition, list[FetchedBatches]] = {}
        """In their turn: who came first, and behind them those of which something is left."""
        self._since: dict[TopicPartition, float] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether so much waits that some of it is to be judged at once."""
        return self._bytes >= ENOUGH_BYTES

    def add(self, at: TopicPartition, batch: FetchedBatches, now: float) -> None:
        """Let a batch wait; it follows what waits of its partition."""
        self._batches.setdefault(at, []).append(batch)
        self._since.setdefault(at, now)
        self._bytes += _size(batch)

    def due_in(self, now: float) -> float:
        """Seconds until something is to be judged; infinite where nothing waits."""
        if not self._batches:
            return float("inf")
        if self.is_full:
            return 0.0
        wait = min(max(WAIT_SECONDS, WAIT_EACH * len(self._batches)), MOST_SECONDS)
        return max(0.0, min(self._since.values()) + wait - now)

    def drop(self, at: TopicPartition) -> None:
        """Forget what waits of a partition: it is read again, or is another's."""
        self._since.pop(at, None)
        for batch in self._batches.pop(at, ()):
            self._bytes -= _size(batch)

    def take(self) -> tuple[TopicPartition, list[FetchedBatches]] | None:
        """What is to be judged next, all at once, of the partition whose turn it is.

        None where nothing waits. What is left of the partition waits behind the others: what comes
        faster than it is judged must not keep them waiting.
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
    """How many of these batches, from the first on, are best judged at once."""
    taken = messages = 0
    for _, group in groupby(batches, _memory):
        together = list(group)
        size = sum(map(_size, together))
        if taken and size >= LARGE_BYTES:
            return taken
        for batch in together:
            if batch.unread is not None:
                return max(taken, 1)  # by itself: nothing of it is judged
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
