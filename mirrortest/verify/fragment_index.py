"""An index of a topic's fragments by stream, over all partitions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


class FragmentIndex:
    """The fragments of one topic by stream, as they were when their partitions were added.

    A stream is in one or a few partitions. With 150 partitions, looking up each stream in each
    partition took most of a judging round.
    """

    def __init__(self) -> None:
        self.checkers: dict[int, PartitionChecker] = {}
        """partition -> its checker"""
        self._fragments: dict[StreamId, dict[int, Fragment]] = {}
        self._unsure: list[int] = []
        """Partitions that may have contained streams without having a fragment of them."""
        self._of_lane: dict[int, list[StreamId]] | None = None

    def add(self, number: int, checker: PartitionChecker) -> None:
        """Add a partition."""
        self.checkers[number] = checker
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
        """All streams that were seen in any partition."""
        return list(self._fragments)

    def fragments(self, stream: StreamId) -> dict[int, Fragment]:
        """Partition -> its `PartitionChecker.fragment` of a stream, if there is one."""
        found = self._fragments.get(stream, {})
        if not self._unsure:
            return found
        unsure = {n: self.checkers[n].fragment(stream) for n in self._unsure if n not in found}
        return found | {n: fragment for n, fragment in unsure.items() if fragment is not None}

    def seen(self, stream: StreamId) -> Mapping[int, Fragment]:
        """Partition -> its fragment of a stream, only where the stream was seen."""
        return self._fragments.get(stream, {})

    def of_lane(self, lane: int) -> Sequence[StreamId]:
        """The streams of a lane that were seen in any partition: they share one record key."""
        if self._of_lane is None:
            self._of_lane = defaultdict(list)
            for stream in self._fragments:
                self._of_lane[stream.lane].append(stream)
        return self._of_lane.get(lane, ())
