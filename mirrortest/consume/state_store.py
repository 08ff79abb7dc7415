"""The checker's state of each destination partition, kept in a compacted topic.

A state holds the next offset inside it, so that state and position move together. Three things
make it safe:

- **Generations.** Whoever takes a partition claims the next generation: it writes a claim, reads
  back, and the first claim of that generation in the topic wins; the others try the next one. A
  claim counts only above all claims before it. States are kept under their generation, so that
  what a zombie still writes under an older one overwrites nothing and is not read. A consumer that
  sees a claim above its own is fenced.
- **A topic that was deleted and created again** is read to its end before anything in it counts.
  What was known stays known: generations go on above it, and states that are not in the topic any
  more are read as they were. Before a consumer saves a state it writes its claim again; where
  another has claimed the partition in the new topic, that one has it.
- **Slots.** A state larger than one record is cut into chunks. They are written into the slot
  that the last commit in the topic does not name, then a commit record names slot, chunk count
  and digest: a writer that dies half-way leaves the state before it whole, also after compaction.
  After a save that was not confirmed it is read back which commit is the last.
- **Topics as a whole** have a record each, which is no partition's: `common` says what for.
- **Scope.** Keys carry run, cluster, role and reader, so that a source observer's state mirrored
  along, another group's or another run's is never taken for ours.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import structlog

from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError
from mirrortest.kafka.follower import Follower, Place, Tailed
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

_log = structlog.get_logger()

CHUNK_BYTES = 256 * 1024
MOST_BYTES = 768 * 1024
"""Of what is not cut into chunks: brokers take 1 MB by default."""
MOST_STATE_BYTES = 256 << 20
"""Of a state, not compressed: a checker at its memory bound writes less."""
_MOST_CHUNKS = MOST_STATE_BYTES // CHUNK_BYTES + 2
_GENERATIONS_END = 1 << 53
_TRIES = 3
"""How often a save is begun again because the topic was created again meanwhile."""
_VERSION = 1


class Scope(NamedTuple):
    """Whose states these are: (run, destination cluster id, role, group or "shards")."""

    run: str
    cluster: str
    role: str
    reader: str


class Partition(NamedTuple):
    """A destination partition."""

    topic: str
    partition: int


class Compacted(Tailed, Protocol):
    """What this module asks of a compacted topic (`kafka.compacted.CompactedTopic`)."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write durably; the record's offset. Raises TopicMissingError where the topic is gone."""

    async def create(self) -> bool:
        """Make the topic where it is missing."""


@dataclass
class _StoredPartition:
    """What is known of one partition."""

    claims: dict[int, str] = field(default_factory=dict)
    """generation -> session: the claims in the topic that count, ascending"""
    remembered: dict[int, str] = field(default_factory=dict)
    """The same of the topic before it was deleted and created again, or cut."""
    chunks: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """(generation, slot, chunk) -> bytes"""
    committed: tuple[int, int] = (0, 0)
    """(generation, version) of the newest whole state in the topic"""
    newest: tuple[int, int, int] = (0, 0, 0)
    """(generation, version, slot) of the newest commit in the topic, read or acknowledged"""
    raw: bytes | None = None
    """The newest whole state as it was written: nobody may ever ask for it."""
    serial: int = 0
    """Another one for each new state."""
    parted: int = 0
    """The generation whose last state its consumer saved as it ended; 0: none."""

    @property
    def generation(self) -> int:
        """The newest that was claimed; 0: none was."""
        return next(reversed(self.claims), 0)

    @property
    def next_generation(self) -> int:
        """Above all that were ever claimed."""
        return max(self.generation, *self.remembered, 0) + 1

    def claimed_anew(self) -> bool:
        """Whether somebody has claimed it since the topic was created again."""
        return any(self.remembered.get(number) != who for number, who in self.claims.items())

    def remember(self, before: _StoredPartition) -> None:
        """Keep what the topic held before it was created again, and does not hold now."""
        self.remembered = before.remembered | before.claims
        if self.raw is None or self.raw == before.raw:
            self.raw, self.serial = before.raw, before.serial


class StateStore:
    """The states of one scope. `follow` must run as a task for as long as the store is used."""

    def __init__(self, topic: Compacted, scope: Scope, session: str) -> None:
        self._topic = topic
        self._follower = Follower(topic, self._apply)
        self._scope = scope
        self._session = session
        self._held: dict[Partition, _StoredPartition] = {}
        self._anew: dict[Partition, _StoredPartition] | None = None
        """What is read of a topic that was created again, until its end is reached."""
        self._epoch = 0
        """The follower's, which steps where the topic was created again."""
        self._acknowledged = Place(0, 0)
        """The offset after the last record of ours that is known to be in the topic."""
        self._serials = 0
        self._claiming: set[tuple[Partition, int]] = set()
        """What we claim again right now: by that record others are fenced, or we."""
        self._versions: dict[tuple[Partition, int], int] = {}
        """Each try to save has one of its own."""
        self._unconfirmed: set[tuple[Partition, int]] = set()
        """Whose last try may be in the topic or not."""
        self._shared: dict[str, bytes] = {}
        """topic -> what the newest record says of the topic as a whole"""
        self._standing: set[str] = set()
        """Those of which that record is in the topic, and not only remembered."""
        self._untold: dict[str, list[bytes]] = {}
        """topic -> what such records said since `written` was last asked; of those that ask"""
        self.damaged = 0
        """Records of our scope that could not be read: compaction leaves some, and no harm."""

    async def follow(self) -> None:
        """Apply the topic's records for ever. Raises ClusterError where the cluster refuses."""
        await self._follower.run()

    async def caught_up(self) -> None:
        """Wait until all that was written before this call is known; raises UnreachableError."""
        # A tombstone of a key that nobody uses leaves nothing behind.
        await self._written_and_read(self._key("hello", self._session), None)

    async def renewed(self) -> None:
        """Know what the topic holds, also where it was created again; raises UnreachableError."""
        if self._anew is not None or self._epoch != self._follower.epoch:
            await self.caught_up()

    async def share(self, topic: str, raw: bytes) -> bool:
        """Write what is known of a topic as a whole, and read up to it; the last writer wins.

        False, and nothing is written, where it is too large for a record. Raises UnreachableError.
        """
        if len(raw) > MOST_BYTES:
            return False
        if topic not in self._standing or self._shared.get(topic) != raw:
            await self._written_and_read(self._key("topic", topic), raw)
        return True

    def written(self, topic: str) -> list[bytes]:
        """All that was written of a topic as a whole since the last call, or the newest at first.

        All: whoever wrote last need not have read what another wrote right before.
        """
        untold, self._untold[topic] = self._untold.get(topic), []
        if untold is None:
            return [self._shared[topic]] if topic in self._shared else []
        return untold

    async def claim(self, partition: Partition) -> tuple[int, dict[str, Any] | None]:
        """Take a partition: the generation won, and the newest state written before it.

        Raises:
            UnreachableError: it may be tried again.
            ClusterError: no generation is left; a record claims the last one.
        """
        while True:
            if won := await self.take_over(partition):
                return won

    async def take_over(self, partition: Partition) -> tuple[int, dict[str, Any] | None] | None:
        """Claim a partition as `claim` does, but once: None where somebody was quicker.

        Raises as `claim` does.
        """
        generation = self._of(partition).next_generation
        if generation >= _GENERATIONS_END:
            raise ClusterError(
                f"{self._topic.topic}: a record claims {'-'.join(map(str, partition))} for ever, "
                "which mirrortest never does: delete it, or use another --state-topic"
            )
        await self._claim(partition, generation)
        if not self._claims(partition, generation):
            return None
        return generation, self.state(partition)

    async def save(
        self,
        partition: Partition,
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
                partition="-".join(map(str, partition)),
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
            # A part of it may have gone with the topic.
        raise UnreachableError(f"{self._topic.topic} was deleted amid a write")

    async def _claimed_still(self, partition: Partition, generation: int) -> bool:
        """Whether we are not fenced; where the topic was created again, our claim is written."""
        if not self.fenced(partition, generation) and not self._claims(partition, generation):
            self._claiming.add((partition, generation))
            try:
                await self._claim(partition, generation)
            finally:
                self._claiming.discard((partition, generation))
        return not self.fenced(partition, generation)

    async def _write_state(
        self, partition: Partition, generation: int, raw: bytes, *, parting: bool
    ) -> bool:
        """Whether all of it is in one topic."""
        version = self._versions.get((partition, generation), 0) + 1
        before, _, named = self._of(partition).newest
        slot = 1 - named
        chunks = [raw[at : at + CHUNK_BYTES] for at in range(0, len(raw), CHUNK_BYTES)]
        records = [
            (self._key("chunk", partition, generation, slot, number), chunk)
            for number, chunk in enumerate(chunks)
        ]
        commit = {
            "v": _VERSION,
            "version": version,
            "slot": slot,
            "chunks": len(chunks),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
        if parting:
            commit["parting"] = True
        records.append((self._key("commit", partition, generation), json.dumps(commit).encode()))
        self._versions[partition, generation] = version
        self._unconfirmed.add((partition, generation))
        epoch = self._follower.epoch
        for key, value in records:
            place = self._place
            offset = await self._write(key, value)
            if offset < place.position:
                await self._follower.passed(offset, place)
            if epoch != self._follower.epoch:
                return False
        self._unconfirmed.discard((partition, generation))
        held = self._of(partition)
        held.newest = max(held.newest, (generation, version, slot))
        if before < generation:
            await self._forget_before(partition, generation)
        return True

    def fenced(self, partition: Partition, generation: int) -> bool:
        """Whether somebody has claimed the partition after this generation of ours."""
        held = self._held.get(partition)
        if held is None or (partition, generation) in self._claiming:
            return False
        if self._claims(partition, generation):
            return held.generation > generation
        return held.claimed_anew()

    def _claims(self, partition: Partition, generation: int) -> bool:
        """Whether our claim of this generation is in the topic."""
        return self._of(partition).claims.get(generation) == self._session

    def _of(self, partition: Partition) -> _StoredPartition:
        return self._held.setdefault(partition, _StoredPartition())

    def owner_activity(self, partition: Partition) -> tuple[int, int]:
        """Another one whenever somebody has claimed the partition, or saved its state."""
        held = self._held.get(partition)
        return (0, 0) if held is None else (held.generation, held.serial)

    def parted(self, partition: Partition) -> bool:
        """Whether the partition's last consumer has saved its state as it ended."""
        held = self._held.get(partition)
        return held is not None and 0 < held.parted == held.generation

    def serials(self) -> dict[Partition, int]:
        """All partitions of the scope that have a state; the number is another for each new one."""
        return {at: held.serial for at, held in self._held.items() if held.raw is not None}

    def state(self, partition: Partition) -> dict[str, Any] | None:
        """The newest whole state of a partition, read anew at each call; None: there is none.

        It is empty, which no state is, where it cannot be read. Its values may be anything.
        """
        held = self._held.get(partition)
        if held is None or held.raw is None:
            return None
        try:
            content, _ = untrusted.unpacked(held.raw, MOST_STATE_BYTES)
            return untrusted.mapped(untrusted.document(content, MOST_STATE_BYTES))
        except RecordError:
            return {}

    async def _forget_before(self, partition: Partition, generation: int) -> None:
        """Tombstone what earlier generations wrote: this one's first state is whole now."""
        held = self._of(partition)
        for old, slot, number in [at for at in held.chunks if at[0] < generation]:
            await self._write(self._key("chunk", partition, old, slot, number), None)
            held.chunks.pop((old, slot, number), None)

    async def _written_and_read(self, key: bytes, value: bytes | None) -> None:
        """Write a record, and wait until all up to it is applied; raises UnreachableError."""
        place = self._place
        if not await self._follower.passed(await self._write(key, value), place):
            raise UnreachableError(f"{self._topic.topic} was deleted amid a write")
        if self._anew is not None:
            before, self._held, self._anew = self._held, self._anew, None
            for partition, held in before.items():
                self._of(partition).remember(held)

    async def _claim(self, partition: Partition, generation: int) -> None:
        """Write our claim, and read up to it."""
        await self._written_and_read(
            self._key("claim", partition, generation, self._session), b"{}"
        )

    @property
    def _place(self) -> Place:
        """What is in the topic now; a record that is written from here on comes behind it."""
        epoch, position = self._follower.place
        known, acknowledged = self._acknowledged
        return Place(epoch, max(position, acknowledged if known == epoch else 0))

    async def _write(self, key: bytes, value: bytes | None) -> int:
        epoch = self._follower.epoch
        offset = await self._write_anywhere(key, value)
        if epoch == self._follower.epoch:
            self._acknowledged = Place(epoch, max(offset + 1, self._place.position))
        return offset

    async def _write_anywhere(self, key: bytes, value: bytes | None) -> int:
        try:
            return await self._topic.write(key, value)
        except TopicMissingError:
            # What all consumers know is in their memory; each writes it with its next save.
            _log.warning("the states' topic is gone: it is made again", topic=self._topic.topic)
            await self._topic.create()
            return await self._topic.write(key, value)

    def _key(self, kind: str, *rest: Partition | int | str) -> bytes:
        flat = [part for each in rest for part in (each if isinstance(each, tuple) else (each,))]
        return json.dumps([kind, *self._scope, *flat], separators=(",", ":")).encode()

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if self._epoch != self._follower.epoch:
            self._epoch, self._anew = self._follower.epoch, {}
            self._standing.clear()
        try:
            kind, *scope = untrusted.listed(untrusted.document(key))
        except ValueError:
            return
        parts = scope[len(self._scope) :]
        if tuple(scope[: len(self._scope)]) != self._scope or kind == "hello":
            return
        try:
            if kind == "topic":
                self._apply_shared(parts, value)
            else:
                self._apply_ours(kind, parts, value)
        except RecordError:
            self.damaged += 1

    def _apply_shared(self, parts: list[Any], value: bytes | None) -> None:
        topic = untrusted.topic(*untrusted.listed(parts, 1))
        if value is None:
            return
        self._shared[topic] = value
        self._standing.add(topic)
        if topic in self._untold:
            self._untold[topic].append(value)

    def _apply_ours(self, kind: object, parts: list[Any], value: bytes | None) -> None:
        if not isinstance(kind, str) or kind not in _KEYS:
            raise RecordError(f"a record of kind {kind!r:.80}")
        topic, number, generation, *rest = untrusted.listed(parts, _KEYS[kind])
        partition = Partition(
            untrusted.topic(topic), untrusted.number(number, 0, untrusted.COUNTS_END)
        )
        untrusted.number(generation, 1, _GENERATIONS_END)
        table = self._held if self._anew is None else self._anew
        held = table.setdefault(partition, _StoredPartition())
        if kind == "chunk":
            slot, chunk = rest
            untrusted.number(slot, 0, 2)
            untrusted.number(chunk, 0, _MOST_CHUNKS)
            if value is None:
                held.chunks.pop((generation, slot, chunk), None)
            else:
                held.chunks[generation, slot, chunk] = value
        elif value is None:
            pass
        elif kind == "claim":
            if generation > held.generation:
                held.claims[generation] = untrusted.session(*rest)
        else:
            self._apply_commit(held, generation, value)

    def _apply_commit(self, held: _StoredPartition, generation: int, value: bytes) -> None:
        commit = untrusted.mapped(untrusted.document(value))
        if untrusted.entry(commit, "v") != _VERSION:
            raise RecordError("a commit of another version")
        version, slot, chunks = (
            untrusted.number(untrusted.entry(commit, name), least, end)
            for name, least, end in (
                ("version", 1, untrusted.NUMBERS_END),
                ("slot", 0, 2),
                ("chunks", 1, _MOST_CHUNKS),
            )
        )
        # A zombie's commit comes after its successor's claim: it is no longer the truth.
        if generation != held.generation or (generation, version) < held.committed:
            return
        found = [held.chunks.get((generation, slot, number)) for number in range(chunks)]
        raw = b"".join(chunk for chunk in found if chunk is not None)
        if None in found or hashlib.sha256(raw).hexdigest() != commit.get("sha256"):
            raise RecordError("a commit of a state that is not there")
        self._serials += 1
        held.newest = max(held.newest, (generation, version, slot))
        held.raw, held.committed, held.serial = raw, (generation, version), self._serials
        held.parted = generation if commit.get("parting") is True else 0


_KEYS = {"claim": 4, "chunk": 5, "commit": 3}
"""Kind of a partition's record -> how many values its key has behind the scope."""
