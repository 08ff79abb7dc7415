"""The checker's state of each destination partition, kept in a compacted topic.

A state holds the next offset inside it, so that state and position move together. Three things
keep it safe:

- **Generations.** A consumer that takes a partition claims the next generation: it writes a claim,
  reads back, and the first claim of that generation in the topic wins; the others try the next one.
  A claim counts only above all claims before it. States are kept under their generation, so that
  what a zombie still writes under an older one overwrites nothing and is not read. A consumer that
  sees a claim above its own is fenced.
- **A topic that was deleted and created again** is read to its end before anything in it counts.
  Generations go on above those of the earlier topic, and states that are not in the new topic are
  read as they were. Before a consumer saves a state it writes its claim again; where another has
  claimed the partition in the new topic, that one owns it.
- **Slots.** A state larger than one record is cut into chunks. They are written into the slot
  that the last commit in the topic does not name, then a commit record names slot, chunk count
  and digest: a writer that dies half-way leaves the state before it complete, also after
  compaction. After a save that was not confirmed it is read back which commit is the last.

Topics as a whole have a record each, which is no partition's: `shared_state`.
"""

from __future__ import annotations

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
from mirrortest.kafka.follower import FollowedTopic, Follower, FollowerPosition
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.model.topic_partition import TopicPartition

_log = structlog.get_logger()

MOST_BYTES = 768 * 1024
"""Of what is not cut into chunks: brokers take 1 MB by default."""
_TRIES = 3
"""How often a save is begun again because the topic was created again meanwhile."""


class Compacted(FollowedTopic, Protocol):
    """What this module asks of a compacted topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write durably; the offset. Raises TopicMissingError where the topic is missing."""

    async def create(self) -> bool:
        """Create the topic where it is missing."""


class StateStore:
    """The states of one scope. `follow` must run as a task for as long as the store is used."""

    def __init__(self, topic: Compacted, scope: Scope, session: str) -> None:
        self._topic = topic
        self._follower = Follower(topic, self._apply)
        self._session = session
        self._table = StateTable(scope)
        self._epoch = 0
        """The follower's, which steps where the topic was created again."""
        self._acknowledged = FollowerPosition(0, 0)
        """The offset after the last record of ours that is known to be in the topic."""
        self._claiming: set[tuple[TopicPartition, int]] = set()
        """What we claim again right now: by that record others are fenced, or we."""
        self._versions: dict[tuple[TopicPartition, int], int] = {}
        """Each try to save has one of its own."""
        self._unconfirmed: set[tuple[TopicPartition, int]] = set()
        """Whose last try may be in the topic or not."""

    @property
    def damaged(self) -> int:
        """Records of our scope that could not be read."""
        return self._table.damaged

    async def follow(self) -> None:
        """Apply the topic's records for ever. Raises ClusterError where the cluster refuses."""
        await self._follower.run()

    async def caught_up(self) -> None:
        """Wait until all that was written before this call is known; raises UnreachableError."""
        # A tombstone of a key that nobody uses leaves nothing behind.
        await self._written_and_read(self._table.key("hello", self._session), None)

    async def renewed(self) -> None:
        """Know what the topic holds, also where it was created again; raises UnreachableError."""
        if self._table.is_recreated or self._epoch != self._follower.epoch:
            await self.caught_up()

    async def share(self, topic: str, raw: bytes) -> bool:
        """Write what is known of a topic as a whole, and read up to it; the last writer wins.

        False, and nothing is written, where it is too large for a record. Raises UnreachableError.
        """
        if len(raw) > MOST_BYTES:
            return False
        if topic not in self._table.shared_in_topic or self._table.shared.get(topic) != raw:
            await self._written_and_read(self._table.key("topic", topic), raw)
        return True

    def written(self, topic: str) -> list[bytes]:
        """All records of a topic as a whole since the last call, or the newest at first."""
        return self._table.shared_records(topic)

    def written_elsewhere(self, topic: str) -> Iterable[bytes]:
        """The same of other groups that judge this run and cluster."""
        return self._table.shared_elsewhere(topic)

    async def claim(self, partition: TopicPartition) -> tuple[int, dict[str, Any] | None]:
        """Take a partition: the generation won, and the newest state written before it.

        Raises:
            UnreachableError: it may be tried again.
            ClusterError: no generation is left; a record claims the last one.
        """
        while True:
            if won := await self.take_over(partition):
                return won

    async def take_over(
        self, partition: TopicPartition
    ) -> tuple[int, dict[str, Any] | None] | None:
        """Claim a partition as `claim` does, but once: None where somebody was quicker.

        Raises as `claim` does.
        """
        generation = self._table.of(partition).next_generation
        if generation >= GENERATIONS_END:
            raise ClusterError(
                f"{self._topic.topic}: a record claims {partition} for ever, "
                "which mirrortest never does: delete it, or use another --state-topic"
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
        """Write a state under a generation, unless it is fenced; returns when it is durable.

        `parting`: nobody reads the partition from here on, until it is claimed again. Raises
        UnreachableError, after which it may be tried again.
        """
        content = json.dumps(state, separators=(",", ":")).encode()
        if len(content) > MOST_STATE_BYTES:
            # The one before stays, which is as true: only more is read again.
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
            # A part of it may have been deleted with the topic.
        raise UnreachableError(f"{self._topic.topic} was deleted amid a write")

    async def _claimed_still(self, partition: TopicPartition, generation: int) -> bool:
        """Whether we are not fenced; where the topic was created again, our claim is written."""
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
        """Whether all of it is in one topic."""
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
        """Whether somebody has claimed the partition after this generation of ours."""
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
        """Another one whenever somebody has claimed the partition, or saved its state."""
        stored = self._table.partitions.get(partition)
        return (0, 0) if stored is None else (stored.generation, stored.serial)

    def parted(self, partition: TopicPartition) -> bool:
        """Whether the partition's last consumer has saved its state as it ended."""
        stored = self._table.partitions.get(partition)
        return stored is not None and 0 < stored.parted == stored.generation

    def serials(self) -> dict[TopicPartition, int]:
        """All partitions of the scope that have a state; the number is another for each new one."""
        return {
            at: stored.serial
            for at, stored in self._table.partitions.items()
            if stored.raw is not None
        }

    def state(self, partition: TopicPartition) -> dict[str, Any] | None:
        """The newest complete state of a partition, read anew at each call; None: there is none.

        It is empty, which no state is, where it cannot be read. Its values may be anything.
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
        """Tombstone what earlier generations wrote: this one's first state is complete now."""
        stored = self._table.of(partition)
        for old, slot, number in [at for at in stored.chunks if at[0] < generation]:
            await self._write(self._table.key("chunk", partition, old, slot, number), None)
            stored.chunks.pop((old, slot, number), None)

    async def _written_and_read(self, key: bytes, value: bytes | None) -> None:
        """Write a record, and wait until all up to it is applied; raises UnreachableError."""
        place = self._place
        if not await self._follower.wait_applied(await self._write(key, value), place):
            raise UnreachableError(f"{self._topic.topic} was deleted amid a write")
        self._table.end_reached()

    async def _claim(self, partition: TopicPartition, generation: int) -> None:
        """Write our claim, and read up to it."""
        await self._written_and_read(
            self._table.key("claim", partition, generation, self._session), b"{}"
        )

    @property
    def _place(self) -> FollowerPosition:
        """What is in the topic now; a record that is written from here on comes behind it."""
        epoch, position = self._follower.place
        known, acknowledged = self._acknowledged
        return FollowerPosition(epoch, max(position, acknowledged if known == epoch else 0))

    async def _write(self, key: bytes, value: bytes | None) -> int:
        epoch = self._follower.epoch
        offset = await self._write_anywhere(key, value)
        if epoch == self._follower.epoch:
            self._acknowledged = FollowerPosition(epoch, max(offset + 1, self._place.position))
        return offset

    async def _write_anywhere(self, key: bytes, value: bytes | None) -> int:
        try:
            return await self._topic.write(key, value)
        except TopicMissingError:
            # What all consumers know is in their memory; each writes it with its next save.
            _log.warning("the state topic is missing: it is created again", topic=self._topic.topic)
            await self._topic.create()
            return await self._topic.write(key, value)

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if self._epoch != self._follower.epoch:
            self._epoch = self._follower.epoch
            self._table.recreate()
        self._table.apply(key, value)
