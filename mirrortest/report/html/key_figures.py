"""The page's figures as text: in its header, by topic, by slot, and all counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.config.units import SECOND_NS, format_duration, format_seconds
from mirrortest.model.findings import Weight
from mirrortest.report.html.charts import EVERY, shown_topics, strip_names
from mirrortest.results.summary import ALL_TOPICS, PERCENTILES
from mirrortest.results.words import (
    FINDINGS,
    NO_SHARE,
    meaning_of,
    moment,
    rank,
    readable_name,
    share,
    weight_of,
)

if TYPE_CHECKING:
    from mirrortest.report.html.timeline import Timeline
    from mirrortest.report.html.tones import Tones
    from mirrortest.results.summary import Summary


class KeyFigure(NamedTuple):
    """A number in the page's header; `rest` is a remark on it."""

    label: str
    value: str
    rest: str = ""
    tone: str = "plain"


class Row(NamedTuple):
    """A table's row: its name and its cells, as text."""

    name: str
    cells: list[str]


def head_figures(summary: Summary, tones: Tones) -> list[KeyFigure]:
    """The numbers in the page's header."""
    counts = summary.counts
    acked = counts.get("acked", 0)
    figures = [
        KeyFigure("acknowledged", f"{acked:,}", f"of {counts.get('sent', 0):,} sent"),
        KeyFigure("delivered", f"{counts.get('delivered', 0):,}", _of(counts, "delivered")),
    ]
    always = ("lost", "duplicated", "reordered")
    found = [name for name in FINDINGS if counts.get(name) or name in always]
    for name in found:
        count = counts.get(name, 0)
        tone = tones.of(name) if count else "plain"
        figures.append(KeyFigure(readable_name(name), f"{count:,}", _of(counts, name), tone))
    latency = summary.overall_latency
    if latency is not None:
        for name in ("p50", "p99"):
            if name in latency.quantiles:
                value = format_seconds(latency.quantiles[name])
                tone = "bad" if tones.failed(f"p({name[1:]})") else "plain"
                figures.append(KeyFigure(f"latency {name}", value, tone=tone))
    return figures


def latency_rows(summary: Summary, timeline: Timeline | None) -> list[Row]:
    """The latencies of the whole run: all topics together, then those that are drawn."""
    if timeline is None or timeline.latencies is None:
        return [
            Row(
                EVERY if topic == ALL_TOPICS else topic,
                [
                    *(
                        format_seconds(latency.quantiles[name])
                        if name in latency.quantiles
                        else "-"
                        for name in PERCENTILES
                    ),
                    "-" if latency.mean is None else format_seconds(latency.mean),
                    f"{latency.count:,}",
                    f"{latency.negative:,}",
                ],
            )
            for topic, latency in summary.latency_seconds.items()
            if latency.count
        ]
    rows = []
    for name, topics in shown_topics(timeline):
        merged = timeline.latencies.of_topics(topics).distribution()
        if merged.count:
            cells = [duration(merged.quantile(each)) for each in PERCENTILES.values()]
            mean = merged.mean
            cells.append("-" if mean is None else format_duration(round(mean)))
            rows.append(Row(name, [*cells, f"{merged.count:,}", f"{merged.negative:,}"]))
    return rows


def slot_columns(timeline: Timeline | None) -> list[str]:
    """The columns of `slot_rows`."""
    if timeline is None:
        return []
    latencies = [] if timeline.latencies is None else ["p50", "p99", "max"]
    return [*(readable_name(name) for name in strip_names(timeline)), *latencies]


def slot_rows(timeline: Timeline) -> list[Row]:
    """The figures behind the charts: a row for each slot with an acknowledgement or a finding."""
    slots = timeline.slots
    columns = [timeline.total(name) for name in strip_names(timeline)]
    lines: list[list[int | None]] = []
    if timeline.latencies is not None:
        every = timeline.latencies.together
        lines = every.quantiles([PERCENTILES[name] for name in ("p50", "p99", "max")])
    busy = np.any(columns, axis=0) if columns else np.ones(slots.count, bool)
    return [
        Row(
            moment(slots.begin(slot), time_step(timeline)),
            [
                *(f"{int(column[slot]):,}" for column in columns),
                *("-" if line[slot] is None else duration(line[slot]) for line in lines),
            ],
        )
        for slot in range(slots.count)
        if busy[slot]
    ]


def count_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every count with its share and its meaning; plain quantities come first."""
    names = sorted(
        summary.counts, key=lambda name: (weight_of(name) is not Weight.PLAIN, rank(name))
    )
    return [
        {
            "key": name,
            "name": readable_name(name),
            "count": summary.counts[name],
            "share": _of(summary.counts, name),
            "meaning": meaning_of(name),
        }
        for name in names
    ]


def time_step(timeline: Timeline) -> int:
    """The `step_ns` for `moment`: times are to the second if slots are shorter than a minute."""
    return timeline.slots.step_ns if timeline.slots.step_ns >= 60 * SECOND_NS else 1


def duration(value_ns: int | None) -> str:
    """A latency as text; None is one below zero, which a logarithmic scale cannot show."""
    return "below zero" if value_ns is None else format_duration(value_ns)


def _of(counts: dict[str, int], name: str) -> str:
    if name in NO_SHARE or not counts.get(name):
        return ""
    return share(counts[name], counts.get("acked", 0))
