"""The ledger as a producer writes and follows it: its own name's records, in their order."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.check.ledger import Ledger
from mirrortest.errors import ClusterError, FencedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mirrortest.check.ledger_record import Claim

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0


class CompactedLog(Protocol):
    """What is asked of the ledger's topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record; its offset once the brokers have it."""

    def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        """All records from the beginning, then those to come: (offset, key, value)."""


class LedgerView:
    """Writes to the ledger, and knows what stands there of one producer of one run.

    `follow` must run as a task. Writes are repeated until they succeed: all records are harmless
    when repeated.
    """

    def __init__(self, topic: CompactedLog, run: str, producer: str) -> None:
        self.ledger = Ledger()
        self._topic = topic
        self._run = run
        self._producer = producer
        self._own = (_key_prefix("claim", run, producer), _key_prefix("lane", run, producer))
        self._position = 0
        self._failure: Exception | None = None
        self._moved = asyncio.Condition()

    async def follow(self) -> None:
        """Apply all records for ever; a broken connection is taken up again."""
        try:
            while True:
                try:
                    await self._read()
                except ClusterError as error:
                    _log.warning("the ledger cannot be read, trying again", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            # Who waits for a record is told, as it will never come.
            self._failure = error
            await self._move(self._position)
            raise

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record until it is written; its offset."""
        warned = False
        while True:
            try:
                return await self._topic.write(key, value)
            except ClusterError as error:
                if not warned:
                    _log.warning("the ledger cannot be written, trying again", reason=str(error))
                    warned = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def passed(self, offset: int) -> None:
        """Wait until everything up to this offset, itself included, is applied."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._position > offset or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    def check_fence(self, claim: Claim) -> None:
        """Raise FencedError if a later incarnation of this producer has been claimed."""
        latest = self.ledger.latest(claim.run, claim.producer)
        if latest is not None and (latest.incarnation, latest.session) != (
            claim.incarnation,
            claim.session,
        ):
            raise FencedError(
                f"another process has taken over as producer {claim.producer!r} of run "
                f"{claim.run!r} (incarnation {latest.incarnation}): give each producer its own --id"
            )

    async def _read(self) -> None:
        async for offset, key, value in self._topic.tail():
            if offset >= self._position:
                self._apply(key, value)
                await self._move(offset + 1)

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if key.startswith(self._own):
            self.ledger.apply(key, value)

    async def _move(self, position: int) -> None:
        async with self._moved:
            self._position = position
            self._moved.notify_all()


def _key_prefix(kind: str, run: str, producer: str) -> bytes:
    """How the keys of one producer's records begin; the ledger holds those of all runs."""
    return json.dumps([kind, run, producer], separators=(",", ":"))[:-1].encode() + b","
