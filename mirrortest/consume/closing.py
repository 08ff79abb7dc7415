"""Up to where the destination is read before a run is over.

Each consumer asks for the ends at a time of its own, and other runs may go on writing to the topic.
A consumer that has ended reads up to no later end. So consumers share the snapshots that they took
when every acknowledged message had a verdict, and for the partitions of others the lowest end
counts that any consumer saw. It was seen when all was judged, so it suffices; and the lowest of
several is the same in any order of their records, by any clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify import untrusted
from mirrortest.verify.loss import ended_earlier, read_past

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.end_offsets import EndOffsetSnapshot, Views
    from mirrortest.consume.saves import Saves
    from mirrortest.consume.topic_judge import TopicRound

LedgerSize: TypeAlias = tuple[int, int]
"""How much the ledger has of a topic: lanes, and acknowledged numbers. It only grows."""
TopicRounds: TypeAlias = "dict[str, TopicRound]"
"""Destination topic -> its part of a judging round."""


class ClosingSnapshot(NamedTuple):
    """Where a topic's partitions ended when every acknowledged message had a verdict.

    `ledger_size` is how much the ledger had then; `ends` are by partition; `at_ns` is when they
    were asked for, ns since the epoch, by the clock of the consumer that asked first.
    """

    ledger_size: LedgerSize
    ends: Mapping[int, int]
    at_ns: int

    def joined(self, other: ClosingSnapshot | None) -> ClosingSnapshot:
        """What counts of two, in whichever order: the ledger's later state, then the lower ends."""
        if other is None or other.ledger_size < self.ledger_size:
            return self
        if other.ledger_size > self.ledger_size:
            return other
        both = {**other.ends, **self.ends}
        ends = {number: min(end, other.ends.get(number, end)) for number, end in both.items()}
        return ClosingSnapshot(self.ledger_size, ends, min(self.at_ns, other.at_ns))

    def to_state(self) -> dict[str, Any]:
        """As JSON's types."""
        return {
            "mark": list(self.ledger_size),
            "ends": [[number, end] for number, end in sorted(self.ends.items())],
            "at_ns": self.at_ns,
        }

    @classmethod
    def from_state(cls, state: object) -> ClosingSnapshot:
        """Read what `to_state` wrote; RecordError where it is no such state."""
        fields = untrusted.mapped(state)
        lanes, acked = untrusted.listed(untrusted.entry(fields, "mark"), 2)
        ends = (
            untrusted.listed(end, 2) for end in untrusted.listed(untrusted.entry(fields, "ends"))
        )
        return cls(
            (untrusted.number(lanes), untrusted.number(acked)),
            {
                untrusted.number(partition, 0, untrusted.COUNTS_END): untrusted.number(end)
                for partition, end in ends
            },
            untrusted.number(untrusted.entry(fields, "at_ns")),
        )


class Closing:
    """Decides when the destination has been read far enough."""

    def __init__(self, context: ConsumerContext, saves: Saves) -> None:
        self._context = context
        self._saves = saves
        self._own: EndOffsetSnapshot | None = None
        """Our own snapshot, since which every acknowledged message has had a verdict."""
        self.snapshot: EndOffsetSnapshot | None = None
        """The ends to be read up to: our own of our partitions, the lowest seen of others'."""
        self.unread: set[TopicPartition] = set()
        """Others' partitions that are still to be read, or to be read anew."""

    def passed(
        self, views: Views, now: EndOffsetSnapshot, rounds: TopicRounds, *, all_judged: bool
    ) -> bool:
        """Whether all is read that was in the destination when `all_judged` began to hold.

        Later ends do not count: others may go on writing to the topic, and other consumers save
        their states from time to time, or have ended.
        """
        if all_judged:
            if self._own is None or now.passed(views):
                self._own = now
            self._own = self._own.lowered(now.ends)
            self.snapshot = self._shared(self._own, rounds)
        else:
            self._own = self.snapshot = None
        self.unread = self._unread(views, self.snapshot or now) | self._replaced(views, now)
        return self.snapshot is not None and self.snapshot.passed(views)

    def _shared(self, own: EndOffsetSnapshot, rounds: TopicRounds) -> EndOffsetSnapshot:
        """Share our own snapshot, and lower others' partitions to what others saw."""
        ends, at_ns = dict(own.ends), own.at_ns
        for topic, topic_round in rounds.items():
            judge, size = self._context.topics.judges[topic], topic_round.ledger_size
            if topic not in own.ends:
                continue  # it decides nothing
            before = judge.closing
            judge.close(ClosingSnapshot(size, own.ends[topic], own.at_ns))
            if judge.closing != before:
                self._saves.request()
            shared = judge.closing
            # Records that another consumer's ledger has reach ours, too.
            if shared is None or shared.ledger_size != size:
                continue
            ends[topic] = {
                number: end
                if TopicPartition(topic, number) in self._context.partitions
                else min(end, shared.ends.get(number, end))
                for number, end in own.ends[topic].items()
            }
            if ends[topic] != own.ends[topic]:
                at_ns = min(at_ns, shared.at_ns)
        return own._replace(ends=ends, at_ns=at_ns)

    def _unread(self, views: Views, snapshot: EndOffsetSnapshot) -> set[TopicPartition]:
        return {
            TopicPartition(topic, number)
            for topic, ends in snapshot.ends.items()
            for number, end in ends.items()
            if TopicPartition(topic, number) not in self._context.partitions
            and not read_past(views[topic], {number: end})
        }

    def _replaced(self, views: Views, now: EndOffsetSnapshot) -> set[TopicPartition]:
        """Others' partitions whose log is not the one that was read: it must be read anew."""
        shorter = {
            TopicPartition(topic, number)
            for topic, ends in now.ends.items()
            for number in ended_earlier(views[topic], ends)
        }
        return (shorter | now.doubts.keys()) - self._context.partitions.keys()
