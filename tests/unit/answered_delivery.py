"""A delivery; the test answers in place of its brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.produce import ProduceResponse_v7

from mirrortest.kafka.fast.delivery import Delivery, ProducerNumbers, ReadyBatch
from mirrortest.model.topic_partition import TopicPartition
from tests.unit.answered_client import AnsweredClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.kafka.error_table import RequestError

A, B, C = (TopicPartition("t", number) for number in range(3))
BACKOFF = 0.001
OK, DUPLICATE = 0, 46


def failed(code: int) -> str:
    """What `Sending` reports for a batch that ended with an error."""
    return f"error {int(code)}"


class Encoded:
    def __init__(self, name: str) -> None:
        self.buffer = bytearray(name.encode())
        self.count = 3
        self.sealed: list[tuple[int, int, int]] = []

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.sealed.append((producer_id, epoch, base_sequence))


class Connection:
    """Takes requests; the test answers them."""

    def __init__(self) -> None:
        self.requests: list[dict[TopicPartition, str]] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.refusal: Exception | None = None
        self.closed: list[Any] = []

    def send(self, request: Any, expect_response: bool = True) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(
            {
                TopicPartition(topic, partition): bytes(data).decode()
                for topic, batches in request._topics
                for partition, data in batches
            }
        )
        if not expect_response:
            return asyncio.sleep(0)
        answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return answer

    def answer(self, *codes: int, first: int = 100, stamped_ms: int = -1) -> None:
        """Answer the newest request: a code for each partition; offsets from `first` on."""
        stored = [
            (at.topic, [(at.partition, code, first + index if code == OK else -1, stamped_ms, 0)])
            for index, (at, code) in enumerate(zip(self.requests[-1], codes, strict=False))
        ]
        self.answers[-1].set_result(ProduceResponse_v7(stored, 0))

    def close(self, reason: Any = None) -> None:
        self.closed.append(reason)


class Client(AnsweredClient[Connection]):
    """Two brokers, and the leaders of the partitions."""

    def __init__(self) -> None:
        super().__init__({1: Connection(), 2: Connection()})
        self.leaders: dict[TopicPartition, int | None] = {A: 1, B: 1, C: 2}
        self._md_update_fut: asyncio.Future[bool] | None = None

    def leader_for_partition(self, at: TopicPartition) -> int | None:
        return self.leaders[at]


class Sending:
    """A delivery, and what it reported, by batch name."""

    def __init__(self, *, idempotent: bool = True, acks: int = -1, seconds: float = 60) -> None:
        self.client = Client()
        self.numbers = None
        if idempotent:
            self.numbers = ProducerNumbers()
            self.numbers.producer_id, self.numbers.epoch = 77, 3
        self.delivery = Delivery(
            self.client,  # type: ignore[arg-type]  # it plays one
            self.numbers,
            acks=acks,
            seconds=seconds,
            backoff=BACKOFF,
        )
        self.reported: dict[str, list[int | str | None]] = {}
        self.batches: dict[str, ReadyBatch] = {}
        self.encoded: dict[str, Encoded] = {}

    def queue(self, name: str, at: TopicPartition = A) -> None:
        encoded = self.encoded[name] = Encoded(name)
        batch = self.batches[name] = ReadyBatch(encoded)

        def report(offset: int | None, error: RequestError | None) -> None:
            word = offset if error is None else failed(error.code)
            self.reported.setdefault(name, []).append(word)

        self.delivery.queue(batch, at, report)

    def broker(self, node: int = 1) -> Connection:
        return self.client.brokers[node]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition is true, for ten seconds at most."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110  # no event covers all conditions
                await asyncio.sleep(0)

    async def sent(self, count: int, node: int = 1) -> dict[TopicPartition, str]:
        """The count-th request of a broker."""
        requests = self.broker(node).requests
        await self.until(lambda: len(requests) >= count)
        return requests[count - 1]
