"""Which destination topics are judged, and how many partitions they have."""

from __future__ import annotations

import re
import time
from collections import deque
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
"""Topics of brokers and mirrors: --topic-pattern never matches them; --topics can name them."""


class JudgedTopics:
    """The topics that the user named, or that match the pattern, each with its judge.

    A wanted topic has a judge before it exists: a topic that the mirror never creates is judged,
    too. A topic that matches the pattern but is not a copy by the user's mapping is left out.
    """

    def __init__(self, options: ConsumeOptions, admin: Admin, ledger: Ledger) -> None:
        self._options = options
        self._admin = admin
        self._ledger = ledger
        self.counts: dict[str, int] = {}
        """Destination topic -> its partitions; only those that exist."""
        self.judges: dict[str, TopicJudge] = {}
        self.policy_hidden: set[str] = set()
        """Destination topics whose cleanup policy this consumer has no permission to see."""
        self.stamped: set[str] = set()
        """Destination topics of which records were read that the destination's brokers stamped."""
        self._policy_asked: dict[str, float] = {}
        self._in_force: dict[str, list[int]] = {}
        self._found: dict[str, int] = {}
        """Topic -> the most partitions that `discover` ever found."""
        self._looks: deque[int] = deque(maxlen=2)
        """When `discover` looked the last two times, ns since the epoch."""
        self._absent_ns: dict[TopicPartition, int] = {}
        self._counted_ns: dict[str, int] = {}
        """When `recount` last counted each topic's partitions, ns since the epoch."""
        self._nothing_matched = False
        """Whether a warning was logged that the pattern matches no topic yet."""
        self._left_out: set[str] = set()
        self._missing: set[str] = set()
        self._returned: set[str] = set()

    async def discover(self) -> None:
        """Find new topics and partitions. Raises ClusterError."""
        options, before, asked_ns = self._options, self.counts, time.time_ns()
        if options.topics:
            self.counts = found = await self._admin.partition_counts(options.topics)
            wanted = dict.fromkeys(options.topics)
            sources = options.mapping.sources_of(wanted)
        else:
            found = await self._admin.matching(self.pattern)
            sources = self._with_unique_source((*found, *self._topics_in_ledger()))
            self.counts = {topic: found[topic] for topic in found if topic in sources}
            wanted = dict.fromkeys(sources)
            if not wanted and not self._nothing_matched:
                self._nothing_matched = True
                await self._warn_of_no_match()
        self._note_absent(found, asked_ns)
        for topic in wanted:
            if topic not in self.judges:
                self.judges[topic] = TopicJudge(
                    sources[topic],
                    options.run,
                    options.expect_partition,
                    Losses(round(options.deadline * 1e9)),
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

    def _note_absent(self, found: Mapping[str, int], asked_ns: int) -> None:
        """Record of partitions found for the first time when they were last looked for in vain.

        A broker that lags may lack what existed long ago. So a partition that was ever found is not
        new, and one look in vain proves nothing.
        """
        absent_ns = self._looks[1] if len(self._looks) == 2 else 0
        for topic, count in found.items():
            before = self._found.get(topic, 0)
            for number in range(before, count):
                self._absent_ns[TopicPartition(topic, number)] = absent_ns
            self._found[topic] = max(before, count)
        self._looks.append(asked_ns)

    @property
    def compacted(self) -> set[str]:
        """Destination topics that a consumer of the run has seen compacted, at any time."""
        return {topic for topic, judge in self.judges.items() if judge.compact}

    def may_compact(self, topic: str) -> bool:
        """Whether a destination topic is or was compacted, or its cleanup policy is unknown."""
        return self.judges[topic].compact or topic in self.policy_hidden

    async def _warn_of_no_match(self) -> None:
        """Log the cluster's topics: the pattern may be wrong, or the mirror may be late."""
        found = sorted(await self._admin.matching(self._without_internal(".*")))
        more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
        _log.warning(
            "no topic matches --topic-pattern yet: waiting for one. The pattern must match a "
            "topic's complete name",
            pattern=self._options.topic_pattern,
            topics=", ".join(found[:_MOST_NAMES]) + more or "none",
        )

    @property
    def stamped_at_source(self) -> set[str]:
        """Destination topics whose records the source's brokers stamp, by producers' records."""
        return {topic for topic, judge in self.judges.items() if judge.stamped_at_source}

    def absent_ns(self, at: TopicPartition) -> int:
        """When `discover` last missed a new partition, so its records came later; 0: unknown."""
        return self._absent_ns.get(at, 0)

    def returned(self) -> set[str]:
        """Topics that were missing and exist again; each is returned by one call."""
        returned, self._returned = self._returned, set()
        return returned

    async def _ask_policy(self, topic: str) -> None:
        """Check now and then whether a topic is compacted; once it was, it may have holes."""
        now = time.monotonic()
        asked = self._policy_asked.get(topic)
        if self.judges[topic].compact or (asked is not None and now - asked < _POLICY_SECONDS):
            return
        try:
            policy = await self._admin.cleanup_policy(topic)
        except TRANSIENT_ERRORS:
            raise
        except ClusterError as error:
            # Describing a topic's configuration needs a permission of its own.
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
        """Count a topic's partitions, unless that was done since. Raises ClusterError.

        `since_ns` is in ns since the epoch.
        """
        asked_ns = time.time_ns()
        # A count from the future means that the clock was set back: count again.
        if since_ns < self._counted_ns.get(topic, 0) <= asked_ns:
            return
        self.in_force(topic, (await self._admin.partition_counts([topic])).values())
        self._counted_ns[topic] = asked_ns

    def in_force(self, topic: str, counts: Iterable[int] = ()) -> list[int]:
        """Add partition counts of a topic; the list of all counts that it is known to have had.

        Each topic has one list, which grows: when partitions are added, messages that were mirrored
        before stay where they are, and later ones may go to other partitions.
        """
        all_counts = self._in_force.setdefault(topic, [])
        all_counts += [count for count in counts if count not in all_counts]
        return all_counts

    @property
    def pattern(self) -> str:
        """The user's pattern, without mirrortest's own topics and those of brokers and mirrors."""
        return self._without_internal(self._options.topic_pattern)

    def _without_internal(self, pattern: str | None) -> str:
        options = self._options
        to_destination = options.mapping.destination_of
        ours = (
            options.state_topic,
            # A mirror that copies everything may also copy another data centre's state topic.
            *map(to_destination, (options.ledger_topic, options.state_topic)),
            "heartbeats",
            to_destination("heartbeats"),
        )
        left_out = "|".join((*map(re.escape, ours), *INTERNAL))
        return f"(?!(?:{left_out})\\Z)(?:{pattern})"

    def _with_unique_source(self, topics: Iterable[str]) -> dict[str, str]:
        """Each topic's name in the source, if no other topic has the same one.

        The other topics are logged once. They may appear at any time, so they end no run.
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
        """The source topics in the ledger's records of the run: its producers write to them."""
        return {stream.topic for stream in self._ledger.lanes_of(self._options.run)}

    def of_run(self, views: Views) -> set[str]:
        """The run's topics, by the ledger or by messages; others only match the pattern."""
        recorded = self.recorded
        return {
            topic
            for topic, checkers in views.items()
            if self.judges[topic].source in recorded
            or any(checker.fragments for checker in checkers.values())
        }

    def _topics_in_ledger(self) -> set[str]:
        """Topics that match the pattern and are in the ledger, whether they exist or not."""
        if self._options.topic_pattern is None:
            return set()
        wanted = re.compile(self.pattern)
        topics = map(self._options.mapping.destination_of, self.recorded)
        return {topic for topic in topics if wanted.fullmatch(topic)}
