"""The ledger as a producer writes and follows it: the records of its own name, in order.

The source's topic keeps them until it is deleted; its copy may have another retention. So a
producer writes its records again: all of them into a topic that was recreated, and otherwise a few
at a time, in turn. Into a recreated topic it also writes the records of the run's other producers
if these do not do so themselves: they may have ended.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.errors import ClusterError, FencedError, TopicMissingError, UnreachableError
from mirrortest.host.waiting import while_waiting
from mirrortest.kafka.compacted import SLOW_SECONDS
from mirrortest.kafka.follower import FollowedTopic, Follower, FollowerPosition
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import parse_registration_key

if TYPE_CHECKING:
    from mirrortest.verify.ledger_record import Registration

    Record = tuple[bytes, bytes | None]

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0
REFRESH_NS = 300_000_000_000
"""Every record is written again once in this time."""
OTHERS_NS = 5_000_000_000
"""How long other producers have to write their records again."""
_MAX_OTHERS = 500


class CompactedLog(FollowedTopic, Protocol):
    """The interface of the ledger's topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record; return its offset once the brokers have it."""

    async def create(self) -> bool:
        """Create the topic if it is missing; return whether it was missing."""


class LedgerView:
    """Writes to the ledger, and follows the records of one producer of one run.

    `follow` must run as a task. Writes are repeated until they succeed; a repeated record does no
    harm.
    """

    def __init__(self, topic: CompactedLog, run: str, producer: str) -> None:
        self.ledger = Ledger()
        self.tries = 0
        """How often a record's write was tried."""
        self._topic = topic
        self._own_prefixes = (
            _key_prefix("claim", run, producer),
            _key_prefix("lane", run, producer),
        )
        self._run_prefixes = (_key_prefix("claim", run), _key_prefix("lane", run))
        self._follower = Follower(topic, self._apply)
        self._table: dict[bytes, bytes] = {}
        """key -> value of the run's newest records, of any epoch"""
        self._to_restore: dict[bytes, bytes] = {}
        """Records to write again: a deleted topic lost them, or an old record displaced them."""
        self._last_written: dict[bytes, bytes | None] = {}
        """key of this name -> the value that this process wrote last"""
        self._missing_since_ns: int | None = None
        """When records were first seen to be missing; None while all are there."""
        self._epoch = 0
        """The follower's epoch as of the record applied last."""
        self._refresh_queue: list[bytes] = []
        """Keys still to be refreshed in this turn."""
        self._refreshed_ns: int | None = None
        self._refresh_fraction = 0.0

    async def follow(self) -> None:
        """Apply all records for ever; an outage is waited for."""
        await self._follower.run()

    async def write(self, *records: Record) -> None:
        """Write records, and wait until everything up to them is applied.

        Records that are not read back are written again: the topic may have been deleted.

        Raises:
            ClusterError: the topic was deleted and cannot be recreated as it must be, or the
                cluster refuses reading it.
        """
        self._last_written.update(
            record for record in records if record[0].startswith(self._own_prefixes)
        )
        while records:
            place = self._follower.place
            offsets = await self._written(records)
            try:
                # If the topic was replaced, the lowest offset proves it.
                if await self._follower.wait_applied(
                    min(offsets), place
                ) and await self._follower.wait_applied(max(offsets), place):
                    records = tuple(filter(self._was_lost, records))
            except UnreachableError as error:
                _log.warning("the ledger is written again", reason=str(error))

    def _was_lost(self, record: Record) -> bool:
        """Whether a record of this name was not read back, though its offset was passed.

        An unclean leader election lost it, and gave its offset to another producer's record.
        """
        key, value = record
        return key.startswith(self._own_prefixes) and (
            self._table.get(key) != value or key in self._to_restore
        )

    async def wait_until_read(self, offset: int) -> None:
        """Wait until the records that the topic had at the start are applied, up to `offset`.

        Raises:
            UnreachableError: the topic cannot be read.
        """
        await self._follower.wait_applied(offset, FollowerPosition(self._follower.epoch, 0))

    async def restore(self, *, others: bool = False) -> None:
        """Write again what a deleted topic lost, or old records displaced; see `write`.

        These are the records of this name, or with `others` those of the run.
        """
        self._check_epoch()
        while lost := [
            record
            for record in self._to_restore.items()
            if others or record[0].startswith(self._own_prefixes)
        ]:
            await self._create()
            await self.write(*lost)
            _log.warning("the ledger was written again", records=len(lost))
            self._check_epoch()

    async def refresh(self, now_ns: int) -> None:
        """Write a few records again, so that none is older than `REFRESH_NS`; see `write`.

        They are written as last read, so no write of this name may be in progress. Also write some
        records that other producers lost with the topic and have not written again.
        """
        await self._restore_others(now_ns)
        own_keys = [key for key in self._table if key.startswith(self._own_prefixes)]
        since, self._refreshed_ns = self._refreshed_ns, now_ns
        self._refresh_fraction += len(own_keys) * (now_ns - (since or now_ns)) / REFRESH_NS
        count, self._refresh_fraction = int(self._refresh_fraction), self._refresh_fraction % 1
        if not count:
            return
        if not self._refresh_queue:
            self._refresh_queue = [key for key in own_keys if self._is_kept(key)]
        keys, self._refresh_queue = self._refresh_queue[:count], self._refresh_queue[count:]
        await self.write(*((key, self._table[key]) for key in keys if key in self._table))

    async def _restore_others(self, now_ns: int) -> None:
        if not self._to_restore:
            self._missing_since_ns = None
            return
        if self._missing_since_ns is None:
            self._missing_since_ns = now_ns
        if now_ns - self._missing_since_ns >= OTHERS_NS:
            # In random order: other producers do the same, and none repeats what one has written.
            lost = list(self._to_restore.items())
            await self.write(*random.sample(lost, min(len(lost), _MAX_OTHERS)))

    def check_fence(self, registration: Registration) -> None:
        """Raise FencedError if another process registered this incarnation or a later one.

        If the ledger has only earlier ones, the topic lost this registration: it is written again.
        """
        latest = self.ledger.latest(registration.run, registration.producer)
        if latest is None or latest.session == registration.session:
            return
        if latest.incarnation >= registration.incarnation:
            raise FencedError(
                f"another process has taken over as producer {registration.producer!r} of run "
                f"{registration.run!r} (incarnation {latest.incarnation}): give each producer its "
                "own --id"
            )

    async def _written(self, records: tuple[Record, ...]) -> list[int]:
        """Write records, each until it succeeds; return their offsets."""
        writing = asyncio.gather(*(self._write(*record) for record in records))
        return await while_waiting(writing, SLOW_SECONDS, self._create)

    async def _write(self, key: bytes, value: bytes | None) -> int:
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
        """Recreate the topic if it is missing; in an outage the writes report the error."""
        try:
            if await self._topic.create():
                _log.warning("the ledger was deleted and is created again", topic=self._topic.topic)
        except UnreachableError:
            pass

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self._check_epoch()
        if not key.startswith(self._run_prefixes):
            return
        self._to_restore.pop(key, None)
        newest = self._last_written.get(key)
        if newest is not None and value != newest:
            # An old record came again, and compaction would keep it: the next incarnation would
            # miss what was reserved since.
            self._to_restore[key] = newest
        self._apply_to_ledger(key, value)
        if value is None:
            self._table.pop(key, None)
        else:
            self._table[key] = value

    def _check_epoch(self) -> None:
        """In a new epoch forget the registrations: the new topic's first one wins."""
        if self._epoch == self._follower.epoch:
            return
        self._epoch = self._follower.epoch
        self._to_restore |= {key: value for key, value in self._table.items() if self._is_kept(key)}
        self.ledger = Ledger()
        for key, value in self._table.items():
            if not key.startswith(self._run_prefixes[0]):
                self._apply_to_ledger(key, value)

    def _apply_to_ledger(self, key: bytes, value: bytes | None) -> None:
        """Apply a record to the ledger; of other producers only registrations."""
        if key.startswith((*self._own_prefixes, self._run_prefixes[0])):
            self.ledger.apply(key, value)

    def _is_kept(self, key: bytes) -> bool:
        """Whether a record is to be kept: a lane's, or the registration that won."""
        registration = (
            parse_registration_key(key) if key.startswith(self._run_prefixes[0]) else None
        )
        if registration is None:
            return True
        run, producer, incarnation, session = registration
        first = self.ledger.winner(run, producer, incarnation)
        return first is not None and first.session == session


def _key_prefix(*begin: str) -> bytes:
    """The prefix of the keys of a run's or a producer's records; the ledger has all runs."""
    return json.dumps(begin, separators=(",", ":"))[:-1].encode() + b","
