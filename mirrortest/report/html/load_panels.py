"""The load as the page shows it: lines over time in panels, their figures as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.config.units import MIB, SECOND_NS, format_duration
from mirrortest.report.html.charts import EVERY, PERCENTILES
from mirrortest.report.html.figures import Row
from mirrortest.results.words import moment
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirrortest.report.html.load import Load

_PROCESSES = {
    Role.PRODUCER: ("producers", "first"),
    Role.CONSUMER: ("consumers", "second"),
    Role.SOURCE: ("source observers", "third"),
}


class Line(NamedTuple):
    """One figure over time: a value for each step, NaN where there is none."""

    name: str
    style: str
    """How it is drawn: a name of the page's script."""
    values: NDArray[np.float64]


class Panel(NamedTuple):
    """Lines of one unit: "" is a plain number, "s" seconds on a logarithmic scale."""

    title: str
    unit: str
    lines: list[Line]


def panels(load: Load, topic: str | None = None) -> list[Panel]:
    """What is drawn of one topic, or of all; a panel without any value is left out."""
    chosen = (
        list(range(len(load.topics)))
        if topic is None
        else [at for at, each in enumerate(load.topics) if each == topic]
    )
    producer, consumer, source = Role.PRODUCER, Role.CONSUMER, Role.SOURCE

    def rate(name: str, style: str, role: Role, figure: str, unit: float = 1) -> Line:
        return Line(name, style, load.mean(role, figure, chosen) / unit)

    def of_batch(figure: str) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            batches = load.total(producer, "batches", chosen)
            mean: NDArray[np.float64] = load.total(producer, figure, chosen) / batches
        return np.where(batches > 0, mean, np.nan)

    errors = [
        rate("failed", "first", producer, "failed"),
        rate("unknown", "second", producer, "unknown"),
    ]
    every = [
        Panel("messages/s", "", [
            rate("asked", "asked", producer, "asked"),
            rate("sent", "sent", producer, "sent"),
            rate("acknowledged", "first", producer, "acked"),
            rate("arrived", "second", consumer, "arrived"),
            rate("in the source", "third", source, "arrived"),
        ]),
        Panel("MiB/s", "", [
            rate("batches sent", "sent", producer, "batch_bytes", MIB),
            rate("values acknowledged", "first", producer, "value_bytes", MIB),
            rate("values arrived", "second", consumer, "value_bytes", MIB),
        ]),
        Panel("acknowledgement latency", "s", _latencies(load, chosen)),
        Panel("messages that wait", "", [
            rate("lag of consumers", "second", consumer, "lag"),
            rate("in flight", "first", producer, "in_flight"),
            rate("due and not sent", "asked", producer, "debt_messages"),
        ]),
        Panel("not acknowledged, messages/s", "", [
            line for line in errors if np.nansum(line.values) > 0
        ]),
        Panel("messages in a batch", "", [Line("mean", "first", of_batch("batch_messages"))]),
        Panel("kB of a batch, as sent", "", [
            Line("mean", "first", of_batch("batch_bytes") / 1000)
        ]),
        Panel("CPU, in cores", "", [
            Line(name, style, load.of_processes(role, "cpu_seconds"))
            for role, (name, style) in _PROCESSES.items()
        ]),
        Panel("memory, MiB", "", [
            Line(name, style, load.of_processes(role, "memory_bytes") / MIB)
            for role, (name, style) in _PROCESSES.items()
        ]),
    ]  # fmt: skip
    shown = [
        panel._replace(lines=[line for line in panel.lines if not np.isnan(line.values).all()])
        for panel in every
    ]
    return [panel for panel in shown if panel.lines]


def _latencies(load: Load, topics: Sequence[int]) -> list[Line]:
    if load.acknowledgements is None or not topics:
        return []
    names = {"p50": "first", "p99": "sent"}
    found = load.acknowledgements.of_topics(topics).quantiles(PERCENTILES[name] for name in names)
    return [
        Line(name, style, np.array([np.nan if ns is None else ns / SECOND_NS for ns in values]))
        for (name, style), values in zip(names.items(), found, strict=True)
    ]


def load_data(load: Load, topics: Sequence[str]) -> dict[str, Any]:
    """What the page's script draws; `topics` are those that can be chosen, besides all."""
    chosen = [panels(load, topic) for topic in (None, *topics)]
    return {
        "start": load.slots.start_ns / 1e6,
        "step": load.slots.step_ns / 1e6,
        "topics": [
            [
                {
                    "title": panel.title,
                    "unit": panel.unit,
                    "lines": [
                        {"name": line.name, "style": line.style, "values": _values(line)}
                        for line in panel.lines
                    ],
                }
                for panel in its
            ]
            for its in chosen
        ],
    }


def load_text(load: Load) -> str:
    """The highest value of each panel's first line, in words."""
    texts = []
    for panel in panels(load):
        line = panel.lines[0]
        at = int(np.nanargmax(line.values))
        value = _cell(panel.unit, float(line.values[at]))
        texts.append(f"{panel.title} ({line.name}): at most {value} at {_moment(load, at)}")
    return f"{'; '.join(texts)}."


def load_columns(load: Load) -> list[str]:
    """The columns of `load_rows`."""
    return [f"{panel.title}: {line.name}" for panel in panels(load) for line in panel.lines]


def load_rows(load: Load) -> list[Row]:
    """The figures behind the charts, of all topics together: a row for each step."""
    lines = [(panel.unit, line) for panel in panels(load) for line in panel.lines]
    return [
        Row(_moment(load, at), [_cell(unit, float(line.values[at])) for unit, line in lines])
        for at in range(load.slots.count)
    ]


def load_table(load: Load, topics: Sequence[str]) -> tuple[list[str], list[list[object]]]:
    """The heads and rows of a CSV file: all topics together, then each of these."""
    names = load_columns(load)
    rows: list[list[object]] = []
    for topic in (None, *topics):
        lines = {
            f"{panel.title}: {line.name}": _values(line)
            for panel in panels(load, topic)
            for line in panel.lines
        }
        for at in range(load.slots.count):
            values = [lines[name][at] if name in lines else None for name in names]
            rows.append(
                [_moment(load, at), topic or EVERY, *("" if v is None else v for v in values)]
            )
    return ["from_utc", "topic", *names], rows


def _values(line: Line) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in line.values.tolist()]


def _cell(unit: str, value: float) -> str:
    if np.isnan(value):
        return "-"
    if unit == "s":
        return format_duration(round(value * SECOND_NS))
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _moment(load: Load, slot: int) -> str:
    return moment(load.slots.start_ns + slot * load.slots.step_ns, 1)
