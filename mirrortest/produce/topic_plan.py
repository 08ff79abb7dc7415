"""Which topics and lanes a producer writes: checked against the cluster before anything starts."""

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

    from mirrortest.produce.options import ProduceOptions


_ASKING_SECONDS = 3.0


class TopicAdmin(Protocol):
    """What is asked of the cluster (`kafka.admin.Admin`)."""

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; those that do not exist are left out."""

    async def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> set[str]:
        """Make topics (name -> partitions); the names of those that are new."""

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's whole configuration, defaults included."""


@dataclass(frozen=True)
class TopicPlan:
    """A topic and its lanes: message i goes to lane ``lanes[i % len(lanes)]``.

    There is one lane for each partition of the *destination*'s topic; `partitions` are those of
    the source's where the default partitioner puts the lanes' keys. With `only_partition` there
    are just the lanes that go to this one of the source's. `max_batch_bytes` is the
    largest batch that the topic takes; `compacted` is whether its cleanup policy compacts it,
    `stamped` whether brokers stamp its records (`message.timestamp.type=LogAppendTime`), or nobody
    will know.
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
        return lanes if only is None else tuple(lane for lane in lanes if self._of(lane) == only)

    @cached_property
    def partitions(self) -> tuple[int, ...]:
        """The source partition of each lane."""
        return tuple(map(self._of, self.lanes))

    def _of(self, lane: int) -> int:
        return partition_of(lane_key(lane), self.source_partitions)


async def plan_topics(admin: TopicAdmin, options: ProduceOptions) -> list[TopicPlan]:
    """Look the topics up, make those that are missing if that is asked for.

    Raises:
        TopicMissingError: a topic does not exist.
        PartitionCountError: a topic has another partition count than asked for, or lacks the
            partition that all messages are to go to.
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
            *await _configured(admin, topic, hidden=client.acks == 0 or client.portable),
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


async def become_compacted(
    connect: Callable[[], AbstractAsyncContextManager[TopicAdmin]], topics: Collection[str]
) -> list[str]:
    """The topics among these that are compacted by now; none if nobody answers within seconds."""
    found = []
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(_ASKING_SECONDS), connect() as admin:
            for topic in topics:
                _, compacted, _ = await _configured(admin, topic)
                found += [topic] if compacted else []
    return found


async def _configured(
    admin: TopicAdmin, topic: str, *, hidden: bool = False
) -> tuple[int, bool, bool]:
    """The topic's `max.message.bytes`, and whether it is compacted and brokers stamp its records.

    Kafka's defaults where they are kept secret: who may write to a topic need not be allowed to
    read its configuration. Whether brokers stamp its records shows in their answers, too, if it is
    not `hidden` from this client: then they are said to.
    """
    try:
        configuration = await admin.topic_config(topic)
    except ClusterError:
        return DEFAULT_MAX_MESSAGE_BYTES, False, hidden
    most = int(configuration.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))
    compacted = "compact" in configuration.get("cleanup.policy", "")
    return most, compacted, stamps_records(configuration)
