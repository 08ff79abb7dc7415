"""States survive their writers: generations, slots, compaction.

The topic here is a list in memory with Kafka's rules (order, first write wins nothing, compaction
keeps the last record of each key); the same store runs on real topics in tests/lab.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from mirrortest.consume import state_store as state_module
from mirrortest.consume.state_store import StateStore
from mirrortest.consume.state_table import CHUNK_BYTES, Scope
from mirrortest.errors import (
    ClusterError,
    TopicMissingError,
    TopicReplacedError,
    UnreachableError,
)
from mirrortest.kafka import follower
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.untrusted import RecordError, document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

_Result = TypeVar("_Result")

SCOPE = Scope("r1", "cluster", "consumer", "g")
P0 = TopicPartition("A.t", 0)


class MemoryTopic:
    """A compacted topic of one partition."""

    topic = "states"

    def __init__(self, records: Iterable[tuple[int, bytes, bytes | None]] = ()) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = list(records)
        self._cut = 0
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

    def keep_first(self, count: int) -> None:
        """Cut the topic, as an unclean election does; 0: it was deleted and created again."""
        del self.records[count:]
        self._cut += 1
        self._grown.set()
        self._grown = asyncio.Event()

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        position, cut = 0, self._cut
        while True:
            if cut != self._cut and self.next_offset < position:
                raise TopicReplacedError("an offset out of range")
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
        await zombie.claim(TopicPartition("A.t", 1))  # reads back past the heir's claim
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
        found = await _load(torn.compacted() if compact else torn)
        expected = max((n for at, n in committed_at.items() if at <= cut), default=None)
        assert (found and found["n"]) == expected


class _KilledError(BaseException):
    """The writer's process is no more."""


class _FaultyTopic(MemoryTopic):
    """From a write on each stands in the topic and is not acknowledged; or kills its writer."""

    unacknowledged = killing = -1
    """How many writes go well before; -1: all do."""

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


def _of_chunks(number: int) -> dict[str, Any]:
    """A state of two chunks."""
    rng = random.Random(number)
    return {"n": number, "noise": [rng.randrange(10**16) for _ in range(CHUNK_BYTES // 6)]}


@pytest.mark.parametrize("killing", range(5))
@pytest.mark.parametrize("unacknowledged", range(3))
async def test_a_save_tried_again_leaves_the_state_whole_whose_acknowledgement_was_lost(
    unacknowledged: int, killing: int
) -> None:
    """It wrote into the slot of a commit that stood in the topic: killed amid that, all was lost.

    Any of the first try's writes goes unacknowledged; any of the second try's kills the consumer.
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
        found = await _load(MemoryTopic(left.records))
        assert (found and found["n"]) == saved


@pytest.mark.parametrize("killing", range(5))
async def test_a_save_into_a_topic_that_was_cut_leaves_the_state_before_it_whole(
    killing: int,
) -> None:
    """An unclean election takes the newest commit: the slot of the one before it is not written."""
    topic = _FaultyTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        for number in (1, 2, 3):
            await store.save(P0, generation, _of_chunks(number))
        topic.keep_first(len(topic.records) - 1)
        await _sat_out(store.caught_up)
        topic.killing = killing
        saved = 4
        try:
            await store.save(P0, generation, _of_chunks(4))
        except _KilledError:
            saved = 2
    for left in (topic, topic.compacted()):
        found = await _load(MemoryTopic(left.records))
        assert (found and found["n"]) == saved


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
        await store.claim(TopicPartition("A.t", 1))
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
        await watcher.claim(TopicPartition("A.t", 1))  # reads back past all of it
        held = watcher._table.partitions[P0]
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


async def _sat_out(call: Callable[..., Awaitable[_Result]], *args: Any) -> _Result:
    """Call it as the consumer does: again where the topic was deleted amid it."""
    while True:
        with contextlib.suppress(UnreachableError):
            return await call(*args)


async def _third_generation(topic: MemoryTopic, store: StateStore) -> None:
    """Two others had the partition before the store."""
    for session in "xy":
        async with following(topic, session) as other:
            await other.claim(P0)
    assert await store.claim(P0) == (3, None)
    await store.save(P0, 3, {"next": 7})


async def test_whoever_claims_a_partition_in_a_topic_created_again_has_it() -> None:
    """F6: B's first generation was ignored beside A's third, and C read A's stale states."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(0)
        async with following(topic, "b") as b:
            assert await b.claim(P0) == (1, None)
            await b.save(P0, 1, {"next": 1})
            await _sat_out(a.save, P0, 3, {"next": 9})
            assert a.fenced(P0, 3)
            assert not b.fenced(P0, 1)
            assert a.state(P0) == {"next": 1}
            await b.save(P0, 1, {"next": 2})
        async with following(topic, "c") as c:
            assert await c.claim(P0) == (2, {"next": 2})


async def test_who_holds_a_partition_claims_it_again_in_a_topic_created_again() -> None:
    """F6: so whoever comes later sees claim and state, and goes on above them."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(0)
        await _sat_out(a.save, P0, 3, {"next": 9})
        assert not a.fenced(P0, 3)
        async with following(topic, "b") as b:
            assert await b.claim(P0) == (4, {"next": 9})
            await a.caught_up()
            assert a.fenced(P0, 3)


async def test_a_claim_goes_above_what_is_only_remembered() -> None:
    """F6: a survivor knows of generations, and states, that are not in the topic any more."""
    topic = MemoryTopic()
    async with following(topic, "a") as a, following(topic, "b") as b:
        await _third_generation(topic, a)
        await b.caught_up()
        topic.keep_first(0)
        await _sat_out(b.caught_up)
        assert await _sat_out(b.claim, P0) == (4, {"next": 7})
        await _sat_out(a.caught_up)
        assert a.fenced(P0, 3)


async def test_claims_that_were_there_before_fence_nobody_in_a_topic_that_was_cut() -> None:
    """F6's sibling: an unclean election takes our claim, and leaves those of consumers before."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        await _third_generation(topic, a)
        topic.keep_first(2)
        await _sat_out(a.caught_up)
        assert not a.fenced(P0, 3)
        await a.save(P0, 3, {"next": 9})
        assert not a.fenced(P0, 3)
    assert await _load(topic) == {"next": 9}


@pytest.mark.parametrize("seed", range(100))
async def test_of_two_that_claim_in_a_topic_created_again_one_has_the_partition(seed: int) -> None:
    """F6: in any interleaving exactly one goes on, and its states are what others read."""
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
                await _sat_out(a.save, P0, 3, {"next": 10 + step, "by": "a"})

        async def come() -> int:
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
            generation, _ = await _sat_out(b.claim, P0)
            for step in range(rng.randrange(1, 5)):
                await _sat_out(b.save, P0, generation, {"next": 20 + step, "by": "b"})
            return generation

        _, generation = await asyncio.gather(survive(), come())
        for store, mine in ((a, 3), (b, generation)):
            await _sat_out(store.caught_up)
            await _sat_out(store.save, P0, mine, {"next": 99, "by": store._session})
        for store in (a, b):
            await _sat_out(store.caught_up)
        assert a.fenced(P0, 3) is not b.fenced(P0, generation)
        owner = "b" if a.fenced(P0, 3) else "a"
    assert await _load(topic) == {"next": 99, "by": owner}


@pytest.mark.parametrize("lost", range(1, 6))
async def test_a_state_that_went_down_with_the_topic_is_written_again(lost: int) -> None:
    """F6's sibling: chunks in the old topic and their commit in the new one are no state."""
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
        await _sat_out(a.save, P0, 3, big)
        if topic.left == 0:
            await _sat_out(a.save, P0, 3, big)  # as with the next interval
        assert topic.left < 0
    assert await _load(topic) == big


async def test_what_is_said_of_a_topic_as_a_whole_is_written_again() -> None:
    """F6's sibling: unchanged, it was taken to be in the topic for ever."""
    topic = MemoryTopic()
    async with following(topic, "a") as a:
        assert await a.share("A.t", b"claims")
        topic.keep_first(0)
        await _sat_out(a.caught_up)
        assert await a.share("A.t", b"claims")
    async with following(topic, "b") as b:
        await b.caught_up()
        assert b.written("A.t") == [b"claims"]


SCOPED = ["r1", "cluster", "consumer", "g", "A.t"]


def _bytes(thing: object) -> bytes:
    return json.dumps(thing, separators=(",", ":")).encode()


def _commit(**changed: object) -> bytes:
    return _bytes({"v": 1, "version": 1, "slot": 1, "chunks": 1, "sha256": "0" * 64} | changed)


def _is_document(key: bytes) -> bool:
    with contextlib.suppress(RecordError):
        document(key)
        return True
    return False


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[" * 2_000, b"{}"),
        (b'["claim",' + b"[" * 2_000, b"{}"),
        (_bytes(["claim", *SCOPED, 0, 1 << 60, "s"]), b"{}"),
        (_bytes(["claim", *SCOPED, 1 << 31, 2, "s"]), b"{}"),
        (_bytes(["claim", *SCOPED, 0, 2, ["s"]]), b"{}"),
        (_bytes(["claim", *SCOPED, 0, 2]), b"{}"),
        (_bytes([["claim"], *SCOPED, 0, 2]), b"{}"),
        (_bytes(["claim", *SCOPED, 0, 2, "s"]).replace(b",0,", b",1e999,"), b"{}"),
        (_bytes(["claim", *SCOPED, 0, 2, "s"]).replace(b",2,", b",Infinity,"), b"{}"),
        (_bytes(["claim", *SCOPED, 0, 2, "s"]).replace(b",2,", b",NaN,"), b"{}"),
        (_bytes(["topic", *SCOPED[:4], 7]), b"x"),
        (_bytes(["chunk", *SCOPED, 0, 1, 2, 0]), b"x"),
        (_bytes(["chunk", *SCOPED, 0, 1, 0, 10**9]), b"x"),
        (_bytes(["commit", *SCOPED, 0, 1]), _commit(chunks=10**9)),
        (_bytes(["commit", *SCOPED, 0, 1]), _commit(chunks=0)),
        (_bytes(["commit", *SCOPED, 0, 1]), _commit(v=2)),
        (_bytes(["commit", *SCOPED, 0, 1]), _commit(sha256=None)),
        (_bytes(["commit", *SCOPED, 0, 1]), _commit(version=float("inf"))),
        (_bytes(["commit", *SCOPED, 0, 1]), b"[" * 100_000),
        (_bytes(["unheard", *SCOPED, 0, 1]), b"{}"),
    ],
)
async def test_no_record_of_the_topic_ends_a_consumer(key: bytes, value: bytes) -> None:
    """P2: one such record ended every consumer of every run, then and at each later start."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        await store.save(P0, generation, {"next": 3})
        await topic.write(key, value)
        await store.caught_up()
        assert store.damaged == _is_document(key), "whose the others are cannot be seen"
        assert not store.fenced(P0, generation)
    assert await _load(topic) == {"next": 3}


async def test_a_state_that_unpacks_to_more_than_any_consumer_writes_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P7: a few kilobytes may unpack to gigabytes; no more than the bound is ever unpacked."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        await store.save(P0, generation, {"noise": [0] * 500_000})
        await store.caught_up()
        monkeypatch.setattr(state_module, "MOST_STATE_BYTES", 1 << 19)
        assert store.state(P0) == {}
        await store.save(P0, generation, {"noise": [1] * 500_000})
        await store.caught_up()
        assert store.serials() == {P0: 1}, "nor does anybody write it"


async def test_a_claim_of_the_last_generation_is_named() -> None:
    """P2: nothing is above it, so that who claims would try for ever."""
    topic = MemoryTopic()
    await topic.write(_bytes(["claim", *SCOPED, 0, (1 << 53) - 1, "s"]), b"{}")
    async with following(topic, "a") as store:
        await store.caught_up()
        with pytest.raises(ClusterError, match=r"states: a record claims A.t-0 for ever"):
            await store.claim(P0)
