"""Where the destination ended when it was looked at, and whether all that stood there was read."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from mirrortest.check.partition import PartitionChecker
from mirrortest.consume.judging import read_past

Views: TypeAlias = dict[str, dict[int, PartitionChecker]]
"""Destination topic -> partition -> its newest checker."""
Ends: TypeAlias = dict[str, dict[int, int]]
"""Destination topic -> partition -> the offset after its last record."""


class Look(NamedTuple):
    """Where the destination ended; `at_ns`: when that was asked for, in ns since the epoch.

    `elapsed_ns` is a time of the monotonic clock just before: what was overdue then had its chance.
    """

    ends: Ends
    at_ns: int
    elapsed_ns: int = 0

    def lowered(self, ends: Ends) -> Look:
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

    def raised(self, views: Views) -> Look:
        """With what was read beyond it: that stood there, too."""
        ends = {
            topic: {
                n: max(end, views[topic][n].next_offset) if n in views[topic] else end
                for n, end in there.items()
            }
            for topic, there in self.ends.items()
        }
        return self._replace(ends=ends)
