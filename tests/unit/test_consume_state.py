"""States survive their writers: generations, slots, compaction.

The topic here is a list in memory with Kafka's rules (order, first write wins nothing, compaction
keeps the last record of each key); the same store runs on real topics in tests/lab.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.consume.state import CHUNK_BYTES, Partition, Scope, StateStore
from mirrortest.errors import TopicMissingError, UnreachableError
from mirrortest.kafka import follower

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

SCOPE = Scope("r1", "cluster", "consumer", "g")
P0 = Partition("A.t", 0)


class MemoryTopic:
    """A compacted topic of one partition."""

    topic = "states"

    def __init__(self, records: Iterable[tuple[int, bytes, bytes | None]] = ()) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = list(records)
        self._grown = asyncio.Event()

    async def create(self) -> bool:
        """It is there."""
        return False

    async def write(self, key: bytes, value: bytes | None) -> int:
        self.records.append((self.next_offset, key, value))
        self._grown.set()
        self._grown = asyncio.Event()
        return self.records[-1][0]

    @property
    def next_offset(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        position = 0
        while True:
            grown = self._grown
            for record in [r for r in self.records if r[0] >= position]:
                position = record[0] + 1
                yield record
            if self.next_offset <= position:
                await grown.wait()

    def compacted(self) -> MemoryTopic:
        """What a reader finds after compaction."""
        last = {key: offset for offset, key, _ in self.records}
        return MemoryTopic(r for r in self.records if last[r[1]] == r[0])


@contextlib.asynccontextmanager
async def following(
    topic: MemoryTopic, session: str, scope: Scope = SCOPE
) -> AsyncIterator[StateStore]:
    """A store with its follower running."""
    store = StateStore(topic, scope, session)
    task = asyncio.create_task(store.follow())
    try:
        yield store
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _load(topic: MemoryTopic) -> dict[str, Any] | None:
    async with following(topic, "reader") as store:
        return (await store.claim(P0))[1]


async def test_a_successor_gets_the_last_saved_state() -> None:
    """What was saved under one generation is what the next claim returns."""
    topic = MemoryTopic()
    async with following(topic, "a") as first:
        generation, state = await first.claim(P0)
        assert (generation, state) == (1, None)
        await first.save(P0, generation, {"next": 7})
        async with following(topic, "b") as second:
            assert await second.claim(P0) == (2, {"next": 7})


async def test_a_zombie_overwrites_nothing_and_learns_that_it_is_fenced() -> None:
    """What an older generation writes after a claim is not read, compacted or not."""
    topic = MemoryTopic()
    async with following(topic, "zombie") as zombie, following(topic, "heir") as heir:
        old, _ = await zombie.claim(P0)
        await zombie.save(P0, old, {"next": 7})
        new, state = await heir.claim(P0)
        await heir.save(P0, new, {"next": 20})
        await zombie.save(P0, old, {"next": 9})
        await zombie.claim(Partition("A.t", 1))  # reads back past the heir's claim
        assert zombie.fenced(P0, old)
        assert not heir.fenced(P0, new)
    assert state == {"next": 7}
    assert await _load(MemoryTopic(topic.records)) == {"next": 20}
    assert await _load(topic.compacted()) == {"next": 20}


async def test_of_two_claims_at_once_each_gets_a_generation_of_its_own() -> None:
    """The first claim in the topic wins; the other tries the next."""
    topic = MemoryTopic()
    async with following(topic, "a") as a, following(topic, "b") as b:
        (one, _), (two, _) = await asyncio.gather(a.claim(P0), b.claim(P0))
    assert {one, two} == {1, 2}


@pytest.mark.parametrize("compact", [False, True])
async def test_a_writer_that_dies_between_chunks_leaves_the_state_before_it_whole(
    compact: bool,
) -> None:
    """Cut the topic after any record: the newest committed state is found, never a mixture."""
    rng = random.Random(1)
    states = [
        {"n": n, "noise": [rng.random() for _ in range(CHUNK_BYTES // 12 * (1 + n % 3))]}
        for n in range(4)
    ]
    topic = MemoryTopic()
    committed_at: dict[int, int] = {}
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        for number, state in enumerate(states):
            await store.save(P0, generation, state)
            committed_at[len(topic.records)] = number
    assert len(topic.records) >= 12
    for cut in range(1, len(topic.records) + 1):
        torn = MemoryTopic(topic.records[:cut])
        found = await _load(torn.compacted() if compact else torn)
        expected = max((n for at, n in committed_at.items() if at <= cut), default=None)
        assert (found and found["n"]) == expected


async def test_other_scopes_are_never_taken_for_ours() -> None:
    """Another run, cluster, role or group has its own states; so does a mirrored-along observer."""
    topic = MemoryTopic()
    for n, value in enumerate(("r2", "other", "source", "h")):
        scope = Scope(*(value if i == n else part for i, part in enumerate(SCOPE)))
        async with following(topic, "x", scope) as store:
            generation, _ = await store.claim(P0)
            await store.save(P0, generation, {"next": 99})
    assert await _load(topic) is None


async def test_records_that_are_no_state_are_passed_over() -> None:
    """Anything may stand in a topic."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        await store.save(P0, generation, {"next": 3})
        for key in (
            b"",
            b"\xff",
            b"[]",
            b"7",
            b'["commit","r1","cluster","consumer","g","A.t","x"]',
        ):
            await topic.write(key, b"\x00")
        await store.claim(Partition("A.t", 1))
        assert store.damaged == 1
    assert await _load(topic) == {"next": 3}


async def test_what_a_successor_deleted_is_held_by_nobody() -> None:
    """Rebalances go on for days: every follower forgets the states of generations that are over."""
    topic = MemoryTopic()
    async with following(topic, "watcher") as watcher:
        for session in "abc":
            async with following(topic, session) as store:
                generation, _ = await store.claim(P0)
                await store.save(P0, generation, {"next": generation})
                await store.save(P0, generation, {"next": generation})
        await watcher.claim(Partition("A.t", 1))  # reads back past all of it
        held = watcher._held[P0]
        assert {generation for generation, _, _ in held.chunks} == {3}
        assert watcher.state(P0) == {"next": 3}
    assert await _load(topic.compacted()) == {"next": 3}


async def test_a_topic_that_vanished_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deleted it in mid-run: what this consumer holds is written into the new one."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        whole = topic.write
        made: list[str] = []

        async def write(key: bytes, value: bytes | None) -> int:
            if not made:
                raise TopicMissingError("deleted")
            return await whole(key, value)

        async def create() -> bool:
            made.append(topic.topic)
            return True

        monkeypatch.setattr(topic, "write", write)
        monkeypatch.setattr(topic, "create", create)
        await store.save(P0, generation, {"next": 5})
    assert made == ["states"]
    assert await _load(topic) == {"next": 5}


async def test_what_was_written_before_the_topic_was_deleted_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It will never be read: whoever waits is told, tries again, and the topic is made anew."""
    monkeypatch.setattr(follower, "STALLED_SECONDS", 0.05)

    class Deleted(MemoryTopic):
        """Takes a record that nobody will read."""

        async def write(self, key: bytes, value: bytes | None) -> int:
            return self.next_offset

    topic = Deleted()
    async with following(topic, "a") as store:
        for wait in (store.caught_up(), store.share("A.t", b"of all"), store.claim(P0)):
            with pytest.raises(UnreachableError, match="written to states was not read"):
                await wait
