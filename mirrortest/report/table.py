"""The summary for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape as escape_markup
from rich.table import Column, Table
from rich.text import Text

from mirrortest.config.visible import visible
from mirrortest.report.summary import MINUTE_COUNTS, Verdict, as_percentage, shorten
from mirrortest.report.words import rests_on, without_latency

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mirrortest.report.summary import Summary

_COLOURS = {Verdict.PASSED: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.FAILED: "red"}
_ALWAYS = ("acked", "delivered", "lost", "duplicated", "reordered")
_WORST_FIRST = ("lost", "corrupted", "misrouted", "phantom")
_OF_NOTHING = ("sent", "acked", "failed", "unknown", "unknown_seen", "seen", "foreign", "other_run")
_SHOWN_PARTITIONS = 16
_SHOWN_MINUTES = 12
# Eighty columns have no room for more: the rest is in the table `by_minute`.
_MINUTE_COUNTS = tuple(name for name in MINUTE_COUNTS if name != "delivered")
_MINUTE_LATENCIES = ("p50", "p99", "max")


def summary_view(summary: Summary) -> RenderableType:
    """Verdict, counts, partitions and minutes that stand out, latency, thresholds, reasons."""
    parts: list[RenderableType] = [_verdict(summary), _counts(summary)]
    if summary.partitions:
        parts.append(_partitions(summary))
    if summary.latency_seconds:
        parts.append(_latency(summary))
    parts += [Text(line) for line in shorten(without_latency(summary))]
    if summary.minutes:
        parts.append(_minutes(summary))
    if summary.undelivered:
        parts.append(_undelivered(summary))
    if summary.attribution:
        parts.append(_attribution(summary))
    parts += [
        Text.from_markup(f"[red]threshold {escape(each.expression)} failed: {each.value:,g}[/]")
        for each in summary.thresholds
        if not each.passed and each.value is not None
    ]
    parts += [
        Text.from_markup(f"[yellow]inconclusive:[/] {escape(reason)}")
        for reason in shorten(summary.inconclusive)
    ]
    parts += [Text(visible(note)) for note in shorten(summary.notes)]
    if summary.online is not None:
        parts.append(_online(summary))
    if summary.rests_on is not None:
        parts.append(Text(rests_on(summary)))
    if summary.tables:
        parts.append(Text(visible(f"tables: {summary.tables}")))
    return Group(*parts)


def escape(text: str) -> str:
    """A text that strangers may have written, for a line of markup."""
    return escape_markup(visible(text))


def _verdict(summary: Summary) -> Text:
    colour = _COLOURS[summary.verdict]
    return Text.from_markup(f"run {escape(summary.run)}: [bold {colour}]{summary.verdict}[/]")


def _counts(summary: Summary) -> Table:
    table = Table("reconciled", "messages", "of acked", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    acked = summary.counts.get("acked", 0)
    for name, count in summary.counts.items():
        if count or name in _ALWAYS:
            share = "" if name in _OF_NOTHING else as_percentage(count, acked)
            colour = "red" if count and name in _WORST_FIRST else None
            table.add_row(name, f"{count:,}", share, style=colour)
    return table


def _partitions(summary: Summary) -> Table:
    names = [
        name
        for name in summary.partitions[0].counts
        if any(each.counts.get(name) for each in summary.partitions)
    ]
    table = Table("partition", *names)
    for column in table.columns[1:]:
        column.justify = "right"
    findings = [name for name in names if name not in {"seen", "unproven"}]
    worst = sorted(
        summary.partitions,
        key=lambda each: (
            -sum(each.counts.get(name, 0) for name in findings),
            each.topic,
            -1 if each.partition is None else each.partition,
        ),
    )
    for each in worst[:_SHOWN_PARTITIONS]:
        at = "nowhere" if each.partition is None else str(each.partition)
        counts = (each.counts.get(name, 0) for name in names)
        table.add_row(f"{escape(each.topic)}-{at}", *(f"{n:,}" if n else "" for n in counts))
    if len(worst) > _SHOWN_PARTITIONS:
        table.caption = f"{len(worst) - _SHOWN_PARTITIONS:,} more in the tables"
    return table


def _latency(summary: Summary) -> Table:
    names = next(
        (list(each.quantiles) for each in summary.latency_seconds.values() if each.quantiles), []
    )
    table = Table("latency from intended time, s", "messages", *names, "below zero")
    for column in table.columns[1:]:
        column.justify = "right"
    for topic, latency in summary.latency_seconds.items():
        table.add_row(
            escape(topic),
            f"{latency.count:,}",
            *(f"{latency.quantiles[name]:.3f}" for name in names if latency.quantiles),
            f"{latency.negative:,}" if latency.negative else "",
        )
    return table


def _undelivered(summary: Summary) -> Table:
    # Where all got as far as each other, `_attribution` tells it once.
    differ = len({each.attribution for each in summary.undelivered}) > 1
    last = ("where",) if differ else ()
    table = Table("not delivered", "producer", "lane", "seq from", "to", "messages", *last)
    for column in table.columns[2:6]:
        column.justify = "right"
    for each in summary.undelivered:
        table.add_row(
            each.verdict,
            escape(f"{each.producer}.{each.incarnation} in {each.topic}"),
            str(each.lane),
            str(each.seq_lo),
            str(each.seq_hi - 1),
            f"{each.seq_hi - each.seq_lo:,}",
            *((each.attribution or "",) if differ else ()),
        )
    more = summary.undelivered_ranges - len(summary.undelivered)
    if more > 0:
        table.caption = f"{more:,} more ranges in the table `undelivered`"
    return table


def _attribution(summary: Summary) -> Table:
    table = Table("not delivered", "where", "messages")
    table.columns[2].justify = "right"
    for each in summary.attribution:
        table.add_row(each.verdict, each.attribution, f"{each.messages:,}")
    return table


def _minutes(summary: Summary) -> Table:
    """All minutes in their order where they are few, else the worst of them."""
    shown = summary.minutes[:_SHOWN_MINUTES]
    shown.sort(key=lambda each: ("" if each.minute is None else str(each.minute), each.topic))
    names = [name for name in _MINUTE_COUNTS if any(each.counts[name] for each in shown)]
    if all(each.counts["sent"] == each.counts["acked"] for each in shown):
        names.remove("sent")
    table = Table(
        Column("minute, UTC", no_wrap=True),
        Column("topic", overflow="fold"),
        *(
            Column(name, justify="right", no_wrap=True)
            for name in (*names, *(f"{name}, s" for name in _MINUTE_LATENCIES))
        ),
    )
    for each in shown:
        table.add_row(
            "unknown" if each.minute is None else f"{each.minute:%m-%d %H:%M}",
            escape(each.topic),
            *(f"{each.counts[name]:,}" if each.counts[name] else "" for name in names),
            *(
                f"{each.latency_seconds[name]:.3f}" if name in each.latency_seconds else ""
                for name in _MINUTE_LATENCIES
            ),
        )
    more = summary.minutes_total - len(shown)
    if more > 0:
        table.caption = f"the worst; {more:,} more in the table `by_minute`"
    return table


def _online(summary: Summary) -> Text:
    online = summary.online
    if online is None or not (online.partitions or online.disagreements):
        return Text("online verdict: none was logged to compare with")
    if online.disagreements:
        return Text.from_markup("[yellow]online verdict: differs, see above[/]")
    return Text(f"online verdict: the same, by id, in {online.partitions:,} partitions")
