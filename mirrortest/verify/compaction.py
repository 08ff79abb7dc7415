"""Which missing messages compaction explains: the specification and its implementation.

Compaction removes a message once its partition has a later message with the same key. In the
destination this leaves a hole: an offset without a record that is neither a transaction marker nor
part of an aborted transaction. Keys are lanes, so all messages of a stream have one key.

| holes for a missing message | finding |
|---|---|
| enough holes in its gap | compacted |
| some holes in its gap, but too few | inconclusive, once it is overdue |
| none in its gap, but an unused one elsewhere in a partition where its stream was seen or belongs \
| inconclusive, once it is overdue |
| no unused hole | lost, once that is proven |

The *gap* of a missing message in a partition is between the first copies of its neighbours: the
greatest seq below it and the least seq above it of its stream that were seen there. Without a lower
neighbour, the gap begins after everything seen of the producer's earlier incarnations in this lane.
Without a higher neighbour, it ends where the key was last seen, on any message, and only overdue
messages count as missing in it. The missing seqs of one gap are explained together: only if the gap
has at least as many holes. The same holds for all gaps of a lane in a partition together: if they
need more holes than there are before the place where the key was last seen, some messages are lost,
but it is unknown which.

A mirror may write out of order, and compaction may then remove the evidence. The later message that
caused a removal may itself have been removed. So a hole elsewhere causes doubt, but it explains
nothing. (Suppose a mirror wrote message A out of order, so that A left its hole in the gap of
message B, and lost B. Then A is called lost in place of B: the number of lost messages is right,
the seq is not.)

Compaction of the source leaves no holes in the destination. Only a later message with the same key
shows it there.
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
    """The missing seqs of a stream, and those of them that are no longer in flight.

    `homes` are the partitions where the stream belongs; empty: unknown.
    """

    numbers: IntervalSet
    due: IntervalSet
    homes: Collection[int] = ()


class Explained(NamedTuple):
    """The seqs of a stream that compaction removed, and overdue ones that it may have removed."""

    removed: IntervalSet
    doubtful: IntervalSet


def explained(
    lane: int, missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> dict[StreamId, Explained]:
    """Which missing seqs of a lane's streams compaction of the destination explains."""
    removed = dict.fromkeys(missing, NOTHING)
    doubtful = dict.fromkeys(missing, NOTHING)
    for number, checker in index.checkers.items():
        if not checker.holes:
            continue
        concerned = {s: m for s, m in missing.items() if number in partitions_of(s, m.homes, index)}
        last = max(
            checker.key_seen(lane).holes,
            *(fragment.holes for _, fragment in _of_lane(lane, number, index)),
            0,
        )
        found = {s: _explained_in_gaps(its, s, number, last, index) for s, its in concerned.items()}
        count = sum(fitting.count for fitting, _ in found.values())
        all_fit = count <= last
        is_left = not all_fit or count < checker.holes
        for stream, (fitting, crowded) in found.items():
            removed[stream] |= fitting if all_fit else NOTHING
            doubtful[stream] |= missing[stream].due if is_left else crowded
    return {stream: Explained(removed[stream], doubtful[stream]) for stream in missing}


def partitions_of(
    stream: StreamId, homes: Collection[int], index: FragmentIndex
) -> Collection[int]:
    """The partitions that may have contained a stream: where it was seen and where it belongs."""
    return {*index.seen(stream), *homes} or index.checkers.keys()


def _of_lane(lane: int, number: int, index: FragmentIndex) -> list[tuple[StreamId, Fragment]]:
    """Each stream of a lane that was seen in a partition, with its fragment there."""
    each = ((stream, index.seen(stream).get(number)) for stream in index.of_lane(lane))
    return [(stream, fragment) for stream, fragment in each if fragment is not None]


def _explained_in_gaps(
    missing: Missing, stream: StreamId, number: int, last: int, index: FragmentIndex
) -> tuple[IntervalSet, IntervalSet]:
    """The seqs with enough holes in their gaps in a partition, and the overdue ones with too few.

    `last` is the number of holes before the place where the key was last seen.
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
        in_gap = (missing.due if hi is None else missing.numbers).within(lo, done)
        begin = counts.at(lo - 1) if lo else earlier
        end = last if hi is None else counts.at(hi)
        if in_gap.count <= end - begin:
            fitting.update(in_gap)
        elif begin < end:
            crowded.update(in_gap & missing.due)
    return fitting, crowded


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
