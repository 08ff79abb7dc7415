"""Cluster administration: topics, offsets, configuration."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from mirrortest.config.client_config import IsolationLevel
from mirrortest.errors import TopicMissingError, UsageError
from mirrortest.kafka.connecting import start
from mirrortest.kafka.error_table import (
    Code,
    RequestError,
    addresses,
    cluster_error,
    cluster_errors,
)
from mirrortest.kafka.library import library
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import AdminPort, Configuration, ConsumerPort, Operation

T = TypeVar("T")

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's own default of `max.message.bytes`."""
_STOP_SECONDS = 2.0
_PROPAGATION_SECONDS = 10.0
_UNANSWERED = frozenset({Code.NO_ANSWER, Code.NOT_CONNECTED, Code.REQUEST_TIMED_OUT})


def topic_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that must match a topic's complete name, as in Kafka's own tools.

    Raises:
        UsageError: the pattern is not a regular expression.
    """
    try:
        return re.compile(rf"(?:{pattern})\Z")
    except re.error as error:
        raise UsageError(
            f"topic pattern {pattern!r} is not a regular expression: {error}"
        ) from None


def stamps_records(configuration: Mapping[str, str]) -> bool:
    """Whether a topic's configuration makes brokers set the record timestamps."""
    return configuration.get("message.timestamp.type") == "LogAppendTime"


class Admin:
    """The admin client of one cluster, an async context manager.

    Methods raise ClusterError (UnreachableError, TopicMissingError) if the cluster refuses, or does
    not answer within `request.timeout.ms`.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._client: AdminPort | None = None
        self._consumer: ConsumerPort | None = None
        self._ask_for_all = False
        """Whether to describe all topics: naming a missing topic could create it."""
        self._expected: dict[str, float] = {}
        """Topic -> until when (monotonic seconds) some broker might not list it yet."""

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
        used = library(self._config)
        self._ask_for_all = used.METADATA_CREATES_TOPICS
        client = used.admin(self._config)
        await start(self._config, client, "connecting")
        self._client = client

    async def close(self) -> None:
        """Disconnect; a second call does nothing."""
        consumer, self._consumer = self._consumer, None
        client, self._client = self._client, None
        for each in (consumer, client):
            if each is not None:
                await each.stop(_STOP_SECONDS)

    async def cluster_id(self) -> str:
        """The cluster's id."""
        cluster_id, _ = await self._retry(
            "asking for the cluster's id", self._started.describe_cluster
        )
        return cluster_id

    async def broker_count(self) -> int:
        """The number of brokers in the cluster."""
        _, brokers = await self._retry("asking for the brokers", self._started.describe_cluster)
        return brokers

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each topic; missing topics are left out."""
        wanted = sorted(set(topics))
        return await self._counts(wanted) if wanted else {}

    async def partitions(self, topic: str) -> list[int] | None:
        """A topic's partition numbers; None if the topic does not exist."""
        count = (await self.partition_counts([topic])).get(topic)
        return None if count is None else list(range(count))

    async def leaderless(self, topics: Iterable[str]) -> set[TopicPartition]:
        """The partitions of these topics that have no leader now."""
        client, wanted = self._started, sorted(set(topics))
        if not wanted:
            return set()
        described = await self._retry(
            "asking for leaders",
            lambda: client.describe_topics(None if self._ask_for_all else wanted),
        )
        return {
            TopicPartition(topic.name, number)
            for topic in described
            if topic.name in wanted
            for number, leader in enumerate(topic.leaders)
            if leader < 0
        }

    async def matching(self, pattern: str) -> dict[str, int]:
        """The partition counts of all topics whose complete name matches, without internal topics.

        Raises:
            UsageError: the pattern is not a regular expression.
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
        """Create a topic and wait until it has leaders; return whether it was missing before.

        With a replication factor of -1, brokers use their default.
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
        """Create topics (name -> partitions), wait for leaders, return the new topics' names."""
        client, doing = self._started, f"creating {', '.join(topics)}"
        created = await self._retry(
            doing, lambda: client.create_topics(topics, replication_factor, configs or {})
        )
        await self._retry(doing, lambda: self._check_leaders(topics))
        self.expect(*topics)
        return created

    def expect(self, *topics: str) -> None:
        """Expect these topics to exist: brokers learn of a new topic at different times.

        For a few seconds, a topic that a broker does not list is requested again.
        """
        seconds = min(_PROPAGATION_SECONDS, self._config.request_timeout_ms / 2000)
        self._expected |= dict.fromkeys(topics, time.monotonic() + seconds)

    async def add_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to `total` and wait until all partitions have leaders."""
        client, doing = self._started, f"adding partitions to {topic}"
        await self._change(
            doing, lambda: client.create_partitions(topic, total), Code.INVALID_PARTITIONS
        )

        async def wait_until_grown() -> None:
            # A broker's metadata may be older than the controller's response.
            if (await self._counts_once([topic])).get(topic, 0) < total:
                raise _no_leader(f"{topic} has not grown yet")
            await self._check_leaders({topic: total})

        await self._retry(doing, wait_until_grown)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until the metadata no longer lists it."""
        client, doing = self._started, f"deleting {topic}"

        async def wait_until_deleted() -> None:
            if topic in await self._counts_once([topic]):
                raise _no_leader(f"{topic} still exists")

        self._expected.pop(topic, None)
        await self._change(
            doing, lambda: client.delete_topic(topic), Code.UNKNOWN_TOPIC_OR_PARTITION
        )
        await self._retry(doing, wait_until_deleted)

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete a partition's records below an offset; return its new beginning offset."""
        client, at = self._started, TopicPartition(topic, partition)
        await self._require([at])
        return await self._retry(
            f"deleting records of {at}",
            lambda: client.delete_records(at, before_offset),
        )

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """The beginning offset (log start offset) of each partition."""
        wanted = [TopicPartition(*at) for at in partitions]
        if not wanted:
            return {}
        consumer = await self._offset_consumer(wanted)
        with cluster_errors(self._config, "asking for offsets"):
            return await consumer.beginning_offsets(wanted)

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record, open transactions included."""
        wanted = [TopicPartition(*at) for at in partitions]
        if not wanted:
            return {}
        consumer = await self._offset_consumer(wanted)
        with cluster_errors(self._config, "asking for offsets"):
            return await consumer.end_offsets(wanted)

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's complete configuration, defaults included.

        Raises:
            TopicMissingError: there is no such topic.
        """
        client = self._started

        async def ask() -> dict[str, str]:
            (found,) = await client.configurations([topic], brokers=False)
            if found.error is not None:
                raise found.error
            return dict(found.values)

        return await self._retry(f"asking for the configuration of {topic}", ask)

    async def configurations(
        self, topics: Iterable[str], *, brokers: bool = True
    ) -> list[Configuration]:
        """The configurations of all `brokers` and of these topics; unknown ones have an error."""
        client, wanted = self._started, sorted(set(topics))
        return await self._retry(
            "asking for configurations", lambda: client.configurations(wanted, brokers=brokers)
        )

    async def permitted_operations(self, topics: Iterable[str]) -> dict[str, frozenset[Operation]]:
        """The operations that we may do with each topic; topics with unknown ones are left out."""
        client, wanted = self._started, sorted(set(topics))
        if not wanted:
            return {}
        return await self._retry(
            "asking what is permitted", lambda: client.permitted_operations(wanted)
        )

    async def cleanup_policy(self, topic: str) -> frozenset[str]:
        """A topic's `cleanup.policy`: `delete`, `compact`, or both.

        Raises:
            TopicMissingError: there is no such topic.
        """
        policy = (await self.topic_config(topic)).get("cleanup.policy", "delete")
        return frozenset(word.strip() for word in policy.split(","))

    # -- requests -------------------------------------------------------------------------------

    async def _retry(self, doing: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request after retriable errors, for up to `request.timeout.ms`."""
        deadline = time.monotonic() + self._config.request_timeout_ms / 1000
        while True:
            try:
                return await ask()
            except RequestError as error:
                missing = error.code == Code.UNKNOWN_TOPIC_OR_PARTITION
                if missing or not error.traits.retriable or time.monotonic() >= deadline:
                    raise cluster_error(self._config, doing, error) from error
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _change(self, doing: str, ask: Callable[[], Awaitable[None]], done: Code) -> None:
        """Repeat a request for a change; its response can be lost after the change was made.

        `done` is then the error of the next try.
        """
        unanswered = False

        async def once() -> None:
            nonlocal unanswered
            try:
                await ask()
            except RequestError as error:
                if unanswered and error.code == done:
                    return
                unanswered |= error.code in _UNANSWERED
                raise

        await self._retry(doing, once)

    async def _counts(self, topics: list[str] | None) -> dict[str, int]:
        async def ask() -> dict[str, int]:
            counts, now = await self._counts_once(topics), time.monotonic()
            unlisted = [
                topic
                for topic in topics or ()
                if topic not in counts and now < self._expected.get(topic, 0)
            ]
            if unlisted:
                raise _no_leader(", ".join(unlisted))
            return counts

        return await self._retry("asking for topics", ask)

    async def _counts_once(self, topics: list[str] | None) -> dict[str, int]:
        counts = {}
        for topic in await self._started.describe_topics(None if self._ask_for_all else topics):
            if topics is not None and topic.name not in topics:
                continue
            if topic.error is None or topic.error.code == Code.LEADER_NOT_AVAILABLE:
                if topics is not None or not topic.internal:
                    counts[topic.name] = topic.partitions
            elif topic.error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic.error
        return {topic: count for topic, count in counts.items() if count}

    async def _check_leaders(self, topics: Mapping[str, int]) -> None:
        """Raise a retriable error until every partition of these topics has a leader."""
        for topic in await self._started.describe_topics(list(topics)):
            if topic.error and not topic.error.traits.retriable:
                raise topic.error
            # A topic that existed before keeps its partition count, so do not compare the count.
            if topic.error or not topic.leaders or min(topic.leaders) < 0:
                raise _no_leader(topic.name)

    async def _require(self, partitions: list[TopicPartition]) -> None:
        """Raise TopicMissingError at once; a client would wait for the partition to appear."""
        counts = await self.partition_counts(at.topic for at in partitions)
        for at in partitions:
            if at.partition >= counts.get(at.topic, 0):
                raise TopicMissingError(f"{at} does not exist at {addresses(self._config)}")

    async def _offset_consumer(self, partitions: list[TopicPartition]) -> ConsumerPort:
        """The consumer that requests offsets, after a check that these partitions exist."""
        await self._require(partitions)
        if self._consumer is None:
            # End offsets include open transactions, whatever the application's isolation level.
            config = replace(self._config, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            consumer = library(config).consumer(config)
            await start(config, consumer, "connecting")
            self._consumer = consumer
        return self._consumer

    @property
    def _started(self) -> AdminPort:
        if self._client is None:
            raise RuntimeError("the admin client was not started")
        return self._client


def _no_leader(about: str) -> RequestError:
    return RequestError(Code.LEADER_NOT_AVAILABLE, f"LEADER_NOT_AVAILABLE {about}")
