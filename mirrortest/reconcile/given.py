"""What the judgement is given besides rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.model.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirrortest.reconcile.coverage import UnreadRange
    from mirrortest.reconcile.hole_ranges import Holes
    from mirrortest.reconcile.overlap import Cut
    from mirrortest.verify.placement import ExpectPartition

Sender = tuple[str, int, str]
"""A producer, its incarnation, and a topic that it writes to."""


@dataclass(frozen=True)
class Given:
    """What the judgement needs besides the rows of streams.

    Attributes:
        complete: (producer, incarnation, topic) whose logs are here and complete.
        unended: senders whose logs have no end: these may have been copied while they were written.
        horizons: by topic, the time (ns) up to which acknowledged messages are due, where no log
            records what has expired.
        last_verdicts: by topic, the session whose online verdict on it is the last.
        cuts: how far the online verdicts on partitions go.
        unread: the ranges that no consumer read.
        policies: by topic, where messages belong (`session_topics.policies_of`).
        rerouted: by topic, the sessions whose rows mark what is misrouted by another policy.
        stamped: topics whose records the source's brokers stamp: no timestamp is altered there.
        counts: by topic, every partition count that its destination had.
        overlapping: whether some offsets were read more than once.
        unordered: partitions (topic, number) where the order of some incarnations is unknown.
        explaining: by topic, the finding of messages that compaction explains.
        holes: by topic and partition, the offsets that compaction may have emptied.
        source_compacted: by topic that is compacted in the source, the partitions that were read.
    """

    complete: frozenset[Sender] = frozenset()
    unended: frozenset[Sender] = frozenset()
    horizons: Mapping[str, int] = field(default_factory=dict)
    last_verdicts: Mapping[str, int] = field(default_factory=dict)
    cuts: Sequence[Cut] = ()
    unread: Sequence[UnreadRange] = ()
    policies: Mapping[str, ExpectPartition] = field(default_factory=dict)
    rerouted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    stamped: frozenset[str] = frozenset()
    counts: Mapping[str, Collection[int]] = field(default_factory=dict)
    overlapping: bool = False
    unordered: frozenset[tuple[str, int]] = frozenset()
    explaining: Mapping[str, Finding] = field(default_factory=dict)
    holes: Mapping[str, Mapping[int, Holes]] = field(default_factory=dict)
    source_compacted: Mapping[str, Collection[int]] = field(default_factory=dict)

    @property
    def joined(self) -> frozenset[str]:
        """The topics whose lanes are judged together; `Parts.joined` has them, too."""
        return frozenset(t for t, each in self.explaining.items() if each is Finding.COMPACTED)

    def can_be_cut(self, topic: str) -> bool:
        """Whether a part of a stream's numbers can be judged without the others (`slices`)."""
        doubtful = topic in self.explaining or any(each.topic == topic for each in self.unread)
        return not doubtful and self.policies.get(topic) != "any"
