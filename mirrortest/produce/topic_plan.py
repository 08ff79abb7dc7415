"""The topics and lanes that a producer writes, compared with the cluster before it starts."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from mirrortest.errors import ClusterError, PartitionCountError, TopicMissingError
from mirrortest.kafka.admin import DEFAULT_MAX_MESSAGE_BYTES, stamps_records
from mirrortest.wire.lanes import lane_key, lane_numbers, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mirrortest.kafka.ports import Configuration
    from mirrortest.produce.options import ProduceOptions


_ANSWER_SECONDS = 3.0


class TopicAdmin(Protocol):
    """The interface of the cluster (`kafka.admin.Admin`)."""

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The partition count of each topic; those that do not exist are left out."""

    async def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> set[str]:
        """Create topics (name -> partitions); return the names of those that are new."""

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's configuration, defaults included."""

    async def configurations(
        self, topics: Iterable[str], *, brokers: bool = True
    ) -> list[Configuration]:
        """The configurations of topics, and of all `brokers`; unknown ones have an error."""


@dataclass(frozen=True)
class TopicPlan:
    """A topic and its lanes: message i goes to lane ``lanes[i % len(lanes)]``.

    There is one lane for each partition of the *destination* topic. `partitions` are the source
    partitions that the default partitioner chooses for the lanes' keys. `only_partition` leaves
    only the lanes that go to this source partition. `max_batch_bytes` is the largest batch that the
    topic accepts. `compacted`: its cleanup policy compacts it. `stamped`: brokers stamp its records
    (`message.timestamp.type=LogAppendTime`), or this producer cannot find out.
    """

    topic: str
    source_partitions: int
    destination_partitions: int
    max_batch_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compacted: bool = False
    stamped: bool = False
    only_partition: int | None = None

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """The lanes' numbers."""
        lanes = lane_numbers(self.destination_partitions)
        only = self.only_partition
        return (
            lanes
            if only is None
            else tuple(lane for lane in lanes if self._partition_of(lane) == only)
        )

    @cached_property
    def partitions(self) -> tuple[int, ...]:
        """The source partition of each lane."""
        return tuple(map(self._partition_of, self.lanes))

    def _partition_of(self, lane: int) -> int:
        return partition_of(lane_key(lane), self.source_partitions)


async def plan_topics(admin: TopicAdmin, options: ProduceOptions) -> list[TopicPlan]:
    """Look up the topics, and create those that are missing with `--create-topics`.

    Raises:
        TopicMissingError: a topic does not exist.
        PartitionCountError: a topic has another partition count than requested, or no lane goes to
            the partition of `--only-partition`.
        ClusterError: the cluster does not answer, or refuses.
    """
    counts = await admin.partition_counts(options.topics)
    missing = [topic for topic in options.topics if topic not in counts]
    create, client = options.create, options.client
    where = ",".join(client.bootstrap_servers)
    if missing and not create.create_topics:
        raise TopicMissingError(
            f"no topic {', '.join(map(repr, missing))} at {where}: create it, or add "
            "--create-topics"
        )
    if create.create_topics:
        for topic, count in counts.items():
            if create.partitions not in {None, count}:
                raise PartitionCountError(
                    f"topic {topic!r} at {where} has {count} partitions, not {create.partitions}: "
                    f"use --partitions {count}, or delete the topic"
                )
        if missing:
            await admin.create_topics(
                dict.fromkeys(missing, create.partitions or 1),
                replication_factor=create.replication_factor or -1,
                configs=create.configs,
            )
            counts = await admin.partition_counts(options.topics)
    plans = [
        TopicPlan(
            topic,
            counts[topic],
            options.destination_partitions or counts[topic],
            *await _read_configuration(admin, topic, hidden=client.acks == 0 or client.portable),
            only_partition=options.only_partition,
        )
        for topic in options.topics
    ]
    for plan in plans:
        if not plan.lanes:
            raise PartitionCountError(_why_no_lane(plan, where))
    return plans


def _why_no_lane(plan: TopicPlan, where: str) -> str:
    only, topic = plan.only_partition, plan.topic
    if only is not None and only < plan.source_partitions:
        return (
            f"--only-partition {only}: with --destination-partitions "
            f"{plan.destination_partitions} no key of {topic!r} goes there: leave that option out"
        )
    return (
        f"--only-partition {only}: topic {topic!r} at {where} has partitions 0 to "
        f"{plan.source_partitions - 1}"
    )


async def find_compacted(
    connect: Callable[[], AbstractAsyncContextManager[TopicAdmin]], topics: Collection[str]
) -> list[str]:
    """Find which of these topics are compacted now; none if the cluster does not answer."""
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(_ANSWER_SECONDS), connect() as admin:
            # One request: an answer for each topic would take too long for many topics.
            found = await admin.configurations(topics, brokers=False)
            return [each.name for each in found if _compacted(each.values)]
    return []


async def _read_configuration(
    admin: TopicAdmin, topic: str, *, hidden: bool
) -> tuple[int, bool, bool]:
    """The topic's `max.message.bytes`, and whether it is compacted and brokers stamp its records.

    Kafka's defaults if the configuration may not be read: permission to write to a topic does not
    include it. Brokers' answers also show whether they stamp records, unless these are `hidden`
    from this client: then they are taken to stamp them.
    """
    try:
        configuration = await admin.topic_config(topic)
    except ClusterError:
        return DEFAULT_MAX_MESSAGE_BYTES, False, hidden
    most = int(configuration.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))
    return most, _compacted(configuration), stamps_records(configuration)


def _compacted(configuration: Mapping[str, str]) -> bool:
    return "compact" in configuration.get("cleanup.policy", "")
