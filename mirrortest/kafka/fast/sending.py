"""A producer of batches that are encoded already, and of single records."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError, NoError, for_code
from aiokafka.protocol.transaction import InitProducerIdRequest

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.delivery import Delivery, ProducerNumbers, ReadyBatch
from mirrortest.kafka.public.connection import arguments, request_errors, stopped_in_order
from mirrortest.kafka.public.sending import no_partition
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire import record_batch
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.single_records import write_records

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Encoded, OnDelivery
    from mirrortest.wire.single_records import Row

_ENDLESS = 1 << 62
_NO_TRANSACTIONS = (None, 2**31 - 1)
"""The transactional id, and how long a transaction may take, ms."""
_FRAMING = 32
"""Bytes of a record besides its key and value, at most: there are no headers."""


class GatheredRecords:
    """Records that share a batch; more may join until it is sealed or given up.

    See `ports.Encoded`.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._written: list[asyncio.Future[int | None]] = []
        self._size = 0
        self._open = True
        self.buffer = bytearray()

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self._rows)

    def has_room(self, size: int, most: int) -> bool:
        """Whether a record of this size may join, in a batch of so many bytes at most."""
        return self._open and self._size + size <= most

    def add(self, key: bytes, value: bytes | None, size: int) -> asyncio.Future[int | None]:
        """Add a record; the future of its offset."""
        written: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._rows.append((len(self._rows), time.time_ns() // 1_000_000, key, value, ()))
        self._written.append(written)
        self._size += size
        return written

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Encode the batch: nothing joins any more."""
        self._open = False
        self.buffer = write_records(self._rows)
        record_batch.seal(self.buffer, producer_id, epoch, base_sequence)

    def end(self, offset: int | None, error: RequestError | None) -> None:
        """The batch has its outcome: so have those who wait for its records."""
        self._open = False
        for index, written in enumerate(self._written):
            if written.done():
                continue  # nobody waits for it any more
            if error is not None:
                written.set_exception(error)
            else:
                written.set_result(offset + index if offset is not None and offset >= 0 else None)


class FastProducer:
    """See `ports.ProducerPort`."""

    def __init__(self, config: ClientConfig, batch_bytes: int | None = None) -> None:
        self._client = Client(**arguments(config))
        self._numbers = ProducerNumbers() if config.enable_idempotence else None
        self._backoff = config.retry_backoff_ms / 1000
        self._delivery = Delivery(
            self._client,
            self._numbers,
            acks=config.acks,
            seconds=config.request_timeout_ms / 1000,
            backoff=self._backoff,
        )
        self._batch_bytes = batch_bytes or 0
        self._max_request_size = config.max_request_size
        self._gathered: dict[TopicPartition, GatheredRecords] = {}
        """By partition, the newest ones."""
        self._unfound: dict[TopicPartition, list[tuple[ReadyBatch, OnDelivery]]] = {}
        """Batches of partitions that are not in the metadata yet."""
        self._finding: set[asyncio.Task[None]] = set()
        self._abandoned = "the producer was stopped"
        """Why what is queued is not delivered."""

    async def start(self) -> None:
        """See `ports.ClientPort`."""
        with request_errors():
            await self._client.bootstrap()
            if self._numbers is not None:
                while not await self._identified(self._numbers):
                    await asyncio.sleep(self._backoff)
                    await self._client.force_metadata_update()

    async def _identified(self, numbers: ProducerNumbers) -> bool:
        """Ask any broker for a producer id; False where another try may help."""
        request = InitProducerIdRequest(*_NO_TRANSACTIONS)
        try:
            answer = await self._client.send(self._client.get_random_node(), request)
        except KafkaError:
            return False
        error = for_code(answer.error_code)
        if error is NoError:
            numbers.producer_id, numbers.epoch = answer.producer_id, answer.producer_epoch
        elif not error.retriable:
            raise error()
        return error is NoError

    def batch(self, encoded: Encoded) -> ReadyBatch:
        """See `ports.ProducerPort`."""
        return ReadyBatch(encoded)

    def send(self, batch: Any, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """See `ports.ProducerPort`."""
        at = TopicPartition(topic, partition)
        if at in self._unfound:
            self._unfound[at].append((batch, on_delivery))
        elif self._client.cluster.leader_for_partition(at) is None:
            self._unfound[at] = [(batch, on_delivery)]
            finding = asyncio.create_task(self._find(at))
            self._finding.add(finding)
            finding.add_done_callback(self._finding.discard)
        else:
            self._queue(batch, at, on_delivery)

    def _queue(self, batch: ReadyBatch, at: TopicPartition, on_delivery: OnDelivery) -> None:
        try:
            self._delivery.queue(batch, at, on_delivery)
        except RequestError as error:
            on_delivery(None, error)

    async def _find(self, at: TopicPartition) -> None:
        """Queue what waits for a partition's metadata, once they have come."""
        try:
            await self._found(at)
        except RequestError as error:
            for _, on_delivery in self._unfound.pop(at):
                on_delivery(None, error)
        else:
            for batch, on_delivery in self._unfound.pop(at):
                self._queue(batch, at, on_delivery)

    async def write(
        self, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int | None:
        """See `ports.ProducerPort`; records that wait for the same request share a batch."""
        at = TopicPartition(topic, partition)
        await self._found(at)
        size = len(key) + len(value or b"") + _FRAMING
        if size + HEADER_SIZE > self._max_request_size:
            why = f"the record takes {size} bytes, more than max.request.size permits"
            raise RequestError(Code.MESSAGE_TOO_LARGE, why)
        records = self._gathered.get(at)
        if records is None or not records.has_room(size, self._batch_bytes):
            records = GatheredRecords()
            self._delivery.queue(ReadyBatch(records), at, records.end)
            self._gathered[at] = records
        return await records.add(key, value, size)

    async def _found(self, at: TopicPartition) -> None:
        """Wait until a partition is in the metadata."""
        if self._client.cluster.leader_for_partition(at) is None:
            with request_errors():
                partitions = await self._client._wait_on_metadata(at.topic)
            if at.partition not in partitions:
                raise no_partition()

    def partition_count(self, topic: str) -> int:
        """See `ports.ProducerPort`."""
        return len(self._client.cluster.partitions_for_topic(topic) or ())

    def stamps(self, topic: str) -> bool:
        """See `ports.ProducerPort`."""
        return topic in self._delivery.stamped

    def numbers_left(self, topic: str, partition: int) -> int:  # noqa: ARG002  # they begin anew
        """See `ports.ProducerPort`."""
        return _ENDLESS

    def failure(self) -> str | None:
        """See `ports.ProducerPort`: it ends only when it is asked to."""
        return None

    def abandon(self, why: str) -> None:
        """See `ports.ProducerPort`."""
        self._abandoned = why
        self._delivery.abandon(why)

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`; answers are waited for as long as that, too."""
        for finding in self._finding:
            finding.cancel()
        await self._delivery.answered(seconds)
        await stopped_in_order(self._client.close, seconds)
        self._delivery.abandon(self._abandoned)

    async def wait_closed(self) -> None:
        """Nothing is sent once it was abandoned."""
