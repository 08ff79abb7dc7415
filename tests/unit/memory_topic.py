"""A compacted topic in memory, and stores that follow it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from mirrortest.consume.state_store import StateStore
from mirrortest.consume.state_table import Scope
from mirrortest.errors import TopicReplacedError, UnreachableError
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable


SCOPE = Scope("r1", "cluster", "consumer", "g")
P0 = TopicPartition("A.t", 0)

_Result = TypeVar("_Result")


class MemoryTopic:
    """A compacted topic of one partition."""

    topic = "states"

    def __init__(self, records: Iterable[tuple[int, bytes, bytes | None]] = ()) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = list(records)
        self._cut = 0
        self._grown = asyncio.Event()

    async def create(self) -> bool:
        """It exists already."""
        return False

    async def write(self, key: bytes, value: bytes | None) -> int:
        self.records.append((self.next_offset, key, value))
        self._grown.set()
        self._grown = asyncio.Event()
        return self.records[-1][0]

    @property
    def next_offset(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0

    def keep_first(self, count: int) -> None:
        """Truncate the topic, as an unclean election does; 0: it was deleted and recreated."""
        del self.records[count:]
        self._cut += 1
        self._grown.set()
        self._grown = asyncio.Event()

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        position, cut = 0, self._cut
        while True:
            if cut != self._cut and self.next_offset < position:
                raise TopicReplacedError("an offset out of range")
            grown = self._grown
            for record in [r for r in self.records if r[0] >= position]:
                position = record[0] + 1
                yield record
            if self.next_offset <= position:
                await grown.wait()

    def compacted(self) -> MemoryTopic:
        """What a reader finds after compaction."""
        last = {key: offset for offset, key, _ in self.records}
        return MemoryTopic(r for r in self.records if last[r[1]] == r[0])


@contextlib.asynccontextmanager
async def following(
    topic: MemoryTopic, session: str, scope: Scope = SCOPE
) -> AsyncIterator[StateStore]:
    """A store with its follower running."""
    store = StateStore(topic, scope, session)
    task = asyncio.create_task(store.follow())
    try:
        yield store
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def load(topic: MemoryTopic) -> dict[str, Any] | None:
    """The state of P0 that a successor finds."""
    async with following(topic, "reader") as store:
        return (await store.claim(P0))[1]


async def sat_out(call: Callable[..., Awaitable[_Result]], *args: Any) -> _Result:
    """Call as the consumer does: again if the topic is deleted meanwhile."""
    while True:
        with contextlib.suppress(UnreachableError):
            return await call(*args)
