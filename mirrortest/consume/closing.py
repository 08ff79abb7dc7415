"""Where a topic ended once all was judged: what everybody reads up to before a run is over.

Each consumer asks for the ends at a time of its own, and other runs may go on writing to the topic.
A consumer that has ended reads up to no later look. So the looks are shared, and for the partitions
of others the lowest end counts that any consumer saw. It was seen when all was judged, so it
suffices; and the lowest of several is the same in any order of their records, by any clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirrortest.verify import untrusted

if TYPE_CHECKING:
    from collections.abc import Mapping

LedgerSize: TypeAlias = tuple[int, int]
"""How much the ledger vouches for of a topic: lanes, and acknowledged numbers. It only grows."""


class ClosingSnapshot(NamedTuple):
    """Where a topic's partitions ended when all that the ledger vouched for was judged.

    `mark` is how much that was; `ends` are by partition; `at_ns` is when they were asked for, ns
    since the epoch, by the clock of the consumer that asked first.
    """

    mark: LedgerSize
    ends: Mapping[int, int]
    at_ns: int

    def joined(self, other: ClosingSnapshot | None) -> ClosingSnapshot:
        """What counts of two, in whichever order: the ledger's later state, then the lower ends."""
        if other is None or other.mark < self.mark:
            return self
        if other.mark > self.mark:
            return other
        both = {**other.ends, **self.ends}
        ends = {number: min(end, other.ends.get(number, end)) for number, end in both.items()}
        return ClosingSnapshot(self.mark, ends, min(self.at_ns, other.at_ns))

    def to_state(self) -> dict[str, Any]:
        """As JSON's types."""
        return {
            "mark": list(self.mark),
            "ends": [[number, end] for number, end in sorted(self.ends.items())],
            "at_ns": self.at_ns,
        }

    @classmethod
    def from_state(cls, state: object) -> ClosingSnapshot:
        """Read what `to_state` wrote; RecordError where it is none."""
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
