"""The saved states of destination partitions, in a compacted topic.

A state contains the partition's next offset, so state and position change together. Three things
make it safe:

- **Generations.** A consumer that takes a partition claims the next generation: it writes a claim
  and reads back. The first claim of a generation in the topic wins; the other consumers try the
  next one. A claim counts only if it is above all claims before it. States are stored under their
  generation: what a zombie writes under an older one overwrites nothing and is not read. A consumer
  that reads a claim above its own is fenced.
- **A recreated state topic** is read to its end before its records count. Generations go on above
  those of the earlier topic. States that are not in the new topic are remembered from the earlier
  one. Before a consumer saves a state it writes its claim again; if another consumer has claimed
  the partition in the new topic, that one owns it.
- **Slots.** A state larger than one record is split into chunks. They are written into the slot
  that the last commit in the topic does not name. Then a commit record names slot, number of chunks
  and digest. So a writer that dies half-way leaves the previous state complete, also after
  compaction. After an unconfirmed save, the consumer reads back which commit is the last.

Each destination topic also has one record that belongs to no partition: `shared_state`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from mirrortest.consume.state_table import (
    CHUNK_BYTES,
    COMMIT_VERSION,
    GENERATIONS_END,
    MOST_STATE_BYTES,
    Scope,
    StateTable,
)
from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError
from mirrortest.host.waiting import while_waiting
from mirrortest.kafka.compacted import SLOW_SECONDS
from mirrortest.kafka.follower import FollowedTopic, Follower, FollowerPosition
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.model.topic_partition import TopicPartition

_log = structlog.get_logger()

MOST_BYTES = 768 * 1024
"""The largest record that is not split into chunks: brokers accept 1 MB by default."""
_TRIES = 3
"""How often a save is tried if the topic is recreated meanwhile."""


class Compacted(FollowedTopic, Protocol):
    """What this module needs of a compacted topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record durably; its offset. Raises TopicMissingError if there is no topic."""

    async def create(self) -> bool:
        """Create the topic if it is missing; return whether it was missing."""


class StateStore:
    """The states of one scope. `follow` must run as a task for as long as the store is used."""

    def __init__(self, topic: Compacted, scope: Scope, session: str) -> None:
        self._topic = topic
        self._follower = Follower(topic, self._apply)
        self._session = session
        self._table = StateTable(scope)
        self._epoch = 0
        """The follower's epoch as of the last record; it grows when the topic is recreated."""
        self._acknowledged = FollowerPosition(0, 0)
        """The offset after the last acknowledged record of ours."""
        self._claiming: set[tuple[TopicPartition, int]] = set()
        """(partition, generation) that we are claiming again, not fenced until that is decided."""
        self._versions: dict[tuple[TopicPartition, int], int] = {}
        """(partition, generation) -> the version of the last try to save; each try has its own."""
        self._unconfirmed: set[tuple[TopicPartition, int]] = set()
        """(partition, generation) whose last try to save may have been written or not."""

    @property
    def damaged(self) -> int:
        """Records of our scope that could not be read."""
        return self._table.damaged

    async def follow(self) -> None:
        """Apply the topic's records for ever. Raises ClusterError if the cluster refuses."""
        await self._follower.run()

    async def caught_up(self) -> None:
        """Wait until all earlier records are applied. Raises UnreachableError."""
        # A tombstone of an unused key: compaction removes it.
        await self._written_and_read(self._table.key("hello", self._session), None)

    async def renewed(self) -> None:
        """If the topic was recreated, wait until it is read to its end. Raises UnreachableError."""
        if self._table.is_recreated or self._epoch != self._follower.epoch:
            await self.caught_up()

    async def share(self, topic: str, raw: bytes) -> bool:
        """Write a destination topic's shared record, and read up to it; the last writer wins.

        False, and nothing is written, if it is too large for a record. Raises UnreachableError.
        """
        if len(raw) > MOST_BYTES:
            return False
        if topic not in self._table.shared_in_topic or self._table.shared.get(topic) != raw:
            await self._written_and_read(self._table.key("topic", topic), raw)
        return True

    def written(self, topic: str) -> list[bytes]:
        """A topic's shared records since the last call; at the first call only the newest."""
        return self._table.shared_records(topic)

    def written_elsewhere(self, topic: str) -> Iterable[bytes]:
        """The same, written by other groups that judge this run and cluster."""
        return self._table.shared_elsewhere(topic)

    async def claim(self, partition: TopicPartition) -> tuple[int, dict[str, Any] | None]:
        """Take a partition: the generation won, and the newest state written before it.

        Raises:
            UnreachableError: the caller may try again.
            ClusterError: no generation is left, because a record claims the last one.
        """
        while True:
            if won := await self.take_over(partition):
                return won

    async def take_over(
        self, partition: TopicPartition
    ) -> tuple[int, dict[str, Any] | None] | None:
        """Claim a partition as `claim` does, but only once: None if another consumer's claim won.

        Raises the errors of `claim`.
        """
        generation = self._table.of(partition).next_generation
        if generation >= GENERATIONS_END:
            raise ClusterError(
                f"{self._topic.topic}: a record claims the last generation of {partition}, which "
                "mirrortest never writes: delete that topic, or use another --state-topic"
            )
        await self._claim(partition, generation)
        if not self._claims(partition, generation):
            return None
        return generation, self.state(partition)

    async def save(
        self,
        partition: TopicPartition,
        generation: int,
        state: dict[str, Any],
        *,
        parting: bool = False,
    ) -> None:
        """Save a state under a generation, unless it is fenced; returns when it is durable.

        `parting`: this consumer gives up the partition; nothing reads it until the next claim.
        Raises UnreachableError, after which the caller may try again.
        """
        content = json.dumps(state, separators=(",", ":")).encode()
        if len(content) > MOST_STATE_BYTES:
            # The previous state stays valid: the next consumer only reads more again.
            _log.warning(
                "a state is too large to be saved",
                partition=str(partition),
                bytes=len(content),
            )
            return
        raw = zlib.compress(content, 1)
        for _ in range(_TRIES):
            if (partition, generation) in self._unconfirmed:
                await self.caught_up()
            else:
                await self.renewed()
            if not await self._claimed_still(partition, generation):
                return
            if await self._write_state(partition, generation, raw, parting=parting):
                return
            # Some of its chunks may have been deleted with the topic: write all again.
        raise UnreachableError(f"{self._topic.topic} was deleted during a write")

    async def _claimed_still(self, partition: TopicPartition, generation: int) -> bool:
        """Whether we are not fenced; if the topic was recreated, writes our claim again."""
        if not self.fenced(partition, generation) and not self._claims(partition, generation):
            self._claiming.add((partition, generation))
            try:
                await self._claim(partition, generation)
            finally:
                self._claiming.discard((partition, generation))
        return not self.fenced(partition, generation)

    async def _write_state(
        self, partition: TopicPartition, generation: int, raw: bytes, *, parting: bool
    ) -> bool:
        """Write chunks and commit; False if the topic was recreated meanwhile."""
        version = self._versions.get((partition, generation), 0) + 1
        before, _, named = self._table.of(partition).newest
        slot = 1 - named
        chunks = [raw[at : at + CHUNK_BYTES] for at in range(0, len(raw), CHUNK_BYTES)]
        records = [
            (self._table.key("chunk", partition, generation, slot, number), chunk)
            for number, chunk in enumerate(chunks)
        ]
        commit = {
            "v": COMMIT_VERSION,
            "version": version,
            "slot": slot,
            "chunks": len(chunks),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
        if parting:
            commit["parting"] = True
        records.append(
            (self._table.key("commit", partition, generation), json.dumps(commit).encode())
        )
        self._versions[partition, generation] = version
        self._unconfirmed.add((partition, generation))
        epoch = self._follower.epoch
        for key, value in records:
            place = self._place
            offset = await self._write(key, value)
            if offset < place.position:
                await self._follower.wait_applied(offset, place)
            if epoch != self._follower.epoch:
                return False
        self._unconfirmed.discard((partition, generation))
        stored = self._table.of(partition)
        stored.newest = max(stored.newest, (generation, version, slot))
        if before < generation:
            await self._forget_before(partition, generation)
        return True

    def fenced(self, partition: TopicPartition, generation: int) -> bool:
        """Whether another consumer has claimed the partition after our claim of `generation`."""
        stored = self._table.partitions.get(partition)
        if stored is None or (partition, generation) in self._claiming:
            return False
        if self._claims(partition, generation):
            return stored.generation > generation
        return stored.claimed_anew()

    def _claims(self, partition: TopicPartition, generation: int) -> bool:
        """Whether our claim of this generation is in the topic."""
        return self._table.of(partition).claims.get(generation) == self._session

    def owner_activity(self, partition: TopicPartition) -> tuple[int, int]:
        """A value that changes when a consumer claims the partition or saves its state."""
        stored = self._table.partitions.get(partition)
        return (0, 0) if stored is None else (stored.generation, stored.serial)

    def parted(self, partition: TopicPartition) -> bool:
        """Whether the partition's last owner saved its state when it gave the partition up."""
        stored = self._table.partitions.get(partition)
        return stored is not None and 0 < stored.parted == stored.generation

    def serials(self) -> dict[TopicPartition, int]:
        """The partitions of the scope that have a state; its serial changes with each new state."""
        return {
            at: stored.serial
            for at, stored in self._table.partitions.items()
            if stored.raw is not None
        }

    def state(self, partition: TopicPartition) -> dict[str, Any] | None:
        """The newest complete state of a partition, parsed at each call; None if it has none.

        It is empty if it cannot be read; no real state is empty. Its values are not validated.
        """
        stored = self._table.partitions.get(partition)
        if stored is None or stored.raw is None:
            return None
        try:
            content, _ = untrusted.unpacked(stored.raw, MOST_STATE_BYTES)
            return untrusted.mapped(untrusted.document(content, MOST_STATE_BYTES))
        except RecordError:
            return {}

    async def _forget_before(self, partition: TopicPartition, generation: int) -> None:
        """Tombstone earlier generations' chunks, once this one's first state is complete."""
        stored = self._table.of(partition)
        for old, slot, number in [at for at in stored.chunks if at[0] < generation]:
            await self._write(self._table.key("chunk", partition, old, slot, number), None)
            stored.chunks.pop((old, slot, number), None)

    async def _written_and_read(self, key: bytes, value: bytes | None) -> None:
        """Write a record, and wait until all records up to it are applied.

        Raises UnreachableError.
        """
        place = self._place
        if not await self._follower.wait_applied(await self._write(key, value), place):
            raise UnreachableError(f"{self._topic.topic} was deleted during a write")
        self._table.end_reached()

    async def _claim(self, partition: TopicPartition, generation: int) -> None:
        """Write our claim, and read up to it."""
        await self._written_and_read(
            self._table.key("claim", partition, generation, self._session), b"{}"
        )

    @property
    def _place(self) -> FollowerPosition:
        """The known end of the topic: a record that is written from now on comes after it."""
        epoch, position = self._follower.place
        acked_epoch, acked = self._acknowledged
        return FollowerPosition(epoch, max(position, acked if acked_epoch == epoch else 0))

    async def _write(self, key: bytes, value: bytes | None) -> int:
        epoch = self._follower.epoch
        offset = await self._write_anywhere(key, value)
        if epoch == self._follower.epoch:
            self._acknowledged = FollowerPosition(epoch, max(offset + 1, self._place.position))
        return offset

    async def _write_anywhere(self, key: bytes, value: bytes | None) -> int:
        try:
            return await while_waiting(self._topic.write(key, value), SLOW_SECONDS, self._create)
        except TopicMissingError:
            await self._create()
            return await self._topic.write(key, value)

    async def _create(self) -> None:
        """Recreate the topic if it is missing; in an outage the writes report the error."""
        with contextlib.suppress(UnreachableError):
            if await self._topic.create():
                # Nothing is lost: each consumer has its states in memory, and saves them again.
                _log.warning(
                    "the state topic was deleted and is created again", topic=self._topic.topic
                )

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if self._epoch != self._follower.epoch:
            self._epoch = self._follower.epoch
            self._table.recreate()
        self._table.apply(key, value)
