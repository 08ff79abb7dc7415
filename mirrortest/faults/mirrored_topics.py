"""Finds the topics to mirror, creates their copies, and adds partitions as the source does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from mirrortest.errors import ClusterError, UsageError
from mirrortest.faults.selection import Selection

if TYPE_CHECKING:
    from mirrortest.faults.options import FaultyMirrorOptions
    from mirrortest.kafka.admin import Admin

_log = structlog.get_logger()

_KEPT_CONFIGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""The configurations that a copy takes over from the source topic."""


class MirroredTopics:
    """The mirrored topics.

    Attributes:
        partitions: the source's topics and their partition counts.
        faithful: those on which only acts that name them fall: the ledger, and compacted topics.
    """

    def __init__(self, options: FaultyMirrorOptions, source: Admin, destination: Admin) -> None:
        self._options = options
        self._source = source
        self._destination = destination
        self.partitions: dict[str, int] = {}
        self.faithful: set[str] = set()

    async def refresh(self) -> list[tuple[str, int]]:
        """Create the copies of new topics and partitions; returns these partitions.

        Raises:
            UsageError: an act names a partition that its topic does not have.
        """
        counts = await self._source.matching(".*")
        new = {
            topic: count
            for topic, count in counts.items()
            if self._options.mirrors(topic) and count > self.partitions.get(topic, 0)
        }
        added: list[tuple[str, int]] = []
        for topic, count in sorted(new.items()):
            before = self.partitions.get(topic, 0)
            await self._copy(topic, count)
            self.partitions[topic] = count
            added += ((topic, number) for number in range(before, count))
        for topic in new:
            self._check(topic)
        return added

    def selection(self, topic: str, partition: int) -> Selection:
        """The acts that can fall on a partition."""
        return Selection(self._options.spec, topic, partition, faithful=topic in self.faithful)

    async def _copy(self, topic: str, count: int) -> None:
        """Create a topic's copy if it is missing, or add its missing partitions."""
        configs: dict[str, str] = {}
        try:
            found = await self._source.topic_config(topic)
            configs = {name: found[name] for name in _KEPT_CONFIGS if name in found}
        except ClusterError as error:  # DescribeConfigs is a separate permission
            _log.warning("cannot read the configuration of a topic", topic=topic, why=str(error))
        policy = configs.get("cleanup.policy", "")
        if topic == self._options.ledger_topic or policy.strip() == "compact":
            self.faithful.add(topic)
        copy = self._options.mapping.destination_of(topic)
        existing = (await self._destination.partition_counts([copy])).get(copy)
        if existing is None:
            await self._destination.create_topic(copy, count, configs=configs)
            _log.info("created a copy", topic=topic, copy=copy, partitions=count)
        elif existing < count:
            await self._destination.add_partitions(copy, count)
            _log.info("added partitions to a copy", topic=topic, copy=copy, partitions=count)

    def _check(self, topic: str) -> None:
        count = self.partitions[topic]
        for index, act in enumerate(self._options.spec.acts):
            if act.to_partition is None or act.to_partition < count:
                continue
            if any(each is act for each in self.selection(topic, act.partition or 0).acts):
                raise UsageError(
                    f"acts.{index} ({act.kind}): to_partition is {act.to_partition}, but {topic} "
                    f"has {count} partitions"
                )
