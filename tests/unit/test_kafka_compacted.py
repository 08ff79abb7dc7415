"""A compacted topic: batches that other programs wrote, and a producer that must be replaced."""

from __future__ import annotations

from typing import Any, Self

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError
from mirrortest.kafka import compacted
from mirrortest.kafka.compacted import CompactedTopic, _entries
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.wire.single_records import write_records


def batch(offset: int, key: bytes | None) -> bytearray:
    return write_records([(offset, 0, key, b"value", ())])


def test_a_batch_that_cannot_be_read_is_left_out() -> None:
    """Those fetched with it are read; another program's batch ends no run."""
    damaged = batch(1, b"b")
    damaged[61] = 0x7E  # the record's length
    buffer = batch(0, b"a") + damaged + batch(2, None) + batch(3, b"c")
    fetched = FetchedBatches("ledger", 0, 0, 4, 0, buffer, 4)
    assert list(_entries(fetched)) == [(0, b"a", b"value"), (3, b"c", b"value")]


async def test_a_topic_that_is_created_meets_confluent_clouds_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses a `segment.bytes` below 52,428,800 with POLICY_VIOLATION: no run could begin."""
    created: dict[str, str] = {}

    class Admin:
        def __init__(self, _: ClientConfig) -> None:
            """It connects nowhere."""

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            """There is nothing to close."""

        async def partitions(self, _: str) -> None:
            """There is no such topic."""

        async def create_topic(self, *_: object, configs: dict[str, str]) -> bool:
            created.update(configs)
            return True

    monkeypatch.setattr(compacted, "Admin", Admin)
    assert await CompactedTopic(ClientConfig(bootstrap_servers=("a:1",)), "ledger").create()
    assert created.pop("cleanup.policy") == "compact"
    assert created.keys() == {"segment.bytes"}
    assert int(created["segment.bytes"]) >= 52_428_800


class _Producer:
    """A producer; each write gets the next of `answers`, which all producers share."""

    def __init__(self, answers: list[Code | int]) -> None:
        self._answers = answers

    async def start(self) -> None:
        """There is nothing to start."""

    async def stop(self, *_: object) -> None:
        """There is nothing to stop."""

    def abandon(self, why: str) -> None:
        """Nothing is in flight."""

    async def write(self, *_: object) -> int:
        answer = self._answers.pop(0)
        if isinstance(answer, Code):
            raise RequestError(answer)
        return answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Code | int], list[_Producer]]:
    """The answers to writes, and the producers that were created."""
    answers: list[Code | int] = []
    made: list[_Producer] = []

    class Library:
        @staticmethod
        def producer(*_: object, **__: object) -> _Producer:
            made.append(_Producer(answers))
            return made[-1]

    async def start(_config: Any, producer: _Producer, *_: object, **__: object) -> None:
        await producer.start()

    monkeypatch.setattr(compacted, "library", lambda _: Library)
    monkeypatch.setattr(compacted, "start", start)
    return answers, made


async def test_a_leader_that_has_forgotten_the_producer_gets_a_new_one(
    answers: tuple[list[Code | int], list[_Producer]],
) -> None:
    """An unclean election of the ledger or the states ended a consumer that was not at fault.

    Found by the simulation (own/673).
    """
    given, made = answers
    async with CompactedTopic(ClientConfig.load(bootstrap_server="h:1"), "states") as topic:
        for code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID):
            given[:] = [5, code, 6]
            before = len(made)
            assert [await topic.write(b"k", b"v") for _ in range(2)] == [5, 6]
            assert len(made) == max(before, 1) + 1
        given[:] = [Code.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
        with pytest.raises(ClusterError, match="refuses: writing to states"):
            await topic.write(b"k", b"v")
        given[:] = [Code.TOPIC_AUTHORIZATION_FAILED, 7]
        with pytest.raises(ClusterError, match="refuses: writing to states"):
            await topic.write(b"k", b"v")
