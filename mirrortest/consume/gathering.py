"""Batches that were fetched and wait to be judged together.

At a moderate rate a fetch brings a few messages of a partition, and to judge a few costs as much
as to judge a thousand. Each batch was stamped when it arrived, so that waiting alters no latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrortest.consume.state import Partition
    from mirrortest.kafka.fetched import FetchedBatch

WAIT_SECONDS = 0.05
"""The longest that a batch waits."""
ENOUGH_BYTES = 4 << 20
"""From so many on, nothing waits."""


class Gathering:
    """What waits, by partition and in the order of its offsets; times are monotonic seconds."""

    def __init__(self) -> None:
        self._batches: dict[Partition, list[FetchedBatch]] = {}
        self._bytes = 0
        self._since = 0.0

    def add(self, at: Partition, batch: FetchedBatch, now: float) -> None:
        """Let a batch wait; it follows what waits of its partition."""
        if not self._batches:
            self._since = now
        self._batches.setdefault(at, []).append(batch)
        self._bytes += 0 if batch.buffer is None else len(batch.buffer)

    def due_in(self, now: float) -> float:
        """Seconds until what waits is to be judged; infinite where nothing waits."""
        if not self._batches:
            return float("inf")
        if self._bytes >= ENOUGH_BYTES:
            return 0.0
        return max(0.0, self._since + WAIT_SECONDS - now)

    def drop(self, at: Partition) -> None:
        """Forget what waits of a partition: it is read again, or is another's."""
        for batch in self._batches.pop(at, ()):
            self._bytes -= 0 if batch.buffer is None else len(batch.buffer)

    def take(self) -> tuple[Partition, list[FetchedBatch]] | None:
        """What waits of one partition, which waits no more; None where nothing does."""
        if not self._batches:
            return None
        at = next(iter(self._batches))
        batches = self._batches[at]
        self.drop(at)
        return at, batches
