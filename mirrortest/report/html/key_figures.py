"""The page's figures in words: at its head, by topic, by slot, and all counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.config.units import SECOND_NS, format_duration, format_seconds
from mirrortest.model.findings import Weight
from mirrortest.report.html.charts import EVERY, drawn_topics, strip_names
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
    """One number at the head of the page; `rest` says more of it."""

    label: str
    value: str
    rest: str = ""
    tone: str = "plain"


class Row(NamedTuple):
    """A table's row: its name and its cells, in words."""

    name: str
    cells: list[str]


def head_figures(summary: Summary, tones: Tones) -> list[KeyFigure]:
    """The numbers that stand at the head of the page."""
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
    """The whole run's latencies: all topics, then those that are drawn."""
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
    shown = [(EVERY, list(range(len(timeline.topics))))]
    shown += [(timeline.topics[topic], [topic]) for topic in drawn_topics(timeline)]
    rows = []
    for name, topics in shown:
        whole = timeline.latencies.of_topics(topics).distribution()
        if whole.count:
            cells = [duration(whole.quantile(each)) for each in PERCENTILES.values()]
            mean = whole.mean
            cells.append("-" if mean is None else format_duration(round(mean)))
            rows.append(Row(name, [*cells, f"{whole.count:,}", f"{whole.negative:,}"]))
    return rows


def slot_columns(timeline: Timeline | None) -> list[str]:
    """The columns of `slot_rows`."""
    if timeline is None:
        return []
    latencies = [] if timeline.latencies is None else ["p50", "p99", "max"]
    return [*(readable_name(name) for name in strip_names(timeline)), *latencies]


def slot_rows(timeline: Timeline) -> list[Row]:
    """The figures behind the charts: a row for each slot in which there was anything."""
    slots = timeline.slots
    columns = [timeline.total(name) for name in strip_names(timeline)]
    lines: list[list[int | None]] = []
    if timeline.latencies is not None:
        every = timeline.latencies.together
        lines = every.quantiles([PERCENTILES[name] for name in ("p50", "p99", "max")])
    busy = np.any(columns, axis=0) if columns else np.ones(slots.count, bool)
    return [
        Row(
            moment(slots.begin(slot), fine(timeline)),
            [
                *(f"{int(column[slot]):,}" for column in columns),
                *("-" if line[slot] is None else duration(line[slot]) for line in lines),
            ],
        )
        for slot in range(slots.count)
        if busy[slot]
    ]


def count_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every count with its share and its meaning, plain numbers first."""
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


def fine(timeline: Timeline) -> int:
    """How fine times are to be written: to the second where slots are finer than a minute."""
    return timeline.slots.step_ns if timeline.slots.step_ns >= 60 * SECOND_NS else 1


def duration(value_ns: int | None) -> str:
    """A latency; one below zero has no place on a logarithmic scale."""
    return "below zero" if value_ns is None else format_duration(value_ns)


def _of(counts: dict[str, int], name: str) -> str:
    if name in NO_SHARE or not counts.get(name):
        return ""
    return share(counts[name], counts.get("acked", 0))
