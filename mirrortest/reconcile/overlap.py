"""Which offsets were read more than once, and how far online verdicts go; pure functions.

After a consumer was killed, another one reads some messages again. Which ones is only known once
all logs are read. So the few tasks concerned run a second time, with zones. Only then it is known
which latencies each of them has there: where a reading that was to count has none, and another one
has, they run a third time.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from mirrortest.model.intervals import IntervalSet
from mirrortest.reconcile.compact import Zone
from mirrortest.reconcile.interval_rows import MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from mirrortest.reconcile.compact import Named
    from mirrortest.reconcile.coverage import ReadOffsets, Span, UnreadRange


class SeenRange(NamedTuple):
    """Offsets of a destination partition at which a session's rows, in one task, saw messages.

    `turn` counts how often these had returned to earlier offsets.
    """

    topic: str
    partition: int
    identity: int
    lo: int
    hi: int
    session: int
    task: int
    turn: int


class Cut(NamedTuple):
    """How far the online verdict on a partition goes: to offset `cut` of this incarnation."""

    topic: str
    partition: int
    identity: int
    cut: int


def measured(driver_rows: pa.Table) -> list[SeenRange]:
    """The ranges of rows with latencies, at offsets in the zones of the tasks that read them."""
    rows = driver_rows.filter(pc.equal(driver_rows["kind"], MEASURED))
    columns = rows.select(
        ["topic", "partition", "identity", "offset_lo", "offset_hi", "session", "task", "turn"]
    )
    return [SeenRange(*row.values()) for row in columns.to_pylist()]


def overlaps(
    ranges: Sequence[SeenRange],
    observed: ReadOffsets,
    timed: Iterable[SeenRange] | None = None,
) -> list[Zone]:
    """The offsets that were read more than once; only one reading's latencies count there.

    A reading may have found them empty, because the topic was compacted meanwhile. The latencies of
    the session that started first count, up to the end of what it measured. `timed` is what each
    one measured; by default it is what each one saw.
    """
    measuring = _by_place(ranges if timed is None else timed)
    seen, read = _by_place(ranges), _by_place(observed.read)
    return [
        zone
        for place, mine in seen.items()
        for zone in _overlaps(mine, read.get(place, []), measuring.get(place, []), observed)
    ]


def _overlaps(
    seen: Sequence[SeenRange],
    read: Sequence[Span],
    timed: Sequence[SeenRange],
    observed: ReadOffsets,
) -> Iterator[Zone]:
    """The zones of one incarnation of a partition."""
    items: list[Any] = [*seen, *read, *timed]
    bounds = len(seen), len(seen) + len(read)
    ends = ((at, begins, n) for n, i in enumerate(items) for at, begins in ((i.lo, 1), (i.hi, 0)))
    open_now: set[int] = set()
    counted, before = -1, 0
    for at, begins, number in sorted(ends):
        if before < at:
            seeing = {n for n in open_now if n < bounds[0]}
            measuring = {n for n in open_now if n >= bounds[1]}
            if counted not in measuring:
                counted = min(measuring, key=lambda n: _order(items[n], observed), default=-1)
            sessions = {items[n].session for n in open_now - measuring}
            if len(seeing) > 1 or (seeing and len(sessions) > 1):
                others = sorted(_order(items[n], observed)[1:] for n in measuring - {counted})
                yield Zone(*seen[0][:3], before, at, tuple(others))
        if begins:
            open_now.add(number)
        else:
            open_now.discard(number)
        before = at


def _order(reading: SeenRange, observed: ReadOffsets) -> tuple[int, int, int, int]:
    """When its session started, and what names the reading in `Zone.uncounted`."""
    started_ns = observed.started_ns.get(reading.session, 0)
    return started_ns, reading.session, reading.task, reading.turn


def misjudged(
    first: Iterable[Zone], second: Iterable[Zone], timed: Iterable[SeenRange]
) -> list[int]:
    """The tasks with latencies that count by one of two lists of zones only."""
    left_out: list[dict[tuple[Any, ...], IntervalSet]] = [{}, {}]
    for found, zones in zip(left_out, (first, second), strict=True):
        for zone in zones:
            for reading in zone.uncounted:
                found.setdefault((zone.place, reading), IntervalSet()).add(zone.lo, zone.hi)
    nothing = IntervalSet()
    tasks = set()
    for each in timed:
        key = each[:3], (each.session, each.task, each.turn)
        one, other = (found.get(key, nothing).within(each.lo, each.hi) for found in left_out)
        if one != other:
            tasks.add(each.task)
    return sorted(tasks)


def online_cuts(
    found: Iterable[tuple[str, int, int, int]],
    tails: Iterable[Span],
    *,
    left_out: Collection[tuple[str, int]] = (),
) -> list[Cut]:
    """How far the online verdict on each partition goes.

    A partition that was judged to its end and has no `found` row was clean at that end. Rows that
    reach the end do not suffice: a fenced reader may have logged more than was judged.

    Args:
        found: (topic, partition, identity, next offset) of the verdicts.
        tails: the ends, as `coverage.Span`.
        left_out: partitions (topic, number) whose verdict cannot be compared.
    """
    cuts: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, partition, identity, reached in found:
        at = (identity, reached)
        cuts[topic, partition] = max(at, cuts.get((topic, partition), at))
    judged = set(cuts)
    for tail in tails:
        place = (tail.topic, tail.partition)
        if place not in judged and tail.lo == tail.hi:
            at = (tail.identity, tail.hi)
            cuts[place] = max(at, cuts.get(place, at))
    return [Cut(*place, *at) for place, at in sorted(cuts.items()) if place not in left_out]


def unread_but_seen(unread: Iterable[Span], ranges: Iterable[SeenRange]) -> set[tuple[str, int]]:
    """Partitions with offsets that one session logged as unread and another one saw.

    There the logs show more than the online verdict rests on: a topic was recreated, and some
    session had read more of the old one than the session that found it deleted.
    """
    by_place = _by_place(ranges)
    return {
        (left.topic, left.partition)
        for left in unread
        for each in by_place.get((left.topic, left.partition, left.identity), ())
        if left.lo < each.hi and each.lo < left.hi
    }


def beyond(ranges: Iterable[SeenRange], cuts: Iterable[Cut]) -> list[Cut]:
    """The cuts after which messages were seen."""
    furthest: dict[tuple[str, int], tuple[int, int]] = {}
    for each in ranges:
        place, at = (each.topic, each.partition), (each.identity, each.hi)
        furthest[place] = max(at, furthest.get(place, at))
    return [
        cut
        for cut in cuts
        if furthest.get((cut.topic, cut.partition), (0, 0)) > (cut.identity, cut.cut)
    ]


def cuts_at(ranges: Iterable[SeenRange], cuts: Iterable[Cut]) -> list[Zone]:
    """Empty zones, which only cut, at those cuts that are within a range of seen offsets."""
    return _cutting(ranges, [Zone(*cut[:3], cut.cut, cut.cut) for cut in cuts])


def cuts_around(ranges: Iterable[SeenRange], unread: Iterable[UnreadRange]) -> list[Zone]:
    """As `cuts_at`, at the bounds of unread ranges: `seen` rows may be outside of `read` rows."""
    points = {(*each[:3], at) for each in unread for at in (each.lo, each.hi)}
    zones = [Zone(topic, number, identity, at, at) for topic, number, identity, at in points]
    return _cutting(ranges, sorted(zones))


def _cutting(ranges: Iterable[SeenRange], zones: Sequence[Zone]) -> list[Zone]:
    inside = _meeting((each[:3], each.lo, each.hi) for each in ranges)
    return [zone for zone in zones if inside(zone.place, zone.lo, zone.lo)]


def touched(ranges: Iterable[SeenRange], zones: Sequence[Zone]) -> list[int]:
    """The tasks with rows in zones, or on both sides of an empty one."""
    meets = _meeting((each.place, each.lo, each.hi + (each.lo == each.hi)) for each in zones)
    return sorted({each.task for each in ranges if meets(each[:3], each.lo, each.hi)})


def _meeting(items: Iterable[tuple[Named, int, int]]) -> Callable[[Named, int, int], bool]:
    """Whether one of these spans begins below `hi` and ends above `lo`, by place, lo and hi."""
    by_place: dict[Named, list[tuple[int, int]]] = {}
    for place, lo, hi in items:
        by_place.setdefault(place, []).append((lo, hi))
    sorted_by_place = {place: sorted(spans) for place, spans in by_place.items()}
    highest = {
        place: list(accumulate((hi for _, hi in spans), max))
        for place, spans in sorted_by_place.items()
    }

    def meets(place: Named, lo: int, hi: int) -> bool:
        before = bisect_left(sorted_by_place.get(place, ()), (hi,))
        return before > 0 and highest[place][before - 1] > lo

    return meets


def _by_place(items: Iterable[Any]) -> dict[Named, list[Any]]:
    found: dict[Named, list[Any]] = {}
    for each in items:
        found.setdefault(each[:3], []).append(each)
    return found
