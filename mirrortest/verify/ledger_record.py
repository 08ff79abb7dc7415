"""The two kinds of records in the ledger topic, and their bytes.

All data is in key and value, because mirrors may drop headers. The key identifies the record, so
compaction keeps the newest of each. Both are compact JSON: a key is a list, a value is an object
with a version ``v``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.model.intervals import IntervalSet
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VERSION = 1
_LANE_KEY = 6
"""How many values a lane key has; the key of a further part has one more."""
CLOSED = 1 << 21
"""The least part number in the keys of records by which a successor closed the lane."""
_FLAGS = ("compacted", "stamped", "repeats")
_MOST_LANES = 100_000
"""In one registration: a producer has one lane for each partition."""


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """What a producer's incarnation recorded about one lane, as sets of seqs.

    If records disagree, acked wins over failed, and failed over unknown: an outcome only becomes
    more certain. Marks, counts and the union of the sets only grow.
    """

    stream: StreamId
    reserved: int = 0
    """Seqs below it may have been sent; none at or above it has been."""
    acked: IntervalSet = field(default_factory=IntervalSet)
    failed: IntervalSet = field(default_factory=IntervalSet)
    unknown: IntervalSet = field(default_factory=IntervalSet)
    end: int | None = None
    """How many seqs were used in all, once the lane has ended or is closed; None before."""
    destination_partitions: int = 0
    source_partitions: int = 0
    """Partition counts as the producer last saw them; 0: not recorded."""
    outcomes: int = 0
    """How many seqs have an outcome in all parts of an ended lane; 0: only one part. See
    `ledger_parts`."""
    compacted: bool = False
    """Whether the source topic is compacted: messages may be removed before they are mirrored."""
    closed_at: int | None = None
    """The reserved mark at which a successor closed the lane, if it has no end mark of its own.
    Higher seqs may have been sent if an old record had replaced the newest one."""
    stamped: bool = False
    """Whether the source's brokers stamp the topic's records (LogAppendTime): then the timestamps
    that a mirror should copy are unknown."""
    repeats: bool = False
    """Whether a retried batch may be in the source twice (no `enable.idempotence`)."""
    clock_set_ns: int = 0
    """The greatest difference between settings of the producer's wall clock while it ran."""

    @property
    def has_all_parts(self) -> bool:
        """Whether no part of an ended lane is missing."""
        return self.acked.count + self.failed.count + self.unknown.count >= self.outcomes

    def merge(self, other: LaneRecord) -> LaneRecord:
        """The union of two records of one lane; commutative and idempotent."""
        acked = self.acked | other.acked
        failed = (self.failed | other.failed) - acked
        ends = [end for end in (self.end, other.end) if end is not None]
        marks = [mark for mark in (self.closed_at, other.closed_at) if mark is not None]
        return LaneRecord(
            self.stream,
            max(self.reserved, other.reserved),
            acked,
            failed,
            (self.unknown | other.unknown) - acked - failed,
            max(ends, default=None),
            max(self.destination_partitions, other.destination_partitions),
            max(self.source_partitions, other.source_partitions),
            max(self.outcomes, other.outcomes),
            self.compacted or other.compacted,
            max(marks, default=None),
            self.stamped or other.stamped,
            self.repeats or other.repeats,
            max(self.clock_set_ns, other.clock_set_ns),
        )

    def closed(self, mark: int) -> LaneRecord:
        """The lane after its incarnation is over: seqs without an outcome become unknown.

        `mark` is the reserved mark that its successor read.
        """
        reserved = max(self.reserved, mark)
        end = reserved if self.end is None else self.end
        recorded = self.acked | self.failed | self.unknown
        return LaneRecord(
            self.stream,
            reserved,
            self.acked,
            self.failed,
            self.unknown | recorded.missing(0, end),
            end,
            self.destination_partitions,
            self.source_partitions,
            self.outcomes,
            self.compacted,
            reserved if self.end is None else None,
            self.stamped,
            self.repeats,
            self.clock_set_ns,
        )


class RegistrationKey(NamedTuple):
    """The identity of a registration's record."""

    run: str
    producer: str
    incarnation: int
    session: str


class ClosedLane(NamedTuple):
    """A lane of the previous incarnation, and its reserved mark."""

    topic: str
    lane: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Registration:
    """A producer's incarnation: its session, its lanes, and the lanes that it closes."""

    run: str
    producer: str
    incarnation: int
    session: str
    lanes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Source topic -> its lanes."""
    closes: tuple[ClosedLane, ...] = ()
    """The lanes of the previous incarnation."""
    failed: bool = False
    """Whether it ended early with an error: it sends nothing more."""

    def streams(self) -> Iterator[StreamId]:
        """The streams that this incarnation will write."""
        for topic, lanes in self.lanes.items():
            for lane in lanes:
                yield StreamId(topic, self.run, self.producer, self.incarnation, lane)

    def closed_streams(self) -> Iterator[tuple[StreamId, int]]:
        """The streams of the previous incarnation, each with its reserved mark."""
        for topic, lane, reserved in self.closes:
            yield StreamId(topic, self.run, self.producer, self.incarnation - 1, lane), reserved

    def merge(self, other: Registration) -> Registration:
        """The union with another version of the same session's registration."""
        lanes = {
            topic: tuple(sorted({*self.lanes.get(topic, ()), *other.lanes.get(topic, ())}))
            for topic in {*self.lanes, *other.lanes}
        }
        closes = tuple(sorted({*self.closes, *other.closes}))
        failed = self.failed or other.failed
        return Registration(
            self.run, self.producer, self.incarnation, self.session, lanes, closes, failed
        )


def lane_key(stream: StreamId, part: int = 0) -> bytes:
    """The record key of a lane record, or of a further part of it."""
    return _encode(["lane", *stream[1:4], stream.topic, stream.lane, *([part] if part else ())])


def lane_value(record: LaneRecord) -> bytes:
    """The record value of a lane record."""
    body = {
        "v": _VERSION,
        "reserved": record.reserved,
        "acked": record.acked.to_list(),
        "failed": record.failed.to_list(),
        "unknown": record.unknown.to_list(),
        "end": record.end,
        "destination_partitions": record.destination_partitions,
        "source_partitions": record.source_partitions,
    }
    numbers = {"told": record.outcomes, "clock_set_ns": record.clock_set_ns}
    flags = {name: True for name in _FLAGS if getattr(record, name)}
    return _encode(body | {name: each for name, each in numbers.items() if each} | flags)


def registration_key(registration: Registration) -> bytes:
    """The record key of a registration: one per session, so compaction keeps both of two."""
    return _encode(
        [
            "claim",
            registration.run,
            registration.producer,
            registration.incarnation,
            registration.session,
        ]
    )


def registration_value(registration: Registration) -> bytes:
    """The record value of a registration."""
    body = {
        "v": _VERSION,
        "lanes": {topic: list(lanes) for topic, lanes in registration.lanes.items()},
        "closes": [list(lane) for lane in registration.closes],
    }
    return _encode(body | {"failed": True} if registration.failed else body)


def parse(key: bytes, value: bytes) -> LaneRecord | Registration | None:
    """Read a record; None if it is not a ledger record, damaged, or of another version."""
    try:
        parts, body = (
            untrusted.listed(untrusted.document(key)),
            untrusted.mapped(untrusted.document(value)),
        )
        if untrusted.number(untrusted.entry(body, "v")) != _VERSION or not parts:
            return None
        if parts[0] == "lane":
            return _lane(parts, body)
        return _registration(parts, body) if parts[0] == "claim" else None
    except RecordError:
        return None


def parse_registration_key(key: bytes) -> RegistrationKey | None:
    """Read a registration's key; None if it is another key."""
    try:
        return _registration_key(untrusted.listed(untrusted.document(key), 5))
    except RecordError:
        return None


def _lane(parts: list[Any], body: dict[str, Any]) -> LaneRecord:
    part = 0
    if len(parts) == _LANE_KEY + 1:
        part = untrusted.number(parts[_LANE_KEY], 1)  # a further part of the record
        parts = parts[:_LANE_KEY]
    _, its_run, producer, its_incarnation, its_topic, its_lane = untrusted.listed(parts, _LANE_KEY)
    stream = StreamId(
        untrusted.topic(its_topic),
        untrusted.run(its_run),
        untrusted.name(producer),
        untrusted.incarnation(its_incarnation),
        untrusted.lane(its_lane),
    )
    reserved = untrusted.number(untrusted.entry(body, "reserved"))
    end = (
        None
        if untrusted.entry(body, "end") is None
        else untrusted.number(body["end"], 0, reserved + 1)
    )
    used = reserved if end is None else end
    acked, failed, unknown = (
        untrusted.intervals(untrusted.entry(body, outcome), used)
        for outcome in ("acked", "failed", "unknown")
    )
    destination, source = (
        untrusted.number(untrusted.entry(body, count), 0, untrusted.COUNTS_END)
        for count in ("destination_partitions", "source_partitions")
    )
    outcomes = untrusted.number(body.get("told", 0), 0, used + 1)
    compacted, stamped, repeats = (body.get(name) is True for name in _FLAGS)
    own_end, closed_at = (None, end) if part >= CLOSED else (end, None)
    record = LaneRecord(
        *(stream, reserved, acked, failed, unknown, own_end),
        *(destination, source, outcomes, compacted, closed_at),
        stamped=stamped,
        repeats=repeats,
        clock_set_ns=untrusted.number(body.get("clock_set_ns", 0)),
    )
    return record.merge(record)


def _registration(parts: list[Any], body: dict[str, Any]) -> Registration:
    key = _registration_key(untrusted.listed(parts, 5))
    lanes = {
        untrusted.topic(its_topic): tuple(map(untrusted.lane, untrusted.listed(numbers)))
        for its_topic, numbers in untrusted.mapped(untrusted.entry(body, "lanes")).items()
    }
    closes = tuple(
        ClosedLane(untrusted.topic(its_topic), untrusted.lane(its_lane), untrusted.number(reserved))
        for its_topic, its_lane, reserved in (
            untrusted.listed(closed, 3)
            for closed in untrusted.listed(untrusted.entry(body, "closes"))
        )
    )
    if closes and key.incarnation == 1:
        raise RecordError("the first incarnation closes none")
    if max(sum(map(len, lanes.values())), len(closes)) > _MOST_LANES:
        raise RecordError(f"more than {_MOST_LANES:,} lanes")
    return Registration(*key, lanes, closes, body.get("failed") is True)


def _registration_key(parts: list[Any]) -> RegistrationKey:
    kind, its_run, producer, its_incarnation, its_session = parts
    if kind != "claim":
        raise RecordError(f"{kind!r:.80} is no registration")
    return RegistrationKey(
        untrusted.run(its_run),
        untrusted.name(producer),
        untrusted.incarnation(its_incarnation),
        untrusted.session(its_session),
    )


def _encode(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
