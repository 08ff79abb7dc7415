"""A reconciliation's summary for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.config.units import format_seconds
from mirrortest.results.conditions import headline
from mirrortest.results.summary import ALL_TOPICS, shorten
from mirrortest.results.tables import escape
from mirrortest.results.view import RunResult, compact_table
from mirrortest.results.words import FINDINGS, readable_name, rests_on, without_latency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType
    from rich.table import Table

    from mirrortest.results.summary import Summary

_SHOWN_PARTITIONS = 16
_SHOWN_MINUTES = 12
_MINUTE_LATENCIES = ("p99", "max")
_FINDING_COLUMNS = 13
"""The columns of a terminal that the longest word about findings needs."""


def run_result(summary: Summary) -> RunResult:
    """The verdict, conditions and findings; as details these by partition, topic, minute and id."""
    parts: list[RenderableType] = []
    if summary.partitions:
        parts.append(_partitions(summary))
    if summary.latency_seconds:
        parts.append(_latency(summary))
    if summary.minutes:
        parts.append(_minutes(summary))
    if summary.undelivered:
        parts.append(_undelivered(summary))
    return RunResult(
        subject=f"run {summary.run}",
        verdict=summary.verdict,
        why=headline(summary),
        counts=summary.counts,
        thresholds=summary.thresholds,
        inconclusive=summary.inconclusive,
        latency=summary.overall_latency,
        remarks=[
            *(
                f"{each.messages:,} {readable_name(each.verdict)}: {each.attribution}"
                for each in summary.attribution
            ),
            *shorten(without_latency(summary)),
            *shorten(summary.notes),
            _online(summary),
            rests_on(summary),
            f"tables: {summary.tables}" if summary.tables else "",
        ],
        details=parts,
    )


def _found(counts: Mapping[str, int]) -> str:
    """``lost 3, duplicated 12``, the worst first."""
    return ", ".join(
        f"{readable_name(name)} {counts[name]:,}" for name in FINDINGS if counts.get(name)
    )


def _partitions(summary: Summary) -> Table:
    worst = sorted(
        summary.partitions,
        key=lambda each: (
            *(-each.counts.get(name, 0) for name in FINDINGS),
            each.topic,
            -1 if each.partition is None else each.partition,
        ),
    )
    more = len(worst) - _SHOWN_PARTITIONS
    table = compact_table(
        ("partition", "seen", "findings"),
        numbers=(1,),
        caption=f"{more:,} more in the table `by_partition`" if more > 0 else "",
    )
    for each in worst[:_SHOWN_PARTITIONS]:
        where = "seen nowhere" if each.partition is None else str(each.partition)
        table.add_row(
            escape(f"{each.topic} {where}"), f"{each.counts.get('seen', 0):,}", _found(each.counts)
        )
    return table


def _latency(summary: Summary) -> Table:
    found = summary.latency_seconds
    names = next((list(each.quantiles) for each in found.values() if each.quantiles), [])
    negative = any(each.negative for each in found.values())
    headings = ("latency", "messages", *names, *(["below zero"] if negative else []))
    table = compact_table(headings, numbers=range(1, len(headings)))
    for topic, latency in found.items():
        table.add_row(
            escape("all topics" if topic == ALL_TOPICS else topic),
            f"{latency.count:,}",
            *(_seconds(latency.quantiles, name) for name in names),
            *([f"{latency.negative:,}"] if negative else []),
        )
    return table


def _minutes(summary: Summary) -> Table:
    """All minutes if they are few, else the worst of them, in order of time."""
    shown = summary.minutes[:_SHOWN_MINUTES]
    shown.sort(key=lambda each: ("" if each.minute is None else str(each.minute), each.topic))
    more = summary.minutes_total - len(shown)
    table = compact_table(
        ("minute, UTC", "topic", "acked", "findings", *_MINUTE_LATENCIES),
        numbers=(2, 4, 5),
        caption=f"the worst; {more:,} more in the table `by_minute`" if more > 0 else "",
    )
    table.columns[0].no_wrap = True
    table.columns[3].min_width = _FINDING_COLUMNS
    for each in shown:
        acked = each.counts.get("acked", 0)
        not_acked = each.counts.get("sent", 0) - acked
        found = [f"not acknowledged {not_acked:,}"] if not_acked else []
        table.add_row(
            "unknown" if each.minute is None else f"{each.minute:%m-%d %H:%M}",
            escape(each.topic),
            f"{acked:,}",
            ", ".join([*found, *filter(None, [_found(each.counts)])]),
            *(_seconds(each.latency_seconds, name) for name in _MINUTE_LATENCIES),
        )
    return table


def _undelivered(summary: Summary) -> Table:
    # If all came equally far, the remarks have it once.
    differ = len({each.attribution for each in summary.undelivered}) > 1
    more = summary.undelivered_ranges - len(summary.undelivered)
    table = compact_table(
        ("missing", "producer and topic", "lane", "seq", *(("where",) if differ else ())),
        numbers=(2,),
        caption=f"{more:,} more ranges in the table `undelivered`" if more > 0 else "",
    )
    for each in summary.undelivered:
        table.add_row(
            escape(f"{each.seq_hi - each.seq_lo:,} {readable_name(each.verdict)}"),
            escape(f"{each.producer}.{each.incarnation} in {each.topic}"),
            str(each.lane),
            f"{each.seq_lo} to {each.seq_hi - 1}",
            *((escape(each.attribution or ""),) if differ else ()),
        )
    return table


def _seconds(quantiles: Mapping[str, float], name: str) -> str:
    return format_seconds(quantiles[name]) if name in quantiles else ""


def _online(summary: Summary) -> str:
    online = summary.online
    if online is None:
        return ""
    if not (online.partitions or online.disagreements):
        return "no online verdict was logged"
    if online.disagreements:
        return "online verdict: differs, see the reasons above"
    return f"online verdict: the same, by id, in {online.partitions:,} partitions"
