"""A producer of batches that are encoded already, and of single records."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.delivery import Delivery, ReadyBatch
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.public.connection import request_errors, stopped_in_order
from mirrortest.kafka.public.sending import PublicProducer, no_partition
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Encoded, OnDelivery

_MAX_SEQUENCE = 2**31 - 1
_ENDLESS = 1 << 62


class _InFlight(set[Any]):
    """Batches in flight: one that went back to wait, and failed there, is not among them."""

    def remove(self, batch: Any) -> None:
        """Forget a batch, if it is one of them."""
        self.discard(batch)


def correct(producer: AIOKafkaProducer) -> None:
    """Correct what aiokafka does to producers whose batches fail, or that number for years.

    A batch that was to be sent again, and ran out of time before, is looked for among those on
    their way: aiokafka fails where it is missing. Where sends are idempotent, sequence
    numbers go on at 0 after 2^31 - 1, as brokers expect; aiokafka goes negative. And where its
    delivery fails, no transaction fails with it: aiokafka fails where there is none.
    """
    accumulator = producer._message_accumulator
    accumulator._pending_batches = _InFlight(accumulator._pending_batches)
    manager = producer._txn_manager
    if manager is None:
        return
    numbers = manager._sequence_numbers

    def increment(tp: Any, increment: int) -> None:
        numbers[tp] = (numbers[tp] + increment) & _MAX_SEQUENCE

    manager.increment_sequence_number = increment
    manager.fatal_error = lambda _: None


def abandon(producer: AIOKafkaProducer, reason: str) -> None:
    """Take up no batch any more; once those on their way are answered, all other futures fail."""
    task = producer._sender.sender_task
    accumulator = producer._message_accumulator

    def fail_rest(_: object) -> None:
        waiting = [batch for queue in accumulator._batches.values() for batch in queue]
        accumulator.fail_all(KafkaError(reason))
        for batch in waiting:
            # Otherwise asyncio reports an exception that nobody asked for.
            if batch._drain_waiter.done():
                batch._drain_waiter.exception()

    if task is None or task.done():
        fail_rest(None)
        return
    task.add_done_callback(fail_rest)
    task.cancel()


class _Producer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaProducer.__init__, AIOKafkaClient=Client)


class FastProducer(PublicProducer):
    """See `ports.ProducerPort`."""

    client_type = _Producer

    def __init__(self, config: ClientConfig, batch_bytes: int | None = None) -> None:
        super().__init__(config, batch_bytes)
        self._abandoned = "the producer was stopped"
        """Why what is queued is not delivered."""
        correct(self.client)
        self._delivery = Delivery(
            self.client.client,
            self.client._txn_manager,
            acks=config.acks,
            seconds=config.request_timeout_ms / 1000,
            backoff=config.retry_backoff_ms / 1000,
        )

    def _batch_options(self, config: ClientConfig) -> dict[str, Any]:  # noqa: ARG002  # encoded
        return {}

    def batch(self, encoded: Encoded) -> Any:
        """See `ports.ProducerPort`."""
        return ReadyBatch(encoded)

    async def send(self, batch: Any, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """See `ports.ProducerPort`."""
        client, at = self.client.client, TopicPartition(topic, partition)
        if client.cluster.leader_for_partition(at) is None:
            with request_errors():
                partitions = await client._wait_on_metadata(topic)
            if partition not in partitions:
                raise no_partition()
        self._delivery.queue(batch, at, on_delivery)

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
        await self._delivery.answered(seconds)
        if not await stopped_in_order(self.client.stop, seconds):
            await self.client.client.close()
        self._delivery.abandon(self._abandoned)
        abandon(self.client, self._abandoned)

    async def wait_closed(self) -> None:
        """Nothing is sent once it was abandoned."""
