"""The state topic is deleted, truncated or recreated: owners, and what is rewritten."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from mirrortest.consume.state_table import CHUNK_BYTES
from mirrortest.errors import (
    TopicMissingError,
    UnreachableError,
)
from mirrortest.kafka import follower
from tests.unit.memory_topic import P0, MemoryTopic, following, load, sat_out

if TYPE_CHECKING:
    from mirrortest.consume.state_store import StateStore


async def test_a_topic_that_vanished_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted during the run: the consumer creates it again, and writes its state there."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        original_write = topic.write
        made: list[str] = []

        async def write(key: bytes, value: bytes | None) -> int:
            if not made:
                raise TopicMissingError("deleted")
            return await original_write(key, value)

        async def create() -> bool:
            made.append(topic.topic)
            return True

        monkeypatch.setattr(topic, "write", write)
        monkeypatch.setattr(topic, "create", create)
        await store.save(P0, generation, {"next": 5})
    assert made == ["states"]
    assert await load(topic) == {"next": 5}


async def test_what_was_written_before_the_topic_was_deleted_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It will never be read: the wait fails, and the next try creates the topic again."""
    monkeypatch.setattr(follower, "STALLED_SECONDS", 0.05)

    class Deleted(MemoryTopic):
        """Accepts records that no reader gets."""

        async def write(self, key: bytes, value: bytes | None) -> int:
            return self.next_offset

    topic = Deleted()
    async with following(topic, "a") as store:
        for wait in (store.caught_up(), store.share("A.t", b"of all"), store.claim(P0)):
            with pytest.raises(UnreachableError, match="written to states were not read back"):
                await wait


async def _third_generation(topic: MemoryTopic, store: StateStore) -> None:
    """Let two others claim the partition before the store."""
    for session in "xy":
        async with following(topic, session) as other:
            await other.claim(P0)
    assert await store.claim(P0) == (3, None)
    await store.save(P0, 3, {"next": 7})


async def test_whoever_claims_a_partition_in_a_topic_created_again_has_it() -> None:
    """A's third generation hid B's first, and C read A's stale states."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(0)
        async with following(topic, "b") as b:
            assert await b.claim(P0) == (1, None)
            await b.save(P0, 1, {"next": 1})
            await sat_out(a.save, P0, 3, {"next": 9})
            assert a.fenced(P0, 3)
            assert not b.fenced(P0, 1)
            assert a.state(P0) == {"next": 1}
            await b.save(P0, 1, {"next": 2})
        async with following(topic, "c") as c:
            assert await c.claim(P0) == (2, {"next": 2})


async def test_who_holds_a_partition_claims_it_again_in_a_topic_created_again() -> None:
    """So later consumers see claim and state, and go on above them."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(0)
        await sat_out(a.save, P0, 3, {"next": 9})
        assert not a.fenced(P0, 3)
        async with following(topic, "b") as b:
            assert await b.claim(P0) == (4, {"next": 9})
            await a.caught_up()
            assert a.fenced(P0, 3)


async def test_a_claim_goes_above_what_is_only_remembered() -> None:
    """A survivor remembers generations and states that are no longer in the topic."""
    topic = MemoryTopic()
    async with following(topic, "a") as a, following(topic, "b") as b:
        await _third_generation(topic, a)
        await b.caught_up()
        topic.keep_first(0)
        await sat_out(b.caught_up)
        assert await sat_out(b.claim, P0) == (4, {"next": 7})
        await sat_out(a.caught_up)
        assert a.fenced(P0, 3)


async def test_claims_that_were_there_before_fence_nobody_in_a_topic_that_was_cut() -> None:
    """An unclean election removes our claim, but not those of earlier consumers."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(2)
        await sat_out(a.caught_up)
        assert not a.fenced(P0, 3)
        await a.save(P0, 3, {"next": 9})
        assert not a.fenced(P0, 3)
    assert await load(topic) == {"next": 9}


@pytest.mark.parametrize("seed", range(100))
async def test_of_two_that_claim_in_a_topic_created_again_one_has_the_partition(seed: int) -> None:
    """In any interleaving exactly one goes on, and others read its states."""
    rng = random.Random(seed)

    class Slow(MemoryTopic):
        async def write(self, key: bytes, value: bytes | None) -> int:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            offset = await super().write(key, value)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            return offset

    topic = Slow()
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(following(topic, "a"))
        await _third_generation(topic, a)
        there_before = rng.random() < 0.3
        if there_before:
            b = await stack.enter_async_context(following(topic, "b"))
            await b.caught_up()
        topic.keep_first(0)
        if not there_before:
            b = await stack.enter_async_context(following(topic, "b"))

        async def survive() -> None:
            for step in range(rng.randrange(1, 5)):
                await sat_out(a.save, P0, 3, {"next": 10 + step, "by": "a"})

        async def come() -> int:
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
            generation, _ = await sat_out(b.claim, P0)
            for step in range(rng.randrange(1, 5)):
                await sat_out(b.save, P0, generation, {"next": 20 + step, "by": "b"})
            return generation

        _, generation = await asyncio.gather(survive(), come())
        for store, mine in ((a, 3), (b, generation)):
            await sat_out(store.caught_up)
            await sat_out(store.save, P0, mine, {"next": 99, "by": store._session})
        for store in (a, b):
            await sat_out(store.caught_up)
        assert a.fenced(P0, 3) is not b.fenced(P0, generation)
        owner = "b" if a.fenced(P0, 3) else "a"
    assert await load(topic) == {"next": 99, "by": owner}


@pytest.mark.parametrize("lost", range(1, 6))
async def test_a_state_that_went_down_with_the_topic_is_written_again(lost: int) -> None:
    """Chunks in the old topic and their commit in the new one are no state."""
    rng = random.Random(lost)
    big = {"noise": [rng.randrange(10**16) for _ in range(3 * CHUNK_BYTES // 8)]}

    class Deleted(MemoryTopic):
        left = -1

        async def write(self, key: bytes, value: bytes | None) -> int:
            offset = await super().write(key, value)
            self.left -= 1
            if self.left == 0:
                self.keep_first(0)
            return offset

    topic = Deleted()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.left = lost
        await sat_out(a.save, P0, 3, big)
        if topic.left == 0:
            await sat_out(a.save, P0, 3, big)  # as after the next state interval
        assert topic.left < 0
    assert await load(topic) == big


async def test_what_is_said_of_a_topic_as_a_whole_is_written_again() -> None:
    """An unchanged record was assumed to be in the topic for ever."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        assert await a.share("A.t", b"claims")
        topic.keep_first(0)
        await sat_out(a.caught_up)
        assert await a.share("A.t", b"claims")
    async with following(topic, "b") as b:
        await b.caught_up()
        assert b.written("A.t") == [b"claims"]
