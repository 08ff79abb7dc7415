"""Java's unified garbage collection log (``-Xlog:gc*``), of all its collectors.

Each line begins with decorations: the time, the uptime and the tags are used::

    [2026-11-25T23:17:15.895+0000][3.976s][info][gc] GC(0) Pause Young (Normal) 14M->3M(46M) 70.9ms

Serial, Parallel and G1 log each pause with the heap before and after it. ZGC logs the heap with
each collection, Shenandoah with each cleanup, and neither logs it with pauses.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.observed import GcKind

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Stamp(NamedTuple):
    """When a line was written: ns since the epoch, and seconds since the JVM's start."""

    time_ns: int | None = None
    uptime: float | None = None


class GcEvent(NamedTuple):
    """What one line reports; a field that the line lacks is None. Sizes are in bytes."""

    at: Stamp
    collector: str
    kind: GcKind
    name: str
    cause: str
    number: int
    seconds: float | None
    before: int | None
    after: int | None
    capacity: int | None
    freed: int | None


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
        """The event that a line reports, if any; all other lines are skipped."""
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
            # ZGC's table of the heap: its last columns are Relocate End, High and Low.
            if found := _CAPACITY.match(text):
                self._capacity[number] = _size(found[1], found[2])
            return
        if measured := _MEASURED.fullmatch(text):
            text, seconds = measured[1], float(measured[2]) * _SECONDS[measured[3]]
        before = after = capacity = freed = None
        if heap := _HEAP.fullmatch(text):
            text = heap[1]
            before, after = _size(heap[2], heap[3]), _size(heap[4], heap[5])
            capacity = _size(heap[6], heap[7]) if heap[6] else self._capacity.pop(number, None)
            freed = max(before - after, 0)
        kind = self._kind(tags, text)
        if kind is None or (seconds is None and before is None):
            return
        name, cause = text.strip(), ""
        if found := _CAUSE.fullmatch(name):
            name, cause = found[1], found[2]
        yield GcEvent(
            self.at, self.collector, kind, name, cause, number,
            seconds, before, after, capacity, freed,
        )  # fmt: skip

    def _kind(self, tags: str, text: str) -> GcKind | None:
        top = tags == "gc" or (tags == "gc,phases" and self.collector == "ZGC")
        if text.startswith("Pause "):
            if not top:
                return None  # G1 and others log its start, too
            if text.startswith("Pause Young"):
                return GcKind.YOUNG
            return GcKind.FULL if text.startswith("Pause Full") else GcKind.PAUSE
        if text.startswith("Concurrent "):
            return GcKind.CONCURRENT if top else GcKind.PHASE
        if top and re.match(r"(Garbage|Minor|Major) Collection\b", text):
            return GcKind.COLLECTION
        return GcKind.PHASE if tags.split(",")[:2] == ["gc", "phases"] else None


def _size(number: str, unit: str) -> int:
    return int(number) * _BYTES[unit]


def _time(decorations: list[str]) -> int | None:
    for text in decorations:
        if re.match(r"\d{4}-\d\d-\d\dT", text):
            # Seconds and microseconds apart: a float cannot represent the nanoseconds exactly.
            at = datetime.fromisoformat(text)
            return int(at.replace(microsecond=0).timestamp()) * 10**9 + at.microsecond * 1000
    return None


def _uptime(decorations: list[str]) -> float | None:
    for text in decorations:
        if match := _UPTIME.fullmatch(text):
            return float(match[1]) * _SECONDS[match[2]]
    return None
