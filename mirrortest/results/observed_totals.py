"""Sums over the rows of an observation: of a JVM's collections, and of a log's entries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mirrortest.model.observed import PAUSES, GcKind

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Occurrences:
    """Entries of one kind and type; times in ns since the epoch."""

    count: int
    first_ns: int
    last_ns: int
    example: str

    def with_later(self, later: Occurrences) -> Occurrences:
        """These and later entries; the example stays."""
        return replace(
            self,
            count=self.count + later.count,
            first_ns=min(self.first_ns, later.first_ns),
            last_ns=max(self.last_ns, later.last_ns),
        )


@dataclass(frozen=True)
class PhaseTotal:
    """All events of one kind and name."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


class GcSummary:
    """The collections in one log, from rows of `model.observed.GC`."""

    def __init__(self) -> None:
        self.collector = ""
        self.footprint = 0
        """The largest heap, in bytes."""
        self.freed = 0
        self.phases: dict[tuple[str, str], PhaseTotal] = {}
        """By kind and name; later versions may have more kinds."""
        self._started_ns: int | None = None
        self._ended_ns = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add an event."""
        self.collector = row["collector"]
        self.footprint = max(self.footprint, row["capacity_bytes"] or row["before_bytes"] or 0)
        self.freed += row["freed_bytes"] or 0
        seconds = row["seconds"] or 0.0
        key = str(row["kind"]), row["name"]
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

    def of(self, *kinds: GcKind) -> PhaseTotal:
        """All events of these kinds together."""
        found = [each for (kind, _), each in self.phases.items() if kind in kinds]
        return PhaseTotal(
            sum(each.count for each in found),
            sum(each.seconds for each in found),
            max((each.longest for each in found), default=0.0),
        )

    def to_json(self, seconds: float | None = None) -> dict[str, Any]:
        """All totals, over an observation of `seconds`, by default from first to last event."""
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
            "young_collections": self.of(GcKind.YOUNG).count,
            "full_collections": self.of(GcKind.FULL).count,
            "phases": [
                {"kind": kind, "name": name, **asdict(total)}
                for (kind, name), total in self.phases.items()
            ],
        }
