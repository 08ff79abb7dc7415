"""A producer of encoded batches, and of single records."""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError, NoError, for_code
from aiokafka.protocol.transaction import InitProducerIdRequest

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.delivery import Delivery, ProducerNumbers, ReadyBatch
from mirrortest.kafka.public.connection import arguments, request_errors, stop_cleanly
from mirrortest.kafka.public.sending import no_partition
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire import record_batch
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.single_records import write_records

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Encoded, OnDelivery
    from mirrortest.wire.single_records import Row

_UNLIMITED = 1 << 62
_NO_TRANSACTIONS = (None, 2**31 - 1)
"""The transactional id and the transaction timeout in ms."""
_FRAMING = 32
"""Maximum bytes of a record in addition to key and value: there are no headers."""


class GatheredRecords:
    """Records that share a batch; more can join until it is sealed or given up.

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
        """Whether a record of this size can join, if the batch may have `most` bytes."""
        return self._open and self._size + size <= most

    def add(self, key: bytes, value: bytes | None, size: int) -> asyncio.Future[int | None]:
        """Add a record; return the future of its offset."""
        written: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._rows.append((len(self._rows), time.time_ns() // 1_000_000, key, value, ()))
        self._written.append(written)
        self._size += size
        return written

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Encode the batch; no more records can join."""
        self._open = False
        self.buffer = write_records(self._rows)
        record_batch.seal(self.buffer, producer_id, epoch, base_sequence)

    def end(self, offset: int | None, error: RequestError | None) -> None:
        """Resolve the futures of all records with the batch's outcome."""
        self._open = False
        for index, written in enumerate(self._written):
            if written.done():
                continue  # cancelled: its writer no longer waits
            if error is not None:
                written.set_exception(error)
            else:
                written.set_result(offset + index if offset is not None and offset >= 0 else None)


class FastProducer:
    """See `ports.ProducerPort`."""

    def __init__(
        self, config: ClientConfig, batch_bytes: int | None = None, after: Any = None
    ) -> None:
        self._client = Client(**arguments(config))
        self._numbers: ProducerNumbers | None = None
        if config.enable_idempotence:
            self._numbers = ProducerNumbers() if after is None else after._numbers.next_epoch()
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
        """Partition -> its newest batch of records."""
        self._without_metadata: dict[TopicPartition, list[tuple[ReadyBatch, OnDelivery]]] = {}
        """Batches of partitions that are not in the metadata yet."""
        self._lookups: set[asyncio.Task[None]] = set()
        self._abandoned = "the producer was stopped"
        """Why queued batches are not delivered."""

    async def start(self) -> None:
        """See `ports.ClientPort`."""
        with request_errors():
            await self._client.bootstrap()
            if self._numbers is not None and self._numbers.producer_id < 0:
                while not await self._get_producer_id(self._numbers):
                    await asyncio.sleep(self._backoff)
                    await self._client.force_metadata_update()

    async def _get_producer_id(self, numbers: ProducerNumbers) -> bool:
        """Request a producer id from any broker; return False if another try may help."""
        request = InitProducerIdRequest(*_NO_TRANSACTIONS)
        try:
            answer = await self._client.send(self._client.get_random_node(), request)
        except KafkaError as failed:
            if not failed.retriable:
                raise
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
        if at in self._without_metadata:
            self._without_metadata[at].append((batch, on_delivery))
        elif self._client.cluster.leader_for_partition(at) is None:
            self._without_metadata[at] = [(batch, on_delivery)]
            finding = asyncio.create_task(self._queue_later(at))
            self._lookups.add(finding)
            finding.add_done_callback(self._lookups.discard)
        else:
            self._queue(batch, at, on_delivery)

    def _queue(self, batch: ReadyBatch, at: TopicPartition, on_delivery: OnDelivery) -> None:
        try:
            self._delivery.queue(batch, at, on_delivery)
        except RequestError as error:
            on_delivery(None, error)

    async def _queue_later(self, at: TopicPartition) -> None:
        """Queue the batches that wait for a partition's metadata, once it has arrived."""
        try:
            await self._wait_for_metadata(at)
        except RequestError as error:
            for _, on_delivery in self._without_metadata.pop(at):
                on_delivery(None, error)
        else:
            for batch, on_delivery in self._without_metadata.pop(at):
                self._queue(batch, at, on_delivery)

    async def write(
        self, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int | None:
        """See `ports.ProducerPort`; records that wait for the same request share a batch."""
        at = TopicPartition(topic, partition)
        await self._wait_for_metadata(at)
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

    async def _wait_for_metadata(self, at: TopicPartition) -> None:
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

    def numbers_left(self, topic: str, partition: int) -> int:  # noqa: ARG002  # they wrap around
        """See `ports.ProducerPort`."""
        return _UNLIMITED

    def failure(self) -> str | None:
        """See `ports.ProducerPort`; delivery never ends by itself."""
        return None

    def abandon(self, why: str) -> None:
        """See `ports.ProducerPort`."""
        self._abandoned = why
        self._delivery.abandon(why)

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`; it first waits for responses, also up to `seconds`."""
        for finding in self._lookups:
            finding.cancel()
        await self._delivery.wait_idle(seconds)
        await stop_cleanly(self._client.close, seconds)
        self._delivery.abandon(self._abandoned)
