"""Forged and damaged records in the state topic do not end a consumer."""

from __future__ import annotations

import contextlib
import json

import pytest

from mirrortest.consume import state_store as state_module
from mirrortest.errors import (
    ClusterError,
)
from mirrortest.verify.untrusted import RecordError, document
from tests.unit.memory_topic import P0, MemoryTopic, following, load

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
        (_bytes(["topic", *SCOPED[:4]]), b"x"),
        (_bytes(["topic", *SCOPED[:3]]), b"x"),
        (_bytes(["topic", *SCOPED[:3], "other"]), b"x"),
        (_bytes(["topic", *SCOPED[:3], None, "A.t"]), b"x"),
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
    """One such record ended every consumer of every run, then and at each later start."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        generation, _ = await store.claim(P0)
        await store.save(P0, generation, {"next": 3})
        await topic.write(key, value)
        await store.caught_up()
        assert store.damaged == _is_document(key), "whose the others are cannot be seen"
        assert not store.fenced(P0, generation)
    assert await load(topic) == {"next": 3}


async def test_a_state_that_unpacks_to_more_than_any_consumer_writes_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kilobytes may decompress to gigabytes; never more than the bound is decompressed."""
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
    """No generation is above it, so a consumer would try to claim for ever."""
    topic = MemoryTopic()
    await topic.write(_bytes(["claim", *SCOPED, 0, (1 << 53) - 1, "s"]), b"{}")
    async with following(topic, "a") as store:
        await store.caught_up()
        with pytest.raises(ClusterError, match=r"claims the last generation of A\.t-0, which"):
            await store.claim(P0)
