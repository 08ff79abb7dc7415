"""Java's unified log of garbage collection (``-Xlog:gc*``), of all its collectors.

Decorations come first, of which the time, the uptime and the tags are used::

    [2026-11-25T23:17:15.895+0000][3.976s][info][gc] GC(0) Pause Young (Normal) 14M->3M(46M) 70.9ms

Serial, Parallel and G1 log a pause with the heap before and after it. ZGC logs a collection with
them, and Shenandoah its cleanups; their pauses have none.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DECORATION = re.compile(r"\[([^\]]*)\]")
_UPTIME = re.compile(r"(\d+(?:\.\d+)?)(s|ms|ns)")
_COLLECTION = re.compile(r"GC\((\d+)\) +(?:[YyO]: +)?(.*)")
_USING = re.compile(r"Using (?:The )?(Serial|Parallel|G1|Z|Shenandoah|Concurrent Mark Sweep)\b")
_MEASURED = re.compile(r"(.*?):? +(\d+(?:\.\d+)?)(ms|s)")
_SIZE = r"(\d+)([BKMG])"
_HEAP = re.compile(rf"(.*?) +{_SIZE}(?:\(\d+%\))?->{_SIZE}(?:\(\d+%\)|\({_SIZE}\))?")
_CAUSE = re.compile(r"(.*?) +\((.*)\)")
_CAPACITY = re.compile(rf"Capacity:.* {_SIZE} \(\d+%\) +\S+ \(\d+%\) +\S+ \(\d+%\)")
_BYTES = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "ns": 1e-9}


class Kind(StrEnum):
    """What an event is. Only pauses stop the program."""

    YOUNG = "young pause"
    FULL = "full pause"
    PAUSE = "pause"
    """Of a concurrent collection: its marks, and the like."""
    CONCURRENT = "concurrent"
    """Work while the program runs; with G1 a whole cycle of it."""
    PHASE = "phase"
    """A part of one of the others."""
    COLLECTION = "collection"
    """One of ZGC's, with its pauses and its work while the program runs."""


PAUSES = frozenset({Kind.YOUNG, Kind.FULL, Kind.PAUSE})


class Stamp(NamedTuple):
    """When a line was written: ns since the epoch, and seconds since the JVM's start."""

    time_ns: int | None = None
    uptime: float | None = None


class GcEvent(NamedTuple):
    """What one line reports; what the line does not have is None. Sizes are in bytes."""

    at: Stamp
    collector: str
    kind: Kind
    name: str
    cause: str
    number: int
    seconds: float | None
    before: int | None = None
    after: int | None = None
    capacity: int | None = None
    freed: int | None = None


class GcLog:
    """Reads the lines of one JVM's log, in their order.

    Attributes:
        collector: its name, once the log has it.
        at: when the last line was written.
    """

    def __init__(self) -> None:
        self.collector = ""
        self.at = Stamp()
        self._capacity: dict[int, int] = {}

    def events(self, line: str) -> Iterator[GcEvent]:
        """The event that a line reports, if any; all other lines are passed over."""
        decorations = []
        at = 0
        while match := _DECORATION.match(line, at):
            decorations.append(match[1].strip())
            at = match.end()
        tags = next((each for each in decorations if each.split(",")[0] == "gc"), None)
        if tags is None:
            return
        self.at = Stamp(_time(decorations), _uptime(decorations))
        text = line[at:].strip()
        if using := _USING.match(text):
            self.collector = {"Z": "ZGC", "Concurrent Mark Sweep": "CMS"}.get(using[1], using[1])
        elif (collection := _COLLECTION.fullmatch(text)) is not None:
            number, text = int(collection[1]), collection[2]
            yield from self._event(tags, number, text)

    def _event(self, tags: str, number: int, text: str) -> Iterator[GcEvent]:
        seconds = None
        if tags == "gc,heap":
            # ZGC's table of the heap: its last columns are the end, the highest and the lowest.
            if capacity := _CAPACITY.match(text):
                self._capacity[number] = _size(capacity[1], capacity[2])
            return
        if measured := _MEASURED.fullmatch(text):
            text, seconds = measured[1], float(measured[2]) * _SECONDS[measured[3]]
        sizes: tuple[int | None, int | None, int | None] = (None, None, None)
        if heap := _HEAP.fullmatch(text):
            text = heap[1]
            capacity_bytes = (
                _size(heap[6], heap[7]) if heap[6] else self._capacity.pop(number, None)
            )
            sizes = _size(heap[2], heap[3]), _size(heap[4], heap[5]), capacity_bytes
        kind = self._kind(tags, text)
        if kind is None or (seconds is None and sizes[0] is None):
            return
        name, cause = text.strip(), ""
        if found := _CAUSE.fullmatch(name):
            name, cause = found[1], found[2]
        before, after, capacity_of = sizes
        freed = None if before is None or after is None else max(before - after, 0)
        yield GcEvent(
            self.at, self.collector, kind, name, cause, number,
            seconds, before, after, capacity_of, freed,
        )  # fmt: skip

    def _kind(self, tags: str, text: str) -> Kind | None:
        top = tags == "gc" or (tags == "gc,phases" and self.collector == "ZGC")
        if text.startswith("Pause "):
            if not top:
                return None  # G1 and others log it a second time, as a start
            young = text.startswith("Pause Young")
            return (
                Kind.YOUNG if young else Kind.FULL if text.startswith("Pause Full") else Kind.PAUSE
            )
        if text.startswith("Concurrent "):
            return Kind.CONCURRENT if top else Kind.PHASE
        if top and re.match(r"(Garbage|Minor|Major) Collection\b", text):
            return Kind.COLLECTION
        return Kind.PHASE if tags.split(",")[:2] == ["gc", "phases"] else None


@dataclass(frozen=True)
class PhaseTotal:
    """All events of one kind and name."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class GcSummary:
    """The collections of one log, of the rows of `model.observed.GC`."""

    def __init__(self) -> None:
        self.collector = ""
        self.footprint = 0
        """The largest heap, in bytes."""
        self.freed = 0
        self.phases: dict[tuple[Kind, str], PhaseTotal] = {}
        self._started_ns: int | None = None
        self._ended_ns = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take an event."""
        self.collector = row["collector"]
        self.footprint = max(self.footprint, row["capacity_bytes"] or row["before_bytes"] or 0)
        self.freed += row["freed_bytes"] or 0
        seconds = row["seconds"] or 0.0
        key = Kind(row["kind"]), row["name"]
        before = self.phases.get(key, PhaseTotal())
        self.phases[key] = PhaseTotal(
            before.count + 1, before.seconds + seconds, max(before.longest, seconds)
        )
        started_ns = row["started_ns"]
        if self._started_ns is None or started_ns < self._started_ns:
            self._started_ns = started_ns
        self._ended_ns = max(self._ended_ns, row["ended_ns"])

    @property
    def seconds(self) -> float:
        """From the start of the first event to the end of the last."""
        return (self._ended_ns - (self._started_ns or self._ended_ns)) / 1e9

    def of(self, *kinds: Kind) -> PhaseTotal:
        """All events of these kinds together."""
        found = [each for (kind, _), each in self.phases.items() if kind in kinds]
        return PhaseTotal(
            sum(each.count for each in found),
            sum(each.seconds for each in found),
            max((each.longest for each in found), default=0.0),
        )

    def to_json(self, seconds: float | None = None) -> dict[str, Any]:
        """Everything, for an observation of so many seconds; else for those of the events."""
        seconds = self.seconds if seconds is None else seconds
        pauses = self.of(*PAUSES)
        return {
            "collector": self.collector,
            "seconds": seconds,
            "footprint_bytes": self.footprint,
            "freed_bytes": self.freed,
            "freed_bytes_per_minute": self.freed * 60 / seconds if seconds else None,
            "pause_seconds": pauses.seconds,
            "longest_pause_seconds": pauses.longest,
            "throughput_ratio": 1 - pauses.seconds / seconds if seconds else None,
            "young_collections": self.of(Kind.YOUNG).count,
            "full_collections": self.of(Kind.FULL).count,
            "phases": [
                {"kind": kind.value, "name": name, **asdict(total)}
                for (kind, name), total in self.phases.items()
            ],
        }


def _size(number: str, unit: str) -> int:
    return int(number) * _BYTES[unit]


def _time(decorations: list[str]) -> int | None:
    for text in decorations:
        if re.match(r"\d{4}-\d\d-\d\dT", text):
            # In parts: as a float a nanosecond count is not exact.
            at = datetime.fromisoformat(text)
            return int(at.replace(microsecond=0).timestamp()) * 10**9 + at.microsecond * 1000
    return None


def _uptime(decorations: list[str]) -> float | None:
    for text in decorations:
        if match := _UPTIME.fullmatch(text):
            return float(match[1]) * _SECONDS[match[2]]
    return None
