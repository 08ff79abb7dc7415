"""A summary of an observation: mean and peak of the figures that matter first."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group

from mirrortest.config.units import SECOND_NS, format_duration, number
from mirrortest.model.observed import (
    BROKER,
    DEVICE,
    GC,
    HOST,
    INTERFACE,
    LOG,
    MIRROR,
    PROCESS,
    REQUEST,
)
from mirrortest.results.observed_totals import GcSummary, Occurrences
from mirrortest.results.tables import lines, table
from mirrortest.results.words import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mirrortest.model.observed import Observed
    from mirrortest.observe.machine import Tables

_GC_SHOWN = {
    "heap": ("footprint_bytes", "bytes"),
    "freed": ("freed_bytes", "bytes"),
    "freed/min": ("freed_bytes_per_minute", "bytes"),
    "pauses": ("pause_seconds", "s"),
    "longest": ("longest_pause_seconds", "s"),
    "throughput": ("throughput_ratio", "0 to 1"),
    "young": ("young_collections", ""),
    "full": ("full_collections", ""),
}
_EXAMPLE = 60
"""Maximum length of an example in a table."""
_PROCESSES_SHOWN = 10
"""The maximum number of processes shown: those with the most CPU."""
_SHOWN = {
    HOST: ("cpu_ratio", "io_wait_ratio", "steal_ratio", "context_switches_per_second"),
    DEVICE: ("busy_ratio", "response_seconds", "read_bytes_per_second", "written_bytes_per_second"),
    INTERFACE: ("received_bytes_per_second", "sent_bytes_per_second"),
    PROCESS: ("cpus", "resident_bytes"),
    BROKER: ("bytes_in_per_second", "handler_idle_ratio", "flush_seconds"),
    REQUEST: ("requests_per_second", "total_seconds", "total_p99_seconds"),
    MIRROR: ("records_per_second", "replication_latency_seconds"),
}


@dataclass
class Extent:
    """A figure over all intervals that have it."""

    count: int = 0
    total: float = 0.0
    highest: float = -math.inf

    def add(self, value: float) -> None:
        """Add the value of an interval."""
        self.count += 1
        self.total += value
        self.highest = max(self.highest, value)

    @property
    def mean(self) -> float:
        """The mean of all intervals."""
        return self.total / self.count


class ObserveReport:
    """The observation so far; its files are in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.intervals = 0
        self.seconds: float | None = None
        """The length of the observation; None if only logs were read."""
        self._extents: dict[tuple[Observed, str, str], Extent] = {}
        self._gc: dict[str, GcSummary] = {}
        self._lines: dict[tuple[str, str, str], Occurrences] = {}

    def add(self, tables: Tables) -> None:
        """Add the rows of an interval."""
        self.intervals += HOST in tables
        for kind, rows in tables.items():
            for row in rows:
                if kind is GC:
                    self._gc.setdefault(str(row["log"]), GcSummary()).add(row)
                    continue
                if kind is LOG:
                    self._add_lines(row)
                    continue
                subject = " ".join(filter(None, (str(row[key.name]) for key in kind.keys)))
                for figure in kind.figures:
                    value = row.get(figure.name)
                    if isinstance(value, int | float):
                        key = (kind, subject, figure.name)
                        self._extents.setdefault(key, Extent()).add(value)

    def _add_lines(self, row: dict[str, Any]) -> None:
        key = row["log"], row["kind"], row["type"]
        found = Occurrences(*(row[each.name] for each in fields(Occurrences)))
        before = self._lines.get(key)
        self._lines[key] = found if before is None else before.with_later(found)

    def __str__(self) -> str:
        """A line of progress."""
        cpu = self._extents.get((HOST, "", "cpu_ratio"), Extent(1))
        count = number(self.intervals, "interval")
        return f"{count}, CPU {100 * cpu.mean:.0f} %, files in {self.path}"

    def to_json(self) -> dict[str, Any]:
        """The report as JSON, with the names of the columns."""
        found: dict[str, Any] = {"path": str(self.path), "intervals": self.intervals}
        for (kind, subject, name), extent in self._extents.items():
            of_subject = found.setdefault(kind.name, {}).setdefault(subject, {})
            of_subject[name] = {"mean": extent.mean, "max": extent.highest}
        found["gc"] = {path: each.to_json(self.seconds) for path, each in self._gc.items()}
        found["log"] = [
            {"log": path, "kind": kind, "type": name, **asdict(found_lines)}
            for (path, kind, name), found_lines in self._lines.items()
        ]
        return found

    def view(self) -> RenderableType:
        """The report for a terminal."""
        parts: list[RenderableType] = list(
            lines([f"{number(self.intervals, 'interval')} in {self.path}"])
        )
        for heads, rows in (
            (("", "mean", "highest"), self._rows()),
            (("garbage collection", ""), self._gc_rows()),
            (("log", "count"), self._line_rows()),
        ):
            shown = table(heads, rows)
            shown.columns[0].overflow = "fold"
            if shown.row_count:
                parts.append(shown)
        return Group(*parts)

    def _gc_rows(self) -> Iterator[tuple[str, str]]:
        for path, each in self._gc.items():
            figures = each.to_json(self.seconds)
            of = " ".join(filter(None, (Path(path).name, each.collector)))
            for shown, (name, unit) in _GC_SHOWN.items():
                figure = figures[name]
                yield f"{of} {shown}", "-" if figure is None else _with_unit(figure, unit)

    def _line_rows(self) -> Iterator[tuple[str, str]]:
        often = sorted(self._lines.items(), key=lambda each: -each[1].count)
        for (path, kind, name), found in often:
            yield f"{Path(path).name} {kind} {name}", f"{found.count:,}"
            yield f"{moment(found.first_ns)} {textwrap.shorten(found.example, _EXAMPLE)}", ""

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        for kind, names in _SHOWN.items():
            subjects = [
                subject for of, subject, name in self._extents if (of, name) == (kind, names[0])
            ]
            if kind is PROCESS:
                subjects.sort(key=lambda each: -self._extents[kind, each, names[0]].mean)
                subjects = subjects[:_PROCESSES_SHOWN]
            units = {each.name: each.unit for each in kind.figures}
            for subject in subjects:
                for name in names:
                    extent = self._extents.get((kind, subject, name))
                    if extent is not None:
                        what = " ".join(filter(None, (kind.name, subject, _readable(name))))
                        unit = units[name]
                        yield what, _with_unit(extent.mean, unit), _with_unit(extent.highest, unit)


def _readable(name: str) -> str:
    """A column's name without its unit."""
    for unit in ("_ratio", "_per_second", "_seconds"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _with_unit(value: float, unit: str) -> str:
    if unit == "0 to 1":
        return f"{100 * value:.1f} %"
    if unit == "s":
        return format_duration(round(value * SECOND_NS))
    if unit.startswith("bytes"):
        return f"{value / 1e6:,.2f} M{unit.replace('bytes', 'B')}"
    return f"{value:,.3g} {unit}".rstrip() if value < 1000 else f"{value:,.0f} {unit}".rstrip()
