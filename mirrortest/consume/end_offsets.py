"""The end-offset snapshot: where the destination's partitions ended at one moment."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mirrortest.kafka.fetched import ReadPosition
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.loss import read_past
from mirrortest.verify.partition import PartitionChecker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.kafka.fetched import End
    from mirrortest.verify.loss import Checkers

Views: TypeAlias = dict[str, dict[int, PartitionChecker]]
"""Destination topic -> partition -> its newest checker."""
Ends: TypeAlias = dict[str, dict[int, int]]
"""Destination topic -> partition -> the offset after its last record."""


class EndOffsetSnapshot(NamedTuple):
    """Where the destination ended; `at_ns`: when it was asked for the ends, ns since the epoch.

    `elapsed_ns` is the monotonic clock just before: a message that was overdue then had its whole
    deadline. An end that may belong to another log than the one that was read is left out, with
    the reason in `doubts`.
    """

    ends: Ends
    at_ns: int
    elapsed_ns: int = 0
    stable: Ends | None = None
    """The last stable offset of each partition where it is below the end."""
    doubts: Mapping[TopicPartition, str] = MappingProxyType({})
    """Partition -> why its end is left out."""
    deleted: Collection[tuple[str, int]] = ()
    """Partitions that an earlier topic of the name had, and the recreated one does not have."""

    @classmethod
    def of(
        cls,
        at_ns: int,
        elapsed_ns: int,
        topics: Iterable[str],
        read: Mapping[tuple[str, int], ReadPosition],
        found: Mapping[tuple[str, int], End],
        unproven: Collection[TopicPartition] = (),
    ) -> EndOffsetSnapshot:
        """The snapshot of the ends `found`; `read` is how far each partition has been judged.

        In the `unproven` partitions, the last judged record must still be compared.
        """
        ids = {topic: end.topic_id for (topic, _), end in found.items() if end.topic_id}
        deleted = {
            at
            for at in read.keys() - found.keys()
            if at[0] in ids and read[at].topic_id not in {None, ids[at[0]]}
        }
        ends: Ends = {topic: {} for topic in topics}
        stable: Ends = {}
        doubts: dict[TopicPartition, str] = {}
        for (topic, number), end in found.items():
            at = TopicPartition(topic, number)
            read_id = read.get(at, ReadPosition(0)).topic_id
            if read_id and end.topic_id and read_id != end.topic_id:
                doubts[at] = (
                    f"{topic}-{number} was deleted and recreated; the new one has not been read yet"
                )
            elif not end.agrees:
                doubts[at] = f"{topic}-{number} was truncated, and has not been read again yet"
            elif at in unproven:
                doubts[at] = f"{topic}-{number}: the last judged record has not been compared yet"
            else:
                ends[topic][number] = end.offset
                if end.stable_offset < end.offset:
                    stable.setdefault(topic, {})[number] = end.stable_offset
        return cls(ends, at_ns, elapsed_ns, stable, doubts, deleted)

    def present(self, topic: str, checkers: Checkers) -> dict[int, PartitionChecker]:
        """Those of the checkers whose partitions the present topic has."""
        return {n: each for n, each in checkers.items() if (topic, n) not in self.deleted}

    def blocked_by_transactions(self, views: Views) -> list[str]:
        """The partitions that were read up to an open transaction, but not to their ends."""
        return [
            f"{topic}-{number}"
            for topic, of_topic in sorted((self.stable or {}).items())
            for number, stable in sorted(of_topic.items())
            if number in views[topic]
            and views[topic][number].next_offset >= stable
            and not read_past(views[topic], {number: self.ends[topic][number]})
        ]

    def lags(self, partitions: Iterable[AssignedPartition]) -> dict[TopicPartition, int]:
        """Offsets left to judge, by source topic and partition, where the end is known.

        What a read_committed reader cannot read yet, behind an open transaction, is not counted.
        """
        return {
            TopicPartition(each.source, each.at.partition): max(
                self._readable_end(each.at) - each.checker.next_offset, 0
            )
            for each in partitions
            if each.at.partition in self.ends.get(each.at.topic, ())
        }

    def _readable_end(self, at: TopicPartition) -> int:
        end = self.ends[at.topic][at.partition]
        return min(end, (self.stable or {}).get(at.topic, {}).get(at.partition, end))

    def lowered(self, ends: Ends) -> EndOffsetSnapshot:
        """This snapshot for the partitions in `ends`; no end is above the one in `ends`."""
        return self._replace(
            ends={
                topic: {n: min(end, self.ends.get(topic, {}).get(n, end)) for n, end in now.items()}
                for topic, now in ends.items()
            }
        )

    def passed(self, views: Views) -> bool:
        """Whether every partition has been read up to its end here."""
        return all(read_past(views[topic], ends) for topic, ends in self.ends.items())

    def raised(self, views: Views) -> EndOffsetSnapshot:
        """This snapshot with each end raised to the next offset, where more has been read."""
        ends = {
            topic: {
                n: max(end, views[topic][n].next_offset) if n in views[topic] else end
                for n, end in of_topic.items()
            }
            for topic, of_topic in self.ends.items()
        }
        return self._replace(ends=ends)
