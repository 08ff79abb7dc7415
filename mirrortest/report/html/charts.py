"""The data of the page's charts as JSON: times in ms since the epoch, latencies in seconds.

Its size does not grow with the run: a chart has at most `timeline.MOST_SLOTS` slots, `MOST_BINS`
bins and `MOST_TOPICS` topics.
"""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrortest.config.threshold import Series
from mirrortest.config.threshold import Threshold as Condition
from mirrortest.errors import UsageError
from mirrortest.model.intervals import IntervalSet
from mirrortest.report.story import broken_slots
from mirrortest.results.summary import PERCENTILES
from mirrortest.results.words import FINDINGS, readable_name
from mirrortest.seqlog.events import UP_AFTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.html.latencies import Distribution, Latencies
    from mirrortest.report.html.timeline import Timeline
    from mirrortest.report.html.tones import Tones
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.events import Event

MOST_TOPICS = 10
MOST_MARKS = 60
EVERY = "all topics"

Groups: TypeAlias = "Sequence[list[int]]"
"""Numbers of topics that are drawn together: all of them, then each that is also drawn alone."""


def chart_data(
    summary: Summary, timeline: Timeline, events: Sequence[Event], tones: Tones
) -> dict[str, Any]:
    """All data for the page's script."""
    shown = shown_topics(timeline)
    groups = [numbers for _, numbers in shown]
    latencies = timeline.drawn_latencies
    return {
        "slots": {
            "start": _ms(timeline.slots.start_ns),
            "step": _ms(timeline.slots.step_ns),
            "count": timeline.slots.count,
        },
        "topics": [name for name, _ in shown] if len(shown) > 1 else [],
        "strips": _strips(timeline, groups, tones),
        "marks": marks(events),
        "limits": _limits(summary, timeline, groups),
        "latency": None if latencies is None else _latency(latencies, groups),
    }


def shown_topics(timeline: Timeline) -> list[tuple[str, list[int]]]:
    """All topics together, then each that is also drawn alone: a name, and the topics' numbers."""
    every = list(range(len(timeline.topics)))
    return [(EVERY, every), *((timeline.topics[at], [at]) for at in _drawn_topics(timeline))]


def _drawn_topics(timeline: Timeline) -> list[int]:
    """Of several topics, those with most findings, then most messages."""
    if len(timeline.topics) < 2:
        return []

    def weight(topic: int) -> tuple[int, int, str]:
        found = sum(
            int(timeline.counts[name][topic].sum()) for name in FINDINGS if name in timeline.counts
        )
        acked = timeline.counts.get("acked")
        return (
            -found,
            -int(acked[topic].sum()) if acked is not None else 0,
            timeline.topics[topic],
        )

    worst = sorted(range(len(timeline.topics)), key=weight)[:MOST_TOPICS]
    return sorted(worst, key=lambda topic: timeline.topics[topic])


def strip_names(timeline: Timeline) -> list[str]:
    """The counts that have a strip of their own: acknowledged messages, and each finding."""
    found = [name for name in FINDINGS if name in timeline.counts and timeline.counts[name].any()]
    return [*(["acked"] if "acked" in timeline.counts else []), *found]


def _strips(timeline: Timeline, groups: Groups, tones: Tones) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "label": readable_name(name),
            "weight": tones.of(name),
            "counts": [timeline.counts[name][topics].sum(axis=0).tolist() for topics in groups],
        }
        for name in strip_names(timeline)
    ]


def outages(events: Sequence[Event]) -> list[tuple[Event, int | None]]:
    """The first events, each with the time (ns) when its part was up again; None: it never was.

    An event that took nothing down ends at once.
    """
    found: list[tuple[Event, int | None]] = []
    for number, event in enumerate(events[:MOST_MARKS], start=1):
        up: int | None = event.time_ns
        if event.what in UP_AFTER:
            up = next((each.time_ns for each in events[number:] if each.ends(event)), None)
        found.append((event, up))
    return found


def marks(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The events as numbered marks; each chart draws those that reach into its time.

    `until` is None if the part was never up again.
    """
    return [
        {"number": number, "at": _ms(event.time_ns), "until": None if up is None else _ms(up)}
        for number, (event, up) in enumerate(outages(events), start=1)
    ]


def _limits(summary: Summary, timeline: Timeline, groups: Groups) -> list[dict[str, Any]]:
    """The bounds of thresholds on the latency, to be drawn as lines.

    `failing` has, for each group of topics, the stretches of slots [from, to) in which a failed
    threshold was broken.
    """
    limits = []
    for threshold in summary.thresholds:
        try:
            condition = Condition.parse(threshold.expression)
        except UsageError:
            continue
        if condition.series is Series.LATENCY:
            failing = []
            if not threshold.passed and timeline.latencies is not None:
                failing = [
                    _stretches(broken_slots(condition, timeline.latencies.of_topics(topics)))
                    for topics in groups
                ]
            limits.append(
                {
                    "text": threshold.expression,
                    "seconds": float(condition.bound / 10**9),
                    "failed": not threshold.passed,
                    "failing": failing,
                }
            )
    return limits


def _stretches(slots: Sequence[bool]) -> list[tuple[int, int]]:
    """The stretches of consecutive slots that are true: [from, to)."""
    return [*IntervalSet((at, at + 1) for at, broken in enumerate(slots) if broken).intervals()]


def _latency(latencies: Latencies, groups: Groups) -> dict[str, Any]:
    shown = [latencies.of_topics(topics) for topics in groups]
    bins = shown[0].bins()
    return {
        "percentiles": list(PERCENTILES),
        "bins": [edge / 1e9 for edge in bins.edges_ns],
        "topics": [
            {
                "lines": [
                    [_seconds(value) for value in line]
                    for line in each.quantiles(PERCENTILES.values())
                ],
                "cells": each.cells(bins),
                "curve": _curve(each.distribution()),
            }
            for each in shown
        ],
    }


def _curve(distribution: Distribution) -> list[list[float]]:
    """[seconds, nines of the share of slower messages (at least one), share at most as slow]."""
    count = distribution.count
    return [
        [
            point.latency_ns / 1e9,
            round(-log10(max(1 - point.below / count, 1 / count)), 4),
            point.below / count,
        ]
        for point in distribution.curve()
    ]


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else float(f"{value_ns / 1e9:.4g}")


def _ms(time_ns: int) -> float:
    return time_ns / 1e6
