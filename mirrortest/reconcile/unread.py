"""Which messages may be in unread offsets: these are not lost, nor reordered if seen after them.

Any missing number may be in an unread range, unless it was sent too late for that. A number proves
this for itself and all above in its stream, if it was seen after all unread ranges of its partition
and was to be sent after these were found unreadable. It proves nothing if a message of its stream
arrived long before it was to be sent: then a clock is far off. (A log may have `seen` rows at
offsets that its `read` rows lack: they prove nothing.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.reconcile.homes import homes_by_stream
from mirrortest.reconcile.sweep import Spans, highest_before
from mirrortest.seqlog.rows import EARLY
from mirrortest.seqlog.schema import ENDLESS, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.reconcile.coverage import UnreadRange
    from mirrortest.reconcile.given import Given
    from mirrortest.reconcile.judgement import Copies
    from mirrortest.reconcile.stream_rows import StreamRows
    from mirrortest.reconcile.stretch import Flags, Longs

_UNPROVEN = int(Finding.UNPROVEN | Finding.CORRUPTED)


class Doubts(NamedTuple):
    """What is in doubt.

    Attributes:
        up_to: by stream, the bound of the numbers that may be in unread ranges (0: none may).
        unlogged: by stream, whether a consumer may have seen it in ranges that its log lacks.
        beyond: by stream, whether its topic was not read to its end.
        following: numbers seen after unread ranges, whose first copy may be in these, by stream
            and partition.
        sure: for each of `following`, whether it was sent too late for that.
    """

    up_to: Longs
    unlogged: Flags
    beyond: Flags
    following: Spans
    sure: Flags


class _Places(NamedTuple):
    """Partitions with unread ranges: their topics' codes, their numbers, and their ranges."""

    topic: Longs
    partition: Longs
    ranges: Sequence[Sequence[UnreadRange]]

    def of(self, topic: Longs, partition: Longs) -> Longs:
        """The index here of each of these partitions; -1: it has no unread range."""
        known = self.topic << 32 | self.partition
        order = np.argsort(known)
        wanted = topic << 32 | partition
        at = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
        found: Longs = np.where(known[order[at]] == wanted, order[at], -1)
        return found


class _Pieces(NamedTuple):
    """What was seen in these partitions, by minute of intended time.

    `codes` are those of stream and partition in `Copies`. `timed`: no message of the stream arrived
    there so early that a clock is far off.
    """

    place: Longs
    codes: Longs
    identity: Longs
    offset: Longs
    findings: Longs
    lo: Longs
    hi: Longs
    minute: Longs
    timed: Flags

    def take(self, which: Flags) -> _Pieces:
        """Some of them."""
        return _Pieces._make(each[which] for each in self)

    def behind(self, identity: Longs, offset: Longs) -> Flags:
        """Which pieces begin at these positions or after them."""
        flags: Flags = (self.identity > identity) | (
            (self.identity == identity) & (self.offset >= offset)
        )
        return flags


def doubts(
    rows: StreamRows, seen: Longs, copies: Copies, given: Given, unread: Sequence[UnreadRange]
) -> Doubts:
    """What is in doubt because of these unread ranges."""
    streams = rows.streams
    found = Doubts(
        np.zeros(len(streams), dtype=np.int64),
        np.zeros(len(streams), dtype=bool),
        np.zeros(len(streams), dtype=bool),
        Spans.none(),
        np.zeros(0, dtype=bool),
    )
    topics = {name: code for code, name in enumerate(streams.topics)}
    by_partition: dict[tuple[int, int], list[UnreadRange]] = {}
    for each in unread:
        topic = topics.get(each.topic)
        if topic is None:
            continue
        if each.finding is Finding.IN_FLIGHT:
            found.beyond[streams.topic == topic] = True
        else:
            by_partition.setdefault((topic, each.partition), []).append(each)
    if not by_partition:
        return found
    keys = np.array(list(by_partition), dtype=np.int64)
    places = _Places(keys[:, 0], keys[:, 1], list(by_partition.values()))
    pieces = _pieces(rows, seen, copies, places)
    _doubt(found, rows, copies, places, _certain(pieces, places, copies), given)
    following, sure = _following(pieces, places, len(copies.stream_of))
    return found._replace(following=following, sure=sure)


def _pieces(rows: StreamRows, seen: Longs, copies: Copies, places: _Places) -> _Pieces:
    place = places.of(rows.streams.topic[rows.stream[seen]], rows.partition[seen])
    row, spans, minute = rows.minutes(seen[place >= 0])
    by_row = np.full(len(rows.kind), -1, dtype=np.int64)
    by_row[seen] = np.arange(len(seen))
    at = by_row[row]
    early = np.zeros(len(copies.stream_of), dtype=bool)
    early[copies.of_rows[rows.outcome[seen] == EARLY]] = True
    return _Pieces(
        place[at],
        copies.of_rows[at],
        rows.identity[row],
        rows.offset_lo[row],
        rows.findings[row],
        spans.lo,
        spans.hi,
        minute,
        ~early[copies.of_rows[at]],
    )


def _certain(pieces: _Pieces, places: _Places, copies: Copies) -> Longs:
    """By stream and partition, the number from which on none can be unread; `ENDLESS`: unknown."""
    last = np.array([max((b.identity, b.hi) for b in ranges) for ranges in places.ranges])
    minute = np.array([max(b.minute for b in ranges) for ranges in places.ranges])
    proven = (pieces.findings & _UNPROVEN == 0) & pieces.timed
    proven &= pieces.minute > minute[pieces.place]
    proven &= pieces.behind(last[pieces.place, 0], last[pieces.place, 1])
    certain = np.full(len(copies.stream_of), ENDLESS)
    np.minimum.at(certain, pieces.codes[proven], pieces.lo[proven])
    return certain


def _doubt(
    found: Doubts,
    rows: StreamRows,
    copies: Copies,
    places: _Places,
    certain: Longs,
    given: Given,
) -> None:
    """Set `up_to` and `unlogged`.

    A stream may be unread where it was seen or belongs; anywhere if that is unknown.
    """
    streams = rows.streams
    logged = np.zeros(len(streams), dtype=bool)
    for kind in (Kind.RESERVED, Kind.SENT, Kind.VOUCHED):
        logged[rows.stream[rows.of(kind)]] = True
    logged[copies.stream_of] = True
    place_of_code = places.of(streams.topic[copies.stream_of], copies.partition_of)
    homes = homes_by_stream(rows, given)
    unknown = ~homes.known
    for number, ranges in enumerate(places.ranges):
        partition = int(places.partition[number])
        mine = logged & (streams.topic == places.topic[number])
        here = np.flatnonzero(place_of_code == number)
        bound = np.full(len(streams), ENDLESS)
        bound[copies.stream_of[here]] = certain[here]
        if not any(unread_range.lo == 0 and unread_range.hi == ENDLESS for unread_range in ranges):
            possible = unknown | homes.has(partition)
            possible[copies.stream_of[here]] = True
            mine &= possible
        np.maximum(found.up_to, np.where(mine, bound, 0), out=found.up_to)
        if any(unread_range.unlogged for unread_range in ranges):
            found.unlogged[mine] = True


def _following(pieces: _Pieces, places: _Places, codes: int) -> tuple[Spans, Flags]:
    """Numbers seen after unread ranges, and above all that was seen before the first of these.

    Ranges from offset -1 on do not count: there a damaged log lost rows, and what is left is judged
    all the same. `codes` is how many codes there are.
    """
    gaps = np.array(
        sorted(
            (number, unread_range.identity, unread_range.lo, unread_range.minute)
            for number, ranges in enumerate(places.ranges)
            for unread_range in ranges
            if unread_range.lo >= 0
        ),
        dtype=np.int64,
    ).reshape(-1, 4)
    if not len(gaps) or not len(pieces.place):
        return Spans.none(), np.zeros(0, dtype=bool)
    first = np.full((len(places.ranges), 2), ENDLESS)
    first[gaps[::-1, 0]] = gaps[::-1, 1:3]
    before = ~pieces.behind(*first[pieces.place].T)
    top = np.zeros(codes, dtype=np.int64)
    np.maximum.at(top, pieces.codes[before], pieces.hi[before])
    # The latest minute of the ranges before each piece, plus one; 0: there is none.
    place, identity, offset = (
        np.append(gaps[:, column], values)
        for column, values in ((0, pieces.place), (1, pieces.identity), (2, pieces.offset))
    )
    minute = np.append(gaps[:, 3] + 1, np.zeros(len(pieces.place), dtype=np.int64))
    order = np.lexsort((minute == 0, offset, identity, place))
    latest = np.empty(len(order), dtype=np.int64)
    latest[order] = highest_before(place[order], minute[order])
    latest = latest[len(gaps) :]
    behind = (latest > 0) & (pieces.hi > top[pieces.codes])
    found = pieces.take(behind)
    spans = Spans(found.codes, np.maximum(found.lo, top[found.codes]), found.hi)
    return spans, (latest[behind] - 1 < found.minute) & found.timed
