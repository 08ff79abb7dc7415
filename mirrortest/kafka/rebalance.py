"""Brings a group's rebalances into the task that reads.

aiokafka calls its listener from a task of its own, while the application is amid its work. Here
the listener only queues what is to be told; the reader tells it between two fetches, and the
rebalance waits until that is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import ConsumerRebalanceListener

from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aiokafka import TopicPartition as KafkaPartition

    OnChange = Callable[[list[tuple[str, int]]], Awaitable[None]]


class _Change(NamedTuple):
    tell: OnChange
    partitions: list[tuple[str, int]]
    told: asyncio.Future[None]


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Queues a group's changes; `changed` is set while some wait to be told.

    `at_once` is called with newly assigned partitions before anything else can happen to them.
    """

    def __init__(
        self,
        *,
        on_assigned: OnChange,
        on_revoked: OnChange,
        at_once: Callable[[Iterable[KafkaPartition]], None],
    ) -> None:
        self.changed = asyncio.Event()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._at_once = at_once
        self._waiting: list[_Change] = []
        self._closed = False

    async def tell(self) -> None:
        """Tell all changes that wait; what a callback raises comes out here."""
        while self._waiting:
            change = self._waiting[0]
            try:
                await change.tell(change.partitions)
            finally:
                self._waiting.remove(change)
                if not change.told.done():
                    change.told.set_result(None)
        self.changed.clear()

    def close(self) -> None:
        """Tell nothing any more, and hold no rebalance up."""
        self._closed = True
        for change in self._waiting:
            if not change.told.done():
                change.told.set_result(None)
        self._waiting.clear()

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """Wait until the reading task has let go of these partitions."""
        await self._queue(self._on_revoked, revoked)

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        """Wait until the reading task has taken these partitions over."""
        if not self._closed:
            self._at_once(assigned)
        await self._queue(self._on_assigned, assigned)

    async def _queue(self, tell: OnChange, partitions: Iterable[KafkaPartition]) -> None:
        if self._closed:
            return
        told = asyncio.get_running_loop().create_future()
        named: list[tuple[str, int]] = sorted(TopicPartition(*at) for at in partitions)
        self._waiting.append(_Change(tell, named, told))
        self.changed.set()
        await told
