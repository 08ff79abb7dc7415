"""A compacted topic of one partition as a table: write by key, and follow it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import structlog

from mirrortest.errors import (
    ClusterError,
    PartitionCountError,
    TopicMissingError,
    TopicReplacedError,
)
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.connecting import start
from mirrortest.kafka.error_table import Code, RequestError, addresses, cluster_error
from mirrortest.kafka.fetched import OutOfRange
from mirrortest.kafka.library import library
from mirrortest.kafka.reader import Reader
from mirrortest.model.failure import Failure
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire import kernels
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import FetchedBatches
    from mirrortest.kafka.ports import ProducerPort
    from mirrortest.wire.record_batch import RecordArrays

    Entry = tuple[int, bytes, bytes | None]
    """(offset, key, value); a value of None is a tombstone."""

_log = structlog.get_logger()

_POLL_SECONDS = 1.0
_WAIT_MS = 5000
"""How long a broker may delay a fetch response; it sends new records at once."""
_STOP_SECONDS = 2.0
_MAX_IN_FLIGHT = 500
"""Records in flight; without a limit, aiokafka wakes all waiting writers for one free slot."""
_BATCH_BYTES = 1 << 17
SLOW_SECONDS = 10.0
"""A write that takes longer may be waiting for a deleted topic: its writer creates it again."""
_CONFIGS = {
    "cleanup.policy": "compact",
    # The active segment is never compacted: small segments limit what must be read at start.
    # Confluent Cloud refuses smaller ones.
    "segment.bytes": "52428800",
}


class CompactedTopic:
    """One compacted topic; it connects at the first read or write.

    Writes are idempotent and wait for all in-sync replicas. If a write raises and the caller
    repeats it, the record can be in the topic twice: readers must allow for that.
    """

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config = config
        self._at = TopicPartition(topic, 0)
        self._producer: ProducerPort | None = None
        self._failed: ProducerPort | None = None
        """The previous producer, which failed; its last records may still be in flight."""
        self._starting = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._readers: set[Reader] = set()
        self._confirmed = False
        """Whether `create` found or created the topic, and it was not read since."""
        self._reached = 0
        """The offset after the last one that a tail read."""
        self._topic_id: str | None = None
        """The id of the topic that the tail read; None if the cluster has no topic ids."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._at.topic

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect; running tails end."""
        for reader in list(self._readers):
            await self._close_reader(reader)
        await self._drop_producer()

    async def create(self) -> bool:
        """Create the topic, or check the existing one; return whether it was missing.

        Raises:
            PartitionCountError: it has more than one partition.
            ClusterError: its `cleanup.policy` is not `compact` alone: retention would delete
                records.
        """
        async with Admin(self._config) as admin:
            created = await admin.partitions(self.topic) is None and await admin.create_topic(
                self.topic, 1, configs=_CONFIGS
            )
            self._confirmed = True
            if created:
                return True
            partitions = await admin.partitions(self.topic)
            if partitions != [0]:
                raise PartitionCountError(
                    f"topic {self.topic!r} at {addresses(self._config)} has "
                    f"{len(partitions or [])} partitions and must have one: name another topic"
                )
            try:
                policy = await admin.cleanup_policy(self.topic)
            except ClusterError as error:
                # Describing a topic's configuration needs a separate permission.
                _log.warning("cannot see whether the topic is compacted", why=str(error))
                return False
        if policy != {"compact"}:
            raise ClusterError(
                f"topic {self.topic!r} at {addresses(self._config)} has cleanup.policy="
                f"{','.join(sorted(policy))} and must have compact: set it, or name another topic"
            )
        return False

    # -- writing --------------------------------------------------------------------------------

    async def write(self, key: bytes, value: bytes | None) -> int:
        """Write a record or a tombstone durably; return its offset, or one not far above it.

        Concurrent calls share requests. Consecutive calls of one task keep their order in the
        topic.

        Raises:
            ClusterError: the cluster refused the record, or did not acknowledge it within
                `delivery.timeout.ms`; it may have been written.
        """
        doing, offset = f"writing to {self.topic}", None
        for again in (False, True):
            producer = await self._started()
            try:
                async with self._slots, asyncio.timeout(self._config.delivery_timeout_ms / 1000):
                    offset = await producer.write(self.topic, self._at.partition, key, value)
                break
            except (RequestError, OSError) as error:
                if not (isinstance(error, RequestError) and error.code == Code.NO_PARTITION):
                    # An idempotent producer cannot continue after an unacknowledged record.
                    await self._drop_producer(producer)
                if again or not _producer_state_lost(error):
                    raise cluster_error(self._config, doing, error) from error
                # The leader lost the producer's state, for example in an unclean election: a new
                # producer starts its sequence numbers at 0.
        if offset is not None:
            return offset
        # Acknowledged as a duplicate so old that the broker no longer has its offset.
        async with Admin(self._config) as admin:
            return (await admin.end_offsets([self._at]))[self._at] - 1

    async def _started(self) -> ProducerPort:
        async with self._starting:
            if self._producer is not None:
                return self._producer
            config, doing = self._config, f"writing to {self.topic}"
            durable = replace(config, acks=-1, enable_idempotence=True)
            producer = library(config).producer(
                durable, batch_bytes=_BATCH_BYTES, after=self._failed
            )
            await start(config, producer, doing, seconds=config.request_timeout_ms / 1000)
            self._producer, self._failed = producer, None
            return producer

    async def _drop_producer(self, failed: ProducerPort | None = None) -> None:
        """Stop the producer; if `failed` is given, only if that one is still in use."""
        producer = self._producer
        if producer is None or (failed is not None and failed is not producer):
            return
        self._producer = None
        if failed is not None:
            self._failed = producer
            producer.abandon(f"writing to {self.topic} broke off")
        await producer.stop(_STOP_SECONDS)

    # -- reading --------------------------------------------------------------------------------

    async def tail(self) -> AsyncIterator[Entry]:
        """Yield all records from the beginning, then new ones, without end.

        Raises:
            TopicMissingError: there is no such topic.
            TopicReplacedError: records that this tail or the previous one read are no longer in
                the topic: it was recreated or truncated. The next tail accepts the new topic.
        """
        reader = await self._open_reader()
        try:
            if (await reader.end_offsets([self._at]))[self._at] < self._reached:
                raise self._replaced()
            begin = (await reader.beginning_offsets([self._at]))[self._at]
            reader.seek(self._at, begin, topic_id=self._topic_id)
            while True:
                for item in await reader.next(_POLL_SECONDS):
                    if isinstance(item, OutOfRange):
                        raise self._replaced()
                    for entry in _entries(item):
                        yield entry
                    self._reached, self._topic_id = item.next_offset, item.topic_id
        finally:
            await self._close_reader(reader)

    def _replaced(self) -> TopicReplacedError:
        self._reached, self._topic_id = 0, None
        return TopicReplacedError(
            f"topic {self.topic!r} at {addresses(self._config)} was recreated or truncated"
        )

    async def _open_reader(self) -> Reader:
        async with Admin(self._config) as admin:
            if self._confirmed:
                admin.expect(self.topic)
            if await admin.partitions(self.topic) is None:
                raise TopicMissingError(
                    f"topic {self.topic!r} does not exist at {addresses(self._config)}"
                )
        self._confirmed = False
        wait_ms = min(_WAIT_MS, self._config.request_timeout_ms // 2)
        reader = Reader(replace(self._config, fetch_max_wait_ms=wait_ms))
        self._readers.add(reader)
        try:
            await reader.start()
            await reader.assign([self._at])
        except BaseException:
            await self._close_reader(reader)
            raise
        return reader

    async def _close_reader(self, reader: Reader) -> None:
        self._readers.discard(reader)
        await reader.close()


def _producer_state_lost(error: Exception) -> bool:
    """Whether the leader's sequence numbers of a producer differ from the producer's own."""
    return isinstance(error, RequestError) and error.traits.failure is Failure.PRODUCER_STATE


def _entries(batch: FetchedBatches) -> Iterator[Entry]:
    """Yield a batch's records from the position on; those without a key are not in the table.

    Others can write to the topic: each batch that cannot be decoded is left out.
    """
    if batch.buffer is None:
        return
    try:
        parts = [decode_records(batch.buffer)]
    except MalformedBatchError:
        parts = list(_decodable(batch))
    for records in parts:
        for index, offset in enumerate(records.offsets.tolist()):
            key = records.key(index)
            if key is not None and offset >= batch.fetched_from:
                yield offset, key, records.value(index)


def _decodable(batch: FetchedBatches) -> Iterator[RecordArrays]:
    """Yield the records of each batch that can be decoded."""
    data = memoryview(batch.buffer or b"")
    for begin, end, *_ in kernels.headers(data):
        try:
            yield decode_records(data[begin:end])
        except MalformedBatchError as error:
            _log.warning(
                "skipping unreadable batch",
                topic=batch.topic,
                after_offset=batch.fetched_from,
                why=str(error),
            )
