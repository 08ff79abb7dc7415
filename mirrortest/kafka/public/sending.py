"""A producer with aiokafka's public API.

Each record is added to a batch builder; aiokafka numbers and compresses the batch. It does not
report when or how often it hands over the bytes: a batch that was queued and not acknowledged is
unknown. A producer that was given up cannot be prevented from sending.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, errors

from mirrortest.errors import ClusterError
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.public.connection import (
    arguments,
    begin_stop,
    request_error,
    request_errors,
)
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.single_records import parse_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Encoded, OnDelivery

_UNKNOWN_COUNT = 1 << 30
"""`handed_over` of a queued batch: the true count is unknown."""
_MAX_BATCH_BYTES = 1 << 30
"""Bytes; batches that come here are small enough already."""
_SEQUENCE_NUMBERS = 1 << 31
"""Sequence numbers of a partition: aiokafka does not wrap them around as brokers expect."""
_NO_HEADERS = 1
"""Bytes of a header section with a count of 0."""


class BuiltBatch:
    """See `ports.Batch`."""

    def __init__(self, builder: Any, count: int) -> None:
        self.builder = builder
        self.count = count
        self.handed_over = 0
        self.withdrawn = False
        self.queued = False


class PublicProducer:
    """See `ports.ProducerPort`."""

    client_type: Any = AIOKafkaProducer

    def __init__(
        self, config: ClientConfig, batch_bytes: int | None = None, after: Any = None
    ) -> None:
        options = arguments(config) | {
            "acks": config.acks,
            "enable_idempotence": config.enable_idempotence,
        }
        if batch_bytes is None:
            codec = str(config.compression_type)
            options |= {
                "max_batch_size": _MAX_BATCH_BYTES,
                "compression_type": None if codec == "none" else codec,
            }
        else:
            options |= {
                "max_batch_size": batch_bytes,
                "max_request_size": config.max_request_size,
            }
        self.client = self.client_type(**options)
        self._numbered: dict[tuple[str, int], int] = {}
        self._waiting: dict[TopicPartition, deque[tuple[Any, OnDelivery]]] = {}
        """Batches behind one for which aiokafka has no room or no metadata yet."""
        self._sending: set[asyncio.Task[None]] = set()
        self._failure: str | None = None
        self.stopping: asyncio.Future[None] | None = None
        """Ends when aiokafka's producer has stopped, after its last request; None before `stop`."""
        self._after: PublicProducer | None = after

    async def start(self) -> None:
        """See `ports.ClientPort`; it first waits for the end of the producer that failed."""
        if self._after is not None and self._after.stopping is not None:
            await asyncio.wait({self._after.stopping})
        self._after = None
        with request_errors():
            await self.client.start()

    def batch(self, encoded: Encoded) -> Any:
        """See `ports.ProducerPort`.

        Raises:
            ClusterError: this aiokafka's builder refuses or changes a record.
        """
        builder = self.client.create_batch()
        for stamp, key, value, headers in _records(encoded.buffer):
            added = builder.append(timestamp=stamp, key=key, value=value, headers=headers)
            if added is None or added.timestamp != stamp:
                why = "is full too early" if added is None else "changes a record's timestamp"
                raise ClusterError(f"this aiokafka cannot be used: its batch builder {why}")
        builder.close()
        return BuiltBatch(builder, encoded.count)

    def send(self, batch: Any, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """See `ports.ProducerPort`."""
        at = TopicPartition(topic, partition)
        self._numbered[at] = self._numbered.get(at, 0) + batch.count
        if at in self._waiting:
            self._waiting[at].append((batch, on_delivery))
            return
        self._waiting[at] = deque([(batch, on_delivery)])
        sending = asyncio.create_task(self._send_waiting(at))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send_waiting(self, at: TopicPartition) -> None:
        waiting = self._waiting[at]
        while waiting:
            batch, on_delivery = waiting.popleft()
            if not batch.withdrawn:
                await self._send(batch, at, on_delivery)
        del self._waiting[at]

    async def _send(self, batch: Any, at: TopicPartition, on_delivery: OnDelivery) -> None:
        batch.handed_over = _UNKNOWN_COUNT
        try:
            delivered = await self._queue(batch.builder, *at)
        except Exception as error:  # noqa: BLE001  # after any error the batch was not queued
            batch.handed_over = 0
            self._numbered[at] -= batch.count
            refusal = error if isinstance(error, RequestError) else request_error(error)
            self._note_failure(refusal)
            on_delivery(None, refusal)
            return

        def report(future: asyncio.Future[Any]) -> None:
            offset, error = delivery(future)
            self._note_failure(error)
            on_delivery(offset, error)

        batch.queued = True
        delivered.add_done_callback(report)

    async def _queue(self, builder: Any, topic: str, partition: int) -> asyncio.Future[Any]:
        """Queue a builder with aiokafka; return the future of its metadata."""
        try:
            future: asyncio.Future[Any] = await self.client.send_batch(
                builder, topic, partition=partition
            )
        except (errors.KafkaError, OSError) as error:
            raise request_error(error) from error
        except AssertionError as error:
            raise no_partition() from error
        return future

    async def write(
        self, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int | None:
        """See `ports.ProducerPort`."""
        try:
            with request_errors():
                metadata = await self.client.send_and_wait(
                    topic, value=value, key=key, partition=partition
                )
        except AssertionError as error:
            raise no_partition() from error
        return int(metadata.offset) if metadata.offset >= 0 else None

    def partition_count(self, topic: str) -> int:
        """See `ports.ProducerPort`."""
        return len(self.client.client.cluster.partitions_for_topic(topic) or ())

    def stamps(self, topic: str) -> bool:  # noqa: ARG002  # a port's method
        """See `ports.ProducerPort`; a duplicate's response looks like the first one's."""
        return False

    def numbers_left(self, topic: str, partition: int) -> int:
        """See `ports.ProducerPort`."""
        return _SEQUENCE_NUMBERS - self._numbered.get((topic, partition), 0)

    def failure(self) -> str | None:
        """See `ports.ProducerPort`."""
        return self._failure

    def abandon(self, why: str) -> None:
        """Do nothing: no public call ends sending."""

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        for sending in self._sending:
            sending.cancel()
        # Set before any wait: meanwhile another writer can start the next producer.
        self.stopping = begin_stop(self.client)
        await asyncio.wait({self.stopping}, timeout=seconds)

    def _note_failure(self, error: Exception | None) -> None:
        # aiokafka fails all batches with this error when its sending ends by itself.
        if isinstance(error, RequestError) and error.code == Code.BROKE_OFF:
            self._failure = str(error)


def delivery(future: asyncio.Future[Any]) -> tuple[int | None, RequestError | None]:
    """The outcome of a batch, as the arguments of `ports.OnDelivery`."""
    if future.cancelled():
        return None, RequestError(Code.UNKNOWN, "the delivery was cancelled")
    error = future.exception()
    if error is not None:
        return None, request_error(error)
    metadata = future.result()
    return (None if metadata is None else int(metadata.offset)), None


def no_partition() -> RequestError:
    """The error of a send to a partition that does not exist."""
    return RequestError(Code.NO_PARTITION, "the partition does not exist")


def _records(
    batch: bytearray | memoryview,
) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """An uncompressed batch's records: timestamp in ms, key, value, headers."""
    records = decode_records(batch)
    data = records.buffer.data
    columns = zip(
        records.timestamps.tolist(),
        records.key_start.tolist(),
        records.key_len.tolist(),
        records.value_start.tolist(),
        records.value_len.tolist(),
        records.headers_start.tolist(),
        records.headers_len.tolist(),
        strict=True,
    )
    for stamp, key_at, key_len, value_at, value_len, headers_at, headers_len in columns:
        yield (
            stamp,
            None if key_len < 0 else bytes(data[key_at : key_at + key_len]),
            None if value_len < 0 else bytes(data[value_at : value_at + value_len]),
            []
            if headers_len == _NO_HEADERS
            else list(parse_headers(bytes(data[headers_at : headers_at + headers_len]))),
        )
