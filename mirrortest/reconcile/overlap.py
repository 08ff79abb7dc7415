"""Which offsets were read more than once, and how far online verdicts go; pure functions.

After a consumer was killed, another one reads some messages again. Which ones is only known once
all logs are read. So the few tasks concerned run a second time, with zones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.reconcile.compact import Zone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

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


def overlaps(ranges: Iterable[SeenRange], observed: ReadOffsets) -> list[Zone]:
    """The offsets that were read more than once; only the first reading's latencies count there.

    One of the readings may have found them empty, because the topic was compacted meanwhile.
    """
    zones: list[Zone] = []
    started_ns = observed.started_ns
    for (topic, partition, identity), mine in _by_place([*ranges, *observed.read]).items():
        events = sorted(
            [(each.lo, 1, number) for number, each in enumerate(mine)]
            + [(each.hi, 0, number) for number, each in enumerate(mine)]
        )
        open_now: set[int] = set()
        before = 0
        for at, begins, number in events:
            seen = [mine[n] for n in open_now if isinstance(mine[n], SeenRange)]
            others = any(mine[n].session != each.session for n in open_now for each in seen)
            if before < at and (len(seen) > 1 or others):
                reading = sorted(
                    (started_ns.get(each.session, 0), each.session, each.task, each.turn)
                    for each in seen
                )
                uncounted = tuple((session, task, turn) for _, session, task, turn in reading[1:])
                zones.append(Zone(topic, partition, identity, before, at, uncounted))
            if begins:
                open_now.add(number)
            else:
                open_now.discard(number)
            before = at
    return zones


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
    by_place = _by_place(ranges)
    return [
        zone for zone in zones if any(r.lo < zone.lo < r.hi for r in by_place.get(zone[:3], ()))
    ]


def touched(ranges: Iterable[SeenRange], zones: Sequence[Zone]) -> list[int]:
    """The tasks with rows in zones, or on both sides of an empty one."""
    by_place = _by_place(zones)
    return sorted(
        {
            each.task
            for each in ranges
            for zone in by_place.get((each.topic, each.partition, each.identity), ())
            if each.lo < zone.hi + (zone.lo == zone.hi) and zone.lo < each.hi
        }
    )


def _by_place(items: Iterable[Any]) -> dict[tuple[str, int, int], list[Any]]:
    found: dict[tuple[str, int, int], list[Any]] = {}
    for each in items:
        found.setdefault((each.topic, each.partition, each.identity), []).append(each)
    return found
