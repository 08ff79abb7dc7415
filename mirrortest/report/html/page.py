"""The content of the report's page, section by section; `html` fills the template with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.config.units import format_duration, number, span
from mirrortest.model.verdict import Verdict
from mirrortest.report.html.breakdown import Ids, by_producer, first_ids, grid
from mirrortest.report.html.charts import (
    MOST_MARKS,
    chart_data,
    outages,
    strip_names,
)
from mirrortest.report.html.commands import destination_servers, repeat_commands, show_commands
from mirrortest.report.html.downloads import downloads, load_download
from mirrortest.report.html.key_figures import (
    count_rows,
    duration,
    head_figures,
    latency_rows,
    slot_columns,
    slot_rows,
    time_step,
)
from mirrortest.report.html.load import read_load
from mirrortest.report.html.load_panels import load_data, panels
from mirrortest.report.html.log_rows import with_matching_logs
from mirrortest.report.html.log_timeline import best_timeline
from mirrortest.report.html.observations import read_observations
from mirrortest.report.html.observed import observed_sections
from mirrortest.report.html.panels import columns, panels_text, rows
from mirrortest.report.html.positions import MOST, positions
from mirrortest.report.html.setting import changes, run_events, setting
from mirrortest.report.html.tones import VERDICT_TONES, Tones
from mirrortest.report.result import LACKING
from mirrortest.report.story import failures, first_finding
from mirrortest.results.conditions import condition_result, details, headline
from mirrortest.results.summary import PERCENTILES, shorten
from mirrortest.results.words import (
    FINDINGS,
    moment,
    rank,
    readable_name,
    rests_on,
    without_latency,
)
from mirrortest.seqlog.events import LINK_FAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.html.latencies import Latencies
    from mirrortest.report.html.load import Load
    from mirrortest.report.html.observed import Section
    from mirrortest.report.html.setting import Setting
    from mirrortest.report.html.timeline import Timeline
    from mirrortest.report.result import Result
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.events import Event

_MOST_LINES = 60


@dataclass(frozen=True)
class Box:
    """The box about the first failure or finding."""

    title: str
    text: str
    tone: str
    later: tuple[str, ...] = ()


def page(result: Result) -> dict[str, Any]:
    """The template's variables. Raises SequenceLogError."""
    result = with_matching_logs(result)
    summary = result.summary
    timeline = best_timeline(result)
    set_up = setting(result)
    began, lasted = _when(timeline, set_up)
    ids = first_ids(result)
    disturbing = sorted([*result.events, *changes(result)], key=_time)
    events = sorted([*disturbing, *run_events(result)], key=_time)
    tones = Tones(summary)
    charts = None if timeline is None else chart_data(summary, timeline, events, tones)
    load, load_absent = read_load(result) if charts is not None else (None, [])
    found, observed_absent = read_observations(result) if charts is not None else (None, [])
    observed = [] if found is None else observed_sections(found, summary)
    absent = [*_not_shown(result, timeline), *load_absent, *observed_absent]
    topics = [] if charts is None else charts["topics"][1:]
    if charts is not None and load is not None:
        charts["load"] = load_data(load, topics)
    if charts is not None:
        charts["observed"] = [each.data for section in observed for each in section.charts]
    marks = _marks(events)
    return {
        "summary": summary,
        "absent": absent,
        "place": result.place.shown,
        "tone": VERDICT_TONES[summary.verdict],
        "began": began,
        "lasted": lasted,
        "headline": headline(summary),
        "details": details(summary),
        "first": _first(summary, timeline, disturbing),
        "figures": head_figures(summary, tones),
        "tone_of": tones.of,
        "downloads": downloads(summary, timeline),
        "sections": _sections(summary, load, observed, absent),
        "conditions": [condition_result(each) for each in summary.thresholds],
        "reasons": shorten(summary.inconclusive, _MOST_LINES),
        "charts": charts,
        "resolution": "" if timeline is None else _resolution(timeline),
        "no_timeline": _no_timeline(result),
        "no_latency": "No latency was measured."
        if "latency" not in result.tables_absent
        else "The result has no table of latencies: reconcile again to create it.",
        "marks": marks,
        "disturbed": bool(disturbing),
        "marks_left_out": max(len(events) - MOST_MARKS, 0),
        "unplaced": "" if timeline is None else _unplaced(timeline),
        "strips_text": "" if timeline is None else _strips_text(timeline),
        **_latency_texts(timeline),
        "without_latency": shorten(without_latency(summary), _MOST_LINES),
        "latency_columns": [*PERCENTILES, "mean", "messages", "below zero"],
        "latency_rows": latency_rows(summary, timeline),
        "slot_columns": slot_columns(timeline),
        "slot_rows": [] if timeline is None else slot_rows(timeline),
        "slot_caption": "" if timeline is None else f"{_resolution(timeline)} Latencies of copies.",
        "load": None if load is None else _load(summary, load, topics),
        "observed": observed,
        "grid": grid(summary.partitions, tones),
        "ids": ids,
        "places": _places(result, ids, set_up),
        "repeat": repeat_commands(result),
        "no_ids": "There are no findings, and every acknowledged message in the logs was delivered."
        if not {"undelivered", "findings"} & result.tables_absent
        else "The result has no table of ids: reconcile again to create it.",
        "counts": count_rows(summary),
        "producers": by_producer(result),
        "online": _online(summary),
        "rests_on": rests_on(summary),
        "disagreements": shorten(
            [] if summary.online is None else summary.online.disagreements, _MOST_LINES
        ),
        "setting": set_up,
        "notes": shorten(summary.notes, _MOST_LINES),
    }


def _load(summary: Summary, load: Load, topics: Sequence[str]) -> dict[str, Any]:
    drawn = panels(load)
    return {
        "step": span(load.slots.step_ns),
        "readings": load.readings,
        "text": panels_text(load.slots, drawn),
        "columns": columns(drawn),
        "rows": rows(load.slots, drawn),
        "download": load_download(summary, load, topics),
    }


class Place(NamedTuple):
    """Where one range of messages is, and the commands that show it."""

    text: str
    commands: list[str]


def _places(result: Result, ids: Ids, set_up: Setting) -> list[list[Place]]:
    """The places of each range; empty if no log has any."""
    copies = {topic.name: topic.copy or topic.name for topic in set_up.topics}
    servers = destination_servers(result)
    found = positions(result, ids.ranges)
    if not any(found):
        return []
    return [
        [
            Place(
                f"partition {at.partition}, {'missing ' if at.missing else ''}{at}",
                show_commands(servers, copies.get(of.topic, of.topic), at),
            )
            for at in each[:MOST]
        ]
        for of, each in zip(ids.ranges, found, strict=True)
    ]


def _time(event: Event) -> int:
    return event.time_ns


def _when(timeline: Timeline | None, set_up: Setting) -> tuple[str, str]:
    began = moment(set_up.began_ns) if set_up.began_ns else ""
    if began and set_up.ended_ns:
        until = max(set_up.ended_ns, set_up.began_ns)
        return began, f"lasted {span(until - set_up.began_ns)}"
    if timeline is None:
        return began, "its end is unknown"
    slots = timeline.slots
    sent = f"sent for {span(slots.count * slots.step_ns)}"
    return began or moment(slots.start_ns, slots.step_ns), sent


def _sections(
    summary: Summary, load: Load | None, observed: Sequence[Section], absent: Sequence[str]
) -> list[tuple[str, str]]:
    return [
        ("conditions", "Conditions"),
        ("time", "Over time"),
        ("latency", "Latency"),
        *([("load", "Load")] if load is not None else []),
        *((each.name, each.title) for each in observed),
        ("places", "By partition"),
        ("ids", "Which messages"),
        *([("attribution", "Where messages were lost")] if summary.attribution else []),
        ("counts", "All counts"),
        ("setting", "Set-up"),
        *([("absent", "Not shown")] if absent else []),
    ]


def _first(summary: Summary, timeline: Timeline | None, events: Sequence[Event]) -> Box:
    failed = [each for each in summary.thresholds if not each.passed]
    if failed:
        found = [] if timeline is None else failures(summary, timeline, events)
        if found:
            later = tuple(f"{each}." for each in found[1:])
            return Box("What failed first", f"{found[0]}.", "bad", later)
        names = ", ".join(each.expression for each in failed)
        text = f"The time is unknown: no log has the time of what broke {names}."
        return Box("What failed first", text, "bad")
    first = None if timeline is None else first_finding(timeline, events)
    if first is not None:
        return Box("Nothing failed; the first finding", f"{first}.", "note")
    if any(summary.counts.get(name) for name in FINDINGS):
        return Box("Nothing failed", "The times of the findings are unknown.", "note")
    if summary.verdict is Verdict.INCONCLUSIVE:
        return Box("Nothing failed", "What could be judged has no findings.", "doubt")
    return Box("Nothing failed", "There are no findings.", "good")


def _resolution(timeline: Timeline) -> str:
    step = span(timeline.slots.step_ns)
    if timeline.from_logs:
        return f"One step is {step}; times within a log's row are taken to be evenly spaced."
    return f"One step is {step}."


def _not_shown(result: Result, timeline: Timeline | None) -> list[str]:
    """What is absent, except tables that the logs of a short run replace."""
    by_second = timeline is not None and timeline.from_logs
    replaced = ("by_minute", "latency") if by_second else ()
    tables = [
        f"the table {name} does not exist: this report does not show {what}"
        for name, what in LACKING.items()
        if name in result.tables_absent.difference(replaced)
    ]
    return [*tables, *result.absent]


def _no_timeline(result: Result) -> str:
    if "by_minute" in result.tables_absent:
        return "The result has no table by minute: reconcile again to create it."
    return "No message has a known intended time, so there is nothing to draw."


def _marks(events: Sequence[Event]) -> list[dict[str, str]]:
    texts = []
    for event, up in outages(events):
        of_link = event.what in LINK_FAULTS
        rest = ", and was not healed" if of_link else ", and did not come up again"
        if up is not None:
            down = f", {'' if of_link else 'down '}for {span(up - event.time_ns)}"
            rest = "" if up == event.time_ns else down
        texts.append({"at": moment(event.time_ns), "label": f"{event}{rest}"})
    return texts


def _unplaced(timeline: Timeline) -> str:
    names = sorted((name for name in timeline.unplaced if name in FINDINGS), key=rank)
    return ", ".join(f"{readable_name(name)}: {timeline.unplaced[name]:,}" for name in names)


def _strips_text(timeline: Timeline) -> str:
    texts = []
    for name in strip_names(timeline):
        row = timeline.total(name)
        at = int(row.argmax())
        when = moment(timeline.slots.begin(at), time_step(timeline))
        texts.append(
            f"{readable_name(name)}: {int(row.sum()):,}, most of them ({int(row[at]):,}) at {when}"
        )
    return "; ".join(texts) + "."


def _latency_texts(timeline: Timeline | None) -> dict[str, str]:
    """What the charts of latencies show, in words; empty if there are no such charts."""
    latencies = None if timeline is None else timeline.drawn_latencies
    if timeline is None or latencies is None:
        return {}
    every = latencies.distribution()
    low, high = (duration(every.quantile(share)) for share in (1 / every.count, 1))
    curve = [f"{name} {duration(every.quantile(each))}" for name, each in PERCENTILES.items()]
    return {
        "percentiles_text": _slowest(timeline, latencies),
        "heat_text": f"From {low} to {high}.",
        "curve_text": f"{', '.join(curve)}.",
    }


def _slowest(timeline: Timeline, latencies: Latencies) -> str:
    (line,) = latencies.together.quantiles([PERCENTILES["p99"]])
    worst = max(range(len(line)), key=lambda slot: line[slot] or 0)
    value = line[worst]
    if value is None:
        return "All latencies are below zero."
    when = moment(timeline.slots.begin(worst), time_step(timeline))
    return f"p99 was highest at {when}: {format_duration(value)}."


def _online(summary: Summary) -> str:
    online = summary.online
    if online is None or not (online.partitions or online.disagreements):
        return "The consumers logged no verdict to compare this one with."
    if online.disagreements:
        return "What the consumers found during the run differs from this result:"
    return (
        "What the consumers found during the run is the same as this result, by id, "
        f"in {number(online.partitions, 'partition')}."
    )
