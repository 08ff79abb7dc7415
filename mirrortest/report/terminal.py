"""A reconciliation's summary for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from mirrortest.model.findings import failing
from mirrortest.report.words import NO_SHARE, rests_on, without_latency
from mirrortest.results.summary import MINUTE_COUNTS, as_percentage, shorten
from mirrortest.results.tables import count, lines, table, verdict_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from mirrortest.results.summary import Summary

_ALWAYS = ("acked", "delivered", "lost", "duplicated", "reordered")
_FAILING = {each.label for each in failing(exactly_once=False)}
_SHOWN_PARTITIONS = 16
_SHOWN_MINUTES = 12
# Eighty columns have no room for more: the rest is in the table `by_minute`.
_MINUTE_COUNTS = tuple(name for name in MINUTE_COUNTS if name != "delivered")
_MINUTE_LATENCIES = ("p50", "p99", "max")


def summary_view(summary: Summary) -> RenderableType:
    """Verdict, counts, partitions and minutes that stand out, latency, thresholds, reasons."""
    parts: list[RenderableType] = [
        verdict_line(f"run {summary.run}", summary.verdict),
        _counts(summary),
    ]
    if summary.partitions:
        parts.append(_partitions(summary))
    if summary.latency_seconds:
        parts.append(_latency(summary))
    parts += lines(shorten(without_latency(summary)))
    if summary.minutes:
        parts.append(_minutes(summary))
    if summary.undelivered:
        parts.append(_undelivered(summary))
    if summary.attribution:
        parts.append(_attribution(summary))
    parts += [
        *lines(
            (
                f"threshold {each.expression} failed: {each.value:,g}"
                for each in summary.thresholds
                if not each.passed and each.value is not None
            ),
            colour="red",
        ),
        *lines(shorten(summary.inconclusive), "inconclusive: ", "yellow"),
        *lines(shorten(summary.notes)),
    ]
    if summary.online is not None:
        parts.append(_online(summary))
    if summary.rests_on is not None:
        parts += lines([rests_on(summary)])
    if summary.tables:
        parts += lines([f"tables: {summary.tables}"])
    return Group(*parts)


def _counts(summary: Summary) -> Table:
    acked = summary.counts.get("acked", 0)
    shown = {n: found for n, found in summary.counts.items() if found or n in _ALWAYS}
    return table(
        ("reconciled", "messages", "of acked"),
        [
            (name, f"{found:,}", "" if name in NO_SHARE else as_percentage(found, acked))
            for name, found in shown.items()
        ],
        styles=["red" if n and name in _FAILING else None for name, n in shown.items()],
    )


def _partitions(summary: Summary) -> Table:
    names = [
        name
        for name in summary.partitions[0].counts
        if any(each.counts.get(name) for each in summary.partitions)
    ]
    findings = [name for name in names if name not in {"seen", "unproven"}]
    worst = sorted(
        summary.partitions,
        key=lambda each: (
            -sum(each.counts.get(name, 0) for name in findings),
            each.topic,
            -1 if each.partition is None else each.partition,
        ),
    )
    more = len(worst) - _SHOWN_PARTITIONS
    return table(
        ("partition", *names),
        [
            (
                f"{each.topic}-{'nowhere' if each.partition is None else each.partition}",
                *(count(each.counts.get(name, 0)) for name in names),
            )
            for each in worst[:_SHOWN_PARTITIONS]
        ],
        caption=f"{more:,} more in the tables" if more > 0 else "",
    )


def _latency(summary: Summary) -> Table:
    names = next(
        (list(each.quantiles) for each in summary.latency_seconds.values() if each.quantiles), []
    )
    return table(
        ("latency from intended time, s", "messages", *names, "below zero"),
        [
            (
                topic,
                f"{latency.count:,}",
                *(f"{latency.quantiles[name]:.3f}" if latency.quantiles else "" for name in names),
                count(latency.negative),
            )
            for topic, latency in summary.latency_seconds.items()
        ],
    )


def _undelivered(summary: Summary) -> Table:
    # Where all got as far as each other, `_attribution` shows it once.
    differ = len({each.attribution for each in summary.undelivered}) > 1
    more = summary.undelivered_ranges - len(summary.undelivered)
    made = table(
        (
            *("not delivered", "producer", "lane", "seq from", "to", "messages"),
            *(("where",) if differ else ()),
        ),
        [
            (
                each.verdict,
                f"{each.producer}.{each.incarnation} in {each.topic}",
                str(each.lane),
                str(each.seq_lo),
                str(each.seq_hi - 1),
                f"{each.seq_hi - each.seq_lo:,}",
                *((each.attribution or "",) if differ else ()),
            )
            for each in summary.undelivered
        ],
        texts=2,
        caption=f"{more:,} more ranges in the table `undelivered`" if more > 0 else "",
    )
    if differ:
        made.columns[-1].justify = "left"
    return made


def _attribution(summary: Summary) -> Table:
    return table(
        ("not delivered", "where", "messages"),
        [(each.verdict, each.attribution, f"{each.messages:,}") for each in summary.attribution],
        texts=2,
    )


def _minutes(summary: Summary) -> Table:
    """All minutes in their order where they are few, else the worst of them."""
    shown = summary.minutes[:_SHOWN_MINUTES]
    shown.sort(key=lambda each: ("" if each.minute is None else str(each.minute), each.topic))
    names = [name for name in _MINUTE_COUNTS if any(each.counts[name] for each in shown)]
    if all(each.counts["sent"] == each.counts["acked"] for each in shown):
        names.remove("sent")
    more = summary.minutes_total - len(shown)
    made = table(
        ("minute, UTC", "topic", *names, *(f"{name}, s" for name in _MINUTE_LATENCIES)),
        [
            (
                "unknown" if each.minute is None else f"{each.minute:%m-%d %H:%M}",
                each.topic,
                *(count(each.counts[name]) for name in names),
                *(
                    f"{each.latency_seconds[name]:.3f}" if name in each.latency_seconds else ""
                    for name in _MINUTE_LATENCIES
                ),
            )
            for each in shown
        ],
        texts=2,
        caption=f"the worst; {more:,} more in the table `by_minute`" if more > 0 else "",
    )
    for column in made.columns:
        column.no_wrap = True
    made.columns[1].no_wrap, made.columns[1].overflow = False, "fold"
    return made


def _online(summary: Summary) -> Text:
    online = summary.online
    if online is None or not (online.partitions or online.disagreements):
        return Text("online verdict: none was logged")
    if online.disagreements:
        return Text("online verdict: differs, see above", "yellow")
    return Text(f"online verdict: the same, by id, in {online.partitions:,} partitions")
