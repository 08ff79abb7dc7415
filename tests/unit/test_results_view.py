"""A run's result on a terminal: verdict first, nothing cut at any width, alike for all commands."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console, RenderableType

from mirrortest.config.threshold import COUNTS, thresholds
from mirrortest.consume.consume_report import ConsumeReport
from mirrortest.consume.statistics import ReadFigures
from mirrortest.model.verdict import Verdict
from mirrortest.report.terminal import run_result
from mirrortest.results.summary import (
    MINUTE_COUNTS,
    MINUTE_LATENCIES,
    Attributed,
    Latency,
    Minute,
    Missing,
    Online,
    Partition,
    RestsOn,
    Summary,
    Threshold,
)
from mirrortest.results.view import NextCommand
from mirrortest.results.words import FINDINGS, readable_name
from mirrortest.timing.histogram import Histogram

WIDTHS = [80, 110, 160]
START = datetime(2026, 1, 1, 23, 55, tzinfo=UTC)
NAMED = [name for name in FINDINGS if name in COUNTS]
NEXT = NextCommand("next", "mirrortest report --log-dir logs-dc1 --run r1 --open")


def shown(view: RenderableType, width: int = 110, *, encoding: str = "utf-8") -> str:
    """What a terminal of so many columns shows."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=out, width=width, force_terminal=False).print(view)
    out.seek(0)
    return out.read()


def everything_wrong() -> Summary:
    """Each finding in millions of messages, in each partition and minute; most conditions fail."""
    many = dict.fromkeys(FINDINGS, 1_234_567)
    counts = {"sent": 98_765_432, "acked": 98_765_000, "delivered": 90_000_000} | many
    ways = ("in the source and not mirrored", "never in the source log")
    minute = dict.fromkeys(MINUTE_COUNTS, 1_234_567) | {"sent": 1_234_569}
    return Summary(
        run="r1",
        verdict=Verdict.FAILED,
        exit_code=99,
        counts=counts | {"unknown": 5, "failed": 7},
        partitions=[
            Partition(topic="payments.settled.eu", partition=each, counts={"seen": 10**9} | many)
            for each in (*range(30), None)
        ],
        latency_seconds={
            topic: Latency(
                count=10**9,
                negative=3,
                mean=1,
                quantiles={"p50": 0.04, "p90": 0.1, "p99": 12.3, "p99.9": 312.0},
            )
            for topic in ("payments.settled.eu", "all")
        },
        backlog={"payments.settled.eu": 7},
        thresholds=[
            *(Threshold(expression=f"{name}==0", value=1_234_567, passed=False) for name in NAMED),
            Threshold(expression="duplicated<0.1%", value=1.25, passed=False),
            Threshold(expression="p(99)<2s", value=12.3, passed=False),
            Threshold(expression="ack_latency.p(99)<1s", value=None, passed=True),
            Threshold(expression="p(50)<2s", value=0.04, passed=True),
        ],
        inconclusive=["threshold ack_latency.p(99)<1s: nothing measured"] * 2,
        notes=["log damaged: s-producer/000007.journal: a torn frame at its end"],
        online=Online(partitions=8, disagreements=["lost: 3 online, 4 offline"]),
        rests_on=RestsOn(producers=2, consumers=2, offsets_read=10**9),
        undelivered=[
            Missing(
                topic="payments.settled.eu",
                producer="producer-1.3",
                incarnation=2,
                lane=41,
                verdict=verdict,
                attribution=ways[number % 2],
                seq_lo=10**9,
                seq_hi=2**31,
            )
            for number, verdict in enumerate(("lost", "inconclusive", "in_flight"))
        ],
        undelivered_ranges=5000,
        attribution=[Attributed(verdict="lost", attribution=way, messages=3) for way in ways],
        minutes=[
            Minute(
                topic="payments.settled.eu",
                minute=START + timedelta(minutes=number),
                counts=minute,
                latency_seconds=dict.fromkeys(MINUTE_LATENCIES, 28.924),
            )
            for number in range(12)
        ],
        minutes_total=5000,
        tables="logs-dc1/run=r1/result",
    )


def clean() -> Summary:
    """A run without findings."""
    return Summary(
        run="r1",
        verdict=Verdict.PASSED,
        exit_code=0,
        counts={"sent": 100, "acked": 100, "delivered": 100} | dict.fromkeys(FINDINGS, 0),
        thresholds=[Threshold(expression="lost==0", value=0, passed=True)],
        partitions=[Partition(topic="t", partition=0, counts={"seen": 100})],
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("details", [False, True])
def test_no_heading_and_no_figure_is_cut(width: int, *, details: bool) -> None:
    """With everything wrong at once: no line is too long, no word of a heading broken."""
    text = shown(run_result(everything_wrong()).view(details=details, next_commands=[NEXT]), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = ["condition", "measured", "limit", "finding", "messages", "meaning"]
    if details:
        words += ["partition", "seen", "findings", "latency", "below", "p99.9", "minute,", "UTC"]
        words += ["topic", "acked", "max", "missing", "producer", "lane", "seq", "where"]
    assert not [word for word in words if word not in text.split()]
    for name in FINDINGS:
        assert readable_name(name) in " ".join(text.split())
    if details:
        assert text.count("1,234,567") >= 12 + len(FINDINGS)
        assert text.count("28.9 s") == 2 * 12


def test_the_verdict_comes_first_with_its_reason() -> None:
    """Then each condition with a mark, the measured value and the limit; last the next command."""
    lines = shown(run_result(everything_wrong()).view(next_commands=[NEXT]), 400).splitlines()
    assert lines[0].startswith("run r1: failed. 1,234,567 of 98,765,000 acknowledged messages were")
    assert lines[0].endswith("; and 14 more conditions failed.")
    rows = {tuple(line.split()) for line in lines}
    assert ("✗", "failed", "lost", "1,234,567", "==", "0") in rows
    assert ("✗", "failed", "duplicated", "1.25", "%", "<", "0.1%") in rows
    assert ("✗", "failed", "p(99)", "12.3", "s", "<", "2s") in rows
    assert ("✓", "met", "p(50)", "40.0", "ms", "<", "2s") in rows
    assert ("?", "undecided", "ack_latency.p(99)", "not", "measured", "<", "1s") in rows
    assert lines[-1] == "next: mirrortest report --log-dir logs-dc1 --run r1 --open"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_clean_run_takes_few_lines(width: int) -> None:
    """The verdict, the conditions, and that nothing was found."""
    text = shown(run_result(clean()).view(next_commands=[NEXT]), width)
    first, *rest = text.splitlines()
    assert first.startswith("run r1: passed. All 100 acknowledged messages arrived, and every cond")
    assert "findings: none" in rest
    assert "--details shows the tables behind these figures" in rest
    assert len(text.splitlines()) < 14


def test_online_and_offline_show_a_threshold_alike() -> None:
    """The same expression, the same measured value: the same line."""
    histogram = Histogram()
    histogram.add([40_000_000] * 90 + [3_000_000_000] * 10)
    asked = thresholds(["duplicated<1%", "p(99)<2s", "p(50)<2s"])
    counts = {"acked": 1000, "delivered": 1000} | dict.fromkeys(FINDINGS, 0) | {"duplicated": 25}
    results = [
        each.evaluate(counts, total=1000, latencies={"latency": histogram}) for each in asked
    ]
    online = ConsumeReport(
        "r1",
        "carl",
        counts,
        25,
        {},
        {"t": (histogram, histogram)},
        results,
        (),
        (),
        ReadFigures(),
        "logs",
    )
    offline = clean().model_copy(
        update={
            "verdict": Verdict.FAILED,
            "counts": counts,
            "thresholds": [Threshold.of(each) for each in results],
            "latency_seconds": {"all": Latency.of(histogram)},
        }
    )
    one, other = (
        shown(each.view(), 400).splitlines() for each in (online.result(), run_result(offline))
    )
    assert one[0] == other[0].replace("run r1:", "run r1, consumer carl:")
    marked = [[line for line in lines if line[:1] in set("✓✗?")] for lines in (one, other)]
    assert len(marked[0]) == len(results)
    assert marked[0] == marked[1]
    assert any("2.5 %" in line for line in marked[0])


def test_a_terminal_without_signs_gets_letters() -> None:
    """Each mark has a word next to it, so nothing is lost."""
    text = shown(run_result(clean()).view(), encoding="ascii")
    assert "+ met" in text
