"""Which topics there are to mirror, and their copies: made, and grown, as the source's are."""

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
"""What a copy takes over of the source topic's configuration."""


class MirroredTopics:
    """The mirrored topics.

    Attributes:
        partitions: the source's topics and their partition counts.
        faithful: those that are left alone: the ledger, and what is compacted.
    """

    def __init__(self, options: FaultyMirrorOptions, source: Admin, destination: Admin) -> None:
        self._options = options
        self._source = source
        self._destination = destination
        self.partitions: dict[str, int] = {}
        self.faithful: set[str] = set()

    async def refresh(self) -> list[tuple[str, int]]:
        """Look for new topics and partitions, and make their copies; those that are new.

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
        """The acts that may fall on a partition."""
        return Selection(self._options.spec, topic, partition, faithful=topic in self.faithful)

    async def _copy(self, topic: str, count: int) -> None:
        """See to it that the copy is there, with at least as many partitions."""
        configs: dict[str, str] = {}
        try:
            found = await self._source.topic_config(topic)
            configs = {name: found[name] for name in _KEPT_CONFIGS if name in found}
        except ClusterError as error:  # describing a configuration is a permission of its own
            _log.warning("a topic's configuration cannot be seen", topic=topic, why=str(error))
        policy = configs.get("cleanup.policy", "")
        if topic == self._options.ledger_topic or policy.strip() == "compact":
            self.faithful.add(topic)
        copy = self._options.mapping.destination_of(topic)
        there = (await self._destination.partition_counts([copy])).get(copy)
        if there is None:
            await self._destination.create_topic(copy, count, configs=configs)
            _log.info("made a copy", topic=topic, copy=copy, partitions=count)
        elif there < count:
            await self._destination.add_partitions(copy, count)
            _log.info("a copy grows", topic=topic, copy=copy, partitions=count)

    def _check(self, topic: str) -> None:
        count = self.partitions[topic]
        for index, act in enumerate(self._options.spec.acts):
            if act.to_partition is None or act.to_partition < count:
                continue
            if any(each is act for each in self.selection(topic, act.partition or 0).acts):
                raise UsageError(
                    f"acts.{index} ({act.kind}): {topic} has {count} partitions, and there is no "
                    f"partition {act.to_partition}"
                )
