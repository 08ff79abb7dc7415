"""Lines over time in panels, one above the other: as data for the page's script, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.config.units import format_seconds
from mirrortest.report.html.key_figures import Row
from mirrortest.results.words import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from mirrortest.report.html.timeline import Slots


class Line(NamedTuple):
    """One figure over time: a value for each step, NaN if there is none."""

    name: str
    style: str
    """How it is drawn: the name of a style in the page's script."""
    values: NDArray[np.float64]


class Panel(NamedTuple):
    """Lines of one unit: "" is a number, "s" seconds on a logarithmic scale, "%" per cent."""

    title: str
    unit: str
    lines: list[Line]


def with_values(panels: Iterable[Panel]) -> list[Panel]:
    """The panels without lines that never have a value; panels without a line are left out."""
    shown = [
        panel._replace(lines=[line for line in panel.lines if not np.isnan(line.values).all()])
        for panel in panels
    ]
    return [panel for panel in shown if panel.lines]


def times(slots: Slots) -> dict[str, float]:
    """The start of the first step and the length of a step, in ms, for the page's script."""
    return {"start": slots.start_ns / 1e6, "step": slots.step_ns / 1e6}


def panels_data(panels: Iterable[Panel]) -> list[dict[str, Any]]:
    """The panels as data for the page's script."""
    return [
        {
            "title": panel.title,
            "unit": panel.unit,
            "lines": [
                {"name": line.name, "style": line.style, "values": _values(line)}
                for line in panel.lines
            ],
        }
        for panel in panels
    ]


def panels_text(slots: Slots, panels: Iterable[Panel]) -> str:
    """The highest value of each panel's first line, as text."""
    texts = []
    for panel in panels:
        line = panel.lines[0]
        at = int(np.nanargmax(line.values))
        value = _cell(panel.unit, float(line.values[at]))
        texts.append(f"{panel.title} ({line.name}): at most {value} at {_moment(slots, at)}")
    return f"{'; '.join(texts)}."


def columns(panels: Iterable[Panel]) -> list[str]:
    """The names of all lines."""
    return [f"{panel.title}: {line.name}" for panel in panels for line in panel.lines]


def rows(slots: Slots, panels: Sequence[Panel]) -> list[Row]:
    """The figures behind the lines: a row for each step, its cells in the order of `columns`."""
    lines = [(panel.unit, line) for panel in panels for line in panel.lines]
    return [
        Row(_moment(slots, at), [_cell(unit, float(line.values[at])) for unit, line in lines])
        for at in range(slots.count)
    ]


def csv_rows(slots: Slots, panels: Sequence[Panel], names: Sequence[str]) -> Iterator[list[object]]:
    """The rows of a CSV file: a step's time, and its values in the columns `names`."""
    lines = [_values(line) for panel in panels for line in panel.lines]
    by_name = dict(zip(columns(panels), lines, strict=True))
    for at in range(slots.count):
        values = [by_name[name][at] if name in by_name else None for name in names]
        yield [_moment(slots, at), *("" if value is None else value for value in values)]


def _values(line: Line) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in line.values.tolist()]


def _cell(unit: str, value: float) -> str:
    if np.isnan(value):
        return "-"
    if unit == "s":
        return format_seconds(value)
    return f"{value:,.0f} {unit}".rstrip() if value >= 100 else f"{value:.3g} {unit}".rstrip()


def _moment(slots: Slots, slot: int) -> str:
    return moment(slots.begin(slot), 1)
