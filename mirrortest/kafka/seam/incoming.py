"""Whole batches out of aiokafka's fetcher."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiokafka.consumer import fetcher as _fetcher

from mirrortest.kafka.fetched import Unreadable, batches, has_whole_batch
from mirrortest.kafka.frames import Section
from mirrortest.kafka.seam.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokafka import AIOKafkaConsumer

    from mirrortest.kafka.fetched import Fetched, FetchedBatches

_READ_COMMITTED = 1
_COMMITTED_LEVEL = "read_committed"
_TORN_READS = 3

_MemoryRecords = _fetcher.MemoryRecords
_PartitionRecords = _fetcher.PartitionRecords


class Door:
    """Given as `key_deserializer`, it marks a consumer as ours; it keeps count of torn reads."""

    def __init__(self) -> None:
        self.identity: Identity | None = None
        """Where the epochs of what was read are kept."""
        self.torn: dict[Any, tuple[int, int]] = {}
        """partition -> (offset, how often it was read torn in a row)"""


class RawRecords:
    """In place of MemoryRecords: keeps the response's bytes, and is a MemoryRecords to others."""

    def __init__(self, data: bytes | Section) -> None:
        section = data if isinstance(data, Section) else Section(memoryview(data), time.time_ns())
        self.data, self.arrived_ns = section
        self._original: Any = None

    def size_in_bytes(self) -> int:
        """Bytes of the response for this partition."""
        return len(self.data)

    def has_next(self) -> bool:
        """Whether there is a whole batch left."""
        if self._original is None:
            return has_whole_batch(self.data)
        return bool(self._original.has_next())

    def next_batch(self) -> Any:
        """The next batch, decoded by aiokafka."""
        return self.original().next_batch()

    def original(self) -> Any:
        """The same bytes as aiokafka's own object."""
        if self._original is None:
            self._original = _MemoryRecords(self.data.tobytes())
        return self._original


class WholeBatches:
    """In place of PartitionRecords: iterates over batches, and moves the position."""

    def __init__(
        self,
        door: Door,
        tp: Any,
        records: RawRecords,
        aborted: Any,
        fetch_offset: int,
        isolation: int,
    ) -> None:
        self.next_fetch_offset = fetch_offset
        self._door = door
        self._tp = tp
        self._epochs = door.identity.epochs if door.identity else {}
        found = batches(
            records.data,
            topic=tp.topic,
            partition=tp.partition,
            fetch_offset=fetch_offset,
            arrived_ns=records.arrived_ns,
            aborted=(aborted or ()) if isolation == _READ_COMMITTED else None,
            topic_id=door.identity.pins.get(tp) if door.identity else None,
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
            offset, times = self._door.torn.get(self._tp, (item.offset, 0))
            times = times + 1 if offset == item.offset else 1
            self._door.torn[self._tp] = (item.offset, times)
            if not item.torn or times >= _TORN_READS:
                yield item
            return
        self._door.torn.pop(self._tp, None)


def partition_records(
    tp: Any,
    records: RawRecords,
    aborted_transactions: Any,
    fetch_offset: int,
    key_deserializer: Any,
    *rest: Any,
) -> Any:
    """In place of PartitionRecords: whole batches for a consumer of ours."""
    if isinstance(key_deserializer, Door):
        isolation = rest[-1]
        return WholeBatches(
            key_deserializer, tp, records, aborted_transactions, fetch_offset, isolation
        )
    return _PartitionRecords(
        tp, records.original(), aborted_transactions, fetch_offset, key_deserializer, *rest
    )


def fetch_failure(consumer: AIOKafkaConsumer) -> BaseException | None:
    """Why the consumer's fetching has ended by itself, which aiokafka tells nobody."""
    task = consumer._fetcher._fetch_task
    if not task.done() or task.cancelled():
        return None
    failure: BaseException | None = task.exception()
    return failure or RuntimeError("fetching has ended")


def identity_of(consumer: AIOKafkaConsumer) -> Identity:
    """What stands between a consumer of ours and its client, from now on."""
    return Identity(consumer._client, committed=consumer._isolation_level == _COMMITTED_LEVEL)


async def disconnect(consumer: AIOKafkaConsumer) -> None:
    """Close the connections of a consumer that cannot be stopped in order."""
    await consumer._client.close()
