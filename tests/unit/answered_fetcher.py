"""Brokers for which a test answers, and a fetcher that reads from them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiokafka.consumer.subscription_state import SubscriptionState

from mirrortest.kafka.fast.fetcher import Fetcher
from mirrortest.kafka.fast.requests import EpochEnd, FetchLimits
from mirrortest.kafka.fetched import ReadPosition
from mirrortest.model.topic_partition import TopicPartition
from tests.unit.answered_client import AnsweredClient
from tests.unit.test_kafka_fast import batch_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PLENTY = 1 << 20
NO_ERROR = 0
ONE = batch_bytes(0, [b"x"])
"""A batch of one record."""


class Connection:
    """A connection to one broker; the test answers its requests."""

    def __init__(self, node: int, asked: list[tuple[int, dict[int, int]]]) -> None:
        self.node = node
        self.asked = asked
        self.requests: list[Any] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.refusal: Exception | None = None
        self.closed: list[Any] = []
        self.by_id = True

    def send(self, request: Any) -> asyncio.Future[Any]:
        if self.refusal is not None:
            raise self.refusal
        request.by_id = self.by_id
        self.requests.append(request)
        self.asked.append((self.node, {at.partition: at.offset for at in request._positions}))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def close(self, reason: Any) -> None:
        self.closed.append(reason)

    def answer(
        self,
        a: bytes | None = b"",
        b: bytes = b"",
        *,
        code: int = NO_ERROR,
        end: EpochEnd | None = None,
        replica: int = -1,
        which: int = -1,
        high: int = 9,
        stable: int = 9,
    ) -> None:
        """Answer the newest request, or number `which`; `a` and `b` are the partitions' records.

        `code` and `end` are those of partition 0. `high` and `stable` are the high watermark and
        the last stable offset of each partition.
        """
        positions = self.requests[which]._positions
        partitions = [
            (
                at.partition, NO_ERROR if at.partition else code,
                high, stable, 0, None, replica, b if at.partition else a,
            )
            for at in positions
        ]  # fmt: skip
        topic = positions[0].topic_id if self.by_id else positions[0].topic
        self.answers[which].set_result(
            SimpleNamespace(
                API_VERSION=13 if self.by_id else 11,
                topics=[(topic, partitions)],
                diverging={} if end is None else {(topic, 0): end},
            )
        )


class Cluster(AnsweredClient[Connection]):
    """Three brokers, and a client's view of them; it also plays the `Identity`."""

    _metadata_max_age_ms = 300_000
    backoff = 0.001

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[int, int]]] = []
        super().__init__({node: Connection(node, self.asked) for node in (1, 2, 3)})
        self.led_by: int | None = 1
        self.topic_id: str | None = "X"
        self.other: str | None = None
        self.looks = 0
        self.listeners: list[Callable[[Any], None]] = []

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        self.listeners.append(listener)

    def leader_for_partition(self, at: TopicPartition) -> int | None:
        return self.led_by

    def broker_metadata(self, node: int) -> object:
        return self.brokers.get(node)

    def cached_id(self, topic: str) -> str | None:
        return self.topic_id

    def leader(self, topic_id: str | None, partition: int) -> int | None:
        return self.led_by

    def leader_epoch(self, topic_id: str | None, partition: int) -> int:
        return 5

    async def other_id(self, topic: str, topic_id: str | None) -> str | None:
        self.looks += 1
        return self.other


class Reading:
    """A fetcher of both partitions."""

    def __init__(self, rack: str = "", *, committed: bool = False) -> None:
        self.cluster = Cluster()
        self.broker = self.cluster.brokers[1]
        self.subscriptions = SubscriptionState()
        client: Any = self.cluster
        limits = FetchLimits(500, 1, 1 << 20, 1 << 20, committed, rack)
        self.fetcher = Fetcher(client, self.subscriptions, client, limits)
        self.fetcher.start()
        self.assign(A, B)

    def assign(self, *partitions: TopicPartition) -> None:
        self.subscriptions.assign_from_user(partitions)
        for at in partitions:
            self.fetcher.seek(at, ReadPosition(0, 4))

    async def asked(self, count: int) -> tuple[int, dict[int, int]]:
        """The count-th request of all: its broker, and the offset of each partition."""
        async with asyncio.timeout(10):
            while len(self.cluster.asked) < count:  # noqa: ASYNC110  # no event announces it
                await asyncio.sleep(0)
        return self.cluster.asked[count - 1]

    async def partition_0_asked(self) -> None:
        """Answer requests for partition 1 until one asks for partition 0."""
        async with asyncio.timeout(10):
            while 0 not in self.cluster.asked[-1][1]:
                if not self.broker.answers[-1].done():
                    self.broker.answer()
                await asyncio.sleep(0)

    async def take(self, seconds: float = 10, portion: int = PLENTY) -> list[Any]:
        return [item for items in await self.fetcher.fetched(seconds, portion) for item in items]

    async def answered(self, **answer: Any) -> list[Any]:
        """What the fetcher returns after this first answer."""
        await self.asked(1)
        self.broker.answer(**answer)
        return await self.take()
