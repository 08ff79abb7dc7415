"""The ledger as a producer writes and follows it: its own name's records, in their order.

The source's topic keeps them until somebody deletes it; its copy may have another retention. So
what this name vouches for is written again: all of it into a topic that was created again, and
otherwise a few records now and then, in turn. Into a topic that was created again goes also what
the run's other producers had written, if they do not write it themselves: they may have ended.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Protocol

import structlog

from mirrortest.errors import ClusterError, FencedError, TopicMissingError, UnreachableError
from mirrortest.host.waiting import cancelled
from mirrortest.kafka.follower import FollowedTopic, Follower, FollowerPosition
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import parse_registration_key

if TYPE_CHECKING:
    from mirrortest.verify.ledger_record import Registration

    Record = tuple[bytes, bytes | None]

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0
_SLOW_SECONDS = 10.0
"""A write that takes longer may wait for a topic that was deleted."""
REFRESH_NS = 300_000_000_000
"""Every record is written again once in this time."""
OTHERS_NS = 5_000_000_000
"""So long the other producers have to write again what is theirs."""
_MOST_OF_OTHERS = 500


class CompactedLog(FollowedTopic, Protocol):
    """What is asked of the ledger's topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record; its offset once the brokers have it."""

    async def create(self) -> bool:
        """Create the topic where it is missing; whether it was."""


class LedgerView:
    """Writes to the ledger, and knows what it holds of one producer of one run.

    `follow` must run as a task. Writes are repeated until they succeed: all records are harmless
    when repeated.
    """

    def __init__(self, topic: CompactedLog, run: str, producer: str) -> None:
        self.ledger = Ledger()
        self.tries = 0
        """Writes begun so far, each try counted."""
        self._topic = topic
        self._own = (_key_prefix("claim", run, producer), _key_prefix("lane", run, producer))
        self._of_run = (_key_prefix("claim", run), _key_prefix("lane", run))
        self._follower = Follower(topic, self._apply)
        self._table: dict[bytes, bytes] = {}
        """The newest record of each key of the run, of whichever epoch."""
        self._lost: dict[bytes, bytes] = {}
        """What was in a topic that is no more, or was displaced, and has not been applied since."""
        self._newest: dict[bytes, bytes | None] = {}
        """What was written here last under each key of this name."""
        self._noticed_ns: int | None = None
        """When it was first seen that others' records are lost."""
        self._epoch = 0
        """The follower's epoch as of the record applied last."""
        self._turns: list[bytes] = []
        """Keys that are still to be refreshed in this turn."""
        self._refreshed_ns: int | None = None
        self._owed = 0.0

    async def follow(self) -> None:
        """Apply all records for ever; a broken connection is taken up again."""
        await self._follower.run()

    async def write(self, *records: Record) -> None:
        """Write records until they are written and everything up to them is applied.

        They are written again where they were not read back: the topic may have been deleted.

        Raises:
            ClusterError: the topic was deleted, and cannot be created again as it has to be; or
                the cluster refuses to have it read.
        """
        self._newest.update(record for record in records if record[0].startswith(self._own))
        while records:
            place = self._follower.place
            offsets = await self._written(records)
            try:
                # The least of them proves that the topic is another one, where it is.
                if await self._follower.wait_applied(
                    min(offsets), place
                ) and await self._follower.wait_applied(max(offsets), place):
                    records = tuple(filter(self._not_read, records))
            except UnreachableError as error:
                _log.warning("the ledger is written again", reason=str(error))

    def _not_read(self, record: Record) -> bool:
        """Whether others' records were read where one of this name should be.

        An unclean election took it, and gave its offset to them before it was read back.
        """
        key, value = record
        return key.startswith(self._own) and (self._table.get(key) != value or key in self._lost)

    async def passed(self, offset: int) -> None:
        """Wait until what the topic held at the start is applied, up to this offset.

        Raises:
            UnreachableError: it cannot be read.
        """
        await self._follower.wait_applied(offset, FollowerPosition(self._follower.epoch, 0))

    async def restore(self, *, others: bool = False) -> None:
        """Write again what went down with the topic, or what old records displace. See `write`.

        What is this name's, or with `others` all of the run.
        """
        self._notice()
        while lost := [
            record for record in self._lost.items() if others or record[0].startswith(self._own)
        ]:
            await self._create()
            await self.write(*lost)
            _log.warning("the ledger was written again", records=len(lost))
            self._notice()

    async def refresh(self, now_ns: int) -> None:
        """Write a few records again, so that each is as old as `REFRESH_NS` at most. See `write`.

        They are as they stand in the topic: none of this name may be on its way. And write some
        of what others lost with the topic, where they do not.
        """
        await self._restore_others(now_ns)
        own = [key for key in self._table if key.startswith(self._own)]
        since, self._refreshed_ns = self._refreshed_ns, now_ns
        self._owed += len(own) * (now_ns - (since or now_ns)) / REFRESH_NS
        count, self._owed = int(self._owed), self._owed % 1
        if not count:
            return
        if not self._turns:
            self._turns = [key for key in own if self._vouched(key)]
        keys, self._turns = self._turns[:count], self._turns[count:]
        await self.write(*((key, self._table[key]) for key in keys if key in self._table))

    async def _restore_others(self, now_ns: int) -> None:
        if not self._lost:
            self._noticed_ns = None
            return
        if self._noticed_ns is None:
            self._noticed_ns = now_ns
        if now_ns - self._noticed_ns >= OTHERS_NS:
            # In no order, as others of the run write, too: what one has written none writes again.
            lost = list(self._lost.items())
            await self.write(*random.sample(lost, min(len(lost), _MOST_OF_OTHERS)))

    def check_fence(self, registration: Registration) -> None:
        """Raise FencedError if another process has a later registration, or one of its number.

        Where only earlier ones are known its registration went with the topic: it is written again.
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
        """Write records, each until it is written; their offsets."""
        writing = asyncio.gather(*(self._write(*record) for record in records))
        try:
            while not (await asyncio.wait({writing}, timeout=_SLOW_SECONDS))[0]:
                await self._create()
            return writing.result()
        finally:
            await cancelled(writing)

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
        """Create the topic again, if it is missing; an outage is for the writes to report."""
        try:
            if await self._topic.create():
                _log.warning("the ledger was deleted and is created again", topic=self._topic.topic)
        except UnreachableError:
            pass

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self._notice()
        if not key.startswith(self._of_run):
            return
        self._lost.pop(key, None)
        newest = self._newest.get(key)
        if newest is not None and value != newest:
            # An old record came once more, and compaction would keep it: a successor would not
            # know of what was reserved since.
            self._lost[key] = newest
        self._learn(key, value)
        if value is None:
            self._table.pop(key, None)
        else:
            self._table[key] = value

    def _notice(self) -> None:
        """In a new epoch the new topic's first registration wins: registrations start anew."""
        if self._epoch == self._follower.epoch:
            return
        self._epoch = self._follower.epoch
        self._lost |= {key: value for key, value in self._table.items() if self._vouched(key)}
        self.ledger = Ledger()
        for key, value in self._table.items():
            if not key.startswith(self._of_run[0]):
                self._learn(key, value)

    def _learn(self, key: bytes, value: bytes | None) -> None:
        """Of others only who has registered what is asked for."""
        if key.startswith((*self._own, self._of_run[0])):
            self.ledger.apply(key, value)

    def _vouched(self, key: bytes) -> bool:
        """Whether a record is a lane's, or the registration that won."""
        registration = parse_registration_key(key) if key.startswith(self._of_run[0]) else None
        if registration is None:
            return True
        run, producer, incarnation, session = registration
        first = self.ledger.winner(run, producer, incarnation)
        return first is not None and first.session == session


def _key_prefix(*begin: str) -> bytes:
    """How the keys of a run's or a producer's records begin; the ledger holds those of all runs."""
    return json.dumps(begin, separators=(",", ":"))[:-1].encode() + b","
