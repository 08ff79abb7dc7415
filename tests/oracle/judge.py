"""The judgement by brute force: one message at a time, dicts and sets, no optimization.

Everything in `mirrortest` that judges is compared with this, by stream, finding and id.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.lanes import lane_key, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirrortest.wire.stream import StreamId

STEP_SECONDS = 13
"""Between two messages of a stream; a new minute begins after four or five of them."""
HORIZON = 100
"""No history uses a seq as high as this."""
NOTHING: frozenset[int] = frozenset()
INCARNATION = 1 << 10
"""When a topic is recreated, its offsets restart, but places continue: those of its nth incarnation
begin at n times this. In this package an offset is a place, unless stated otherwise."""


def offset_of(place: int) -> int:
    """Kafka's offset of a place."""
    return place % INCARNATION


def incarnation_of(place: int) -> int:
    """The topic's incarnation, from 0, that contains a place."""
    return place // INCARNATION


class Message(NamedTuple):
    """The message at an offset; without a stream, `findings` classify it and `key` is its lane.

    An `early` message arrived long before its intended time, by the clocks of the hosts concerned.
    """

    stream: StreamId | None
    seq: int = 0
    findings: frozenset[Finding] = frozenset()
    key: int = -1
    early: bool = False

    @property
    def shows_clock(self) -> bool:
        """Whether it proves that a clock is far off."""
        return self.early and not self.findings & {Finding.UNPROVEN, Finding.CORRUPTED}

    @property
    def lane(self) -> int:
        """The lane whose key it has; -1: none."""
        return self.key if self.stream is None else self.stream.lane


ALWAYS = 1 << 62
"""A minute after all others."""


def minute_of(seq: int) -> int:
    """The minute of a message's intended time, from 0 on; the same for all streams."""
    return seq * STEP_SECONDS // 60


class Passed(NamedTuple):
    """Offsets [lo, hi) of a partition and one incarnation, read or (`blind`) not.

    A log may show messages (`glimpsed`) at offsets that it does not record as read. Blind offsets
    contained no message with an intended time after `minute`.
    """

    lo: int
    hi: int
    blind: bool = False
    glimpsed: bool = False
    minute: int = ALWAYS


class Lane(NamedTuple):
    """What is recorded of a stream: `end` is how many seqs it has, None while more may be sent."""

    acked: frozenset[int] = NOTHING
    failed: frozenset[int] = NOTHING
    unknown: frozenset[int] = NOTHING
    end: int | None = None
    by_successor: bool = False
    """Whether the next incarnation set that end: nothing is known of seqs above it."""


class Fragment:
    """One stream in one partition, from the messages at the offsets that were passed, in order.

    Unread offsets put in doubt every seq below the least one that was seen after all of them and
    sent too late to be in them. A seq first seen after unread offsets is not reordered, unless it
    was sent too late, or a higher one was seen before all of them. Once a clock is known to be far
    off, no message was sent too late and no seq is certain: from that message on, with
    `known_before` from the first one on.
    """

    def __init__(
        self,
        stream: StreamId,
        stood: Mapping[int, Message],
        passed: Iterable[Passed],
        *,
        known_before: bool = False,
    ) -> None:
        self.seqs: list[int] = []
        """In the order of their offsets, copies included."""
        self.by_finding: dict[Finding, set[int]] = defaultdict(set)
        self.doubtful: set[int] = set()
        self._excused: set[int] = set()
        """Seqs whose first copy may be at unread offsets."""
        self.last_offset = -1
        in_order = HORIZON
        minute = -1
        certain: list[int] | None = None
        in_place_order = sorted(passed, key=lambda s: s.lo)
        clock_off = known_before and shows_clock(stream, stood, in_place_order)
        for stretch in in_place_order:
            if stretch.blind:
                if certain is None:
                    in_order = max(self.seqs, default=-1) + 1
                certain, minute = [], max(minute, stretch.minute)
            for offset in shown_offsets(stretch):
                message = stood.get(offset)
                if message is None or message.stream != stream:
                    continue
                if message.shows_clock and not clock_off:
                    clock_off, certain = True, None if certain is None else []
                if certain is not None:
                    late = minute_of(message.seq) > minute and not clock_off
                    proven = not message.findings & {Finding.UNPROVEN, Finding.CORRUPTED}
                    if late and proven and not stretch.glimpsed:
                        certain.append(message.seq)
                    if not late and message.seq >= in_order and message.seq not in self.seqs:
                        self._excused.add(message.seq)
                self.seqs.append(message.seq)
                self.last_offset = offset
                for finding in message.findings:
                    self.by_finding[finding].add(message.seq)
        if certain is not None:
            self.doubtful = set(range(min(certain, default=HORIZON)))

    @property
    def seen(self) -> set[int]:
        """Each seq once."""
        return set(self.seqs)

    @property
    def duplicated(self) -> set[int]:
        """Seqs at more than one offset of this partition."""
        return {seq for seq, times in Counter(self.seqs).items() if times > 1}

    @property
    def copies(self) -> int:
        """Messages beyond the first of each."""
        return len(self.seqs) - len(self.seen)

    @property
    def reordered(self) -> set[int]:
        """Seqs whose first copy comes after the first copy of a higher one."""
        first: dict[int, int] = {}
        for place, seq in enumerate(self.seqs):
            first.setdefault(seq, place)
        return {
            seq
            for seq in first.keys() - self._excused
            if any(later > seq and first[later] < first[seq] for later in first)
        }


def shows_clock(stream: StreamId, stood: Mapping[int, Message], passed: Iterable[Passed]) -> bool:
    """Whether a message of a stream, at offsets that were passed, shows that a clock is off."""
    shown = (stood[at] for stretch in passed for at in shown_offsets(stretch) if at in stood)
    return any(each.stream == stream and each.shows_clock for each in shown)


def judge(
    fragments: Mapping[int, Fragment],
    lane: Lane | None,
    *,
    claimed: Collection[int] = NOTHING,
    due: Collection[int] = NOTHING,
    nobody_else: bool = False,
    homes: Collection[int] = NOTHING,
    any_partition: int = 0,
    removed: Collection[int] = NOTHING,
    doubted_holes: Collection[int] = NOTHING,
    compacted: bool = False,
    unread: Collection[Finding] = (),
) -> dict[str, set[int]]:
    """Judge a stream over all partitions: name of a finding (or of an outcome) -> its seqs.

    `due` seqs are past their deadline; they are lost if nothing is `unread`. Otherwise missing seqs
    are inconclusive if a partition was never read, in flight if one was not read to its end.
    `claimed` ones are lost unless a partition was never read: a log may be missing.
    `any_partition`: in how many partitions a stream may be, whichever; 0: in its homes.
    `nobody_else`: a stream without a lane cannot have been sent. Holes explain `removed` seqs: as
    compacted if the topic was `compacted`, else as inconclusive; others may be in `doubted_holes`.
    """
    at: dict[int, list[int]] = defaultdict(list)
    for partition, fragment in fragments.items():
        for seq in fragment.seqs:
            at[seq].append(partition)
    seen = set(at)
    out: dict[str, set[int]] = defaultdict(set)
    doubtful = doubted(fragments, homes)
    in_holes = NOTHING if unread else doubted_holes
    for fragment in fragments.values():
        out["reordered"] |= fragment.reordered
        for finding, seqs in fragment.by_finding.items():
            out[finding.label] |= seqs
    out["duplicated"] = {seq for seq, places in at.items() if len(places) > 1}
    if any_partition and seen:
        ranked = sorted(fragments, key=lambda n: (-len(fragments[n].seen), n))
        homes = ranked[:any_partition]
        out["misrouted"] = {seq for seq, places in at.items() if not set(places) <= set(homes)}
    elif homes:
        away = {seq for seq, places in at.items() if not set(places) <= set(homes)}
        out["misrouted"] |= away - out["unproven"]
    for seq in lane.acked if lane else ():
        if seq in seen:
            out["delivered"].add(seq)
        elif seq in removed:
            out["compacted" if compacted else "inconclusive"].add(seq)
        elif seq in claimed and Finding.INCONCLUSIVE not in unread:
            out["lost"].add(seq)
        elif seq in doubtful or Finding.INCONCLUSIVE in unread or seq in in_holes:
            out["inconclusive"].add(seq)
        elif seq in due and not unread:
            out["lost"].add(seq)
        else:
            out["in_flight"].add(seq)
    out["late"] = seen & set(claimed)
    for seq in seen - out["unproven"]:
        if lane is None:
            sent = not nobody_else
        else:
            known_end = None if lane.by_successor else lane.end
            sent = seq not in lane.failed and (known_end is None or seq < known_end)
        if not sent:
            out["phantom"].add(seq)
    if lane is not None:
        out["acked"], out["unknown"] = set(lane.acked), set(lane.unknown)
    return {name: numbers for name, numbers in out.items() if numbers}


def doubted(fragments: Mapping[int, Fragment], homes: Collection[int]) -> set[int]:
    """Seqs that may be at unread offsets of partitions where the stream was seen or belongs.

    A stream without known homes may be anywhere.
    """
    return {
        seq
        for partition, fragment in fragments.items()
        if fragment.seqs or partition in homes or not homes
        for seq in fragment.doubtful
    }


def streamless(stood: Mapping[int, Message], passed: Iterable[Passed]) -> dict[Finding, int]:
    """How many messages belong to no stream, each counted under one finding."""
    counts: Counter[Finding] = Counter()
    for stretch in passed:
        for offset in shown_offsets(stretch):
            message = stood.get(offset)
            if message is not None and message.stream is None:
                names = (Finding.OTHER_RUN, Finding.FOREIGN, Finding.CORRUPTED)
                counts[next(name for name in names if name in message.findings)] += 1
    return dict(counts)


def shown_offsets(stretch: Passed) -> range:
    """The offsets whose messages were seen."""
    return range(stretch.lo, stretch.lo if stretch.blind and not stretch.glimpsed else stretch.hi)


@functools.cache
def by_key(lane: int, partitions: int) -> int:
    """The partition that Kafka's default partitioner chooses for a lane."""
    return partition_of(lane_key(lane), partitions)


def belongs(
    policy: ExpectPartition, lane: int, source_partition: int | None, partitions: int
) -> int | None:
    """The destination partition where a lane's messages belong; None: unknown."""
    if policy is ExpectPartition.MURMUR2 and partitions:
        return by_key(lane, partitions)
    if policy is ExpectPartition.SOURCE:
        return source_partition
    if policy is ExpectPartition.SOURCE_MODULO and source_partition is not None and partitions:
        return source_partition % partitions
    return None


def misrouted(
    policy: ExpectPartition,
    lane: int,
    source_partition: int | None,
    partition: int,
    counts: Sequence[int],
) -> bool:
    """Whether a message is where no partition count that may have been in force puts it."""
    homes = [belongs(policy, lane, source_partition, count) for count in counts]
    return bool(homes) and None not in homes and partition not in homes
