"""The ledger as a producer writes and follows it: its own name's records, in their order."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.check.ledger import Ledger
from mirrortest.errors import ClusterError, FencedError
from mirrortest.kafka.follower import Follower, Tailed

if TYPE_CHECKING:
    from mirrortest.check.ledger_record import Claim

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0


class CompactedLog(Tailed, Protocol):
    """What is asked of the ledger's topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record; its offset once the brokers have it."""


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

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record until it is written; its offset."""
        warned = False
        while True:
            self.tries += 1
            try:
                return await self._topic.write(key, value)
            except ClusterError as error:
                if not warned:
                    _log.warning("the ledger cannot be written, trying again", reason=str(error))
                    warned = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def passed(self, offset: int) -> None:
        """Wait until everything up to this offset, itself included, is applied."""
        await self._follower.passed(offset)

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
