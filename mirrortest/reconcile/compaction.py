"""Which missing messages compaction explains, and which it leaves in doubt.

`verify.compaction` specifies the rule; this module applies it to rows, with code of its own. The
missing numbers of a gap are explained if every largest assignment gives each of them a hole. If a
topic was seen to be compacted, all its lanes compete; else nothing counts as compacted in it, and
each lane is judged by itself: a hole may be counted for several lanes, each of which is in doubt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.reconcile.homes import Homes, homes_by_stream
from mirrortest.reconcile.stream_rows import coded
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, changes, highest_before, united
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from mirrortest.reconcile.given import Given
    from mirrortest.reconcile.hole_ranges import Holes
    from mirrortest.reconcile.judgement import Copies, Judged
    from mirrortest.reconcile.stream_rows import StreamRows
    from mirrortest.reconcile.stretch import Flags, Longs

_EXPLAINED = int(Finding.LOST | Finding.IN_FLIGHT | Finding.INCONCLUSIVE)


class _Seen(NamedTuple):
    """Seen rows with keys of lanes in a partition; `stream` is `NONE` for rows of no stream.

    `first` and `last` are the offsets of each row's first and last message.
    """

    group: Longs
    stream: Longs
    seq_lo: Longs
    seq_hi: Longs
    identity: Longs
    first: Longs
    last: Longs


class _Ranks(NamedTuple):
    """How many holes precede messages of seen rows, if a gap ends there or begins there."""

    end_first: Longs
    end_last: Longs
    begin_last: Longs


class _Lane(NamedTuple):
    """Counts of holes in a partition.

    `begin`: by stream, the holes before the last message seen of its producer's earlier
    incarnations in this lane. `last`: by group, the holes before the last message with its key.
    """

    begin: Longs
    last: Longs


def explained(rows: StreamRows, copies: Copies, judged: Judged, given: Given) -> Judged:
    """Apply to the judgement what compaction explains."""
    topics = rows.streams.topics
    as_what = np.array([int(given.explaining.get(topic, 0)) for topic in topics], dtype=np.int64)
    missing = judged.is_acked & ~judged.seen
    if not as_what.any() or not missing.any():
        return judged
    homes = homes_by_stream(rows, given)
    removed = missing & _removed_from_source(rows, copies, judged, given, homes)
    doubtful = np.zeros(len(removed), dtype=bool)
    for topic, partitions in given.holes.items():
        for partition, found in partitions.items() if topic in topics else ():
            code = topics.index(topic)
            possible = _possible_streams(rows, copies, code, partition, homes)
            concerned = missing & possible[judged.spans.key]
            if concerned.any():
                holes = found
                if given.overlapping:
                    # Another session may have read a message there before compaction.
                    holes = found.without(_seen_offsets(rows, code, partition))
                taken, left = _in_partition(
                    rows,
                    judged,
                    _seen(rows, code, partition),
                    holes,
                    concerned,
                    _alone(rows, copies, partition, homes),
                    together=topic in given.joined,
                )
                removed |= taken
                doubtful |= left
    what = as_what[rows.streams.topic[judged.spans.key]]
    findings = np.where(removed, (judged.findings & ~_EXPLAINED) | what, judged.findings)
    doubtful &= ~removed & ~judged.claimed & judged.has(Finding.LOST)
    doubt = (findings & ~_EXPLAINED) | int(Finding.INCONCLUSIVE)
    return replace(judged, findings=np.where(doubtful, doubt, findings))


def _possible_streams(
    rows: StreamRows,
    copies: Copies,
    topic: int,
    partition: int,
    homes: Homes,
) -> Flags:
    """The streams of a topic that may be in a partition: seen or at home there, or nowhere."""
    streams = rows.streams
    here, anywhere = np.zeros(len(streams), dtype=bool), np.zeros(len(streams), dtype=bool)
    here[copies.stream_of[copies.partition_of == partition]] = True
    anywhere[copies.stream_of] = True
    nowhere = ~(homes.known | anywhere)
    found: Flags = (streams.topic == topic) & (here | homes.has(partition) | nowhere)
    return found


def _alone(rows: StreamRows, copies: Copies, partition: int, homes: Homes) -> Flags:
    """The streams that were seen or are at home in this partition, and in no other."""
    here, elsewhere = np.zeros((2, len(rows.streams)), dtype=bool)
    here[copies.stream_of[copies.partition_of == partition]] = True
    elsewhere[copies.stream_of[copies.partition_of != partition]] = True
    others = np.array([bool(each - {partition}) for each in homes.each], dtype=bool)
    found: Flags = (here | homes.has(partition)) & ~(elsewhere | others[homes.of])
    return found


def _in_partition(
    rows: StreamRows,
    judged: Judged,
    seen: _Seen,
    holes: Holes,
    missing: Flags,
    alone: Flags,
    *,
    together: bool,
) -> tuple[Flags, Flags]:
    """Which of the missing segments a partition's holes explain, and which they leave in doubt.

    `alone` streams are in no other partition. `together`: all lanes of the topic compete for the
    holes, else those of each lane.
    """
    streams = rows.streams
    mine = seen.stream != NONE
    at, lo, hi = united(seen.stream[mine], seen.seq_lo[mine], seen.seq_hi[mine])
    of = seen.stream[mine][at]
    # The gap of each missing segment: how many of these precede it.
    some = np.flatnonzero(missing)
    key, first, after = judged.spans.take(some)
    group = streams.group[key]
    numbers, rank = np.unique(np.append(lo, first), return_inverse=True)
    width = len(numbers)
    place = np.searchsorted(of * width + rank[: len(of)], key * width + rank[len(of) :])
    has_lower = place > np.searchsorted(of, key)
    has_higher = place < np.searchsorted(of, key, "right")

    def bounds(ranks: _Ranks) -> tuple[Longs, Longs]:
        lane = _lane(rows, seen, ranks)
        before_lo = _least(of, lo, seen.stream[mine], seen.seq_lo[mine], ranks.end_first[mine])
        before_hi = _least(of, hi, seen.stream[mine], seen.seq_hi[mine], ranks.begin_last[mine])
        begin, end = lane.begin[key], lane.last[group]
        begin[has_lower] = before_hi[place[has_lower] - 1]
        end[has_higher] = before_lo[place[has_higher]]
        return begin, end

    first_least, first_most = holes.possible(seen.identity, seen.first)
    last_least, last_most = holes.possible(seen.identity, seen.last)
    begin, end = bounds(_Ranks(first_most, last_most, last_least))
    may_explain = begin < end
    first_least, _ = holes.ranks(seen.identity, seen.first)
    last_least, last_most = holes.ranks(seen.identity, seen.last)
    begin, end = bounds(_Ranks(first_least, last_least, last_most))
    # After the last seen number of a stream, only what is not in flight competes for holes.
    due = ~judged.has(Finding.IN_FLIGHT)[some]
    competes = (has_higher | due) & (begin < end)
    _, one, gap = np.unique(key * (len(of) + 1) + place, return_index=True, return_inverse=True)
    needed = _sums(gap, np.where(competes, after - first, 0))
    round_of = np.zeros_like(key) if together else group
    short = _short(round_of[one], begin[one], end[one], needed)
    taken = competes & ~short[gap]
    # What is in flight, or may be in another partition, has not certainly used a hole.
    used = _sums(group, np.where(taken & due & alone[key], after - first, 0), len(streams))
    removed, doubtful = np.zeros(len(missing), dtype=bool), np.zeros(len(missing), dtype=bool)
    removed[some] = taken
    doubtful[some] = may_explain | (used[group] < holes.total)
    return removed, doubtful


def _seen(rows: StreamRows, topic: int, partition: int) -> _Seen:
    streams, streamless = rows.streams, rows.streamless
    at = rows.of(Kind.SEEN)
    at = at[(rows.partition[at] == partition) & (streams.topic[rows.stream[at]] == topic)]
    here = streamless.partition == partition
    here &= np.isin(streamless.group, streams.group[streams.topic == topic])
    no_stream = np.full(int(here.sum()), NONE, dtype=np.int64)
    return _Seen(
        np.append(streams.group[rows.stream[at]], streamless.group[here]),
        np.append(rows.stream[at], no_stream),
        np.append(rows.seq_lo[at], no_stream),
        np.append(rows.seq_hi[at], no_stream),
        np.append(rows.identity[at], streamless.identity[here]),
        np.append(rows.offset_lo[at], streamless.offset_hi[here] - 1),
        np.append(rows.offset_hi[at], streamless.offset_hi[here]) - 1,
    )


def _seen_offsets(rows: StreamRows, topic: int, partition: int) -> Spans:
    """The offsets of messages seen in a partition, by incarnation: all that were read twice."""
    streamless = rows.streamless
    at = rows.of(Kind.SEEN)
    at = at[(rows.partition[at] == partition) & (rows.streams.topic[rows.stream[at]] == topic)]
    # Other chains may have more offsets than numbers.
    at = at[rows.offset_hi[at] - rows.offset_lo[at] == rows.seq_hi[at] - rows.seq_lo[at]]
    here = (streamless.topic == topic) & (streamless.partition == partition)
    return Spans(
        np.append(rows.identity[at], streamless.identity[here]),
        np.append(rows.offset_lo[at], streamless.offset_lo[here]),
        np.append(rows.offset_hi[at], streamless.offset_hi[here]),
    )


def _lane(rows: StreamRows, seen: _Seen, ranks: _Ranks) -> _Lane:
    streams = rows.streams
    last = np.zeros(int(streams.group.max()) + 1, dtype=np.int64)
    np.maximum.at(last, seen.group, ranks.end_last)
    mine = seen.stream != NONE
    of_stream = np.zeros(len(streams), dtype=np.int64)
    np.maximum.at(of_stream, seen.stream[mine], ranks.begin_last[mine])
    producer = coded(streams.table["producer"]).astype(np.int64)
    line = streams.group * (int(producer.max()) + 1) + producer
    order = np.lexsort((streams.incarnation, line))
    begin = np.zeros(len(streams), dtype=np.int64)
    begin[order] = highest_before(line[order], of_stream[order])
    return _Lane(begin, last)


def _short(round_of: Longs, begin: Longs, end: Longs, needed: Longs) -> Flags:
    """Which gaps some largest assignment leaves short of a hole.

    Gaps [begin, end) of one round compete. The gap that ends first takes its first free holes:
    those that end later can use any others that it could. A gap that goes short could have had
    every hole in it, so each gap that has one of these could go short in its place. Holes between
    two neighbouring bounds of gaps are alike: they are given away as a segment.
    """
    short = np.zeros(len(begin), dtype=bool)
    for each in np.unique(round_of).tolist():
        mine = np.flatnonzero((round_of == each) & (needed > 0))
        if not len(mine):
            continue
        bounds = np.unique([begin[mine], end[mine]])
        first, until = (np.searchsorted(bounds, which).tolist() for which in (begin, end))
        free = np.diff(bounds).tolist()
        left, unseen = list(range(len(bounds))), list(range(len(bounds)))
        owners: list[list[int]] = [[] for _ in bounds]
        waiting: list[int] = []
        for at in mine[np.argsort(end[mine], kind="stable")].tolist():
            wanted = int(needed[at])
            segment = _next(left, first[at])
            while wanted and segment < until[at]:
                taken = min(wanted, free[segment])
                owners[segment].append(at)
                wanted -= taken
                free[segment] -= taken
                if not free[segment]:
                    left[segment] = segment + 1
                segment = _next(left, segment)
            if wanted:
                waiting.append(at)
        while waiting:
            at = waiting.pop()
            if short[at]:
                continue
            short[at] = True
            segment = _next(unseen, first[at])
            while segment < until[at]:
                waiting += owners[segment]
                unseen[segment] = segment + 1
                segment = _next(unseen, segment)
    return short


def _next(left: list[int], number: int) -> int:
    """The least number left that is not below this one; shortens the way for later calls."""
    while left[number] != number:
        left[number] = left[left[number]]
        number = left[number]
    return number


def _least(of: Longs, bound: Longs, stream: Longs, at: Longs, values: Longs) -> Longs:
    """For each of these bounds of streams, the least value of the rows with this bound."""
    numbers, rank = np.unique(np.append(bound, at), return_inverse=True)
    width = len(numbers)
    wanted, there = of * width + rank[: len(of)], stream * width + rank[len(of) :]
    place = np.searchsorted(wanted, there)
    at_bound = place < len(wanted)
    at_bound[at_bound] = wanted[place[at_bound]] == there[at_bound]
    found = np.full(len(of), np.iinfo(np.int64).max)
    np.minimum.at(found, place[at_bound], values[at_bound])
    return found


def _sums(group: Longs, values: Longs, groups: int = 0) -> Longs:
    found = np.zeros(max(groups, int(group.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(found, group, values)
    return found


# -- compaction of the source ---------------------------------------------------------------------


class _KeyRows(NamedTuple):
    """Seen rows with keys of lanes, by lane and stream (`NONE`: of no stream).

    `last` ranks the rows by the position of their last message.
    """

    group: Longs
    partition: Longs
    stream: Longs
    last: Longs


def _removed_from_source(
    rows: StreamRows, copies: Copies, judged: Judged, given: Given, homes: Homes
) -> Flags:
    """The segments removed before they were mirrored, as a later message of their key shows."""
    streams, key = rows.streams, judged.spans.key
    removed = np.zeros(len(key), dtype=bool)
    for topic, partitions in given.source_compacted.items():
        if topic not in streams.topics:
            continue
        code = streams.topics.index(topic)
        key_rows = _key_rows(rows, code)
        superseded = np.zeros(len(streams), dtype=bool)
        for partition in partitions:
            there = np.flatnonzero(key_rows.partition == partition)
            superseded |= _possible_streams(rows, copies, code, partition, homes) & _superseded(
                rows, key_rows, there
            )
        seen_hi = np.zeros(len(streams), dtype=np.int64)
        np.maximum.at(seen_hi, copies.stream_of[copies.spans.key], copies.spans.hi)
        mine = streams.topic[key] == code
        removed |= mine & (superseded[key] | (judged.spans.hi <= seen_hi[key]))
    return removed


def _key_rows(rows: StreamRows, topic: int) -> _KeyRows:
    streams, streamless = rows.streams, rows.streamless
    seen = rows.of(Kind.SEEN)
    identity = np.append(rows.identity[seen], streamless.identity)
    offset = np.append(rows.offset_hi[seen], streamless.offset_hi)
    order = np.lexsort((offset, identity))
    last = np.empty(len(order), dtype=np.int64)
    last[order] = np.cumsum(changes(identity[order], offset[order]))
    no_stream = np.full(len(streamless.group), NONE, dtype=np.int64)
    found = _KeyRows(
        np.append(streams.group[rows.stream[seen]], streamless.group),
        np.append(rows.partition[seen], streamless.partition),
        np.append(rows.stream[seen], no_stream),
        last,
    )
    mine = np.isin(found.group, streams.group[streams.topic == topic])
    return _KeyRows(*(each[mine] for each in found))


def _superseded(rows: StreamRows, key_rows: _KeyRows, there: Longs) -> Flags:
    """Which of all streams are superseded by later messages of their key in one partition."""
    streams = rows.streams
    producer = coded(streams.table["producer"]).astype(np.int64)
    groups = len(set(streams.group.tolist()))
    group, stream, last = key_rows.group[there], key_rows.stream[there], key_rows.last[there]
    of_run = stream != NONE
    greatest = np.zeros(groups, dtype=np.int64)
    np.maximum.at(greatest, group, last)
    own = np.zeros(len(streams), dtype=np.int64)
    np.maximum.at(own, stream[of_run], last[of_run])
    # By producer and lane, the greatest incarnation seen there.
    key = streams.group * (int(producer.max(initial=0)) + 1) + producer
    newest = np.zeros(int(key.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(newest, key[stream[of_run]], streams.incarnation[stream[of_run]])
    all_rows = np.bincount(group, minlength=groups)
    ours = np.bincount(key[stream[of_run]], minlength=len(newest))
    others = all_rows[streams.group] > ours[key]
    found: Flags = (own > 0) & (greatest[streams.group] > own)
    found |= newest[key] > streams.incarnation
    found |= (own == 0) & others
    return found
