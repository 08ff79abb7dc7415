"""What compaction explains of what is missing: the specification, and what carries it out.

Compaction removes a message once a later one of its key stands behind it in its partition. In the
destination it leaves a hole: an offset without a record, which is neither a transaction's marker
nor of an aborted one. Keys are lanes, so all messages of a stream have one key.

| a missing message | is |
|---|---|
| for which there are holes enough in its place | compacted |
| for which there are holes in its place, and too few | inconclusive, once it is overdue |
| for which there are none, but a hole is left elsewhere in a partition where its stream was seen, \
or belongs | inconclusive, once it is overdue |
| for which no hole is left | lost, once that is proven |

*Its place* in a partition is between the first copies of its neighbours: the greatest number below
it, and the least above it, of those of its stream that were seen there. Without a number below, it
begins behind all that was seen of the producer's earlier incarnations in this lane. Without one
above, it ends where the key was seen last, on whatever message, and a missing message is in its
place only once it is overdue. Numbers of one place are explained together, if it has as many holes.
So are the numbers of all places of a lane in a partition: where these are more than the holes
before its key was seen last, some are lost, and which ones cannot be known.

A mirror may write out of order, and compaction then removes what would show it; and what deleted a
key may have been deleted itself. So a hole elsewhere is a doubt, and a doubt is no explanation.
(Where a mirror did both, and lost a message in the place of just as many holes, one that it wrote
out of order is called lost in its stead: how many are lost is right, and which one is not.)

Compaction of the source leaves no holes in the destination: there a later message of the key is all
that shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.fragment import ALWAYS, HoleCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.fragment_index import FragmentIndex
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


class Missing(NamedTuple):
    """What is missing of a stream, and which of it is not in flight any more.

    `homes` are the partitions where it belongs; none: unknown.
    """

    numbers: IntervalSet
    due: IntervalSet
    homes: Collection[int] = ()


class Explained(NamedTuple):
    """What compaction removed of a stream, and which overdue ones it may have removed."""

    removed: IntervalSet
    doubtful: IntervalSet


def explained(
    lane: int, missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> dict[StreamId, Explained]:
    """What compaction of the destination explains of what is missing of a lane's streams."""
    removed = dict.fromkeys(missing, NOTHING)
    doubtful = dict.fromkeys(missing, NOTHING)
    for number, checker in index.checkers.items():
        if not checker.holes:
            continue
        concerned = {s: m for s, m in missing.items() if number in places(s, m.homes, index)}
        last = max(
            checker.key_seen(lane).holes,
            *(fragment.holes for _, fragment in _of_lane(lane, number, index)),
            0,
        )
        found = {s: _in_place(its, s, number, last, index) for s, its in concerned.items()}
        count = sum(fitting.count for fitting, _ in found.values())
        all_fit = count <= last
        is_left = not all_fit or count < checker.holes
        for stream, (fitting, crowded) in found.items():
            removed[stream] |= fitting if all_fit else NOTHING
            doubtful[stream] |= missing[stream].due if is_left else crowded
    return {stream: Explained(removed[stream], doubtful[stream]) for stream in missing}


def places(stream: StreamId, homes: Collection[int], index: FragmentIndex) -> Collection[int]:
    """The partitions that may have held a stream: where it was seen, and where it belongs."""
    return {*index.seen(stream), *homes} or index.checkers.keys()


def _of_lane(lane: int, number: int, index: FragmentIndex) -> list[tuple[StreamId, Fragment]]:
    """What a partition shows of each stream of a lane."""
    each = ((stream, index.seen(stream).get(number)) for stream in index.of_lane(lane))
    return [(stream, fragment) for stream, fragment in each if fragment is not None]


def _in_place(
    missing: Missing, stream: StreamId, number: int, last: int, index: FragmentIndex
) -> tuple[IntervalSet, IntervalSet]:
    """The numbers for which a partition has holes in their places, and those with too few there.

    The latter as far as they are overdue; `last`: the holes up to where the key was seen last.
    """
    fragment = index.seen(stream).get(number)
    seen, counts = NOTHING, HoleCounts()
    if fragment is not None:
        seen, counts = fragment.seen, fragment.holes_before or counts
    earlier = max(
        (
            its.holes
            for other, its in _of_lane(stream.lane, number, index)
            if other[:3] == stream[:3] and other.incarnation < stream.incarnation
        ),
        default=0,
    )
    fitting, crowded, done = IntervalSet(), IntervalSet(), 0
    for first, _ in missing.numbers.intervals():
        if first < done:
            continue
        lo, hi = seen.around(first)
        done = ALWAYS if hi is None else hi
        here = (missing.due if hi is None else missing.numbers).within(lo, done)
        begin = counts.at(lo - 1) if lo else earlier
        end = last if hi is None else counts.at(hi)
        if here.count <= end - begin:
            fitting.update(here)
        elif begin < end:
            crowded.update(here & missing.due)
    return fitting, crowded


# -- compaction of the source ---------------------------------------------------------------------


def removed_from_source(stream: StreamId, homes: Collection[int], index: FragmentIndex) -> int:
    """The bound below which compaction of the source explains what is missing; 0: none of it.

    A later message of the key was seen: of the stream itself; or, for the last ones, any other
    (see `_superseded`).
    """
    mine = index.seen(stream)
    if any(_superseded(stream, n, index) for n in places(stream, homes, index)):
        return ALWAYS
    return max((its.seen.end for its in mine.values()), default=0)


def _superseded(stream: StreamId, number: int, index: FragmentIndex) -> bool:
    """Whether a message of the stream's key, not of the stream, may come after its last here.

    That is one after what was seen of the stream; any of a later incarnation; and where
    nothing was seen of it, any at all but those of earlier incarnations.
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
            behind = its.last_place > last
        else:
            behind = other.incarnation > stream.incarnation or 0 <= last < its.last_place
        if behind:
            return True
    return False
