"""How much a consumer read, in what time: figures, their sums, and lines like Kafka's tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.consume.statistics import (
    DETAILED_COLUMNS,
    PERF_TEST_COLUMNS,
    ReadClock,
    ReadFigures,
    detailed_line,
    merged,
)
from mirrortest.results.windows import Totals
from tests.perf_test_output import consumed, detailed

if TYPE_CHECKING:
    import pytest

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Clock:
    """A clock that the test sets; its wall time begins at `START`."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def monotonic(self) -> int:
        return self.now

    def wall(self) -> int:
        return START + self.now - 5 * SECOND


def test_the_wait_for_more_messages_is_in_no_rate() -> None:
    """The time ends with the last message, and includes rebalances."""
    clock = Clock()
    read = ReadClock(clock.monotonic, clock.wall)
    read.begin()
    read.rebalance_begins()
    clock.now += SECOND
    read.rebalance_begins()  # again, during the first
    clock.now += SECOND
    read.rebalance_ends()
    clock.now += 2 * SECOND
    read.arrived()
    clock.now += 60 * SECOND
    found = read.figures(messages=8, value_bytes=4 << 20, lag=3)
    assert (found.started_ns, found.ended_ns) == (START, START + 4 * SECOND)
    assert found.to_json() == {
        "start": "2023-11-14T22:13:20.000+00:00",
        "end": "2023-11-14T22:13:24.000+00:00",
        "seconds": 4.0,
        "records": 8,
        "mib": 4.0,
        "records_per_second": 2.0,
        "mib_per_second": 1.0,
        "average_size_bytes": 524288.0,
        "rebalance_seconds": 2.0,
        "fetch_seconds": 2.0,
        "fetch_records_per_second": 4.0,
        "fetch_mib_per_second": 2.0,
        "lag": 3,
    }


def test_a_rebalance_behind_the_last_message_is_in_no_rate() -> None:
    """Nor is a rebalance's part after that message: the other consumers leave at the end."""
    clock = Clock()
    read = ReadClock(clock.monotonic, clock.wall)
    read.begin()
    clock.now += 3 * SECOND
    read.rebalance_begins()
    clock.now += SECOND
    read.arrived()
    clock.now += 30 * SECOND
    read.rebalance_ends()
    found = read.figures(messages=6, value_bytes=0, lag=0)
    assert (found.seconds, found.rebalance_seconds) == (4.0, 1.0)
    assert found.per_fetch_second(found.messages) == 2.0


def test_an_end_of_a_rebalance_that_never_began_counts_nothing() -> None:
    """An end without a beginning has no duration."""
    clock = Clock()
    read = ReadClock(clock.monotonic, clock.wall)
    read.rebalance_ends()
    assert read.figures(messages=0, value_bytes=0, lag=None).rebalance_ns == 0


def test_nothing_read_has_no_rates() -> None:
    """Without time or messages, nothing is divided by zero."""
    found = ReadFigures().to_json()
    assert (found["records_per_second"], found["average_size_bytes"]) == (0, 0)
    assert found["lag"] is None


def test_several_consumers_together() -> None:
    """Counts add up over the span of all; if one lag is unknown, the sum is unknown."""
    one = ReadFigures(started_ns=10, ended_ns=50, messages=3, value_bytes=30, rebalance_ns=9, lag=1)
    two = ReadFigures(started_ns=20, ended_ns=90, messages=4, value_bytes=40, rebalance_ns=5, lag=2)
    assert merged([one, two]) == ReadFigures(
        started_ns=10, ended_ns=90, messages=7, value_bytes=70, rebalance_ns=9, lag=3
    )
    assert merged([one, ReadFigures()]).lag is None


def test_the_line_of_the_consumer_perf_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the tool's columns and digits, and this machine's time zone."""
    monkeypatch.setenv("TZ", "UTC")
    figures = ReadFigures(
        started_ns=START + 7_000_000,
        ended_ns=START + 4 * SECOND + 7_000_000,
        messages=8,
        value_bytes=4 << 20,
        rebalance_ns=SECOND,
    )
    line = figures.perf_test_line()
    assert line.endswith(", 4.0000, 1.0000, 8, 2.0000, 1000, 3000, 1.3333, 2.6667")
    found = consumed(f"{', '.join(PERF_TEST_COLUMNS)}\n{line}")
    assert str(found["start.time"]).endswith(":20:007")
    assert (found["data.consumed.in.nMsg"], found["fetch.time.ms"]) == (8, 3000)


def test_the_line_of_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the tool, amounts are totals so far, and rates are the interval's."""
    monkeypatch.setenv("TZ", "UTC")
    before = Totals(10.0, 100, 1 << 20, SECOND)
    now = Totals(14.0, 108, 5 << 20, 2 * SECOND)
    line = detailed_line(now.since(before), now, START + 7_000_000)
    (row,) = detailed(f"{', '.join(DETAILED_COLUMNS)}\n{line}")
    assert str(row.pop("time")).endswith(":20:007")
    assert list(row.values()) == [0, 5.0, 1.0, 108, 2.0, 1000, 3000, 1.3333, 2.6667]
