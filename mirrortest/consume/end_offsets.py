"""Where the destination ended when it was looked at, and whether all that stood there was read."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mirrortest.kafka.fetched import Place
from mirrortest.verify.loss import read_past
from mirrortest.verify.partition import PartitionChecker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.kafka.fetched import End

At: TypeAlias = tuple[str, int]
"""(destination topic, partition)"""
Places: TypeAlias = dict[At, Place]
"""How far each partition has been judged."""
Views: TypeAlias = dict[str, dict[int, PartitionChecker]]
"""Destination topic -> partition -> its newest checker."""
Ends: TypeAlias = dict[str, dict[int, int]]
"""Destination topic -> partition -> the offset after its last record."""


class EndOffsetSnapshot(NamedTuple):
    """Where the destination ended; `at_ns`: when that was asked for, in ns since the epoch.

    `elapsed_ns` is a time of the monotonic clock just before: what was overdue then had its chance.
    An end that may be of another log than the one that was read is left out, and in `doubts`.
    """

    ends: Ends
    at_ns: int
    elapsed_ns: int = 0
    stable: Ends | None = None
    """Up to where each partition's transactions have all ended, where that is not its end."""
    doubts: Mapping[At, str] = MappingProxyType({})
    """Of each partition whose end is left out, why."""

    @classmethod
    def of(
        cls,
        at_ns: int,
        elapsed_ns: int,
        topics: Iterable[str],
        read: Places,
        found: Mapping[At, End],
        unproven: Collection[At] = (),
    ) -> EndOffsetSnapshot:
        """What was found of these topics; `read` is how far each partition has been judged.

        Of the `unproven` it is not known yet whether what is there now is what was judged.
        """
        ends: Ends = {topic: {} for topic in topics}
        stable: Ends = {}
        doubts: dict[At, str] = {}
        for at, end in found.items():
            topic, number = at
            known = read.get(at, Place(0)).topic_id
            if known and end.topic_id and known != end.topic_id:
                doubts[at] = (
                    f"{topic}-{number} was deleted and created again, and not read anew yet"
                )
            elif not end.agrees:
                doubts[at] = f"{topic}-{number} was cut back, and not read anew yet"
            elif at in unproven:
                doubts[at] = f"{topic}-{number}: what was judged last is not compared yet"
            else:
                ends[topic][number] = end.offset
                if end.stable_offset < end.offset:
                    stable.setdefault(topic, {})[number] = end.stable_offset
        return cls(ends, at_ns, elapsed_ns, stable, doubts)

    def blocked_by_transactions(self, views: Views) -> list[str]:
        """The partitions that were read as far as an open transaction lets anybody read."""
        return [
            f"{topic}-{number}"
            for topic, there in sorted((self.stable or {}).items())
            for number, stable in sorted(there.items())
            if number in views[topic]
            and views[topic][number].next_offset >= stable
            and not read_past(views[topic], {number: self.ends[topic][number]})
        ]

    def lowered(self, ends: Ends) -> EndOffsetSnapshot:
        """As of the partitions that there are now; no end lies behind what is told of it now."""
        return self._replace(
            ends={
                topic: {n: min(end, self.ends.get(topic, {}).get(n, end)) for n, end in now.items()}
                for topic, now in ends.items()
            }
        )

    def passed(self, views: Views) -> bool:
        """Whether all that stood there has been read."""
        return all(read_past(views[topic], ends) for topic, ends in self.ends.items())

    def raised(self, views: Views) -> EndOffsetSnapshot:
        """With what was read beyond it: that stood there, too."""
        ends = {
            topic: {
                n: max(end, views[topic][n].next_offset) if n in views[topic] else end
                for n, end in there.items()
            }
            for topic, there in self.ends.items()
        }
        return self._replace(ends=ends)
