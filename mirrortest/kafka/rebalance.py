"""Run a group's rebalance callbacks in the task that reads.

The client calls its listener in its own task, while the application works on something else. This
listener only queues the change. The reader runs the callbacks between two fetches, and the
rebalance waits for them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirrortest.model.topic_partition import TopicPartition

    OnChange = Callable[[list[tuple[str, int]]], Awaitable[None]]


class _Change(NamedTuple):
    callback: OnChange
    partitions: list[tuple[str, int]]
    done: asyncio.Future[None]


class Rebalances:
    """A `ports.RebalanceListener` that queues changes; `changed` is set while changes wait.

    `at_once` is called immediately with newly assigned partitions, before they can be fetched.
    """

    def __init__(
        self,
        *,
        on_assigned: OnChange,
        on_revoked: OnChange,
        at_once: Callable[[list[TopicPartition]], None],
    ) -> None:
        self.changed = asyncio.Event()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._at_once = at_once
        self._waiting: list[_Change] = []
        self._closed = False

    async def run_callbacks(self) -> None:
        """Run the callbacks of all queued changes; an error of a callback is raised here."""
        while self._waiting:
            change = self._waiting[0]
            try:
                await change.callback(change.partitions)
            finally:
                self._waiting.remove(change)
                if not change.done.done():
                    change.done.set_result(None)
        self.changed.clear()

    def close(self) -> None:
        """Drop queued changes, run no more callbacks, and no longer delay a rebalance."""
        self._closed = True
        for change in self._waiting:
            if not change.done.done():
                change.done.set_result(None)
        self._waiting.clear()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Wait until the reading task has given up these partitions."""
        await self._queue(self._on_revoked, revoked)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Wait until the reading task has taken these partitions over."""
        if not self._closed:
            self._at_once(assigned)
        await self._queue(self._on_assigned, assigned)

    async def _queue(self, callback: OnChange, partitions: list[TopicPartition]) -> None:
        if self._closed:
            return
        done = asyncio.get_running_loop().create_future()
        named: list[tuple[str, int]] = sorted(partitions)
        self._waiting.append(_Change(callback, named, done))
        self.changed.set()
        await done
