"""The timeline of a short run by the second, from its logs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirrortest.config.units import SECOND_NS
from mirrortest.model.findings import Finding, Outcome
from mirrortest.report.html import render
from mirrortest.report.html.log_timeline import LONGEST_NS, best_timeline, from_logs
from mirrortest.report.html.page import page
from mirrortest.report.result import Result, read_result
from mirrortest.report.story import failures, first_finding
from mirrortest.results.summary import RestsOn, Threshold
from mirrortest.seqlog import rows
from mirrortest.seqlog.events import Event
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from tests.made_result import Made
from tests.short_run import BEGIN, log, seen, seen_as, sent, short_run

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.report.html.timeline import Timeline


def timeline_of(result: Result) -> Timeline:
    timeline = best_timeline(result)
    assert timeline is not None
    return timeline


def test_a_short_run_is_told_by_the_second(tmp_path: Path) -> None:
    """Findings are at their messages' intended times, spread evenly over each row's time."""
    result = short_run(
        tmp_path,
        producer=[
            sent(0, 100, 0.0, 0.99),
            sent(100, 400, 1.0, 3.99),
            sent(400, 450, 4.0, 4.49, Outcome.UNKNOWN),
            sent(0, 10, 4.5, 4.6, lane=7),
        ],
        consumer=[seen(0, 100, 0.0, 0.99, 3000), seen(100, 400, 2.2, 2.4, 3200)],
        found=[
            (Finding.LOST.label, 0, 150, 250),
            (Finding.LOST.label, 7, 0, 10),
            (Finding.DUPLICATED.label, 0, 90, 110),
            (Finding.PHANTOM.label, 0, 440, 470),
            (Finding.PHANTOM.label, 9, 0, 5),
        ],
    )
    timeline = timeline_of(result)
    assert timeline.latencies is not None
    assert timeline.from_logs
    assert (timeline.slots.start_ns, timeline.slots.step_ns) == (BEGIN, SECOND_NS)
    assert timeline.total("sent").tolist() == [100, 100, 100, 100, 60]
    assert timeline.total("unknown").tolist() == [0, 0, 0, 0, 50]
    assert timeline.total("lost").tolist() == [0, 50, 50, 0, 10]
    assert timeline.total("duplicated").tolist() == [10, 10, 0, 0, 0]
    assert timeline.total("phantom").tolist() == [0, 0, 0, 0, 10]
    assert timeline.unplaced == {"phantom": 25}
    cells = timeline.latencies.of_topics([0])
    assert (cells.slot.tolist(), cells.count.tolist()) == ([0, 2], [100, 300])


def test_a_rows_latencies_are_spread_over_its_time(tmp_path: Path) -> None:
    """After an outage one row has seconds of messages: the earliest of them are the slowest.

    Each second still has its own messages and latencies.
    """
    intended = np.arange(2000) * 10_000_000
    arrived = intended + 40_000_000
    arrived[500:1500] = 15 * SECOND_NS + np.arange(1000) * 100_000
    read = [seen_as(lo, hi, intended, arrived) for lo, hi in ((0, 500), (500, 1500), (1500, 2000))]
    result = short_run(tmp_path, producer=[sent(0, 2000, 0.0, 19.99)], consumer=read)
    timeline = timeline_of(result)
    assert timeline.slots.step_ns == SECOND_NS
    assert timeline.latencies is not None
    (slowest,) = timeline.latencies.together.quantiles([1])
    (fastest,) = timeline.latencies.together.quantiles([1 / 100])
    for second in range(20):
        true = (arrived - intended)[second * 100 : (second + 1) * 100]
        assert slowest[second] == pytest.approx(true.max(), rel=0.01), second
        assert fastest[second] == pytest.approx(true.min(), rel=0.01), second
    assert timeline.latencies.distribution().count == 2000


def test_latencies_that_rise_within_a_row_and_negative_ones_keep_their_order(
    tmp_path: Path,
) -> None:
    """A mirror that falls behind: the last messages of a row are the slowest."""
    intended = np.arange(300) * 10_000_000
    arrived = intended + np.linspace(-1e9, 2e9, 300).astype(np.int64)
    result = short_run(
        tmp_path,
        producer=[sent(0, 300, 0.0, 2.99)],
        consumer=[seen_as(0, 300, intended, arrived)],
    )
    latencies = timeline_of(result).latencies
    assert latencies is not None
    assert latencies.negative.tolist() == [[100, 0, 0]]
    (slowest,) = latencies.together.quantiles([1])
    assert slowest[0] is None
    assert slowest[1:] == pytest.approx([1e9, 2e9], rel=0.02)


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.CONSUMER])
def test_one_sides_logs_alone_are_not_drawn(tmp_path: Path, role: Role) -> None:
    """After a reconciliation of two directories the result is next to the logs of one side."""
    if role is Role.PRODUCER:
        result = short_run(tmp_path, producer=[sent(0, 400, 0.0, 3.9)])
    else:
        result = short_run(tmp_path, consumer=[seen(0, 400, 0.0, 3.9, 3000)])
    timeline = timeline_of(result)
    assert not timeline.from_logs
    assert timeline.latencies is not None
    other = "consumer" if role is Role.PRODUCER else "producer"
    assert any(f"the logs of 1 {other} were not found" in each for each in result.absent)
    assert "Percentiles over time" in render(result)


def test_consumers_that_read_nothing_have_no_latencies(tmp_path: Path) -> None:
    """Their logs exist and are empty: the counts are drawn."""
    result = short_run(tmp_path, producer=[sent(0, 400, 0.0, 3.9)])
    asyncio.run(log(tmp_path, Role.CONSUMER, []))
    timeline = timeline_of(read_result(result.place))
    assert timeline.from_logs
    assert timeline.total("sent").sum() == 400
    assert timeline.latencies is not None
    assert timeline.latencies.distribution().count == 0


def killed_mirror(tmp_path: Path, *events: tuple[float, str]) -> list[str]:
    """The first failures: duplicates, sent from 3 s on and repeated at 9 s, and losses at 6 s."""
    copies = seen(300, 400, 3.0, 3.99, 3000, arrived=9.0, offset=1000)
    result = short_run(
        tmp_path,
        producer=[sent(0, 1000, 0.0, 9.99)],
        consumer=[seen(0, 1000, 0.0, 9.99, 3000), copies],
        found=[(Finding.DUPLICATED.label, 0, 300, 400), (Finding.LOST.label, 0, 600, 610)],
    )
    noted = tuple(
        Event(time_ns=BEGIN + int(at * SECOND_NS), what=what, part="mirror") for at, what in events
    )
    summary = result.summary.model_copy(
        update={
            "thresholds": [
                Threshold(expression="duplicated==0", value=100, passed=False),
                Threshold(expression="lost==0", value=10, passed=False),
            ]
        }
    )
    return [str(each) for each in failures(summary, timeline_of(result), noted)]


def test_a_cause_comes_before_its_effect(tmp_path: Path) -> None:
    """The cause of duplicates precedes the copies' arrival; that of losses, the next arrival.

    The start at 6.5 s, after the first loss, is not named for it.
    """
    repeated, lost = killed_mirror(tmp_path, (5.0, "kill"), (6.5, "start"))
    assert "the last event before: “mirror: kill” at 2023-03-28 10:40:05 UTC" in repeated
    assert "the last event before: “mirror: kill”" in lost


@pytest.mark.parametrize("at", [9.5, 26.0])
def test_an_event_after_the_first_bad_message_is_not_named(tmp_path: Path, at: float) -> None:
    """Neither 0.5 s nor 17 s after the duplicates arrived."""
    assert all("event" not in each for each in killed_mirror(tmp_path, (at, "kill")))


@pytest.mark.parametrize("finding", [Finding.LATE, Finding.LOST])
def test_the_cause_of_what_did_not_arrive_may_follow_its_intended_time(
    tmp_path: Path, finding: Finding
) -> None:
    """An event from a minute before was named, not the kill 50 ms after the intended time."""
    first_missing = 510 if finding is Finding.LOST else 500
    result = short_run(
        tmp_path,
        producer=[sent(0, 1000, 0.0, 9.99)],
        consumer=[
            seen(0, 500, 0.0, 4.99, 3000),
            seen(first_missing, 1000, 5.1, 9.99, 3500, arrived=75.0),
        ],
        found=[(finding.label, 0, 500, 510)],
    )
    events = [
        Event(time_ns=BEGIN + int(at * SECOND_NS), what=what, part=part)
        for at, what, part in ((-60, "restart", "B1"), (5.05, "kill", "mirror"), (80, "stop", "B1"))
    ]
    sentence = str(first_finding(timeline_of(result), events))
    assert "this showed at 2023-03-28 10:41:15 UTC at the earliest" in sentence
    assert sentence.endswith("the last event before: “mirror: kill” at 2023-03-28 10:40:05 UTC")


def test_a_backlog_does_not_tell_when_a_message_was_missed(tmp_path: Path) -> None:
    """A consumer that starts after the faults reads everything after them."""
    read = seen(510, 1000, 5.1, 9.99, 3500, arrived=75.0)
    result = short_run(
        tmp_path,
        producer=[sent(0, 1000, 0.0, 9.99)],
        consumer=[read._replace(latency_bucket=None, latency_count=None, negative=None)],
        found=[(Finding.LOST.label, 0, 500, 510)],
    )
    kill = Event(time_ns=BEGIN + 70 * SECOND_NS, what="kill", part="mirror")
    assert "event" not in str(first_finding(timeline_of(result), [kill]))


def test_what_restores_a_part_is_named_by_what_took_it_down(tmp_path: Path) -> None:
    """A mirror repeats messages once it is ready again, because it was killed."""
    repeated, lost = killed_mirror(tmp_path, (4.0, "kill"), (6.05, "start"), (8.5, "ready"))
    assert "“mirror: kill” at 2023-03-28 10:40:04 UTC" in repeated
    assert "“mirror: kill” at 2023-03-28 10:40:04 UTC" in lost


def test_a_run_without_its_logs_or_a_long_one_stays_with_minutes(tmp_path: Path) -> None:
    """Without logs, or for a run of more than 10 min, the tables by minute are used."""
    result = short_run(
        tmp_path, producer=[sent(0, 400, 0.0, 3.9)], consumer=[seen(0, 400, 0.0, 3.9, 3000)]
    )
    assert from_logs(result, LONGEST_NS) is not None
    assert from_logs(result, LONGEST_NS + 1) is None
    (tmp_path / "b").mkdir()
    bare = read_result(Location.parse(Made(minutes=1).write(tmp_path / "b")))
    assert not timeline_of(bare).from_logs


@pytest.mark.parametrize("more", ["", "sent", "read"])
def test_logs_that_grew_since_are_not_drawn(tmp_path: Path, more: str) -> None:
    """Only logs that add up to the result are drawn; the page names those that do not."""
    result = short_run(
        tmp_path,
        producer=[sent(0, 400, 0.0, 3.9)],
        consumer=[seen(0, 400, 0.0, 3.9, 3000), rows.read("orders", 0, 0, 400)],
    )
    rests_on = RestsOn(producers=1, consumers=1, offsets_read=400)
    if more == "sent":
        asyncio.run(log(tmp_path, Role.PRODUCER, [sent(400, 800, 4.0, 7.9)]))
        rests_on = RestsOn(producers=2, consumers=1, offsets_read=400)
    if more == "read":
        asyncio.run(log(tmp_path, Role.CONSUMER, [rows.read("orders", 0, 300, 410)]))
        rests_on = RestsOn(producers=1, consumers=2, offsets_read=400)
    result = replace(
        read_result(result.place), summary=result.summary.model_copy(update={"rests_on": rests_on})
    )
    shown = page(result)
    assert ("One step is 1 s;" in shown["resolution"]) is not bool(more)
    assert any("reconcile again" in each for each in shown["absent"]) is bool(more)


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_logs_that_tell_of_other_times_are_not_trusted(tmp_path: Path, side: str) -> None:
    """A producer's clock was set during the run: its seconds would not fit on a page."""
    for shift in (0.0, 3600.0):
        of_sent, of_seen = (shift if side == each else 0.0 for each in ("producer", "consumer"))
        result = short_run(
            tmp_path / str(shift),
            producer=[sent(0, 10, 0.0, 1.0), sent(10, 20, 1.0 + of_sent, 2.0 + of_sent)],
            consumer=[
                seen(0, 10, 0.0, 1.0, 3000),
                seen(10, 20, 1.0 + of_seen, 2.0 + of_seen, 3000),
            ],
        )
        assert timeline_of(result).from_logs is (shift == 0.0)
