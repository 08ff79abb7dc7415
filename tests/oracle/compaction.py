"""What compaction explains, by brute force: one message and one hole at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .judge import HORIZON, shown_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from mirrortest.wire.stream import StreamId

    from .judge import Message, Passed

Of = TypeVar("Of", bound="Hashable")
"""Any identifier of a message."""


class Partition(NamedTuple):
    """All messages seen in a partition by place, and the places of its holes."""

    seen: dict[int, Message]
    holes: frozenset[int]

    @classmethod
    def of(
        cls, stood: Mapping[int, Message], passed: Iterable[Passed], markers: Collection[int] = ()
    ) -> Partition:
        """From the passed offsets; places that were read without a message are markers or holes."""
        shown = {at for stretch in passed for at in shown_offsets(stretch)}
        read = {at for stretch in passed if not stretch.blind for at in range(*stretch[:2])}
        seen = {at: stood[at] for at in sorted(shown) if at in stood}
        return cls(seen, frozenset(read - stood.keys() - set(markers)))

    def holes_before(self, place: int) -> int:
        """How many holes precede a place."""
        return sum(at < place for at in self.holes)

    def of_stream(self, stream: StreamId) -> dict[int, int]:
        """A stream's seqs, each with the place of its first copy."""
        first: dict[int, int] = {}
        for at, message in self.seen.items():
            if message.stream == stream:
                first.setdefault(message.seq, at)
        return first


Missing = dict["StreamId", tuple[set[int], set[int]]]
"""Stream -> its missing seqs, and those of them that are not in flight."""


def concerned(
    stream: StreamId, partitions: Mapping[int, Partition], homes: Collection[int]
) -> set[int]:
    """The partitions that may have contained a stream."""
    seen_in = {n for n, each in partitions.items() if each.of_stream(stream)}
    return {*seen_in, *homes} or set(partitions)


def explained(
    missing: Missing, partitions: Mapping[int, Partition], homes: Mapping[StreamId, Collection[int]]
) -> dict[StreamId, tuple[set[int], set[int]]]:
    """The missing seqs that destination compaction removed, and those that may be in holes."""
    found: dict[StreamId, tuple[set[int], set[int]]] = {s: (set(), set()) for s in missing}
    for number, each in partitions.items():
        if not each.holes:
            continue
        mine = [s for s in missing if number in concerned(s, partitions, homes.get(s, ()))]
        holes = {
            (stream, seq): choice
            for stream in mine
            for seq, choice in _holes_between(stream, missing[stream], each).items()
        }
        competing = in_competition(holes)
        for stream, seq in holes:
            if (stream, seq) not in competing:
                found[stream][0].add(seq)
            elif seq in missing[stream][1]:
                found[stream][1].add(seq)
        used = Counter(
            stream.lane
            for stream, seq in holes.keys() - competing
            if seq in missing[stream][1]
            and {n for n, p in partitions.items() if p.of_stream(stream)} | {*homes.get(stream, ())}
            == {number}
        )
        for stream in mine:
            if used[stream.lane] < len(each.holes):
                found[stream][1].update(missing[stream][1])
    return found


def in_competition(holes: Mapping[Of, range]) -> set[Of]:
    """The messages that get no hole in some maximum matching of messages and holes.

    Augmenting paths find one maximum matching. A message can be left without a hole instead of
    another one if alternating paths lead from that one to it.
    """
    by_hole: dict[int, Of] = {}

    def reached(message: Of, passed: set[int]) -> bool:
        """Whether it gets a hole, if others move to other holes; all holes tried are `passed`."""
        for hole in holes[message]:
            if hole not in passed:
                passed.add(hole)
                if hole not in by_hole or reached(by_hole[hole], passed):
                    by_hole[hole] = message
                    return True
        return False

    competing: set[Of] = set()
    for message in holes:
        reached(message, set())
    for message in holes.keys() - set(by_hole.values()):
        passed: set[int] = set()
        assert not reached(message, passed)
        competing |= {message, *(by_hole[hole] for hole in passed)}
    return competing


def _holes_between(
    stream: StreamId, missing: tuple[set[int], set[int]], partition: Partition
) -> dict[int, range]:
    """Missing seqs with holes between their neighbours -> which holes, by their order."""
    places = partition.of_stream(stream)
    of_lane = [at for at, message in partition.seen.items() if message.lane == stream.lane]
    earlier = [
        at
        for at, message in partition.seen.items()
        if (of := message.stream) is not None
        and (of[:3], of.lane) == (stream[:3], stream.lane)
        and of.incarnation < stream.incarnation
    ]
    found: dict[int, range] = {}
    for seq in missing[0]:
        lower = max((n for n in places if n < seq), default=None)
        higher = min((n for n in places if n > seq), default=None)
        if higher is None and seq not in missing[1]:
            continue
        begin = max(earlier, default=0) if lower is None else places[lower]
        end = max(of_lane, default=0) if higher is None else places[higher]
        if between := range(partition.holes_before(begin), partition.holes_before(end)):
            found[seq] = between
    return found


def removed_from_source(
    stream: StreamId, partitions: Mapping[int, Partition], homes: Collection[int]
) -> int:
    """The bound of the seqs that compaction of the source may have removed, by later messages."""
    bound = 0
    for number in concerned(stream, partitions, homes):
        if number not in partitions:
            continue
        of_lane = [m.stream for m in partitions[number].seen.values() if m.lane == stream.lane]
        own = [at for at, of in enumerate(of_lane) if of == stream]
        bound = max([bound, *(seq + 1 for seq in partitions[number].of_stream(stream))])
        for at, of in enumerate(of_lane):
            if of == stream:
                continue
            same = of is not None and of[:3] == stream[:3]
            behind = at > own[-1] if own else not same
            if behind or (same and of is not None and of.incarnation > stream.incarnation):
                bound = HORIZON
    return bound
