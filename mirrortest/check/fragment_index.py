"""What all partitions of a topic know of a stream, found without asking each of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.check.fragment import Fragment
    from mirrortest.check.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


class FragmentIndex:
    """The fragments of one topic by stream, as of when its partitions were added.

    A stream stands in one partition or a few: of 150, to ask each about each stream took most of a
    round.
    """

    def __init__(self) -> None:
        self._checkers: dict[int, PartitionChecker] = {}
        self._fragments: dict[StreamId, dict[int, Fragment]] = {}
        self._unsure: list[int] = []
        """Partitions that may have held streams which they do not know."""
        self._of_lane: dict[int, list[StreamId]] | None = None

    @classmethod
    def of(cls, checkers: Mapping[int, PartitionChecker]) -> FragmentIndex:
        """Of these partitions."""
        index = cls()
        for number, checker in checkers.items():
            index.add(number, checker)
        return index

    def add(self, number: int, checker: PartitionChecker) -> None:
        """Take in a partition."""
        self._checkers[number] = checker
        self._of_lane = None
        for stream, fragment in checker.fragments.items():
            at = self._fragments.get(stream)
            if at is None:
                self._fragments[stream] = {number: fragment}
            else:
                at[number] = fragment
        if checker.unsure:
            self._unsure.append(number)

    @property
    def streams(self) -> Sequence[StreamId]:
        """All that were seen anywhere."""
        return list(self._fragments)

    def fragments(self, stream: StreamId) -> dict[int, Fragment]:
        """Partition -> what it knows of a stream, as `PartitionChecker.fragment` tells it."""
        known = self._fragments.get(stream, {})
        if not self._unsure:
            return known
        unsure = {n: self._checkers[n].fragment(stream) for n in self._unsure if n not in known}
        return known | {n: fragment for n, fragment in unsure.items() if fragment is not None}

    def superseded(self, stream: StreamId) -> bool:
        """Whether a later message of the same key was seen in another stream.

        In a compacted topic that explains why this stream's last messages are gone. Later is what
        stands behind this stream's last in the same partition, and any later incarnation's of the
        same producer; of a stream seen nowhere, another producer's messages explain nothing.
        """
        if self._of_lane is None:
            self._of_lane = defaultdict(list)
            for other in self._fragments:
                self._of_lane[other.lane].append(other)
        mine = stream[:3]
        held = self._fragments.get(stream, {})
        for other in self._of_lane.get(stream.lane, ()):
            if other == stream:
                continue
            if other[:3] == mine and other.incarnation > stream.incarnation:
                return True
            for number, its in self._fragments[other].items():
                if number in held and its.last_place > held[number].last_place:
                    return True
        return False
