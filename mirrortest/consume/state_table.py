"""The state topic's records as a table: claims, saved states, and topics' shared records.

Keys contain run, cluster, role and reader (`Scope`). So the mirrored state of a source observer, or
the state of another group or run, is never read as ours. A state is some chunks and a commit that
names them (`state_store`). The table keeps what the state topic contained before it was recreated.
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
"""The largest state, uncompressed: a checker at its memory bound writes less."""
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
    """The same, from the topic before it was recreated or truncated."""
    chunks: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """(generation, slot, chunk) -> bytes"""
    committed: tuple[int, int] = (0, 0)
    """(generation, version) of the newest complete state in the topic"""
    newest: tuple[int, int, int] = (0, 0, 0)
    """(generation, version, slot) of the newest commit in the topic, read or acknowledged"""
    raw: bytes | None = None
    """The newest state as it was written, decoded on demand; empty: damaged."""
    serial: int = 0
    """Changes with each new state."""
    parted: int = 0
    """The generation whose newest state is its owner's last one, saved when it gave the partition
    up; 0: the newest state is not."""

    @property
    def generation(self) -> int:
        """The newest claimed generation; 0: none."""
        return next(reversed(self.claims), 0)

    @property
    def next_generation(self) -> int:
        """A generation above all that were ever claimed."""
        return max(self.generation, *self.earlier_claims, 0) + 1

    def claimed_anew(self) -> bool:
        """Whether a claim is in the recreated topic that was not in the earlier one."""
        return any(
            self.earlier_claims.get(number) != session for number, session in self.claims.items()
        )

    def remember(self, before: StoredPartition) -> None:
        """Keep the earlier topic's claims, and its state unless there is a new one."""
        self.earlier_claims = before.earlier_claims | before.claims
        if not self.raw or self.raw == before.raw:
            self.raw, self.serial = before.raw, before.serial


class StateTable:
    """The records of one scope; `partitions` has those that count now."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.partitions: dict[TopicPartition, StoredPartition] = {}
        self._recreated: dict[TopicPartition, StoredPartition] | None = None
        """What was read of a recreated topic so far; None once it was read to its end."""
        self._serials = 0
        self.shared: dict[str, bytes] = {}
        """Destination topic -> its newest shared record."""
        self.shared_in_topic: set[str] = set()
        """Topics whose shared record is in the state topic, and not only remembered."""
        self._shared_since: dict[str, list[bytes]] = {}
        """Topic -> its shared records since the last `shared_records`, once that was called."""
        self._elsewhere: dict[str, dict[str, bytes]] = {}
        """Topic -> reader -> the same of another group that judges this run and cluster."""
        self.damaged = 0
        """Records of our scope that could not be read. Compaction leaves some: that is harmless."""

    def key(self, kind: str, *rest: TopicPartition | int | str) -> bytes:
        """The key of a record of this scope."""
        flat = [part for each in rest for part in (each if isinstance(each, tuple) else (each,))]
        return json.dumps([kind, *self._scope, *flat], separators=(",", ":")).encode()

    def of(self, partition: TopicPartition) -> StoredPartition:
        """The records of a partition."""
        return self.partitions.setdefault(partition, StoredPartition())

    def shared_records(self, topic: str) -> list[bytes]:
        """A topic's shared records since the last call; at the first call only the newest.

        All are needed: the last writer might not have read the record right before its own.
        """
        since, self._shared_since[topic] = self._shared_since.get(topic), []
        if since is None:
            return [self.shared[topic]] if topic in self.shared else []
        return since

    def shared_elsewhere(self, topic: str) -> Iterable[bytes]:
        """The shared records of a topic that other groups wrote since the last call."""
        return self._elsewhere.pop(topic, {}).values()

    # -- a state topic that was recreated ---------------------------------------------------------

    @property
    def is_recreated(self) -> bool:
        """Whether the topic was recreated and is not read to its end yet."""
        return self._recreated is not None

    def recreate(self) -> None:
        """Begin anew: the records that follow are of a recreated or truncated topic."""
        self._recreated = {}
        self.shared_in_topic.clear()

    def end_reached(self) -> None:
        """The topic is read to its end: what was read of a recreated topic counts from now on."""
        if self._recreated is None:
            return
        before, self.partitions, self._recreated = self.partitions, self._recreated, None
        for partition, stored in before.items():
            self.of(partition).remember(stored)

    # -- records ----------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record; records of other scopes are skipped."""
        try:
            kind, *scope = untrusted.listed(untrusted.document(key))
        except ValueError:
            return
        ours = tuple(scope[: len(self._scope)]) == self._scope
        if not (ours or (kind == "topic" and tuple(scope[:3]) == self._scope[:3])):
            return
        try:
            if kind == "topic":
                reader, topic = untrusted.listed(scope[3:], 2)
                self._apply_shared(None if ours else untrusted.text(reader), topic, value)
            elif kind != "hello":
                self._apply_partition(kind, scope[len(self._scope) :], value)
        except RecordError:
            self.damaged += 1

    def _apply_shared(self, other: str | None, topic: object, value: bytes | None) -> None:
        topic = untrusted.topic(topic)
        if value is None:
            return
        if other is not None:
            self._elsewhere.setdefault(topic, {})[other] = value
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
        # A commit after the next consumer's claim is a zombie's, and does not count.
        if generation != stored.generation or (generation, version) < stored.committed:
            return
        found = [stored.chunks.get((generation, slot, number)) for number in range(chunks)]
        raw = b"".join(chunk for chunk in found if chunk is not None)
        self._serials += 1
        if None in found or hashlib.sha256(raw).hexdigest() != commit.get("sha256"):
            if (generation, version) > stored.committed:
                # An older state must not be used instead: it lacks what was seen since.
                stored.raw, stored.serial = b"", self._serials
            raise RecordError("a commit of a state that is not there")
        stored.newest = max(stored.newest, (generation, version, slot))
        stored.raw, stored.committed, stored.serial = raw, (generation, version), self._serials
        stored.parted = generation if commit.get("parting") is True else 0


_KEYS = {"claim": 4, "chunk": 5, "commit": 3}
"""Kind of a partition's record -> how many values its key has after the scope."""
