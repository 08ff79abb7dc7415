"""Figures as CSV files, contained in the page's links: they need no network."""

from __future__ import annotations

import base64
import csv
import io
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.report.html.charts import shown_topics, strip_names
from mirrortest.report.html.key_figures import count_rows, time_step
from mirrortest.report.html.load_panels import load_table
from mirrortest.report.html.panels import columns, csv_rows
from mirrortest.results.summary import PERCENTILES
from mirrortest.results.words import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrortest.report.html.load import Load
    from mirrortest.report.html.panels import Panel
    from mirrortest.report.html.timeline import Slots, Timeline
    from mirrortest.results.summary import Summary


class Download(NamedTuple):
    """A file in a link: its title, its name, and its address, a data URL with the content."""

    title: str
    file: str
    address: str


def downloads(summary: Summary, timeline: Timeline | None) -> list[Download]:
    """Counts and percentiles by topic and slot, and the counts of the whole run."""
    counts = [[row["key"], row["count"], row["meaning"]] for row in count_rows(summary)]
    found = [_download("All counts", summary, "counts", ["name", "messages", "meaning"], counts)]
    if timeline is not None:
        heads = ["from_utc", "topic", *strip_names(timeline)]
        heads += [f"{name}_seconds" for name in PERCENTILES] if timeline.latencies else []
        title = "Counts and percentiles over time"
        found.append(_download(title, summary, "over-time", heads, _over_time(timeline)))
    return found


def load_download(summary: Summary, load: Load, topics: Sequence[str]) -> Download:
    """The load of all topics together, and of each of `topics`."""
    heads, rows = load_table(load, topics)
    return _download("Load over time", summary, "load", heads, rows)


def panels_download(
    title: str, summary: Summary, what: str, slots: Slots, panels: Sequence[Panel]
) -> Download:
    """The lines of a chart."""
    names = columns(panels)
    return _download(title, summary, what, ["from_utc", *names], csv_rows(slots, panels, names))


def _over_time(timeline: Timeline) -> Iterable[list[object]]:
    slots = timeline.slots
    for name, topics in shown_topics(timeline):
        columns = [timeline.counts[each][topics].sum(axis=0) for each in strip_names(timeline)]
        lines: list[list[int | None]] = []
        if timeline.latencies is not None:
            lines = timeline.latencies.of_topics(topics).quantiles(PERCENTILES.values())
        for slot in range(slots.count):
            yield [
                moment(slots.begin(slot), time_step(timeline)),
                name,
                *(int(column[slot]) for column in columns),
                *("" if (at := line[slot]) is None else f"{at / 1e9:.4g}" for line in lines),
            ]


def _download(
    title: str, summary: Summary, what: str, heads: Sequence[str], rows: Iterable[list[object]]
) -> Download:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows(rows)
    encoded = base64.b64encode(text.getvalue().encode()).decode()
    address = f"data:text/csv;charset=utf-8;base64,{encoded}"
    return Download(
        title,
        f"mirrortest-{summary.run}-{what}.csv",
        address,
    )
