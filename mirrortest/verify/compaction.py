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
some of them are lost, but it is unknown which. A key has certainly *used* a hole only with an
overdue message that has enough holes, and can be in no other partition.

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
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

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


def explained(
    number: int, missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> Generator[None, None, dict[StreamId, Explained]]:
    """Which missing seqs compaction of a destination partition explains, computed in small steps.

    `missing` has all streams of the topic of which seqs are missing and may be in the partition.
    """
    checker: PartitionChecker = index.checkers[number]
    gaps: list[Gap] = []
    of_gap: list[tuple[StreamId, IntervalSet, IntervalSet]] = []
    fragments: dict[int, list[tuple[StreamId, Fragment]]] = {}
    for stream, its in missing.items():
        if stream.lane not in fragments:
            fragments[stream.lane] = _of_lane(stream.lane, number, index)
        for gap, seqs, due in _gaps(its, stream, checker, fragments[stream.lane]):
            gaps.append(gap)
            of_gap.append((stream, seqs, due))
        yield
    removed = {stream: IntervalSet() for stream in missing}
    doubtful = {stream: IntervalSet() for stream in missing}
    contested, used = contested_gaps(gaps), Counter[int]()
    for at, (stream, seqs, due) in enumerate(of_gap):
        if at in contested:
            doubtful[stream].update(due)
            continue
        removed[stream].update(seqs)
        if {*index.seen(stream), *missing[stream].homes} == {number}:
            used[stream.lane] += due.count
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
    unseen = list(range(len(given) + 1))
    """For each piece of `given` the next one that no competitor has reached, itself included."""
    while short:
        at = short.pop()
        if at in contested:
            continue
        contested.add(at)
        piece = _next(unseen, bisect_right(ends, gaps[at].begin))
        while piece < len(given) and given[piece][0] < gaps[at].end:
            short.append(given[piece][2])
            unseen[piece] = piece + 1
            piece = _next(unseen, piece)
    return contested


def _next(left: list[int], number: int) -> int:
    """The least number left that is not below this one; shortens the way for later calls."""
    while left[number] != number:
        left[number] = left[left[number]]
        number = left[number]
    return number


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
    missing: Missing,
    stream: StreamId,
    checker: PartitionChecker,
    of_lane: Sequence[tuple[StreamId, Fragment]],
) -> Iterator[tuple[Gap, IntervalSet, IntervalSet]]:
    """The gaps with holes of a stream's missing seqs in a partition; the seqs of each, those due.

    `of_lane` has the partition's fragments of the stream's lane.
    """
    seen, counts, earlier = NOTHING, HoleCounts(), 0
    last = checker.key_seen(stream.lane).holes
    for other, its in of_lane:
        last = max(last, its.holes)
        if other == stream:
            seen, counts = its.seen, its.holes_before or counts
        elif other[:3] == stream[:3] and other.incarnation < stream.incarnation:
            earlier = max(earlier, its.holes)
    done = 0
    for first, _ in missing.numbers.intervals():
        if first < done:
            continue
        lo, hi = seen.around(first)
        done = ALWAYS if hi is None else hi
        begin, end = counts.at(lo - 1) if lo else earlier, last if hi is None else counts.at(hi)
        due = missing.due.within(lo, done)
        seqs = due if hi is None else missing.numbers.within(lo, done)
        if seqs and begin < end:
            yield Gap(begin, end, seqs.count), seqs, due


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
