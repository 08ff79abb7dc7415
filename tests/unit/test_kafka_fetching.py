"""Brokers are asked again whenever there is something to ask for, and not before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaError

from mirrortest.kafka.fast.fetching import Fetcher, ReadState
from tests.unit.test_kafka_fast import batch_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Client:
    """One broker; the test answers what it is asked, as AIOKafkaClient would."""

    _metadata_max_age_ms = 300_000

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.asked: list[dict[int, int]] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.leader: int | None = 1
        self.updates: list[asyncio.Future[bool]] = []
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: self.leader)

    async def send(self, node_id: int, request: Any) -> Any:
        assert node_id == self.leader
        ((_, partitions),) = request.topics
        self.asked.append({number: offset for number, offset, _ in partitions})
        self.answers.append(self._loop.create_future())
        return await self.answers[-1]

    def force_metadata_update(self) -> asyncio.Future[bool]:
        self.updates.append(self._loop.create_future())
        return self.updates[-1]

    def answer(self, **records: bytes) -> None:
        """Answer the newest request; a partition without records has nothing new."""
        partitions = [
            (number, 0, 9, 9, None, records.get("ab"[number], b"")) for number in self.asked[-1]
        ]
        self.answers[-1].set_result(SimpleNamespace(API_VERSION=4, topics=[("t", partitions)]))


class Reading:
    """A fetcher of both partitions."""

    def __init__(self) -> None:
        self.client = Client()
        self.subscriptions = SubscriptionState()
        self.assign()
        self.fetcher = Fetcher(
            self.client,
            self.subscriptions,
            key_deserializer=ReadState(),
            value_deserializer=None,
            auto_offset_reset="none",
            fetcher_timeout=60,
            prefetch_backoff=0.01,
        )

    def assign(self, *partitions: TopicPartition) -> None:
        self.subscriptions.assign_from_user(partitions or (A, B))
        for at in partitions or (A, B):
            self.subscriptions.seek(at, 0)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it holds; ten seconds at most."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  # nothing that is awaited is told of all
                await asyncio.sleep(0)

    async def asked(self, count: int) -> dict[int, int]:
        """Where the count-th request asks for each partition."""
        await self.until(lambda: len(self.client.asked) >= count)
        return self.client.asked[count - 1]

    def take(self, seconds: float = 10) -> asyncio.Task[Any]:
        return asyncio.create_task(self.fetcher.fetched_records((), seconds, max_records=100))


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    """Ended when the test is."""
    made = Reading()
    yield made
    await made.fetcher.close()


async def test_a_broker_is_asked_again_once_what_it_sent_is_taken(reading: Reading) -> None:
    """From where that ends, by one request for both partitions."""
    taking = reading.take()
    assert await reading.asked(1) == {0: 0, 1: 0}
    reading.client.answer(a=batch_bytes(0, [b"x", b"y"]))
    ((at, (batch,)),) = (await taking).items()
    assert (at, batch.next_offset) == (A, 2)
    assert await reading.asked(2) == {0: 2, 1: 0}
    assert len(reading.client.asked) == 2


async def test_an_answer_without_news_is_followed_by_the_next_request(reading: Reading) -> None:
    """Nobody has anything to take."""
    await reading.asked(1)
    reading.client.answer()
    assert await reading.asked(2) == {0: 0, 1: 0}


async def test_what_nobody_takes_does_not_hold_up_other_partitions_for_long(
    reading: Reading,
) -> None:
    """After a while they are asked for without it."""
    await reading.asked(1)
    reading.client.answer(a=batch_bytes(0, [b"x"]))
    assert await reading.asked(2) == {1: 0}
    ((at, _),) = (await reading.take()).items()
    assert at == A


async def test_nothing_comes_in_time(reading: Reading) -> None:
    """The call ends, and the next one gets what comes then."""
    assert await reading.take(0.001) == {}
    taking = reading.take()
    await reading.asked(1)
    reading.client.answer(b=batch_bytes(0, [b"x"]))
    assert list(await taking) == [B]


async def test_a_partition_without_leader_is_asked_for_once_there_is_one() -> None:
    """Metadata is asked for, and what waits for it goes on when it has come."""
    reading = Reading()
    reading.client.leader = None
    await reading.until(lambda: reading.client.updates)
    reading.client.leader = 2
    reading.client.updates[-1].set_result(True)
    assert await reading.asked(1) == {0: 0, 1: 0}
    await reading.fetcher.close()


async def test_a_resumed_partition_is_asked_for_at_once(reading: Reading) -> None:
    """Nothing else needs to happen."""
    reading.subscriptions.pause(A)
    reading.subscriptions.pause(B)
    await reading.asked(1)
    reading.client.answer()
    await reading.until(lambda: not reading.fetcher._in_flight)
    reading.subscriptions.resume(B)
    assert await reading.asked(2) == {1: 0}


async def test_another_assignment_gives_up_what_was_asked_for_the_one_before(
    reading: Reading,
) -> None:
    """Of what it would have brought nothing is returned."""
    await reading.asked(1)
    reading.assign(B)
    assert await reading.asked(2) == {1: 0}
    assert reading.client.answers[0].cancelled()


async def test_what_should_not_happen_ends_fetching_and_is_seen(reading: Reading) -> None:
    """A reader asks for it, and would wait for ever otherwise."""
    await reading.asked(1)
    reading.client.answers[-1].set_exception(ValueError("odd"))
    with pytest.raises(KafkaError, match="odd"):
        await reading.fetcher._fetch_task
    reading.fetcher._fetch_task = asyncio.create_task(asyncio.sleep(0))
