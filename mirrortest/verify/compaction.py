"""Which missing messages compaction explains: the specification and its implementation.

Compaction removes a message once its partition has a later message with the same key. In the
destination this leaves a hole: an offset without a record that is neither a transaction marker nor
part of an aborted transaction. Keys are lanes, so all messages of a stream have one key.

| holes for a missing message | finding |
|---|---|
| enough holes in its gap | compacted |
| some holes in its gap, but too few | inconclusive, once it is overdue |
| none in its gap, but one that its key has not used, in a partition where its stream was seen or \
belongs | inconclusive, once it is overdue |
| no hole that its key has not used | lost, once that is proven |

The *gap* of a missing message in a partition is between the first copies of its neighbours: the
greatest seq below it and the least seq above it of its stream that were seen there. Without a lower
neighbour, the gap begins after everything seen of the producer's earlier incarnations in this lane.
Without a higher neighbour, it ends where the key was last seen, on any message, and only overdue
messages count as missing in it.

A hole explains one message. Where the gaps of several messages share holes, be they of one stream
or of several lanes, an *assignment* gives each hole to at most one message. A message has *enough*
holes if every assignment of as many holes as possible gives it one. The others compete for too few:
some of them are lost, but it is unknown which.

A mirror may write out of order, and compaction may then remove the evidence. The later message that
caused a removal may itself have been removed. So a hole elsewhere causes doubt, but it explains
nothing. (Suppose a mirror wrote message A out of order, so that A left its hole in the gap of
message B, and lost B. Then A is called lost in place of B: the number of lost messages is right,
the seq is not.)

Compaction of the source leaves no holes in the destination. Only a later message with the same key
shows it there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.fragment import ALWAYS, HoleCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.fragment_index import FragmentIndex
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


class Missing(NamedTuple):
    """The missing seqs of a stream, and those of them that are no longer in flight.

    `homes` are the partitions where the stream belongs; empty: unknown.
    """

    numbers: IntervalSet
    due: IntervalSet
    homes: Collection[int] = ()


class Explained(NamedTuple):
    """The seqs of a stream that compaction removed, and overdue ones that it may have removed."""

    removed: IntervalSet = NOTHING
    doubtful: IntervalSet = NOTHING

    def __or__(self, other: Explained) -> Explained:
        """What two partitions explain together."""
        return Explained(self.removed | other.removed, self.doubtful | other.doubtful)


class Gap(NamedTuple):
    """The holes [begin, end) of a partition, by their rank, and how many messages need one."""

    begin: int
    end: int
    needed: int


def by_partition(
    missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> dict[int, dict[StreamId, Missing]]:
    """Partition with holes -> the missing seqs of the streams that it may have contained."""
    found: dict[int, dict[StreamId, Missing]] = {
        number: {} for number, checker in index.checkers.items() if checker.holes
    }
    for stream, its in missing.items():
        if its.numbers:
            for number in partitions_of(stream, its.homes, index):
                if number in found:
                    found[number][stream] = its
    return found


def explained(
    number: int, missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> dict[StreamId, Explained]:
    """Which missing seqs compaction of a destination partition explains.

    `missing` has all streams of the topic that the partition may have contained (`by_partition`).
    """
    checker: PartitionChecker = index.checkers[number]
    gaps: list[Gap] = []
    of_gap: list[tuple[StreamId, IntervalSet]] = []
    for stream, its in missing.items():
        for gap, seqs in _gaps(its, stream, number, index):
            gaps.append(gap)
            of_gap.append((stream, seqs))
    removed = {stream: IntervalSet() for stream in missing}
    doubtful = {stream: IntervalSet() for stream in missing}
    contested, used = contested_gaps(gaps), Counter[int]()
    for at, (gap, (stream, seqs)) in enumerate(zip(gaps, of_gap, strict=True)):
        if at in contested:
            doubtful[stream].update(seqs & missing[stream].due)
        else:
            removed[stream].update(seqs)
            used[stream.lane] += gap.needed
    for stream, its in missing.items():
        if used[stream.lane] < checker.holes:
            doubtful[stream] = its.due
    return {stream: Explained(removed[stream], doubtful[stream]) for stream in missing}


def contested_gaps(gaps: Sequence[Gap]) -> set[int]:
    """The indexes of the gaps that some largest assignment of holes leaves a message short of one.

    Holes are given away in their order, each to the gap that ends first of those that still need
    one: this assigns as many as possible (Glover, 1967). A gap that goes short competes with all
    gaps that were given its holes, these with those that were given theirs, and so on. So all of
    them could go short in its place, and no others.
    """
    order = sorted(range(len(gaps)), key=lambda at: gaps[at].begin)
    given: list[tuple[int, int, int]] = []
    short: list[int] = []
    waiting: list[tuple[int, int]] = []
    needed = [gap.needed for gap in gaps]
    hole, taken = 0, 0
    while waiting or taken < len(order):
        if not waiting:
            hole = max(hole, gaps[order[taken]].begin)
        while taken < len(order) and gaps[order[taken]].begin <= hole:
            heappush(waiting, (gaps[order[taken]].end, order[taken]))
            taken += 1
        end, at = waiting[0]
        if end <= hole or not needed[at]:
            heappop(waiting)
            short += [at] if needed[at] else []
            continue
        until = min(end, hole + needed[at])
        if taken < len(order):
            until = min(until, gaps[order[taken]].begin)
        given.append((hole, until, at))
        needed[at] -= until - hole
        hole = until
    contested: set[int] = set()
    ends = [until for _, until, _ in given]
    for at in short:
        if at in contested:
            continue
        contested.add(at)
        begin, end, _ = gaps[at]
        first = last = bisect_right(ends, begin)
        while True:
            if last < len(given) and given[last][0] < end:
                competitor = given[last][2]
                last += 1
            elif first and given[first - 1][1] > begin:
                first -= 1
                competitor = given[first][2]
            else:
                break
            contested.add(competitor)
            begin, end = min(begin, gaps[competitor].begin), max(end, gaps[competitor].end)
    return contested


def partitions_of(
    stream: StreamId, homes: Collection[int], index: FragmentIndex
) -> Collection[int]:
    """The partitions that may have contained a stream: where it was seen and where it belongs."""
    return {*index.seen(stream), *homes} or index.checkers.keys()


def _of_lane(lane: int, number: int, index: FragmentIndex) -> list[tuple[StreamId, Fragment]]:
    """Each stream of a lane that was seen in a partition, with its fragment there."""
    each = ((stream, index.seen(stream).get(number)) for stream in index.of_lane(lane))
    return [(stream, fragment) for stream, fragment in each if fragment is not None]


def _gaps(
    missing: Missing, stream: StreamId, number: int, index: FragmentIndex
) -> Iterator[tuple[Gap, IntervalSet]]:
    """The gaps with holes of a stream's missing seqs in a partition, and the seqs of each."""
    fragment = index.seen(stream).get(number)
    seen, counts = NOTHING, HoleCounts()
    if fragment is not None:
        seen, counts = fragment.seen, fragment.holes_before or counts
    of_lane = _of_lane(stream.lane, number, index)
    earlier = (
        its.holes
        for other, its in of_lane
        if other[:3] == stream[:3] and other.incarnation < stream.incarnation
    )
    done = 0
    for first, _ in missing.numbers.intervals():
        if first < done:
            continue
        lo, hi = seen.around(first)
        done = ALWAYS if hi is None else hi
        begin = counts.at(lo - 1) if lo else max(earlier, default=0)
        if hi is None:
            seqs = missing.due.within(lo, done)
            key_seen = index.checkers[number].key_seen(stream.lane).holes
            end = max(key_seen, *(its.holes for _, its in of_lane), 0)
        else:
            seqs = missing.numbers.within(lo, done)
            end = counts.at(hi)
        if seqs and begin < end:
            yield Gap(begin, end, seqs.count), seqs


# -- compaction of the source ---------------------------------------------------------------------


def removed_from_source(stream: StreamId, homes: Collection[int], index: FragmentIndex) -> int:
    """The bound below which compaction of the source explains missing seqs; 0: it explains none.

    It explains a seq if a later message with the key was seen: one of the stream itself or, for
    the stream's last seqs, any other (see `_superseded`).
    """
    mine = index.seen(stream)
    if any(_superseded(stream, n, index) for n in partitions_of(stream, homes, index)):
        return ALWAYS
    return max((its.seen.end for its in mine.values()), default=0)


def _superseded(stream: StreamId, number: int, index: FragmentIndex) -> bool:
    """Whether a message with the stream's key, but of another stream, may follow its last one here.

    This is any message after what was seen of the stream, and any of a later incarnation. If
    nothing of the stream was seen, it is any message except those of earlier incarnations.
    """
    checker: PartitionChecker | None = index.checkers.get(number)
    if checker is None:
        return False
    mine = index.seen(stream).get(number)
    last = -1 if mine is None else mine.last_place
    if checker.key_seen(stream.lane).place > last:
        return True
    for other, its in _of_lane(stream.lane, number, index):
        if other == stream:
            continue
        if other[:3] != stream[:3]:
            follows = its.last_place > last
        else:
            follows = other.incarnation > stream.incarnation or 0 <= last < its.last_place
        if follows:
            return True
    return False
