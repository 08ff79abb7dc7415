"""The records of the state topic, as a table: claims, saved states, and what is shared of a topic.

Keys carry run, cluster, role and reader (`Scope`), so that a mirrored copy of a source observer's
state, another group's or another run's is never read as ours. A state is a number of chunks and a
commit that names them (`state_store`). What a topic held before it was deleted and created again
stays in the table.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNK_BYTES = 256 * 1024
MOST_STATE_BYTES = 256 << 20
"""Of a state, not compressed: a checker at its memory bound writes less."""
_MOST_CHUNKS = MOST_STATE_BYTES // CHUNK_BYTES + 2
GENERATIONS_END = 1 << 53
COMMIT_VERSION = 1


class Scope(NamedTuple):
    """Whose states these are: (run, destination cluster id, role, group or "shards")."""

    run: str
    cluster: str
    role: str
    reader: str


@dataclass
class StoredPartition:
    """The records of one partition."""

    claims: dict[int, str] = field(default_factory=dict)
    """generation -> session: the claims in the topic that count, ascending"""
    earlier_claims: dict[int, str] = field(default_factory=dict)
    """The same of the topic before it was deleted and created again, or cut."""
    chunks: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """(generation, slot, chunk) -> bytes"""
    committed: tuple[int, int] = (0, 0)
    """(generation, version) of the newest complete state in the topic"""
    newest: tuple[int, int, int] = (0, 0, 0)
    """(generation, version, slot) of the newest commit in the topic, read or acknowledged"""
    raw: bytes | None = None
    """The newest state as it was written, decoded only where it is asked for; empty: damaged."""
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
        return max(self.generation, *self.earlier_claims, 0) + 1

    def claimed_anew(self) -> bool:
        """Whether somebody has claimed it since the topic was created again."""
        return any(
            self.earlier_claims.get(number) != session for number, session in self.claims.items()
        )

    def remember(self, before: StoredPartition) -> None:
        """Keep what the topic held before it was created again, and does not hold now."""
        self.earlier_claims = before.earlier_claims | before.claims
        if not self.raw or self.raw == before.raw:
            self.raw, self.serial = before.raw, before.serial


class StateTable:
    """The records of one scope. `partitions` is what counts now."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.partitions: dict[TopicPartition, StoredPartition] = {}
        self._recreated: dict[TopicPartition, StoredPartition] | None = None
        """What is read of a topic that was created again, until its end is reached."""
        self._serials = 0
        self.shared: dict[str, bytes] = {}
        """topic -> the newest record of the topic as a whole"""
        self.shared_in_topic: set[str] = set()
        """Those of which that record is in the topic, and not only remembered."""
        self._shared_since: dict[str, list[bytes]] = {}
        """topic -> such records since `shared_records` was last asked; of those that ask"""
        self._elsewhere: dict[str, dict[str, bytes]] = {}
        """topic -> reader -> such a record of another group that judges the same run and cluster"""
        self.damaged = 0
        """Records of our scope that could not be read: compaction leaves some, and no harm."""

    def key(self, kind: str, *rest: TopicPartition | int | str) -> bytes:
        """The key of a record."""
        flat = [part for each in rest for part in (each if isinstance(each, tuple) else (each,))]
        return json.dumps([kind, *self._scope, *flat], separators=(",", ":")).encode()

    def of(self, partition: TopicPartition) -> StoredPartition:
        """The records of a partition."""
        return self.partitions.setdefault(partition, StoredPartition())

    def shared_records(self, topic: str) -> list[bytes]:
        """All records of a topic as a whole since the last call, or the newest at first.

        All: the last writer need not have read what another wrote right before.
        """
        since, self._shared_since[topic] = self._shared_since.get(topic), []
        if since is None:
            return [self.shared[topic]] if topic in self.shared else []
        return since

    def shared_elsewhere(self, topic: str) -> Iterable[bytes]:
        """The records of a topic as a whole that other groups wrote since the last call."""
        return self._elsewhere.pop(topic, {}).values()

    # -- a topic that was created again -----------------------------------------------------------

    @property
    def is_recreated(self) -> bool:
        """Whether a topic that was created again is still to be read to its end."""
        return self._recreated is not None

    def recreate(self) -> None:
        """The records that follow are of a topic that was created again, or cut."""
        self._recreated = {}
        self.shared_in_topic.clear()

    def end_reached(self) -> None:
        """All is read that was in the topic: from here on it counts."""
        if self._recreated is None:
            return
        before, self.partitions, self._recreated = self.partitions, self._recreated, None
        for partition, stored in before.items():
            self.of(partition).remember(stored)

    # -- records ----------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take in a record; others' are passed over."""
        try:
            kind, *scope = untrusted.listed(untrusted.document(key))
        except ValueError:
            return
        parts = scope[len(self._scope) :]
        ours = tuple(scope[: len(self._scope)]) == self._scope
        if not (ours or (kind == "topic" and tuple(scope[:3]) == self._scope[:3])):
            return
        try:
            if kind == "topic":
                self._apply_shared(None if ours else scope[3], parts, value)
            elif kind != "hello":
                self._apply_partition(kind, parts, value)
        except RecordError:
            self.damaged += 1

    def _apply_shared(self, other: object, parts: list[Any], value: bytes | None) -> None:
        topic = untrusted.topic(*untrusted.listed(parts, 1))
        if value is None:
            return
        if other is not None:
            self._elsewhere.setdefault(topic, {})[str(other)] = value
            return
        self.shared[topic] = value
        self.shared_in_topic.add(topic)
        if topic in self._shared_since:
            self._shared_since[topic].append(value)

    def _apply_partition(self, kind: object, parts: list[Any], value: bytes | None) -> None:
        if not isinstance(kind, str) or kind not in _KEYS:
            raise RecordError(f"a record of kind {kind!r:.80}")
        topic, number, generation, *rest = untrusted.listed(parts, _KEYS[kind])
        partition = TopicPartition(
            untrusted.topic(topic), untrusted.number(number, 0, untrusted.COUNTS_END)
        )
        untrusted.number(generation, 1, GENERATIONS_END)
        table = self.partitions if self._recreated is None else self._recreated
        stored = table.setdefault(partition, StoredPartition())
        if kind == "chunk":
            slot, chunk = rest
            untrusted.number(slot, 0, 2)
            untrusted.number(chunk, 0, _MOST_CHUNKS)
            if value is None:
                stored.chunks.pop((generation, slot, chunk), None)
            else:
                stored.chunks[generation, slot, chunk] = value
        elif value is None:
            pass
        elif kind == "claim":
            if generation > stored.generation:
                stored.claims[generation] = untrusted.session(*rest)
        else:
            self._apply_commit(stored, generation, value)

    def _apply_commit(self, stored: StoredPartition, generation: int, value: bytes) -> None:
        commit = untrusted.mapped(untrusted.document(value))
        if untrusted.entry(commit, "v") != COMMIT_VERSION:
            raise RecordError("a commit of another version")
        version, slot, chunks = (
            untrusted.number(untrusted.entry(commit, name), least, end)
            for name, least, end in (
                ("version", 1, untrusted.NUMBERS_END),
                ("slot", 0, 2),
                ("chunks", 1, _MOST_CHUNKS),
            )
        )
        # A zombie's commit comes after its successor's claim, and does not count.
        if generation != stored.generation or (generation, version) < stored.committed:
            return
        found = [stored.chunks.get((generation, slot, number)) for number in range(chunks)]
        raw = b"".join(chunk for chunk in found if chunk is not None)
        self._serials += 1
        if None in found or hashlib.sha256(raw).hexdigest() != commit.get("sha256"):
            if (generation, version) > stored.committed:
                # An older state would not do for it: what was seen since is known to nobody.
                stored.raw, stored.serial = b"", self._serials
            raise RecordError("a commit of a state that is not there")
        stored.newest = max(stored.newest, (generation, version, slot))
        stored.raw, stored.committed, stored.serial = raw, (generation, version), self._serials
        stored.parted = generation if commit.get("parting") is True else 0


_KEYS = {"claim": 4, "chunk": 5, "commit": 3}
"""Kind of a partition's record -> how many values its key has behind the scope."""
