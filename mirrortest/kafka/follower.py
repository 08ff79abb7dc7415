"""Follow a compacted topic: apply its records in order, without end, and report the position.

Applying a record must be idempotent: after an outage, or after the topic was recreated, all records
come again from the beginning.
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
"""How long `wait_applied` waits while no record at all is applied."""


class FollowedTopic(Protocol):
    """What a follower needs of its topic (`kafka.compacted.CompactedTopic`)."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        """Yield all records from the beginning, then new ones: (offset, key, value).

        Raises TopicReplacedError if records that were read are no longer in the topic.
        """


class FollowerPosition(NamedTuple):
    """A follower's position: `position` is an offset in the topic of this `epoch`."""

    epoch: int
    position: int


class Follower:
    """A follower of `topic` that calls `apply(key, value)` per record; `run` must run as a task.

    Attributes:
        epoch: how often the topic lost records that were read or waited for, because it was
            deleted, recreated or truncated. Records written in an earlier epoch might not be in
            the topic: their writers write them again. The epoch is incremented before a record of
            the new epoch is applied.
        position: the offset after the last applied record, in the topic of this epoch; 0 before
            the first.
    """

    def __init__(self, topic: FollowedTopic, apply: Callable[[bytes, bytes | None], None]) -> None:
        self._topic = topic
        self._apply = apply
        self.epoch = 0
        self.position = 0
        self._in_outage = False
        self._failure: Exception | None = None
        self._moved = asyncio.Condition()
        self._replaced = asyncio.Event()
        """Set by a writer whose record proves that the topic was replaced."""
        self._waiting = 0

    @property
    def place(self) -> FollowerPosition:
        """The current position; a writer takes it before it writes a record to wait for."""
        return FollowerPosition(self.epoch, self.position)

    async def run(self) -> None:
        """Apply all records, without end; wait out any outage.

        Raises:
            ClusterError: the cluster refuses.
        """
        try:
            while True:
                try:
                    await self._read_until_replaced()
                except TopicReplacedError:
                    await self._advance_epoch()
                    continue
                except (UnreachableError, TopicMissingError) as error:
                    if isinstance(error, TopicMissingError):
                        await self._advance_epoch()
                    if not self._in_outage:
                        self._in_outage = True
                        _log.warning(
                            "a topic cannot be followed, trying again",
                            topic=self._topic.topic,
                            why=str(error),
                        )
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            # Wake the waiters: their records will never be applied.
            self._failure = error
            await self._notify()
            raise

    async def wait_applied(self, offset: int, since: FollowerPosition) -> bool:
        """Wait until all records up to and including a written record's offset are applied.

        `since` is the follower's `place` before the record was written. Returns False if the topic
        has lost records since, perhaps this one too: the caller must write it again.

        Raises:
            UnreachableError: no record was applied for `STALLED_SECONDS`; the caller can retry.
            Exception: the error that ended `run`.
        """
        if since.epoch == self.epoch and offset < since.position:
            # Offsets in a topic only grow: this one belongs to another topic of the same name.
            self._replaced.set()
            await self._advance_epoch()
        self._waiting += 1
        try:
            async with self._moved:
                while self.epoch == since.epoch and self.position <= offset and not self._failure:
                    await self._wait_for_progress()
        finally:
            self._waiting -= 1
        if self.epoch != since.epoch:
            return False
        if self.position <= offset and self._failure is not None:
            raise self._failure
        return True

    async def _wait_for_progress(self) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._moved.wait()
        except TimeoutError as error:
            raise UnreachableError(
                f"records written to {self._topic.topic} were not read back within "
                f"{STALLED_SECONDS:g} s"
            ) from error

    async def _read_until_replaced(self) -> None:
        """Read until a writer has found that the topic was replaced, or until reading fails."""
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
        # Hundreds of records come at once, and each can concern many streams.
        time_slice, epoch = TimeSlice(), self.epoch
        async for offset, key, value in self._topic.tail():
            if self.epoch != epoch:
                return
            if self._in_outage:
                self._in_outage = False
                _log.info("the topic is followed again", topic=self._topic.topic)
            self._apply(key, value)
            self.position = offset + 1
            await self._notify()
            await time_slice.over()

    async def _advance_epoch(self) -> None:
        """Start a new epoch, unless nothing was read and no writer waits."""
        if self.position or self._waiting:
            self.epoch += 1
            self.position = 0
            _log.warning(
                "topic was recreated or truncated; reading it from the beginning",
                topic=self._topic.topic,
            )
            await self._notify()

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()
