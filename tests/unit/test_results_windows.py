"""One line for each interval, from successive statuses, as Kafka's tools print it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import window_line
from mirrortest.produce.produce_status import merged
from mirrortest.results.windows import Totals, Windows
from mirrortest.timing.recent import Latencies
from tests.perf_test_output import windows
from tests.unit.statuses import MS, consuming, producing, sparse


def test_a_window_ends_with_the_first_message_after_its_time() -> None:
    """No window is shorter, and none is empty: without messages it lasts until one comes."""
    found: list[tuple[Totals, Totals]] = []
    shown: list[str] = []

    def line(window: Totals, total: Totals) -> str:
        found.append((window, total))
        return f"{window.messages}"

    each = Windows(shown.append, line, 5.0)
    for seconds, messages in ((1, 10), (4.9, 20), (5.1, 30), (9, 30), (12, 30), (13, 31), (17, 40)):
        each.show(Totals(seconds, messages))
    assert shown == ["30", "1"]
    assert [window.seconds for window, _ in found] == [5.1, pytest.approx(7.9)]
    assert [total.messages for _, total in found] == [30, 31]


def test_the_producers_line_is_about_the_interval_alone() -> None:
    """Rate, bytes and latencies of the messages acknowledged in it; workers are added up."""
    first = replace(
        producing(),
        elapsed_seconds=5.0,
        outcomes=dict.fromkeys(Outcome, 0) | {Outcome.ACKED: 100},
        value_bytes=1 << 20,
        latency=Latencies(sparse(*[900 * MS] * 100)),
    )
    second = replace(
        first,
        elapsed_seconds=9.0,
        outcomes={**first.outcomes, Outcome.ACKED: 120},
        value_bytes=3 << 20,
        latency=Latencies(sparse(*[900 * MS] * 100, *[10 * MS] * 10, *[30 * MS] * 10)),
    )
    for workers in (1, 2):
        before, now = (merged("p", [each] * workers).totals for each in (first, second))
        (found,) = windows(window_line(now.since(before)))
        assert found["records"] == 20 * workers
        assert (found["rate"], found["mb"]) == (5.0 * workers, 0.5 * workers)
        assert found["avg"] == pytest.approx(20, rel=0.01)
        assert found["max"] == pytest.approx(30, rel=0.01)


def test_the_first_window_of_a_producer_that_was_ready_late_begins_then() -> None:
    """It does not begin at --start-at: nothing was sent between the two."""
    late = replace(producing(), elapsed_seconds=125.0, late_seconds=120.0)
    later = replace(late, elapsed_seconds=125.5, late_seconds=120.5)
    assert late.totals.seconds == 5.0
    assert merged("p", [late, later]).totals.seconds == 5.5


def test_a_consumers_totals_are_what_it_read() -> None:
    """Messages count before they have a verdict, too."""
    status = replace(consuming(), value_bytes=7, rebalance_ns=9)
    assert status.totals == Totals(80.0, 17_790, 7, 9)
