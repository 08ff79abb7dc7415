"""Which destination topics are judged, and how many partitions they have by now."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.errors import ClusterError, UsageError
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.loss import Losses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.consume.end_offsets import Views
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.kafka.admin import Admin
    from mirrortest.verify.ledger import Ledger

_log = structlog.get_logger()

_POLICY_SECONDS = 30.0
_MOST_NAMES = 10
INTERNAL = (
    r"__.*",  # Kafka's own
    r"(?:.*[.])?mm2-.*[.]internal",  # MirrorMaker 2's: offset syncs, and its worker's three
    r".*[.]checkpoints[.]internal",
    r"connect-(?:configs|offsets|status)",
)
"""What no pattern is meant to match: brokers' and mirrors' own topics. `--topics` can name them."""


class JudgedTopics:
    """The topics that the user named, or that match the pattern, each with its judge.

    A topic has a judge as soon as it is wanted: one that the mirror never makes is judged, too.
    A topic that matches the pattern and is no copy by the user's own rules is left out.
    """

    def __init__(self, options: ConsumeOptions, admin: Admin, ledger: Ledger) -> None:
        self._options = options
        self._admin = admin
        self._ledger = ledger
        self.counts: dict[str, int] = {}
        """Destination topic -> its partitions; only those that exist."""
        self.judges: dict[str, TopicJudge] = {}
        self.policy_hidden: set[str] = set()
        """Destination topics of which the cluster does not say whether it compacts them."""
        self.stamped: set[str] = set()
        """Destination topics whose brokers stamp the records that were read."""
        self._policy_asked: dict[str, float] = {}
        self._in_force: dict[str, list[int]] = {}
        self._there: Mapping[str, int] = {}
        """What the last look found, at `_looked_ns`; 0: there was none."""
        self._looked_ns = 0
        self._absent_ns: dict[TopicPartition, int] = {}
        self._counted_ns: dict[str, int] = {}
        """When each topic's partitions were last counted anew, ns since the epoch."""
        self._nothing_matched = False
        """Whether it was logged that the pattern matches no topic yet."""
        self._left_out: set[str] = set()
        self._missing: set[str] = set()
        self._returned: set[str] = set()

    async def discover(self) -> None:
        """Look for topics and partitions that have come since. Raises ClusterError."""
        options, before, asked_ns = self._options, self.counts, time.time_ns()
        if options.topics:
            self.counts = there = await self._admin.partition_counts(options.topics)
            wanted = dict.fromkeys(options.topics)
            sources = options.mapping.sources_of(wanted)
        else:
            there = await self._admin.matching(self.pattern)
            sources = self._with_unique_source((*there, *self._topics_in_ledger()))
            self.counts = {topic: there[topic] for topic in there if topic in sources}
            wanted = dict.fromkeys(sources)
            if not wanted and not self._nothing_matched:
                self._nothing_matched = True
                await self._warn_of_no_match()
        for topic, count in there.items():
            for number in range(self._there.get(topic, 0), count):
                self._absent_ns[TopicPartition(topic, number)] = self._looked_ns
        self._there, self._looked_ns = there, asked_ns
        for topic in wanted:
            if topic not in self.judges:
                self.judges[topic] = TopicJudge(
                    sources[topic],
                    options.run,
                    options.expect_partition,
                    Losses(int(options.deadline * 1e9)),
                    self.in_force(topic),
                )
                if topic not in self.counts:
                    _log.warning(
                        "the topic does not exist yet: the mirror has not created it", topic=topic
                    )
            if topic in self.counts:
                await self._ask_policy(topic)
        for topic, count in self.counts.items():
            self.in_force(topic, (count,))
        back = self._missing & self.counts.keys()
        self._missing = (self._missing | before.keys()) - self.counts.keys()
        self._returned |= back

    @property
    def compacted(self) -> set[str]:
        """Destination topics that some consumer of the run saw to be compacted, at any time."""
        return {topic for topic, judge in self.judges.items() if judge.compact}

    def may_compact(self, topic: str) -> bool:
        """Whether a destination topic is, or was, or for all that is known may be compacted."""
        return self.judges[topic].compact or topic in self.policy_hidden

    async def _warn_of_no_match(self) -> None:
        """Log what the cluster has, since the pattern may be wrong; the mirror may also be late."""
        there = sorted(await self._admin.matching(self._without_internal(".*")))
        more = f" and {len(there) - _MOST_NAMES} more" if len(there) > _MOST_NAMES else ""
        _log.warning(
            "no topic matches --topic-pattern yet: waiting for one. The pattern must match a "
            "topic's complete name",
            pattern=self._options.topic_pattern,
            topics=", ".join(there[:_MOST_NAMES]) + more or "none",
        )

    @property
    def stamped_at_source(self) -> set[str]:
        """Destination topics whose records the source's brokers stamp."""
        return {topic for topic, judge in self.judges.items() if judge.stamped_at_source}

    def absent_ns(self, at: TopicPartition) -> int:
        """When a partition was looked for last, and not there: all in it came later; 0: unknown."""
        return self._absent_ns.get(at, 0)

    def returned(self) -> set[str]:
        """Topics that were missing and exist again, each returned once."""
        returned, self._returned = self._returned, set()
        return returned

    async def _ask_policy(self, topic: str) -> None:
        """See whether a topic is compacted, now and then: what was so once may have left gaps."""
        now = time.monotonic()
        asked = self._policy_asked.get(topic)
        if self.judges[topic].compact or (asked is not None and now - asked < _POLICY_SECONDS):
            return
        try:
            policy = await self._admin.cleanup_policy(topic)
        except TRANSIENT_ERRORS:
            raise
        except ClusterError as error:
            # Describing a topic's configuration is a permission of its own.
            if asked is None:
                _log.warning("cannot see whether the topic is compacted", why=str(error))
            policy = frozenset()
            self.policy_hidden.add(topic)
        else:
            self.policy_hidden.discard(topic)
        self._policy_asked[topic] = now
        if "compact" in policy:
            self.judges[topic].compact = True

    async def recount(self, topic: str, since_ns: int) -> None:
        """Ask how many partitions a topic has, unless that was done after `since_ns`.

        Raises ClusterError.
        """
        asked_ns = time.time_ns()
        # (A clock that was set back since proves nothing.)
        if since_ns < self._counted_ns.get(topic, 0) <= asked_ns:
            return
        self.in_force(topic, (await self._admin.partition_counts([topic])).values())
        self._counted_ns[topic] = asked_ns

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
        """The user's pattern, without our own topics and those of brokers and mirrors."""
        return self._without_internal(self._options.topic_pattern)

    def _without_internal(self, pattern: str | None) -> str:
        options = self._options
        to_destination = options.mapping.destination_of
        ours = (
            options.state_topic,
            # A mirror that copies everything may bring another data centre's states, too.
            *map(to_destination, (options.ledger_topic, options.state_topic)),
            "heartbeats",
            to_destination("heartbeats"),
        )
        left_out = "|".join((*map(re.escape, ours), *INTERNAL))
        return f"(?!(?:{left_out})\\Z)(?:{pattern})"

    def _with_unique_source(self, topics: Iterable[str]) -> dict[str, str]:
        """The source's name of each topic that has one to itself; the others are logged once.

        Such a topic may come at any time: it ends no run.
        """
        taken = {judge.source: topic for topic, judge in self.judges.items()}
        sources: dict[str, str] = {}
        for topic in dict.fromkeys((*self.judges, *topics)):
            try:
                source = self._options.mapping.source_of(topic)
            except UsageError as error:
                self._leave_out(topic, str(error))
                continue
            other = taken.setdefault(source, topic)
            if other == topic:
                sources[topic] = source
            else:
                self._leave_out(topic, f"{other!r} is judged as the copy of {source!r} already")
        return sources

    def _leave_out(self, topic: str, why: str) -> None:
        if topic not in self._left_out:
            self._left_out.add(topic)
            _log.warning("topic left out, though it matches the pattern", topic=topic, why=why)

    @property
    def recorded(self) -> set[str]:
        """The source topics that the ledger has records of: producers of the run write to them."""
        return {stream.topic for stream in self._ledger.lanes_of(self._options.run)}

    def of_run(self, views: Views) -> set[str]:
        """The topics that the ledger or a message of the run is about: others match a pattern."""
        recorded = self.recorded
        return {
            topic
            for topic, checkers in views.items()
            if self.judges[topic].source in recorded
            or any(checker.fragments for checker in checkers.values())
        }

    def _topics_in_ledger(self) -> set[str]:
        """Topics that match the pattern and have records in the ledger, copied or not."""
        if self._options.topic_pattern is None:
            return set()
        wanted = re.compile(self.pattern)
        topics = map(self._options.mapping.destination_of, self.recorded)
        return {topic for topic in topics if wanted.fullmatch(topic)}
