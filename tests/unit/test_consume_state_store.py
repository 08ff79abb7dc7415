"""States survive their writers: generations, slots, compaction.

The topic here is a list in memory with Kafka's rules: records keep their order, and compaction
keeps the last record of each key. The same store runs on real topics in tests/lab.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mirrortest.consume.state_table import CHUNK_BYTES, Scope
from mirrortest.errors import (
    UnreachableError,
)
from mirrortest.model.topic_partition import TopicPartition
from tests.unit.memory_topic import P0, SCOPE, MemoryTopic, following, load, sat_out


async def test_a_successor_gets_the_last_saved_state() -> None:
    """The next claim returns what was saved under the previous generation."""
    topic = MemoryTopic()
    async with following(topic, "a") as first:
        generation, state = await first.claim(P0)
        assert (generation, state) == (1, None)
        await first.save(P0, generation, {"next": 7})
        async with following(topic, "b") as second:
            assert await second.claim(P0) == (2, {"next": 7})


async def test_a_zombie_overwrites_nothing_and_learns_that_it_is_fenced() -> None:
    """States that an older generation writes after a claim are not read, compacted or not."""
    topic = MemoryTopic()
    async with following(topic, "zombie") as zombie, following(topic, "heir") as heir:
        old, _ = await zombie.claim(P0)
        await zombie.save(P0, old, {"next": 7})
        new, state = await heir.claim(P0)
        await heir.save(P0, new, {"next": 20})
        await zombie.save(P0, old, {"next": 9})
        await zombie.claim(TopicPartition("A.t", 1))  # reads back past the heir's claim
        assert zombie.fenced(P0, old)
        assert not heir.fenced(P0, new)
    assert state == {"next": 7}
    assert await load(MemoryTopic(topic.records)) == {"next": 20}
    assert await load(topic.compacted()) == {"next": 20}


async def test_of_two_claims_at_once_each_gets_a_generation_of_its_own() -> None:
    """The first claim in the topic wins; the other consumer tries the next generation."""
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
        {"n": n, "noise": [rng.randrange(10**16) for _ in range(CHUNK_BYTES // 12 * (1 + n % 3))]}
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
        found = await load(torn.compacted() if compact else torn)
        expected = max((n for at, n in committed_at.items() if at <= cut), default=None)
        assert (found and found["n"]) == expected


class _KilledError(BaseException):
    """The writer's process was killed."""


class _FaultyTopic(MemoryTopic):
    """One write is in the topic but not acknowledged; or all from one write on kill the writer."""

    unacknowledged = killing = -1
    """How many writes succeed before that; -1: all do."""

    async def write(self, key: bytes, value: bytes | None) -> int:
        if self.killing == 0:
            raise _KilledError
        self.killing -= 1
        offset = await super().write(key, value)
        if self.unacknowledged == 0:
            self.unacknowledged = -1
            raise UnreachableError("not acknowledged")
        self.unacknowledged -= 1
        return offset


class _DeletedTopic(MemoryTopic):
    """Writes wait until the topic is created again, as those of a real client do."""

    def __init__(self) -> None:
        super().__init__()
        self.there = asyncio.Event()
        self.there.set()

    async def create(self) -> bool:
        missing = not self.there.is_set()
        self.there.set()
        return missing

    async def write(self, key: bytes, value: bytes | None) -> int:
        await self.there.wait()
        return await super().write(key, value)


async def test_a_slow_save_looks_for_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, a save would wait for a deleted topic until `delivery.timeout.ms`."""
    monkeypatch.setattr("mirrortest.consume.state_store.SLOW_SECONDS", 0.01)
    topic = _DeletedTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        topic.there.clear()
        await store.save(P0, generation, {"n": 1})
    assert topic.there.is_set()


def _of_chunks(number: int) -> dict[str, Any]:
    """A state of two chunks."""
    rng = random.Random(number)
    return {"n": number, "noise": [rng.randrange(10**16) for _ in range(CHUNK_BYTES // 6)]}


@pytest.mark.parametrize("killing", range(5))
@pytest.mark.parametrize("unacknowledged", range(3))
async def test_a_save_tried_again_leaves_the_state_whole_whose_acknowledgement_was_lost(
    unacknowledged: int, killing: int
) -> None:
    """The retry wrote into the slot of a commit in the topic: a kill during it lost the state.

    Any of the first try's writes is not acknowledged; any of the second try's kills the consumer.
    """
    topic = _FaultyTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        for number in (1, 2):
            await store.save(P0, generation, _of_chunks(number))
        topic.unacknowledged = unacknowledged
        with pytest.raises(UnreachableError):
            await store.save(P0, generation, _of_chunks(3))
        topic.killing = killing
        saved = 4
        try:
            await store.save(P0, generation, _of_chunks(4))
        except _KilledError:
            saved = 3 if unacknowledged == 2 else 2
    for left in (topic, topic.compacted()):
        found = await load(MemoryTopic(left.records))
        assert (found and found["n"]) == saved


@pytest.mark.parametrize("killing", range(5))
async def test_a_save_into_a_topic_that_was_cut_leaves_the_state_before_it_whole(
    killing: int,
) -> None:
    """An unclean election removes the newest commit: the previous commit's slot is not written."""
    topic = _FaultyTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        for number in (1, 2, 3):
            await store.save(P0, generation, _of_chunks(number))
        topic.keep_first(len(topic.records) - 1)
        await sat_out(store.caught_up)
        topic.killing = killing
        saved = 4
        try:
            await store.save(P0, generation, _of_chunks(4))
        except _KilledError:
            saved = 2
    for left in (topic, topic.compacted()):
        found = await load(MemoryTopic(left.records))
        assert (found and found["n"]) == saved


async def test_other_scopes_are_never_taken_for_ours() -> None:
    """Another run, cluster, role or group has its own states; so has a mirrored observer."""
    topic = MemoryTopic()
    for n, value in enumerate(("r2", "other", "source", "h")):
        scope = Scope(*(value if i == n else part for i, part in enumerate(SCOPE)))
        async with following(topic, "x", scope) as store:
            generation, _ = await store.claim(P0)
            await store.save(P0, generation, {"next": 99})
    assert await load(topic) is None


async def test_a_state_of_which_an_older_part_came_once_more_is_known_to_be_damaged() -> None:
    """Nothing is lost silently: a successor learns that there was a state that it cannot read.

    An older state, or none, must not replace it: these do not show that a topic was recreated
    since. While the writer lives, its next save repairs the state.
    """
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        for offset in (3, 5, 7):
            await store.save(P0, generation, {"next": offset})
        _, key, oldest = next(record for record in topic.records if b"chunk" in record[1])
        await topic.write(key, oldest)
        uncompacted = MemoryTopic(topic.records)
        assert await load(topic.compacted()) == {}
        assert await load(uncompacted) == {"next": 7}
        await store.save(P0, generation, {"next": 9})
    assert await load(topic.compacted()) == {"next": 9}
    assert await load(topic) == {"next": 9}


async def test_records_that_are_no_state_are_passed_over() -> None:
    """Any program may write records of any form."""
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
        await store.claim(TopicPartition("A.t", 1))
        assert store.damaged == 1
    assert await load(topic) == {"next": 3}


async def test_what_a_successor_deleted_is_held_by_nobody() -> None:
    """Rebalances go on for days: every follower forgets the states of past generations."""
    topic = MemoryTopic()
    async with following(topic, "watcher") as watcher:
        for session in "abc":
            async with following(topic, session) as store:
                generation, _ = await store.claim(P0)
                await store.save(P0, generation, {"next": generation})
                await store.save(P0, generation, {"next": generation})
        await watcher.claim(TopicPartition("A.t", 1))  # reads back past all of it
        kept = watcher._table.partitions[P0]
        assert {generation for generation, _, _ in kept.chunks} == {3}
        assert watcher.state(P0) == {"next": 3}
    assert await load(topic.compacted()) == {"next": 3}
