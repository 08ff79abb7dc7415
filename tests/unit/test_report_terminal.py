"""The summary for a terminal: where messages were lost, and the worst minutes."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from mirrortest.model.findings import Finding, failing
from mirrortest.model.verdict import Verdict
from mirrortest.report.terminal import run_result
from mirrortest.results.summary import (
    MINUTE_COUNTS,
    MINUTE_LATENCIES,
    Attributed,
    Minute,
    Missing,
    Summary,
    Threshold,
)
from mirrortest.results.words import readable_name

START = datetime(2026, 1, 1, 23, 55, tzinfo=UTC)


def shown(*, width: int = 220, **changed: Any) -> str:
    """What a terminal shows of a summary."""
    summary = Summary(run="r1", verdict=Verdict.FAILED, exit_code=99, counts={"lost": 3}, **changed)
    out = io.StringIO()
    Console(file=out, width=width).print(
        run_result(Summary.model_validate_json(summary.encode())).view(details=True)
    )
    return out.getvalue()


def minute(number: int, *, lost: int = 0, seen: bool = True) -> Minute:
    """A minute of a topic, of whose 100 messages some are lost."""
    counts = dict.fromkeys(MINUTE_COUNTS, 0) | {"sent": 100, "acked": 100, "lost": lost}
    latency = dict.fromkeys(MINUTE_LATENCIES, 0.25) if seen else {}
    at = START + timedelta(minutes=number)
    return Minute(topic="t", minute=at, counts=counts, latency_seconds=latency)


def test_what_fails_a_run_is_red() -> None:
    """Every finding that a failed condition names, and no other count."""
    counts = {"acked": 99} | {finding.label: 1 for finding in Finding}
    asked = [f"{finding.label}==0" for finding in failing(exactly_once=False)]
    conditions = [Threshold(expression=each, value=1, passed=False) for each in asked]
    conditions.append(Threshold(expression="duplicated<9", value=1, passed=True))
    summary = Summary(
        run="r1", verdict=Verdict.FAILED, exit_code=99, counts=counts, thresholds=conditions
    )
    out = io.StringIO()
    Console(file=out, width=220, force_terminal=True, color_system="standard").print(
        run_result(summary).view()
    )
    rows = [line for line in out.getvalue().splitlines() if "1.0101 %" in line]
    red = {
        finding.label
        for finding in Finding
        for row in rows
        if readable_name(finding.label) in row and "\x1b[31m" in row
    }
    assert red == {finding.label for finding in failing(exactly_once=False)}


def test_few_minutes_are_shown_in_their_order() -> None:
    """Whichever is the worst; an unused count has no column, an unseen minute no latency."""
    text = shown(minutes=[minute(2, lost=100, seen=False), minute(7), minute(0)], minutes_total=3)
    lines = [line for line in text.splitlines() if "01-0" in line]
    assert [line.split()[:2] for line in lines] == [
        ["01-01", "23:55"],
        ["01-01", "23:57"],
        ["01-02", "00:02"],
    ]
    assert "250 ms" not in lines[1]
    assert "duplicated" not in text
    assert "by_minute" not in text


def test_minutes_are_readable_on_a_narrow_terminal() -> None:
    """With 80 columns only texts are folded: no number and no time is cut off."""
    row = minute(0, lost=12_345).model_copy(update={"topic": "orders.of.all.the.world"})
    row.counts.update(sent=1_234_567, acked=1_234_567, duplicated=123_456)
    text = shown(width=80, minutes=[row], minutes_total=1)
    (line,) = [line for line in text.splitlines() if "01-01 23:55" in line]
    for figure in ("1,234,567", "lost 12,345", "250 ms"):
        assert figure in line
    assert {"duplicated", "123,456"} <= set(text.split())


def test_of_many_minutes_the_worst_are_shown() -> None:
    """The text names the table that has the others."""
    worst = [minute(number, lost=60 - number) for number in range(60)]
    text = shown(minutes=worst, minutes_total=5000)
    assert sum("01-0" in line for line in text.splitlines()) == 12
    assert "4,988 more in the table `by_minute`" in text


def ranges(*attributions: str) -> dict[str, Any]:
    """One range of three lost messages for each of these."""
    lost: dict[str, Any] = {"topic": "t", "producer": "p", "incarnation": 1, "lane": 0}
    return {
        "undelivered": [
            Missing(
                **lost, verdict="lost", seq_lo=5 * at, seq_hi=5 * at + 3, attribution=attribution
            )
            for at, attribution in enumerate(attributions)
        ],
        "undelivered_ranges": len(attributions),
        "attribution": [
            Attributed(verdict="lost", attribution=each, messages=3 * attributions.count(each))
            for each in dict.fromkeys(attributions)
        ],
    }


def test_where_messages_were_lost_is_told() -> None:
    """By range, and in total."""
    mirror, source = "in the source and not mirrored", "never in the source log"
    text = shown(**ranges(mirror, source, mirror))
    assert (text.count(mirror), text.count(source)) == (3, 2)


def test_what_holds_for_every_range_is_told_once() -> None:
    """A narrow terminal needs the space in each line for other figures."""
    assert shown(**ranges("not mirrored", "not mirrored")).count("not mirrored") == 1
