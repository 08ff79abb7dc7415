"""aiokafka's producer and consumer with whole batches, as `kafka.access` wants to have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors

from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.kafka.seam.incoming import Door, disconnect, fetch_failure, identity_of
from mirrortest.kafka.seam.outgoing import (
    ReadyBatch,
    abandon,
    delivery_failure,
    mend,
)
from mirrortest.kafka.stopping import ended

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from mirrortest.kafka.access import Encoded
    from mirrortest.kafka.fetched import End, Fetched, Place
    from mirrortest.model.topic_partition import TopicPartition

_BATCH_BYTES = 1 << 20
"""What comes as one is taken to have, before any was seen."""
_ENDLESS = 1 << 62


class Outlet:
    """See `access.Outlet`."""

    def __init__(self, client: AIOKafkaProducer) -> None:
        self.client = client
        mend(client)

    def batch(self, encoded: Encoded) -> ReadyBatch:
        """See `access.Outlet`."""
        return ReadyBatch(encoded)

    async def send(self, batch: ReadyBatch, topic: str, partition: int) -> asyncio.Future[Any]:
        """See `access.Outlet`."""
        delivered: asyncio.Future[Any] = await self.client.send_batch(
            batch, topic, partition=partition
        )
        return delivered

    def numbers_left(self, topic: str, partition: int) -> int:  # noqa: ARG002  # they begin anew
        """See `access.Outlet`."""
        return _ENDLESS

    def failure(self) -> BaseException | None:
        """See `access.Outlet`."""
        return delivery_failure(self.client)

    def abandon(self, why: str) -> None:
        """See `access.Outlet`."""
        abandon(self.client, why)

    async def stop(self, seconds: float, why: str) -> None:
        """See `access.Outlet`."""
        if not await ended(self.client.stop, seconds):
            await self.client.client.close()
        abandon(self.client, why)

    async def gone(self) -> None:
        """Nothing is taken up once it was abandoned."""


class Inlet:
    """See `access.Inlet`."""

    def __init__(self, client: AIOKafkaConsumer, door: Door) -> None:
        self.client = client
        self._identity = door.identity = identity_of(client)
        self._largest = _BATCH_BYTES
        """Bytes, uncompressed, of the largest batches that came as one; forgotten by halves."""

    @property
    def sees_topic_ids(self) -> bool:
        """See `access.Inlet`."""
        return self._identity.by_id

    def place(self, partition: TopicPartition, place: Place) -> None:
        """See `access.Inlet`."""
        self._identity.place(partition, place)

    async def topic_id(self, topic: str) -> str | None:
        """See `access.Inlet`."""
        return await self._identity.topic_id(topic)

    async def ends(self, read: Mapping[TopicPartition, Place]) -> dict[TopicPartition, End]:
        """See `access.Inlet`."""
        return await self._identity.ends(read)

    async def fetch(
        self,
        *,
        timeout_ms: int,
        portion: int,
        reached: Mapping[TopicPartition, int],  # noqa: ARG002  # the batches tell
    ) -> list[list[Fetched]]:
        """See `access.Inlet`."""
        try:
            fetched = await self.client.getmany(
                timeout_ms=timeout_ms, max_records=max(1, portion // self._largest)
            )
        except errors.OffsetOutOfRangeError as error:
            return [[broken] for broken in self._identity.broken_off(error.args[0])]
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

    def failure(self) -> BaseException | None:
        """See `access.Inlet`."""
        return fetch_failure(self.client)

    async def stop(self, seconds: float) -> None:
        """See `access.Inlet`."""
        if not await ended(self.client.stop, seconds):
            await disconnect(self.client)


def outlet(arguments: dict[str, Any], *, compression: str = "none") -> Outlet:  # noqa: ARG001
    """A producer; batches come to it compressed."""
    return Outlet(AIOKafkaProducer(**arguments))


def inlet(arguments: dict[str, Any]) -> Inlet:
    """A consumer of whole batches."""
    door = Door()
    return Inlet(AIOKafkaConsumer(**arguments, key_deserializer=door), door)
