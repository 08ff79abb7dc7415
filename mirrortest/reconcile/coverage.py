"""Unread ranges: the destination's offsets that no log covers, each with its reason; pure.

`read` rows must cover a partition from its first offset to its tail without a gap. A gap may have
messages that no consumer saw, so no message that is missing there is proven lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.seqlog.schema import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


class Span(NamedTuple):
    """Offsets of a destination partition in a session's `read`, `unread` or `tail` row.

    `identity` counts the partition's incarnations. A tail's `hi` is the partition's end, its `lo`
    how far the session's checker had judged. An unread span up to `ENDLESS` is the rest of an
    incarnation. `minute`: the last minute of intended time that messages in an unread span have.
    """

    topic: str
    partition: int
    identity: int
    lo: int
    hi: int
    session: int
    minute: int | None = None

    @property
    def newest(self) -> int:
        """The incarnation that existed when the row was written."""
        return self.identity + (self.hi >= ENDLESS)


class UnreadRange(NamedTuple):
    """Offsets that no consumer read.

    `finding` is what a message missing there has: `IN_FLIGHT` where the partition goes on after
    what was read, else `INCONCLUSIVE`. No message with an intended time after `minute` was there;
    `ENDLESS`: no log says when the offsets were found unreadable. `latest` is the same by the log
    that proves least: a consumer may have known only that. `unlogged`: a consumer may have read
    them whose log is missing or damaged. It may have seen there what was claimed lost before.

    Several sessions may have found the same offsets unreadable, each at its time. Each proof is
    valid for these offsets, so the earliest counts. The rest of an incarnation is different: a
    later session may have skipped further incarnations that no session read. There the minute of a
    session that read on in the next incarnation counts: it does so only once a durable state names
    that one as the next. If no session did, the latest minute counts.
    """

    topic: str
    partition: int
    identity: int
    lo: int
    hi: int
    finding: Finding
    minute: int = ENDLESS
    latest: int = ENDLESS
    unlogged: bool = False


@dataclass
class Coverage:
    """The unread ranges, and why each makes the run inconclusive."""

    unread: list[UnreadRange] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, unread: UnreadRange, reason: str) -> None:
        """Add a range, and why it makes the run inconclusive."""
        self.unread.append(unread)
        self.reasons.append(reason)


@dataclass(frozen=True)
class ReadOffsets:
    """The rows of offsets in the consumers' logs, and facts of the sessions.

    `partitions` is the destination's partition count by source topic, None if unknown;
    `started_ns` is when each session started.
    """

    read: Sequence[Span]
    unread: Sequence[Span]
    tails: Sequence[Span]
    partitions: Mapping[str, int | None]
    started_ns: Mapping[int, int]


def cover(seen: ReadOffsets, topics: Collection[str]) -> Coverage:
    """Find the unread ranges of all partitions of these topics.

    Other topics only match a consumer's pattern, or come from a wrong alias: they lack nothing.
    """
    coverage = Coverage()
    spans = [_by_partition(each) for each in (seen.read, seen.unread, seen.tails)]
    partitions: dict[str, set[int]] = {}
    for topic, partition in chain.from_iterable(spans):
        partitions.setdefault(topic, set()).add(partition)
    for topic, count in seen.partitions.items():
        if topic not in topics:
            continue
        logged = partitions.get(topic, set())
        expected = set(range(count)) if count is not None else set()
        if count is None and not logged:
            # No partition is known: partition 0 represents all.
            everything = unlogged(topic, 0, 0, 0, ENDLESS)
            coverage.add(everything, f"{topic}: no consumer's log covers it")
        for partition in sorted(logged | expected):
            here = [by_partition.get((topic, partition), []) for by_partition in spans]
            _cover_partition(topic, partition, here, coverage)
    return coverage


def _by_partition(spans: Iterable[Span]) -> dict[tuple[str, int], list[Span]]:
    found: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        found.setdefault((span.topic, span.partition), []).append(span)
    return found


def _cover_partition(
    topic: str, partition: int, here: Sequence[Sequence[Span]], coverage: Coverage
) -> None:
    at, (read, unread, tails) = f"{topic}-{partition}", here
    add = coverage.add
    if not (read or unread):
        if not tails or any(tail.hi for tail in tails):
            rest = unlogged(topic, partition, 0, 0, ENDLESS)
            add(rest, f"{at}: no consumer's log covers this partition")
        return
    last = max(span.newest for span in (*read, *unread, *tails))
    for identity in range(last + 1):
        stretches = sorted((s.lo, s.hi) for s in read if s.identity == identity)
        spans = [span for span in unread if span.identity == identity]
        unreadable = [(span.lo, span.hi) for span in spans if span.hi < ENDLESS]
        passed = sorted([*stretches, *unreadable])
        ends = [s.hi for s in tails if s.identity == identity]
        tail = max(ends) if ends else None
        start = passed[0][0] if passed else 0
        if start > 0:
            # The first reader of a partition begins at offset 0. So the log of a consumer is
            # missing from which this reader took over, however early it started itself. This adds
            # no reason: messages that are missing there show it.
            coverage.unread.append(unlogged(topic, partition, identity, 0, start))
        for lo, hi in _outside(unreadable, stretches):
            coverage.unread += [
                UnreadRange(topic, partition, identity, begin, end, Finding.INCONCLUSIVE, *minutes)
                for begin, end, minutes in _last_minutes(spans, lo, hi)
            ]
            coverage.reasons.append(
                f"{at}: offsets {lo} to {hi - 1} were not read: deleted before, or unreadable"
            )
        reached = max((hi for _, hi in passed), default=start)
        for lo, hi in _gaps(start, passed, tail):
            offsets = f"offsets {lo} to {hi - 1}"
            if (passed or identity) and lo >= reached:
                if identity < last:
                    continue  # no consumer will read on there: the next incarnation shows it
                add(
                    UnreadRange(topic, partition, identity, lo, hi, Finding.IN_FLIGHT),
                    f"{at}: not read to its end: {offsets} are missing",
                )
            else:
                # If no log covers a partition at all, its unread range has no end. (Of a
                # recreated topic, a reader that has just found it logs the end.)
                end = hi if passed else ENDLESS
                add(
                    unlogged(topic, partition, identity, lo, end),
                    f"{at}: no log covers {offsets}: a consumer's log is missing or damaged",
                )
        if identity < last:
            minutes = _last_minutes_of_rest(spans, read)
            rest = UnreadRange(
                topic, partition, identity, reached, ENDLESS, Finding.INCONCLUSIVE, *minutes
            )
            recreated = f"the topic was deleted and recreated after offset {reached}"
            add(rest, f"{at}: {recreated}, or truncated before it")
        elif tail is None:
            rest = UnreadRange(topic, partition, identity, reached, ENDLESS, Finding.IN_FLIGHT)
            add(rest, f"{at}: read up to offset {reached}; no log records the partition's end")


def unlogged(topic: str, partition: int, identity: int, lo: int, hi: int) -> UnreadRange:
    """Offsets that a consumer may have read whose log is missing or damaged."""
    return UnreadRange(topic, partition, identity, lo, hi, Finding.INCONCLUSIVE, unlogged=True)


def _last_minutes(
    unread: Sequence[Span], lo: int, hi: int
) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Divide [lo, hi) into pieces, each with its `UnreadRange.minute` and `latest`."""
    bounds = {at for span in unread for at in (span.lo, span.hi) if lo < at < hi}
    for begin, end in pairwise(sorted({lo, hi, *bounds})):
        minutes = [_minute(span) for span in unread if span.lo < end and span.hi > begin]
        yield begin, end, (min(minutes, default=ENDLESS), max(minutes, default=ENDLESS))


def _last_minutes_of_rest(unread: Sequence[Span], read: Iterable[Span]) -> tuple[int, int]:
    """`UnreadRange.minute` and `latest` of the rest of an incarnation."""
    rest = [span for span in unread if span.hi >= ENDLESS]
    furthest: dict[int, int] = {}
    for span in read:
        furthest[span.session] = max(span.identity, furthest.get(span.session, 0))
    latest = max(map(_minute, rest), default=ENDLESS)
    went_on = (_minute(span) for span in rest if furthest.get(span.session, 0) > span.identity)
    return min(went_on, default=latest), latest


def _minute(span: Span) -> int:
    return ENDLESS if span.minute is None else span.minute


def _outside(
    ranges: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The parts of `ranges`, which may overlap, that none of `others` (sorted) covers."""
    pieces, reached = [], 0
    for lo, hi in sorted(ranges):
        start = max(lo, reached)
        inside = [(max(a, start), min(b, hi)) for a, b in others if a < hi and b > start]
        pieces += _gaps(start, inside, hi)
        reached = max(reached, hi)
    return pieces


def _gaps(start: int, ranges: Sequence[tuple[int, int]], end: int | None) -> list[tuple[int, int]]:
    """The gaps of sorted ranges between `start` and `end`; without an end, up to the last one."""
    gaps, reached = [], start
    for lo, hi in ranges:
        if lo > reached:
            gaps.append((reached, lo))
        reached = max(reached, hi)
    if end is not None and reached < end:
        gaps.append((reached, end))
    return gaps
