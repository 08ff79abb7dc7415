"""The ledger as a producer writes and follows it: its own name's records, in their order."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.check.ledger import Ledger
from mirrortest.errors import ClusterError, FencedError, TopicMissingError, UnreachableError
from mirrortest.kafka.follower import Follower, Place, Tailed

if TYPE_CHECKING:
    from mirrortest.check.ledger_record import Claim

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0


class CompactedLog(Tailed, Protocol):
    """What is asked of the ledger's topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record; its offset once the brokers have it."""

    async def create(self) -> bool:
        """Create the topic where it is missing; whether it was."""


class LedgerView:
    """Writes to the ledger, and knows what stands there of one producer of one run.

    `follow` must run as a task. Writes are repeated until they succeed: all records are harmless
    when repeated.
    """

    def __init__(self, topic: CompactedLog, run: str, producer: str) -> None:
        self.ledger = Ledger()
        self.tries = 0
        """Writes begun so far, each try counted."""
        self._topic = topic
        self._run = run
        self._producer = producer
        self._own = (_key_prefix("claim", run, producer), _key_prefix("lane", run, producer))
        self._follower = Follower(topic, self._apply)

    async def follow(self) -> None:
        """Apply all records for ever; a broken connection is taken up again."""
        await self._follower.run()

    async def write(self, *records: tuple[bytes, bytes | None]) -> None:
        """Write records until they are written and everything up to them is applied.

        They are written again where they were not read back: the topic may have been deleted.

        Raises:
            ClusterError: the topic was deleted, and cannot be created again as it has to be; or
                the cluster refuses to have it read.
        """
        while True:
            place = self._follower.place
            offsets = await asyncio.gather(*(self._written(*record) for record in records))
            try:
                # The least of them proves that the topic is another one, where it is.
                if await self._follower.passed(min(offsets), place) and await self._follower.passed(
                    max(offsets), place
                ):
                    return
            except UnreachableError as error:
                _log.warning("the ledger is written again", reason=str(error))

    async def passed(self, offset: int) -> None:
        """Wait until what the topic held at the start is applied, up to this offset.

        Raises:
            UnreachableError: it cannot be read.
        """
        await self._follower.passed(offset, Place(self._follower.epoch, 0))

    async def _written(self, key: bytes, value: bytes | None) -> int:
        """Write one record until it is written; its offset."""
        warned = False
        while True:
            self.tries += 1
            try:
                return await self._topic.write(key, value)
            except TopicMissingError:
                await self._create()
            except ClusterError as error:
                if not warned:
                    _log.warning("the ledger cannot be written, trying again", reason=str(error))
                    warned = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def _create(self) -> None:
        """Create the topic again."""
        try:
            if await self._topic.create():
                _log.warning("the ledger was deleted and is created again", topic=self._topic.topic)
        except UnreachableError as error:
            _log.warning("the ledger cannot be created, trying again", reason=str(error))

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

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if key.startswith(self._own):
            self.ledger.apply(key, value)


def _key_prefix(kind: str, run: str, producer: str) -> bytes:
    """How the keys of one producer's records begin; the ledger holds those of all runs."""
    return json.dumps([kind, run, producer], separators=(",", ":"))[:-1].encode() + b","
