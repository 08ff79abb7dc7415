"""A consumer of complete batches: aiokafka's group and metadata, and a fetcher of our own."""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.consumer import fetcher

from mirrortest.config.client_config import IsolationLevel
from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.ends import Ends
from mirrortest.kafka.fast.fetcher import Fetcher
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.fast.requests import FetchLimits
from mirrortest.kafka.public.connection import (
    reason,
    request_error,
    request_errors,
    stop_cleanly,
)
from mirrortest.kafka.public.fetching import PublicConsumer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import End, Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition


class _GroupMaxSizeReachedError(errors.BrokerResponseError):  # type: ignore[misc]  # untyped
    errno = int(Code.GROUP_MAX_SIZE_REACHED)
    message = "GROUP_MAX_SIZE_REACHED the group has all the members that group.max.size permits"


class _FencedInstanceIdError(errors.BrokerResponseError):  # type: ignore[misc]  # untyped
    errno = int(Code.FENCED_INSTANCE_ID)
    message = "FENCED_INSTANCE_ID another member of the group has this group.instance.id"


_REFUSALS = (_GroupMaxSizeReachedError, _FencedInstanceIdError)
"""A group's errors that no retry resolves, and for which aiokafka has no class."""
errors.kafka_errors.update({kind.errno: kind for kind in _REFUSALS})


class _Offsets(fetcher.Fetcher):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's fetcher, used only to request beginning and end offsets."""

    async def _fetch_requests_routine(self) -> None:
        pass


class _Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaConsumer.__init__, AIOKafkaClient=Client)
    start = rebound(AIOKafkaConsumer.start, Fetcher=_Offsets)


class FastConsumer(PublicConsumer):
    """See `ports.ConsumerPort`."""

    client_type = _Consumer

    def __init__(self, config: ClientConfig, group: str | None = None) -> None:
        super().__init__(config, group)
        committed = config.isolation_level is IsolationLevel.READ_COMMITTED
        self._identity = Identity(self.client._client)
        self._ends = Ends(self._identity, committed=committed)
        self._fetcher = Fetcher(
            self.client._client,
            self.client._subscription,
            self._identity,
            FetchLimits(
                config.fetch_max_wait_ms,
                config.fetch_min_bytes,
                config.fetch_max_bytes,
                config.max_partition_fetch_bytes,
                committed,
                config.client_rack,
            ),
        )

    async def start(self) -> None:
        """See `ports.ClientPort`."""
        await super().start()
        self._fetcher.start()

    @property
    def sees_markers(self) -> bool:
        """See `ports.ConsumerPort`."""
        return True

    @property
    def sees_topic_ids(self) -> bool:
        """See `ports.ConsumerPort`."""
        return self._fetcher.by_id

    def seek(self, partition: TopicPartition, read_position: ReadPosition) -> None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            self._fetcher.seek(partition, read_position)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        self._fetcher.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        self._fetcher.resume(partitions)

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
            self.client._coordinator.check_errors()
            return await self._fetcher.fetched(timeout_ms / 1000, portion)
        except (errors.KafkaError, OSError) as error:
            # aiokafka raises a KafkaError with the repr of the broker's error.
            refusals = [kind() for kind in _REFUSALS if kind.__name__ in str(error)]
            raise request_error(refusals[0] if refusals else error) from error
        finally:
            # Mark a fetch: a member without one for max.poll.interval.ms leaves its group.
            with self.client._subscription.fetch_context():
                pass

    def failure(self) -> str | None:
        """See `ports.ConsumerPort`; without its task, a group's member would wait for ever."""
        task = getattr(self.client._coordinator, "_coordination_task", None)
        if task is not None and task.done() and not task.cancelled() and task.exception():
            return reason(task.exception())
        return self._fetcher.failure

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        self._fetcher.close()
        if not await stop_cleanly(self.client.stop, seconds):
            # The connections; their closing can be what did not end in time.
            await stop_cleanly(self.client._client.close, seconds)
