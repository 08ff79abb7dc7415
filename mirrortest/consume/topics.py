"""Which destination topics are judged, and how many partitions they have by now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import structlog

from mirrortest.check.deadline import Deadlines
from mirrortest.consume.judging import TopicJudge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.check.ledger import Ledger
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.kafka.admin import Admin

_log = structlog.get_logger()


class Topics:
    """The topics that the user named, or that match the pattern, each with its judge.

    A topic has a judge as soon as it is wanted: one that the mirror never makes is judged, too.
    """

    def __init__(self, options: ConsumeOptions, admin: Admin, ledger: Ledger) -> None:
        self._options = options
        self._admin = admin
        self._ledger = ledger
        self.counts: dict[str, int] = {}
        """Destination topic -> its partitions; only those that exist."""
        self.judges: dict[str, TopicJudge] = {}
        self._in_force: dict[str, list[int]] = {}

    async def discover(self) -> None:
        """Look for topics and partitions that have come since. Raises ClusterError."""
        options = self._options
        if options.topics:
            self.counts = await self._admin.partition_counts(options.topics)
        else:
            self.counts = await self._admin.matching(self.pattern)
        wanted = dict.fromkeys((*options.topics, *self.counts, *self._vouched()))
        sources = options.mapping.sources_of(wanted)
        for topic in wanted:
            if topic not in self.judges:
                self.judges[topic] = TopicJudge(
                    sources[topic],
                    options.run,
                    options.expect_partition,
                    Deadlines(int(options.deadline * 1e9)),
                )
                if topic not in self.counts:
                    _log.warning("topic not there yet: the mirror has not made it", topic=topic)
            self.judges[topic].destination_partitions = self.counts.get(topic, 0)
        for topic, count in self.counts.items():
            self.in_force(topic, (count,))

    def in_force(self, topic: str, counts: Iterable[int] = ()) -> list[int]:
        """Every partition count that a topic is known to have had, these added.

        It is one list that grows: where partitions are added, what was mirrored before stays in
        its place, and what comes now may stand in another.
        """
        known = self._in_force.setdefault(topic, [])
        known += [count for count in counts if count not in known]
        return known

    @property
    def pattern(self) -> str:
        """The user's pattern, without our own topics and the mirror's heartbeats."""
        options = self._options
        ledger = options.mapping.destination_of(options.ledger_topic)
        heartbeats = options.mapping.destination_of("heartbeats")
        ours = "|".join(map(re.escape, (ledger, options.state_topic, heartbeats)))
        return f"(?!(?:{ours})$)(?:{options.topic_pattern})"

    def _vouched(self) -> set[str]:
        """Topics that match the pattern and that the ledger tells of, copied or not."""
        if self._options.topic_pattern is None:
            return set()
        wanted = re.compile(self.pattern)
        told = {s.topic for s in self._ledger.lanes if s.run == self._options.run}
        topics = map(self._options.mapping.destination_of, told)
        return {topic for topic in topics if wanted.fullmatch(topic)}
