"""The timeline by the minute, from the result's tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mirrortest.config.units import SECOND_NS
from mirrortest.report.html.timeline import MOST_SLOTS, Slots, from_minutes
from mirrortest.verify.row import MINUTE_NS
from tests.made_result import SCHEMAS, START, Made

BEGIN = START * SECOND_NS


@pytest.mark.parametrize("minutes", [1, 59, 180, 181, 1440, 100_000, 50_000_000])
def test_slots_are_few_and_hold_the_whole_run(minutes: int) -> None:
    """Whatever the length, at most `MOST_SLOTS` slots contain the first and the last minute."""
    first, last = BEGIN, BEGIN + (minutes - 1) * MINUTE_NS
    slots = Slots.over(first, last, MINUTE_NS)
    assert slots.count <= MOST_SLOTS
    at = slots.of(np.array([first, last]))
    assert at[0] >= 0
    assert at[1] == slots.count - 1
    assert slots.step_ns == MINUTE_NS or minutes > MOST_SLOTS


def test_minutes_are_summed_into_slots() -> None:
    """A long run's slots have several minutes each; no message is left out."""
    made = Made(minutes=400, wrong={"lost": [(0, 1, 3), (1, 1, 4), (399, 0, 5)]})
    table = pa.Table.from_pylist(made._by_minute(), SCHEMAS["by_minute"])
    latency = pa.Table.from_pylist(made._latency(), SCHEMAS["latency"])
    timeline = from_minutes(table, latency)
    assert timeline is not None
    assert timeline.latencies is not None
    assert timeline.slots.step_ns == 5 * MINUTE_NS
    assert timeline.topics == ("clicks.eu", "orders")
    assert timeline.total("sent").sum() == 400 * 2 * 1000
    assert timeline.counts["lost"][0][0] == 7
    assert timeline.counts["lost"][1][-1] == 5
    assert timeline.latencies.distribution().count == 400 * 2 * 400
    assert "p50_ns" not in timeline.counts


def test_what_has_no_minute_is_told_apart() -> None:
    """Messages whose intended time is unknown are in no slot."""
    row = dict.fromkeys(SCHEMAS["by_minute"].names, 0) | {"topic": "t", "minute": None, "lost": 9}
    table = pa.Table.from_pylist([row], SCHEMAS["by_minute"])
    assert from_minutes(table, None) is None
    placed = row | {"minute": START * 10**6, "lost": 1}
    timeline = from_minutes(pa.Table.from_pylist([row, placed], SCHEMAS["by_minute"]), None)
    assert timeline is not None
    assert timeline.unplaced["lost"] == 9
    assert timeline.total("lost").tolist() == [1]
    assert timeline.latencies is None


def test_no_table_is_no_timeline() -> None:
    """A result of an older version has nothing to draw."""
    assert from_minutes(None, None) is None
