"""The checker's state of each destination partition, kept in a compacted topic.

A state holds the next offset inside it, so that state and position move together. Three things
make it safe:

- **Generations.** Whoever takes a partition claims the next generation: it writes a claim, reads
  back, and the first claim of that generation in the topic wins; the others try the next one.
  States are kept under their generation, so that what a zombie still writes under an older one
  overwrites nothing and is not read. A consumer that sees a claim above its own is fenced.
- **Slots.** A state larger than one record is cut into chunks. They are written into the slot
  that the last commit does not name, then a commit record names slot, chunk count and digest: a
  writer that dies half-way leaves the state before it whole, also after compaction.
- **Topics as a whole** have a record each, which is no partition's: `common` says what for.
- **Scope.** Keys carry run, cluster, role and reader, so that a source observer's state mirrored
  along, another group's or another run's is never taken for ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import structlog

from mirrortest.errors import TopicMissingError, UnreachableError
from mirrortest.kafka.follower import Follower, Tailed

_log = structlog.get_logger()

CHUNK_BYTES = 256 * 1024
MOST_BYTES = 768 * 1024
"""Of what is not cut into chunks: brokers take 1 MB by default."""
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
class _Held:
    """What is known of one partition."""

    claims: dict[int, str] = field(default_factory=dict)
    """generation -> session of the first claim"""
    chunks: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """(generation, slot, chunk) -> bytes"""
    committed: tuple[int, int] = (0, 0)
    """(generation, version) of the newest whole state"""
    raw: bytes | None = None
    """The newest whole state as it was written: nobody may ever ask for it."""
    serial: int = 0
    """Steps with each new state."""
    parted: int = 0
    """The generation whose last state its consumer saved as it ended; 0: none."""

    @property
    def generation(self) -> int:
        return max(self.claims, default=0)


class StateStore:
    """The states of one scope. `follow` must run as a task for as long as the store is used."""

    def __init__(self, topic: Compacted, scope: Scope, session: str) -> None:
        self._topic = topic
        self._follower = Follower(topic, self._apply)
        self._scope = scope
        self._session = session
        self._held: dict[Partition, _Held] = {}
        self._versions: dict[tuple[Partition, int], int] = {}
        self._shared: dict[str, bytes] = {}
        """topic -> what the newest record says of the topic as a whole"""
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

    async def share(self, topic: str, raw: bytes) -> bool:
        """Write what is known of a topic as a whole, and read up to it; the last writer wins.

        False, and nothing is written, where it is too large for a record. Raises UnreachableError.
        """
        if len(raw) > MOST_BYTES:
            return False
        if self._shared.get(topic) != raw:
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

        Raises UnreachableError, after which it may be tried again.
        """
        while True:
            won = await self.take_over(partition)
            if won is not None:
                return won

    async def take_over(self, partition: Partition) -> tuple[int, dict[str, Any] | None] | None:
        """Claim a partition as `claim` does, but once: None where somebody was quicker.

        Raises UnreachableError, after which it may be tried again.
        """
        held = self._held.setdefault(partition, _Held())
        generation = held.generation + 1
        key = self._key("claim", partition, generation, self._session)
        await self._written_and_read(key, b"{}")
        if held.claims.get(generation) != self._session:
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
        """Write a state under a generation; returns when it is durable.

        `parting`: nobody reads the partition from here on, until it is claimed again.
        """
        version = self._versions.get((partition, generation), 0) + 1
        raw = zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)
        slot = version % 2
        chunks = [raw[at : at + CHUNK_BYTES] for at in range(0, len(raw), CHUNK_BYTES)]
        for number, chunk in enumerate(chunks):
            await self._write(self._key("chunk", partition, generation, slot, number), chunk)
        commit = {
            "v": _VERSION,
            "version": version,
            "slot": slot,
            "chunks": len(chunks),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
        if parting:
            commit["parting"] = True
        await self._write(self._key("commit", partition, generation), json.dumps(commit).encode())
        self._versions[partition, generation] = version
        if version == 1:
            await self._forget_before(partition, generation)

    def fenced(self, partition: Partition, generation: int) -> bool:
        """Whether somebody has claimed the partition after this generation."""
        held = self._held.get(partition)
        return held is not None and held.generation > generation

    def sign_of_life(self, partition: Partition) -> tuple[int, int]:
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
        """The newest whole state of a partition, read anew at each call."""
        held = self._held.get(partition)
        if held is None or held.raw is None:
            return None
        try:
            state: dict[str, Any] = json.loads(zlib.decompress(held.raw))
        except (ValueError, zlib.error):
            _log.warning(
                "a state cannot be read: its partition is read anew",
                at="-".join(map(str, partition)),
            )
            held.raw = None
            return None
        return state

    async def _forget_before(self, partition: Partition, generation: int) -> None:
        """Tombstone what earlier generations wrote: this one's first state is whole now."""
        held = self._held[partition]
        for old, slot, number in [at for at in held.chunks if at[0] < generation]:
            await self._write(self._key("chunk", partition, old, slot, number), None)
            held.chunks.pop((old, slot, number), None)

    async def _written_and_read(self, key: bytes, value: bytes | None) -> None:
        """Write a record, and wait until all up to it is applied; raises UnreachableError."""
        place = self._follower.place
        if not await self._follower.passed(await self._write(key, value), place):
            raise UnreachableError(f"{self._topic.topic} was deleted amid a write")

    async def _write(self, key: bytes, value: bytes | None) -> int:
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
        with contextlib.suppress(ValueError):
            parts = json.loads(key)
            if not isinstance(parts, list) or tuple(parts[1:5]) != self._scope:
                return
            try:
                self._apply_ours(parts, value)
            except (ValueError, KeyError, IndexError, TypeError, zlib.error):
                self.damaged += 1

    def _apply_ours(self, parts: list[Any], value: bytes | None) -> None:
        if parts[0] in {"hello", "topic"}:
            if parts[0] == "topic" and value is not None:
                topic = str(parts[5])
                self._shared[topic] = value
                if topic in self._untold:
                    self._untold[topic].append(value)
            return
        kind, generation = parts[0], int(parts[7])
        held = self._held.setdefault(Partition(parts[5], int(parts[6])), _Held())
        if value is None:
            if kind == "chunk":
                held.chunks.pop((generation, int(parts[8]), int(parts[9])), None)
        elif kind == "claim":
            held.claims.setdefault(generation, str(parts[8]))
        elif kind == "chunk":
            held.chunks[generation, int(parts[8]), int(parts[9])] = value
        elif kind == "commit":
            commit = json.loads(value)
            # A zombie's commit comes after its successor's claim: it is no longer the truth.
            if generation < held.generation or (generation, commit["version"]) < held.committed:
                return
            raw = b"".join(
                held.chunks[generation, commit["slot"], number]
                for number in range(commit["chunks"])
            )
            if hashlib.sha256(raw).hexdigest() != commit["sha256"]:
                self.damaged += 1
                return
            held.raw = raw
            held.committed = (generation, commit["version"])
            held.serial += 1
            held.parted = generation if commit.get("parting") is True else 0
