"""A consumer of complete batches, out of aiokafka's fetcher."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.consumer import fetcher

from mirrortest.config.client_config import IsolationLevel
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.ends import Ends
from mirrortest.kafka.fast.frames import Section
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.fetched import FetchedBatches, Unreadable, batches, has_complete_batch
from mirrortest.kafka.public.connection import (
    reason,
    request_error,
    request_errors,
    stopped_in_order,
)
from mirrortest.kafka.public.fetching import PublicConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import End, Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

_READ_COMMITTED = 1
_TORN_READS = 3

_BATCH_BYTES = 1 << 20
"""What comes as one is taken to have, before any was seen."""


class ReadState:
    """A consumer's own: aiokafka passes it on to `WholeBatches` as the `key_deserializer`."""

    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity
        """Where the epochs of what was read are kept."""
        self.torn: dict[Any, tuple[int, int]] = {}
        """partition -> (offset, how often it was read torn in a row)"""


class RawRecords:
    """Used as aiokafka's MemoryRecords: keeps the response's bytes."""

    def __init__(self, data: bytes | Section) -> None:
        section = data if isinstance(data, Section) else Section(memoryview(data), time.time_ns())
        self.data, self.arrived_ns = section

    def size_in_bytes(self) -> int:
        """Bytes of the response for this partition."""
        return len(self.data)

    def has_next(self) -> bool:
        """Whether there is a complete batch."""
        return has_complete_batch(self.data)


class WholeBatches:
    """Used as aiokafka's PartitionRecords: iterates over batches, and moves the position."""

    def __init__(
        self,
        tp: Any,
        records: RawRecords,
        aborted_transactions: Any,
        fetch_offset: int,
        key_deserializer: ReadState,
        value_deserializer: Any,  # noqa: ARG002  # as aiokafka calls it
        check_crcs: bool,  # noqa: ARG002  # as aiokafka calls it
        isolation_level: int,
    ) -> None:
        self.next_fetch_offset = fetch_offset
        self._state = key_deserializer
        self._tp = tp
        identity = self._state.identity
        self._epochs = identity.epochs if identity else {}
        found = batches(
            records.data,
            topic=tp.topic,
            partition=tp.partition,
            fetch_offset=fetch_offset,
            arrived_ns=records.arrived_ns,
            aborted=(aborted_transactions or ()) if isolation_level == _READ_COMMITTED else None,
            topic_id=identity.pins.get(tp) if identity else None,
        )
        self._items = self._readable(found)

    def __iter__(self) -> Iterator[Fetched]:
        return self

    def __next__(self) -> Fetched:
        return next(self._items)

    def _readable(
        self, found: Iterator[FetchedBatches | Unreadable]
    ) -> Iterator[FetchedBatches | Unreadable]:
        """Pass batches on; a torn one ends the response, so that it is fetched again."""
        for item in found:
            if not isinstance(item, Unreadable):
                self.next_fetch_offset = item.next_offset
                self._epochs[self._tp] = item.next_offset, item.leader_epoch
                yield item
                continue
            offset, times = self._state.torn.get(self._tp, (item.offset, 0))
            times = times + 1 if offset == item.offset else 1
            self._state.torn[self._tp] = (item.offset, times)
            if not item.torn or times >= _TORN_READS:
                yield item
            return
        self._state.torn.pop(self._tp, None)


class Fetcher(fetcher.Fetcher):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's fetcher of batches in place of records."""

    _proc_fetch_request = rebound(
        fetcher.Fetcher._proc_fetch_request,
        MemoryRecords=RawRecords,
        PartitionRecords=WholeBatches,
    )


class _Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaConsumer.__init__, AIOKafkaClient=Client)
    start = rebound(AIOKafkaConsumer.start, Fetcher=Fetcher)


class FastConsumer(PublicConsumer):
    """See `ports.ConsumerPort`."""

    client_type = _Consumer

    def __init__(self, config: ClientConfig, group: str | None = None) -> None:
        super().__init__(config, group)
        committed = config.isolation_level is IsolationLevel.READ_COMMITTED
        self._identity = Identity(self.client._client)
        self._ends = Ends(self._identity, committed=committed)
        self.client._key_deserializer = ReadState(self._identity)
        self._largest = _BATCH_BYTES
        """Bytes, uncompressed, of the largest batches that came as one; forgotten by halves."""

    @property
    def sees_topic_ids(self) -> bool:
        """See `ports.ConsumerPort`."""
        return self._identity.by_id

    def seek(self, partition: TopicPartition, place: ReadPosition) -> None:
        """See `ports.ConsumerPort`."""
        super().seek(partition, place)
        self._identity.place(partition, place)

    async def topic_id(self, topic: str) -> str | None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return await self._identity.topic_id(topic)

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return await self._ends.of(read)

    async def fetch(
        self,
        *,
        timeout_ms: int,
        portion: int,
        reached: Mapping[TopicPartition, int],  # noqa: ARG002  # each batch has its offsets
    ) -> list[list[Fetched]]:
        """See `ports.ConsumerPort`."""
        try:
            fetched = await self.client.getmany(
                timeout_ms=timeout_ms, max_records=max(1, portion // self._largest)
            )
        except errors.OffsetOutOfRangeError as error:
            return [[broken] for broken in self._identity.broken_off(error.args[0])]
        except (errors.KafkaError, OSError) as error:
            raise request_error(error) from error
        found: list[list[Fetched]] = list(fetched.values())
        sizes = [
            len(item.buffer)
            for items in found
            for item in items
            if isinstance(item, FetchedBatches) and item.buffer is not None
        ]
        if sizes:
            self._largest = max(*sizes, self._largest // 2)
        return found

    def failure(self) -> str | None:
        """See `ports.ConsumerPort`."""
        task = self.client._fetcher._fetch_task
        if not task.done() or task.cancelled():
            return None
        failure = task.exception()
        return reason(failure) if failure else "fetching has ended"

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        if not await stopped_in_order(self.client.stop, seconds):
            await self.client._client.close()
