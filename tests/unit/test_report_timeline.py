"""The timeline: by the minute from the tables, by the second from a short run's logs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrortest.model.findings import Finding, Outcome
from mirrortest.report.html.timeline import (
    MINUTE_NS,
    MOST_SLOTS,
    SECOND_NS,
    Slots,
    Timeline,
    best_timeline,
    from_logs,
    from_minutes,
)
from mirrortest.report.result import Result, read_result
from mirrortest.seqlog import rows
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.schema import Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.made_result import RUN, SCHEMAS, START, Made

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirrortest.seqlog.rows import Row

BEGIN = START * SECOND_NS


@pytest.mark.parametrize("minutes", [1, 59, 180, 181, 1440, 100_000, 50_000_000])
def test_slots_are_few_and_hold_the_whole_run(minutes: int) -> None:
    """Whatever the length, the first and the last minute are in a slot, of at most so many."""
    first, last = BEGIN, BEGIN + (minutes - 1) * MINUTE_NS
    slots = Slots.over(first, last, MINUTE_NS)
    assert slots.count <= MOST_SLOTS
    at = slots.of(np.array([first, last]))
    assert at[0] >= 0
    assert at[1] == slots.count - 1
    assert slots.step_ns == MINUTE_NS or minutes > MOST_SLOTS


def test_minutes_are_summed_into_slots() -> None:
    """A long run's slots hold several minutes; nothing is lost on the way to them."""
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
    """Messages whose intended time is not known are not put anywhere."""
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


def stream(lane: int = 0) -> StreamId:
    return StreamId("orders", RUN, "ann", 1, lane)


def sent(
    lo: int, hi: int, first: float, last: float, outcome: Outcome = Outcome.ACKED, *, lane: int = 0
) -> Row:
    """A producer's row, its times in seconds from the begin."""
    times = (BEGIN + int(first * SECOND_NS), BEGIN + int(last * SECOND_NS))
    return rows.sent(
        stream(lane), lo, hi, partition=0, outcome=outcome, offset_lo=lo, intended=times,
        acknowledged=times,
    )  # fmt: skip


def seen(lo: int, hi: int, first: float, last: float, bucket: int) -> Row:
    """A consumer's row, likewise."""
    times = (BEGIN + int(first * SECOND_NS), BEGIN + int(last * SECOND_NS))
    return rows.seen(
        SeenRow(stream(), lo, hi, lo, hi, 0, *times, *times, *times), topic="orders", partition=0,
        topic_identity="0", latencies=rows.Latencies(0, (bucket,), (hi - lo,)),
    )  # fmt: skip


async def log(logdir: Path, role: Role, written: list[Row]) -> None:
    about = Session(
        run=RUN, role=role, name="ann", session=new_session_id(BEGIN),
        incarnation=1 if role is Role.PRODUCER else None, started_ns=BEGIN,
        topics={"orders": Topic(destination_partitions=1)},
    )  # fmt: skip
    writer = await SequenceLog.open(logdir, about)
    writer.append(written)
    await writer.close()


def short_run(
    tmp_path: Path,
    *,
    found: Sequence[tuple[str, int, int, int]] = (),
    producer: Sequence[Row] = (),
    consumer: Sequence[Row] = (),
) -> Result:
    """A one-minute run with its logs, and these ranges of findings."""
    place = Made(minutes=1, topics=("orders",)).write(tmp_path, sessions=False)
    ids = [
        {"topic": "orders", "run": RUN, "producer": "ann", "incarnation": 1}
        | {"lane": lane, "finding": name, "seq_lo": lo, "seq_hi": hi}
        for name, lane, lo, hi in found
    ]
    pq.write_table(pa.Table.from_pylist(ids, SCHEMAS["findings"]), place / "findings.parquet")
    for role, written in ((Role.PRODUCER, producer), (Role.CONSUMER, consumer)):
        if written:
            asyncio.run(log(tmp_path, role, list(written)))
    return read_result(Location.parse(place))


def told_of(result: Result) -> Timeline:
    timeline = best_timeline(result)
    assert timeline is not None
    return timeline


def test_a_short_run_is_told_by_the_second(tmp_path: Path) -> None:
    """Findings stand where their messages' rows say, spread evenly over a row's time."""
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
    timeline = told_of(result)
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


def test_slots_are_no_finer_than_the_consumers_rows(tmp_path: Path) -> None:
    """A row's latencies are of all its time: seconds would promise what it does not know."""
    result = short_run(
        tmp_path, producer=[sent(0, 400, 0.0, 39.9)], consumer=[seen(0, 400, 0.0, 9.0, 3000)]
    )
    assert told_of(result).slots.step_ns == 10 * SECOND_NS


def test_a_run_without_its_logs_or_a_long_one_stays_with_minutes(tmp_path: Path) -> None:
    """Nothing to read, too much to read, or a run of hours: the tables are enough."""
    result = short_run(tmp_path, producer=[sent(0, 400, 0.0, 3.9)])
    assert from_logs(result, 11 * MINUTE_NS) is None
    (tmp_path / "b").mkdir()
    bare = read_result(Location.parse(Made(minutes=1).write(tmp_path / "b")))
    assert not told_of(bare).from_logs


def test_logs_that_tell_of_other_times_are_not_trusted(tmp_path: Path) -> None:
    """A producer's clock that was set in mid-run: the seconds would not fit on a page."""
    result = short_run(tmp_path, producer=[sent(0, 10, 0.0, 1.0), sent(10, 20, 3600.0, 3601.0)])
    assert not told_of(result).from_logs
