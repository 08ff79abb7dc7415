"""What was observed, in short: mean and peak of the figures that are looked at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group

from mirrortest.config.units import SECOND_NS, format_duration
from mirrortest.model.observed import DEVICE, HOST, INTERFACE, PROCESS
from mirrortest.results.tables import lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from mirrortest.model.observed import Observed
    from mirrortest.observe.machine import Tables

_PROCESSES_SHOWN = 10
"""At most, those with the most CPU."""
_SHOWN = {
    HOST: ("cpu_ratio", "io_wait_ratio", "steal_ratio", "context_switches_per_second"),
    DEVICE: ("busy_ratio", "response_seconds", "read_bytes_per_second", "written_bytes_per_second"),
    INTERFACE: ("received_bytes_per_second", "sent_bytes_per_second"),
    PROCESS: ("cpus", "resident_bytes"),
}


@dataclass
class Extent:
    """A figure over all intervals that have it."""

    count: int = 0
    total: float = 0.0
    highest: float = 0.0

    def add(self, value: float) -> None:
        """Take an interval's."""
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
        self._extents: dict[tuple[Observed, str, str], Extent] = {}

    def add(self, tables: Tables) -> None:
        """Take an interval's rows."""
        self.intervals += 1
        for kind, rows in tables.items():
            for row in rows:
                subject = " ".join(str(row[key.name]) for key in kind.keys)
                for figure in kind.figures:
                    value = row.get(figure.name)
                    if isinstance(value, int | float):
                        key = (kind, subject, figure.name)
                        self._extents.setdefault(key, Extent()).add(value)

    def __str__(self) -> str:
        """A line of progress."""
        cpu = self._extents.get((HOST, "", "cpu_ratio"), Extent(1))
        return f"{self.intervals:,} intervals, CPU {100 * cpu.mean:.0f} %, files in {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Everything, with the names of the columns."""
        found: dict[str, Any] = {"path": str(self.path), "intervals": self.intervals}
        for (kind, subject, name), extent in self._extents.items():
            of_subject = found.setdefault(kind.name, {}).setdefault(subject, {})
            of_subject[name] = {"mean": extent.mean, "max": extent.highest}
        return found

    def view(self) -> RenderableType:
        """For a terminal."""
        head = f"{self.intervals:,} intervals in {self.path}"
        if not self._extents:
            return Group(*lines([head]))
        return Group(*lines([head]), table(("", "mean", "highest"), self._rows()))

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
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
