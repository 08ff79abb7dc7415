"""A comparison, or a trend, as one HTML page, with the report's template parts and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.compare.document import Change, by, interval, percent
from mirrortest.compare.figures import QUANTILES, Unit, statistic
from mirrortest.compare.terminal import exact_changes, why
from mirrortest.config.threshold import Series
from mirrortest.config.units import SECOND_NS
from mirrortest.report.html import render_page
from mirrortest.report.html.load import load_of
from mirrortest.report.html.load_panels import panels
from mirrortest.report.html.panels import panels_data
from mirrortest.report.html.tones import VERDICT_TONES
from mirrortest.results.words import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.compare.document import Comparison, FigureChange, Pair
    from mirrortest.compare.repeat import Side
    from mirrortest.compare.trend import Trend

_CHANGES = {
    Change.WORSE: "bad",
    Change.BETTER: "good",
    Change.DIFFERS: "note",
    Change.NONE: "plain",
    Change.UNKNOWN: "doubt",
}
_CHARTS = {"slots": {"start": 0, "step": 1, "count": 1}, "marks": [], "limits": []}
"""Placeholders: charts of a report have time slots, events and limits, these have none."""

_OVER_TIME = {
    ("messages/s", "acknowledged"): "Messages acknowledged per second",
    ("messages/s", "arrived"): "Messages arrived per second",
    ("acknowledgement latency", "p99"): "Acknowledgement latency, p99",
    ("messages that wait", "lag of consumers"): "Lag of the consumers, messages",
    ("messages in a batch", "mean"): "Messages in a batch",
    ("CPU, in cores", "producers"): "CPU of the producers, cores",
    ("CPU, in cores", "consumers"): "CPU of the consumers, cores",
}
"""The lines of the report's panels that are drawn here, with their titles."""


class _Row(NamedTuple):
    name: str
    base: str
    new: str
    difference: str
    interval: str
    change: Change
    why: str


def render(comparison: Comparison, sides: Sequence[Side] = ()) -> str:
    """Render a comparison; the logs of `sides` (the base first) are drawn over time.

    Raises MirrortestError if Jinja is not installed.
    """
    charts = [_charts(pair) | {"times": _times(pair, sides)} for pair in comparison.pairs]
    return render_page(
        "comparison.html.j2",
        ("comparison.js",),
        {
            "comparison": comparison,
            "tone": VERDICT_TONES[comparison.verdict],
            "why": why(comparison),
            "tones": _CHANGES,
            "pairs": [
                {
                    "pair": pair,
                    "exact": exact_changes(pair),
                    "rows": [_row(each) for each in pair.figures],
                    "text": _text(pair),
                    "drawn": drawn,
                }
                for pair, drawn in zip(comparison.pairs, charts, strict=True)
            ],
            "charts": _CHARTS | {"pairs": charts},
        },
    )


def render_trend(trend: Trend) -> str:
    """Render a trend, a chart for each figure. Raises MirrortestError if Jinja is not installed."""
    changed = sorted(trend.figures, key=lambda each: not each.changes)
    figures = [
        {
            "name": each.title,
            "seconds": each.unit == Unit.SECONDS,
            "sign": Unit(each.unit).suffix,
            "values": each.values,
            "changes": [
                {**change.model_dump(mode="json"), "tone": _CHANGES[change.change]}
                for change in each.changes
            ],
            "text": "; ".join(
                f"{change.change} {by(change.difference)} since run {trend.runs[change.at].run}"
                for change in each.changes
            )
            or "no change",
        }
        for each in changed
    ]
    names = [
        each.run + (f", {moment(each.started_ns)}" if each.started_ns else "")
        for each in trend.runs
    ]
    charts = _CHARTS | {"runs": names, "figures": figures}
    return render_page("trend.html.j2", ("trend.js",), {"trend": trend, "charts": charts})


def _row(each: FigureChange) -> _Row:
    unit = Unit(each.unit)
    base, new = (unit.show(float(np.mean(of))) if of else "" for of in (each.base, each.new))
    shown = percent(each.difference), interval(each)
    return _Row(each.name, base, new, *shown, each.change, each.why)


def _text(pair: Pair) -> str:
    changed = [
        f"{each.name} {each.change} {by(each.difference)}"
        for each in pair.figures
        if each.change in {Change.WORSE, Change.BETTER, Change.DIFFERS}
    ]
    return f"{'; '.join(changed) or 'No figure differs'}."


def _charts(pair: Pair) -> dict[str, Any]:
    """Figures that have an interval, as shares of the base's mean; and latencies in seconds."""
    figures = []
    for each in pair.figures:
        mean = float(np.mean(each.base)) if each.base else 0.0
        if mean > 0 and each.low is not None and each.high is not None:
            figures.append(
                {
                    "name": each.name,
                    "change": each.change.value,
                    **{name: getattr(each, name) for name in ("low", "difference", "high")},
                    "base": [value / mean - 1 for value in each.base],
                    "new": [value / mean - 1 for value in each.new],
                }
            )
    by_name = {each.name: each for each in pair.figures}
    curves = [_curve(series, by_name) for series in Series]
    return {"figures": figures, "curves": [each for each in curves if each is not None]}


def _curve(series: Series, figures: dict[str, FigureChange]) -> dict[str, Any] | None:
    """Percentiles of a latency, a line for each repeat; None if a side lacks them.

    Only those are drawn that all repeats with this latency have.
    """
    measured = [
        (name, figures[full])
        for name in (*QUANTILES, "max")
        if (full := statistic(series, name)) in figures and figures[full].base and figures[full].new
    ]
    most = max((_repeats(each) for _, each in measured), default=None)
    found = [(name, each) for name, each in measured if _repeats(each) == most]
    if len(found) < 2:  # a line needs two points
        return None
    return {
        "title": f"{series.replace('_', ' ').capitalize()}, percentiles of each repeat",
        "text": "The table has the figures.",
        "statistics": [name for name, _ in found],
        "base": [*zip(*(each.base for _, each in found), strict=True)],
        "new": [*zip(*(each.new for _, each in found), strict=True)],
    }


def _times(pair: Pair, sides: Sequence[Side]) -> list[dict[str, Any]]:
    """Figures over time that both sides have: a line for each repeat, from its start."""
    names = {"base": sides[0].shown, "new": pair.place} if sides else {}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for key, shown in names.items():
        side = next(each for each in sides if each.shown == shown)
        for repeat in (side.at(pair.point) if pair.point else side).repeats:
            load = load_of(repeat.logs)
            if load is None:
                continue
            step = load.slots.step_ns / SECOND_NS
            for panel in panels_data(panels(load)):
                for line in panel["lines"]:
                    chart = found.setdefault(
                        (panel["title"], line["name"]),
                        {"unit": panel["unit"], "base": [], "new": []},
                    )
                    chart[key].append({"step": step, "values": line["values"]})
    return [
        {"title": title, **found[line]}
        for line, title in _OVER_TIME.items()
        if line in found and found[line]["base"] and found[line]["new"]
    ]


def _repeats(each: FigureChange) -> tuple[int, int]:
    return len(each.base), len(each.new)
