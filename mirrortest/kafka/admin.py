"""What is asked of a cluster beside sending and reading: topics, offsets, configuration."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer, errors
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrortest.errors import TopicMissingError, UsageError
from mirrortest.kafka.access import access
from mirrortest.kafka.client import (
    cluster_error,
    cluster_errors,
    connection,
    request_error,
    start,
)
from mirrortest.kafka.error_table import Code
from mirrortest.kafka.stopping import ended
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mirrortest.config.client import ClientConfig

T = TypeVar("T")

_STOP_SECONDS = 2.0
_LATE_SECONDS = 10.0


def topic_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that must match a topic's whole name, as in Kafka's own tools.

    Raises:
        UsageError: it is no regular expression.
    """
    try:
        return re.compile(rf"(?:{pattern})\Z")
    except re.error as error:
        raise UsageError(f"topic pattern {pattern!r} is no regular expression: {error}") from None


async def _controlled(request: Awaitable[T]) -> T:
    """What a cluster's controller answers; a retriable error while there is none."""
    try:
        return await request
    except AttributeError as error:
        # So aiokafka trips where brokers that have just come back know of no controller.
        raise errors.NotControllerError("the cluster has no controller now") from error


class Admin:
    """One cluster's administration, as an async context manager.

    Methods raise ClusterError (UnreachableError, TopicMissingError) where the cluster does not
    answer within `request.timeout.ms`, or refuses.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._client: Any = None
        self._consumer: Any = None
        self._ask_for_all = False
        """Whether the question for a missing topic could have it made."""
        self._expected: dict[str, float] = {}
        """Topic -> until when (monotonic seconds) a broker that knows no such topic is late."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect.

        Raises:
            UnreachableError: no bootstrap server answers.
        """
        self._ask_for_all = access(self._config).ASKING_MAKES_TOPICS
        client = AIOKafkaAdminClient(**connection(self._config))
        await start(self._config, client, client.close)
        self._client = client

    async def close(self) -> None:
        """Disconnect; may be called again."""
        consumer, self._consumer = self._consumer, None
        client, self._client = self._client, None
        if consumer is not None:
            await ended(consumer.stop, _STOP_SECONDS)
        if client is not None:
            await ended(client.close, _STOP_SECONDS)

    async def cluster_id(self) -> str:
        """The cluster's own id."""
        described = await self._asked("asking for the cluster's id", self._client.describe_cluster)
        return str(described["cluster_id"])

    async def broker_count(self) -> int:
        """How many brokers there are."""
        described = await self._asked("asking for the brokers", self._client.describe_cluster)
        return len(described["brokers"])

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; those that do not exist are left out."""
        wanted = sorted(set(topics))
        return await self._counts(wanted) if wanted else {}

    async def partitions(self, topic: str) -> list[int] | None:
        """A topic's partition numbers; None where it does not exist."""
        count = (await self.partition_counts([topic])).get(topic)
        return None if count is None else list(range(count))

    async def matching(self, pattern: str) -> dict[str, int]:
        """Partition counts of all topics whose whole name matches, internal ones left out.

        Raises:
            UsageError: the pattern is no regular expression.
        """
        compiled = topic_pattern(pattern)
        counts = await self._counts(None)
        return {topic: count for topic, count in counts.items() if compiled.match(topic)}

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic and wait until it can be used; whether it was missing before.

        A replication factor of -1 leaves it to the brokers.
        """
        return topic in await self.create_topics(
            {topic: partitions}, replication_factor=replication_factor, configs=configs
        )

    async def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> set[str]:
        """Make topics (name -> partitions) and wait for them; the names of those that are new."""
        doing = f"making {', '.join(topics)}"
        request = [
            NewTopic(name, count, 1, topic_configs=dict(configs or {}))
            for name, count in topics.items()
        ]
        for topic in request:
            # Set afterwards, for NewTopic refuses the -1 that brokers since 2.4 understand.
            topic.replication_factor = replication_factor

        async def create() -> set[str]:
            response = await _controlled(self._client.create_topics(request))
            made = set()
            for name, code, *message in response.topic_errors:
                if code == errors.TopicAlreadyExistsError.errno:
                    continue
                if code:
                    raise errors.for_code(code)(f"{name}: {message[0] if message else ''}")
                made.add(name)
            return made

        made = await self._asked(doing, create)
        await self._asked(doing, lambda: self._usable(topics))
        self.expect(*topics)
        return made

    def expect(self, *topics: str) -> None:
        """Know that these topics are there: brokers hear of one that was just made one by one.

        For a few seconds those that do not know it yet are asked again.
        """
        seconds = min(_LATE_SECONDS, self._config.request_timeout_ms / 2000)
        self._expected |= dict.fromkeys(topics, time.monotonic() + seconds)

    async def add_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to `total` and wait until the new ones can be used."""
        doing = f"adding partitions to {topic}"
        request = {topic: NewPartitions(total)}
        await self._asked(doing, lambda: _controlled(self._client.create_partitions(request)))

        async def grown() -> None:
            # The metadata may be older than the answer.
            if (await self._counts_once([topic])).get(topic, 0) < total:
                raise errors.LeaderNotAvailableError(f"{topic} has not grown yet")
            await self._usable({topic: total})

        await self._asked(doing, grown)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is gone from the metadata."""
        doing = f"deleting {topic}"

        async def delete() -> None:
            response = await _controlled(self._client.delete_topics([topic]))
            for _, code, *_ in response.topic_error_codes:
                if code:
                    raise errors.for_code(code)(topic)

        async def gone() -> None:
            if topic in await self._counts_once([topic]):
                raise errors.LeaderNotAvailableError(f"{topic} is still there")

        self._expected.pop(topic, None)
        await self._asked(doing, delete)
        await self._asked(doing, gone)

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete a partition's records below an offset; its new beginning offset."""
        at = KafkaPartition(topic, partition)
        await self._require([at])
        low = await self._asked(
            f"deleting records of {topic}-{partition}",
            lambda: self._client.delete_records({at: RecordsToDelete(before_offset)}),
        )
        return int(low[at])

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still holds."""
        return await self._offsets(partitions, "beginning_offsets")

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record, open transactions included."""
        return await self._offsets(partitions, "end_offsets")

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's whole configuration, defaults included.

        Raises:
            TopicMissingError: there is no such topic.
        """

        async def describe() -> dict[str, str]:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (response,) = await self._client.describe_configs([resource])
            ((code, message, _, _, entries),) = response.resources
            if code:
                raise errors.for_code(code)(message)
            return {entry[0]: entry[1] for entry in entries if entry[1] is not None}

        return await self._asked(f"asking for the configuration of {topic}", describe)

    async def cleanup_policy(self, topic: str) -> frozenset[str]:
        """A topic's `cleanup.policy`: of `delete` and `compact`.

        Raises:
            TopicMissingError: there is no such topic.
        """
        policy = (await self.topic_config(topic)).get("cleanup.policy", "delete")
        return frozenset(word.strip() for word in policy.split(","))

    # -- asking ---------------------------------------------------------------------------------

    async def _asked(self, doing: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, for as long as `request.timeout.ms`."""
        deadline = time.monotonic() + self._config.request_timeout_ms / 1000
        while True:
            try:
                return await ask()
            except (errors.KafkaError, OSError) as error:
                met = request_error(error)
                missing = met.code == Code.UNKNOWN_TOPIC_OR_PARTITION
                if missing or not met.row.retriable or time.monotonic() >= deadline:
                    raise cluster_error(self._config, doing, error) from error
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _counts(self, topics: list[str] | None) -> dict[str, int]:
        async def ask() -> dict[str, int]:
            counts, now = await self._counts_once(topics), time.monotonic()
            late = [
                topic
                for topic in topics or ()
                if topic not in counts and now < self._expected.get(topic, 0)
            ]
            if late:
                raise errors.LeaderNotAvailableError(", ".join(late))
            return counts

        return await self._asked("asking for topics", ask)

    async def _counts_once(self, topics: list[str] | None) -> dict[str, int]:
        described = await self._client.describe_topics(None if self._ask_for_all else topics)
        counts = {}
        for topic in described:
            if topics is not None and topic["topic"] not in topics:
                continue
            code = topic["error_code"]
            if code in {0, errors.LeaderNotAvailableError.errno}:
                if topics is not None or not topic["is_internal"]:
                    counts[topic["topic"]] = len(topic["partitions"])
            elif code != errors.UnknownTopicOrPartitionError.errno:
                raise errors.for_code(code)(topic["topic"])
        return {topic: count for topic, count in counts.items() if count}

    async def _usable(self, topics: Mapping[str, int]) -> None:
        """Raise a retriable error until every partition of these topics has a leader."""
        for topic in await self._client.describe_topics(list(topics)):
            leaders = [part["leader"] for part in topic["partitions"] if not part["error_code"]]
            # A topic that was there before keeps its own count: that is not for us to wait for.
            if topic["error_code"] or not leaders or min(leaders) < 0:
                raise errors.LeaderNotAvailableError(topic["topic"])

    async def _require(self, partitions: Iterable[KafkaPartition]) -> None:
        """Raise TopicMissingError now, where aiokafka would wait for the partition to appear."""
        counts = await self.partition_counts(at.topic for at in partitions)
        for at in partitions:
            if at.partition >= counts.get(at.topic, 0):
                raise TopicMissingError(
                    f"{at.topic}-{at.partition} does not exist at "
                    f"{','.join(self._config.bootstrap_servers)}"
                )

    async def _offsets(
        self, partitions: Iterable[tuple[str, int]], method: str
    ) -> dict[TopicPartition, int]:
        wanted = [KafkaPartition(*at) for at in partitions]
        if not wanted:
            return {}
        await self._require(wanted)
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**connection(self._config), enable_auto_commit=False)
            await start(self._config, consumer, consumer.stop)
            self._consumer = consumer
        with cluster_errors(self._config, "asking for offsets"):
            offsets = await getattr(self._consumer, method)(wanted)
        return {TopicPartition(*at): int(offset) for at, offset in offsets.items()}
