"""Follows a compacted topic: applies its records in order, for ever, and tells how far it is.

What is applied must not mind repetition: after an outage, and where the topic was made anew, its
records come again from the beginning.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.errors import TopicMissingError, UnreachableError
from mirrortest.host.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0


class Tailed(Protocol):
    """What is asked of the topic (`kafka.compacted.CompactedTopic`)."""

    @property
    def topic(self) -> str:
        """Its name."""

    def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        """All records from the beginning, then those to come: (offset, key, value)."""


class Follower:
    """Applies each record of `topic` as `apply(key, value)`; `run` must run as a task."""

    def __init__(self, topic: Tailed, apply: Callable[[bytes, bytes | None], None]) -> None:
        self._topic = topic
        self._apply = apply
        self.position = 0
        """The offset after the record applied last."""
        self._away = False
        self._failure: Exception | None = None
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        """Apply all records, for ever; an outage is waited for, whenever it comes.

        Raises:
            ClusterError: the cluster refuses.
        """
        try:
            while True:
                try:
                    await self._read()
                except (UnreachableError, TopicMissingError) as error:
                    if not self._away:
                        self._away = True
                        _log.warning(
                            "a topic cannot be followed, trying again",
                            topic=self._topic.topic,
                            why=str(error),
                        )
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            # Who waits for a record is told, as it will never come.
            self._failure = error
            await self._tell()
            raise

    async def passed(self, offset: int) -> None:
        """Wait until everything up to this offset, itself included, is applied.

        Raises:
            Exception: what ended the following.
        """
        async with self._moved:
            await self._moved.wait_for(lambda: self.position > offset or self._failure is not None)
        if self.position <= offset and self._failure is not None:
            raise self._failure

    async def _read(self) -> None:
        # Records come in hundreds at once, and each may hold many streams.
        held = TimeSlice()
        async for offset, key, value in self._topic.tail():
            if self._away:
                self._away = False
                _log.info("the topic is followed again", topic=self._topic.topic)
            self._apply(key, value)
            self.position = offset + 1
            await self._tell()
            await held.over()

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()
