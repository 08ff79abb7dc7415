"""Up to where the destination is read before a run is over.

Each consumer asks for the end offsets at its own time, and other runs may go on writing to the
topic. A consumer that has ended reads no further. So consumers share the end-offset snapshots that
they took when every acknowledged message had a verdict. For the partitions of other consumers, the
lowest shared end counts. It suffices, because every message had a verdict then. The lowest of
several ends depends neither on the order of the records nor on any clock.
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
"""How much the ledger records of a topic: lanes, and acknowledged seqs. It only grows."""
TopicRounds: TypeAlias = "dict[str, TopicRound]"
"""Destination topic -> its part of a judging round."""


class ClosingSnapshot(NamedTuple):
    """Where a topic's partitions ended when every acknowledged message had a verdict.

    `ledger_size` is the ledger's size then; `ends` are by partition; `at_ns` is when they were
    asked for, ns since the epoch, by the clock of the consumer that asked first.
    """

    ledger_size: LedgerSize
    ends: Mapping[int, int]
    at_ns: int

    def joined(self, other: ClosingSnapshot | None) -> ClosingSnapshot:
        """Join two snapshots, in any order: the larger ledger counts; if equal, the lower ends."""
        if other is None or other.ledger_size < self.ledger_size:
            return self
        if other.ledger_size > self.ledger_size:
            return other
        both = {**other.ends, **self.ends}
        ends = {number: min(end, other.ends.get(number, end)) for number, end in both.items()}
        return ClosingSnapshot(self.ledger_size, ends, min(self.at_ns, other.at_ns))

    def to_state(self) -> dict[str, Any]:
        """The snapshot in JSON's types."""
        return {
            "mark": list(self.ledger_size),
            "ends": [[number, end] for number, end in sorted(self.ends.items())],
            "at_ns": self.at_ns,
        }

    @classmethod
    def from_state(cls, state: object) -> ClosingSnapshot:
        """Read what `to_state` wrote. Raises RecordError."""
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
        """This consumer's snapshot, taken when every acknowledged message had a verdict."""
        self.snapshot: EndOffsetSnapshot | None = None
        """The ends to read up to: our own ends for our partitions, the lowest shared for others."""
        self.unread: set[TopicPartition] = set()
        """Other consumers' partitions that still have to be read, or read anew."""

    def passed(
        self, views: Views, now: EndOffsetSnapshot, rounds: TopicRounds, *, all_judged: bool
    ) -> bool:
        """Whether all is read that was in the destination when `all_judged` became true.

        Later ends do not count. Others may go on writing to the topic, and other consumers' states
        do not follow at once: they are saved from time to time, or their consumers have ended.
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
                continue  # the topic does not affect the verdict
            before = judge.closing
            judge.close(ClosingSnapshot(size, own.ends[topic], own.at_ns))
            if judge.closing != before:
                self._saves.request()
            shared = judge.closing
            # If another consumer's ledger is larger, ours will receive the missing records, too.
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
        """Other consumers' partitions whose log was replaced: it must be read anew."""
        shorter = {
            TopicPartition(topic, number)
            for topic, ends in now.ends.items()
            for number in ended_earlier(views[topic], ends)
        }
        return (shorter | now.doubts.keys()) - self._context.partitions.keys()
