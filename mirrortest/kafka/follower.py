"""Follows a compacted topic: applies its records in order, for ever, and reports how far it is.

What is applied must not mind repetition: after an outage, and where the topic was created again,
its records come again from the beginning.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from mirrortest.errors import TopicMissingError, TopicReplacedError, UnreachableError
from mirrortest.host.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0
STALLED_SECONDS = 15.0
"""How long a wait for a record lasts while no record at all is applied."""


class FollowedTopic(Protocol):
    """What is asked of the topic (`kafka.compacted.CompactedTopic`)."""

    @property
    def topic(self) -> str:
        """Its name."""

    def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        """All records from the beginning, then those to come: (offset, key, value).

        Raises TopicReplacedError where what was read of the topic is not in it any more.
        """


class FollowerPosition(NamedTuple):
    """Where a follower was: `position` is an offset in the topic of this `epoch`."""

    epoch: int
    position: int


class Follower:
    """Applies each record of `topic` as `apply(key, value)`; `run` must run as a task.

    Attributes:
        epoch: how often what was read of the topic was not in it any more, because it
            was deleted, created again or cut. What was written in an earlier epoch may not be in
            the topic: its writer writes it again. It steps before a record of the new epoch
            is applied.
        position: the offset after the record applied last, in the topic of this epoch; 0 before
            the first.
    """

    def __init__(self, topic: FollowedTopic, apply: Callable[[bytes, bytes | None], None]) -> None:
        self._topic = topic
        self._apply = apply
        self.epoch = 0
        self.position = 0
        self._away = False
        self._failure: Exception | None = None
        self._moved = asyncio.Condition()
        self._replaced = asyncio.Event()
        """Set by a writer whose record proves that the topic is another one."""
        self._waiting = 0

    @property
    def place(self) -> FollowerPosition:
        """Where it is now: to be asked for before a record is written that is to be awaited."""
        return FollowerPosition(self.epoch, self.position)

    async def run(self) -> None:
        """Apply all records, for ever; an outage is waited for, whenever it comes.

        Raises:
            ClusterError: the cluster refuses.
        """
        try:
            while True:
                try:
                    await self._read_until_replaced()
                except TopicReplacedError:
                    await self._step()
                    continue
                except (UnreachableError, TopicMissingError) as error:
                    if isinstance(error, TopicMissingError):
                        await self._step()
                    if not self._away:
                        self._away = True
                        _log.warning(
                            "a topic cannot be followed, trying again",
                            topic=self._topic.topic,
                            why=str(error),
                        )
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            # Waiters must hear of it: their records will never be applied.
            self._failure = error
            await self._notify()
            raise

    async def wait_applied(self, offset: int, since: FollowerPosition) -> bool:
        """Wait until everything up to a written record's offset, itself included, is applied.

        `since` is the follower's `place` before the record was written. False: what was
        read is not in the topic any more, nor perhaps the record: write it again.

        Raises:
            UnreachableError: for `STALLED_SECONDS` nothing was applied; the wait may be repeated.
            Exception: what ended the following.
        """
        if since.epoch == self.epoch and offset < since.position:
            # A topic only grows: this offset is one of another topic under the same name.
            self._replaced.set()
            await self._step()
        self._waiting += 1
        try:
            async with self._moved:
                while self.epoch == since.epoch and self.position <= offset and not self._failure:
                    await self._move()
        finally:
            self._waiting -= 1
        if self.epoch != since.epoch:
            return False
        if self.position <= offset and self._failure is not None:
            raise self._failure
        return True

    async def _move(self) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._moved.wait()
        except TimeoutError as error:
            raise UnreachableError(
                f"what was written to {self._topic.topic} was not read within {STALLED_SECONDS:g} s"
            ) from error

    async def _read_until_replaced(self) -> None:
        """Read for ever, or until a writer has found that the topic is another one."""
        self._replaced.clear()
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._replaced.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        # Records come in hundreds at once, and each may be of many streams.
        time_slice, epoch = TimeSlice(), self.epoch
        async for offset, key, value in self._topic.tail():
            if self.epoch != epoch:
                return
            if self._away:
                self._away = False
                _log.info("the topic is followed again", topic=self._topic.topic)
            self._apply(key, value)
            self.position = offset + 1
            await self._notify()
            await time_slice.over()

    async def _step(self) -> None:
        """What was read or written is not there any more; that may be nothing."""
        if self.position or self._waiting:
            self.epoch += 1
            self.position = 0
            _log.warning(
                "a topic was deleted, created again or cut; it is read from its beginning",
                topic=self._topic.topic,
            )
            await self._notify()

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()
