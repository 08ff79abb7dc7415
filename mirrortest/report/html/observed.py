"""The report's sections on observations: machines, JVMs, brokers, log lines."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.config.units import format_seconds, number, span
from mirrortest.model.observed import GC, LOG
from mirrortest.report.html.downloads import Download, panels_download
from mirrortest.report.html.observations import short_names
from mirrortest.report.html.observed_panels import (
    MOST_LINES,
    broker_panels,
    jvm_panels,
    log_panels,
    machine_panels,
)
from mirrortest.report.html.panels import panels_data, panels_text, times
from mirrortest.results.observed_totals import GcSummary, Occurrences
from mirrortest.results.words import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.html.observations import Observations
    from mirrortest.report.html.observed_panels import Drawn
    from mirrortest.results.summary import Summary

_MOST_MACHINES = 8
_MOST_ENTRIES = 100
_MOST_IN_WORDS = 8
"""The most panels whose highest value is in a chart's text."""
_MEGA = 1e6


class Chart(NamedTuple):
    """A chart of panels; `data` is for the script, `silent` names panels that were always 0."""

    name: str
    title: str
    text: str
    about: str
    silent: str
    data: dict[str, Any]
    download: Download


class Table(NamedTuple):
    """A table: `texts` columns of text, then numbers; with `prose` the last column is text, too."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int
    prose: bool = False


class Section(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    about: str
    charts: list[Chart]
    tables: list[Table]


def observed_sections(found: Observations, summary: Summary) -> list[Section]:
    """The sections that have something to show."""

    def chart(name: str, title: str, about: str, drawn: Drawn) -> list[Chart]:
        if not drawn.panels:
            return []
        return [
            Chart(
                name,
                title,
                panels_text(found.slots, drawn.panels[:_MOST_IN_WORDS]),
                about,
                ", ".join(drawn.silent),
                {"name": name, **times(found.slots), "panels": panels_data(drawn.panels)},
                panels_download(title, summary, name, found.slots, drawn.panels),
            )
        ]

    step = f"One step is {span(found.slots.step_ns)}; figures are means of a step."
    machines = [
        each
        for at, name in enumerate(found.machines[:_MOST_MACHINES])
        for each in chart(
            f"machine-{at}",
            f"Machine {name}",
            "Processes are named by their --match or --pid option. Of the bytes that processes "
            "read, those of sockets count as served by the page cache; calls are compared with the "
            "disks' requests, which are of all processes.",
            machine_panels(found, name),
        )
    ]
    left_out = len(found.machines) - _MOST_MACHINES
    more = f" {number(left_out, 'more machine')} are not shown." if left_out > 0 else ""
    most = f" At most {MOST_LINES} lines are drawn, those with the highest means."
    sections = [
        Section("machines", "Machines", step + most + more, machines, []),
        Section(
            "jvms",
            "JVMs",
            f"{step} From the logs of garbage collections.{most}",
            chart("jvms", "Garbage collections", "Pauses stop the program.", jvm_panels(found)),
            _gc_tables(found),
        ),
        Section(
            "brokers",
            "Brokers",
            f"{step} Metrics scraped from brokers and the mirror. At most {MOST_LINES} brokers are "
            "drawn, the first by name; of followers' lag and of mirrors, those with the highest "
            "means.",
            chart(
                "brokers",
                "Brokers and mirror",
                "Times by stage are means of all brokers' requests.",
                broker_panels(found),
            ),
            [],
        ),
        Section(
            "log-lines",
            "Log lines",
            "Exceptions, errors and warnings in the observed logs while the run lasted.",
            chart("log-lines", "Log lines over time", "", log_panels(found)),
            _line_tables(found),
        ),
    ]
    return [each for each in sections if each.charts or each.tables]


def _gc_tables(found: Observations) -> list[Table]:
    if GC not in found.tables:
        return []
    summaries: dict[str, GcSummary] = defaultdict(GcSummary)
    for row in found.tables[GC].to_pylist():
        summaries[row["log"]].add(row)
    short = short_names(summaries)
    heads = (
        "JVM", "collector", "largest heap, MB", "freed, MB", "freed, MB/min", "in pauses",
        "longest pause", "throughput", "young", "full",
    )  # fmt: skip
    rows = []
    for log, each in sorted(summaries.items()):
        its = each.to_json(found.seconds)
        rows.append(
            [
                short[log],
                each.collector,
                *(
                    f"{its[name] / _MEGA:,.1f}"
                    for name in ("footprint_bytes", "freed_bytes", "freed_bytes_per_minute")
                ),
                *(format_seconds(its[name]) for name in ("pause_seconds", "longest_pause_seconds")),
                f"{100 * its['throughput_ratio']:.2f} %",
                *(f"{its[name]:,}" for name in ("young_collections", "full_collections")),
            ]
        )
    return [Table("Each JVM's collections; throughput is the time without pauses", heads, rows, 2)]


def _line_tables(found: Observations) -> list[Table]:
    if LOG not in found.tables:
        return []
    totals: dict[tuple[str, str, str], Occurrences] = {}
    for row in found.tables[LOG].to_pylist():
        key = row["log"], row["kind"], row["type"]
        entries = Occurrences(*(row[each.name] for each in fields(Occurrences)))
        totals[key] = totals[key].with_later(entries) if key in totals else entries
    short = short_names({log for log, _, _ in totals})
    often = sorted(totals.items(), key=lambda each: (-each[1].count, each[0]))
    shown = often[:_MOST_ENTRIES]
    rows = [
        [
            short[log], kind, name, f"{each.count:,}", moment(each.first_ns), moment(each.last_ns),
            each.example,
        ]
        for (log, kind, name), each in shown
    ]  # fmt: skip
    caption = "By class, or by logger where no exception is named"
    if more := len(often) - len(shown):
        caption += f"; {number(more, 'rarer one')} are not shown"
    heads = ("log", "kind", "type", "entries", "first, UTC", "last, UTC", "the first of them")
    return [Table(caption, heads, rows, 3, True)]
