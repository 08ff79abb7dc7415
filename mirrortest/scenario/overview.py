"""All points of a scenario in one table: as rows, and as an HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from mirrortest.report.html import environment_of_templates, read_asset
from mirrortest.results.words import readable_name

if TYPE_CHECKING:
    from mirrortest.scenario.outcome import PointOutcome, SeriesOutcome

PAGE = "scenario.html"
_FIGURES = {
    "sent/s": ("sent_per_second", ",.0f"),
    "sent MiB/s": ("sent_mib_per_second", ",.2f"),
    "read/s": ("read_per_second", ",.0f"),
    "ack p99, s": ("ack_p99_seconds", ",.3f"),
    "p50, s": ("latency_p50_seconds", ",.3f"),
    "p99, s": ("latency_p99_seconds", ",.3f"),
}
"""Columns of the table of points: heading -> figure, format."""
_OF_ONE = {"catch_up_seconds.": "catch-up of {}, s", "discovery_seconds.": "discovery of {}, s"}
"""Figures of one part or topic, whose name follows in the figure's: beginning -> heading."""
_TONES = {"passed": "good", "failed": "bad", "inconclusive": "doubt", "error": "bad"}


class Row(NamedTuple):
    """A row of the table of points; `tone` is good if the point ended as expected.

    `reasons` are also the point's notes.
    """

    number: int
    cells: list[str]
    verdict: str
    tone: str
    reasons: list[str]
    findings: str


def headings(series: SeriesOutcome) -> list[str]:
    """The headings of the rows' cells: what varies, then the figures that some point has."""
    varied = list(series.points[0].settings) if series.points else []
    repeated = ["repeat"] if any(point.repeat > 1 for point in series.points) else []
    return [*varied, *repeated, *_measured(series)]


def rows(series: SeriesOutcome) -> list[Row]:
    """Rows of the points that have ended; points of one combination follow each other."""
    measured = _measured(series)
    order = sorted(series.points, key=_combination)
    repeats = "repeat" in headings(series)
    return [
        Row(
            number=point.number,
            cells=[
                *map(str, point.settings.values()),
                *([str(point.repeat)] if repeats else []),
                *(_shown(point, *column) for column in measured.values()),
            ],
            verdict=point.result_word,
            tone="good" if point.as_expected else _TONES[point.result_word],
            reasons=[*point.reasons, *point.notes],
            findings=", ".join(
                f"{count:,} {readable_name(name)}" for name, count in point.findings.items()
            ),
        )
        for point in order
    ]


def render(series: SeriesOutcome, reports: dict[int, str]) -> str:
    """The page; `reports` are links to the points' reports, by number, relative to the page.

    Raises:
        MirrortestError: Jinja is not installed.
    """
    met = sum(point.as_expected for point in series.points)
    return (
        environment_of_templates()
        .get_template("points.html.j2")
        .render(
            series=series,
            met=met,
            tone="good" if met == series.planned else "bad",
            headings=headings(series),
            rows=rows(series),
            reports=reports,
            style=Markup(read_asset("page.css")),  # noqa: S704  # ours
        )
    )


def _combination(point: PointOutcome) -> tuple[list[tuple[bool, Any]], int]:
    """The sort key of points: numbers sort as numbers, everything else as text."""
    values = point.settings.values()
    cells = [(True, v) if isinstance(v, int | float) else (False, str(v)) for v in values]
    return cells, point.number


def _measured(series: SeriesOutcome) -> dict[str, tuple[str, str]]:
    """The columns of the figures that some point has: heading -> figure, format."""
    names = sorted({name for point in series.points for name in point.figures})
    of_one = {
        heading.format(name.removeprefix(beginning)): (name, ",.1f")
        for beginning, heading in _OF_ONE.items()
        for name in names
        if name.startswith(beginning)
    }
    found = {heading: column for heading, column in _FIGURES.items() if column[0] in names}
    return {**found, **of_one}


def _shown(point: PointOutcome, name: str, form: str) -> str:
    value = point.figures.get(name)
    return "" if value is None else format(value, form)
