"""The fragments of a topic's partitions by stream, found without asking each partition."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mirrortest.verify.fragment import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


class FragmentIndex:
    """The fragments of one topic by stream, as of when its partitions were added.

    A stream is in one partition or a few: with 150 partitions, asking each about each stream took
    most of a round.
    """

    def __init__(self) -> None:
        self._checkers: dict[int, PartitionChecker] = {}
        self._fragments: dict[StreamId, dict[int, Fragment]] = {}
        self._unsure: list[int] = []
        """Partitions that may have had streams of which they have no fragment."""
        self._of_lane: dict[int, list[StreamId]] | None = None

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
        """Partition -> its fragment of a stream, as `PartitionChecker.fragment` gives it."""
        found = self._fragments.get(stream, {})
        if not self._unsure:
            return found
        unsure = {n: self._checkers[n].fragment(stream) for n in self._unsure if n not in found}
        return found | {n: fragment for n, fragment in unsure.items() if fragment is not None}

    def explained_below(
        self, stream: StreamId, homes: Collection[int] = (), *, at_source: bool = False
    ) -> int:
        """The bound below which compaction explains what is missing of a stream; 0: none of it.

        Compaction may remove a message once one of its key comes after it: a later one of its
        stream, or, for the last ones, too, any other of the key (see `_superseded`). What it took
        from the destination left holes in the offsets, where they were read; what it took from the
        source (`at_source`) did not.
        """
        explaining = {n for n, checker in self._checkers.items() if at_source or checker.holed}
        mine = self._fragments.get(stream, {})
        concerned = {*mine, *homes} if mine or homes else explaining
        if any(self._superseded(stream, n) for n in explaining & concerned):
            return ALWAYS
        return max((its.seen.end for n, its in mine.items() if n in explaining), default=0)

    def _superseded(self, stream: StreamId, number: int) -> bool:
        """Whether a message of the stream's key, not of the stream, may come after its last here.

        That is one after what was seen of the stream; any of a later incarnation; and where
        nothing was seen of it, any at all but those of earlier incarnations.
        """
        mine = self._fragments.get(stream, {}).get(number)
        last = -1 if mine is None else mine.last_place
        if self._checkers[number].key_seen(stream.lane) > last:
            return True
        if self._of_lane is None:
            self._of_lane = defaultdict(list)
            for other in self._fragments:
                self._of_lane[other.lane].append(other)
        for other in self._of_lane.get(stream.lane, ()):
            its = self._fragments[other].get(number)
            if other == stream or its is None:
                continue
            if other[:3] != stream[:3]:
                behind = its.last_place > last
            else:
                behind = other.incarnation > stream.incarnation or 0 <= last < its.last_place
            if behind:
                return True
        return False
