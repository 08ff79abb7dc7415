"""The figures of each reporting interval: on disk, after a kill, as CSV."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, cast

import pytest
import structlog

from mirrortest.errors import SequenceLogError
from mirrortest.model.load import FIGURES, Writer
from mirrortest.seqlog import rows
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.interval_log import (
    CSV_COLUMNS,
    SCHEMA,
    Intervals,
    TopicLoad,
    begin_csv,
    read_intervals,
)
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.session_directory import salvage
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import Histogram
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.rows import Row

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


def session() -> Session:
    return Session(run="r", role=Role.PRODUCER, name="p", session="s", started_ns=1)


def load(acked: int, latencies: list[int], **levels: int | None) -> TopicLoad:
    histogram = Histogram()
    histogram.add(latencies)
    return TopicLoad({"acked": acked, "sent": acked + 1}, histogram, levels)


def recorded() -> list[pa.RecordBatch]:
    """Two intervals; a second topic begins in the second one. Some latencies are below zero."""
    found: list[pa.RecordBatch] = []
    intervals = Intervals(found.append, 5.0, 10 * SECOND, lambda now: EPOCH + now)
    assert not intervals.due(15 * SECOND - 1)
    assert intervals.due(15 * SECOND)
    intervals.end(16 * SECOND, {"b": load(3, [1000, 2000, -5], in_flight=1, debt_ns=7)})
    assert not intervals.due(20 * SECOND)
    intervals.end(
        21 * SECOND,
        {"b": load(9, [1000, 2000, -5, 1000, -6, -7], in_flight=0), "a": load(2, [4000])},
    )
    return found


def test_counts_are_of_the_interval_and_levels_of_its_end() -> None:
    """Counters and latencies are differences; a figure that the process does not have is null."""
    first, second = recorded()
    assert first.schema == second.schema == SCHEMA
    (row,) = first.to_pylist()
    assert (row["started_ns"], row["ended_ns"]) == (EPOCH + 10 * SECOND, EPOCH + 16 * SECOND)
    assert (row["topic"], row["acked"], row["sent"]) == ("b", 3, 4)
    assert (row["in_flight"], row["debt_ns"], row["lag"], row["arrived"]) == (1, 7, None, None)
    assert (row["negative"], row["latency_count"]) == (1, [1, 1])
    assert row["memory_bytes"] > 1 << 20
    a, b = second.to_pylist()
    assert (a["topic"], a["acked"], a["latency_count"]) == ("a", 2, [1])
    assert (b["acked"], b["sent"], b["negative"], b["latency_count"]) == (6, 6, 2, [1])
    assert b["started_ns"] == row["ended_ns"]
    assert b["cpu_seconds"] == a["cpu_seconds"] >= 0


def test_a_process_without_topics_records_nothing() -> None:
    """An interval in which nothing was assigned has no row."""
    found: list[pa.RecordBatch] = []
    Intervals(found.append, 1.0, 0, int).end(9, {})
    assert found == []


async def test_the_file_is_noted_with_its_digest_and_is_no_part_of_the_log(tmp_path: Path) -> None:
    """A reader of the log's rows does not see it; if a byte of it changed, it is not used."""
    log = await SequenceLog.open(tmp_path, session())
    for batch in recorded():
        log.record(batch)
    await log.close()
    (found,) = find_sessions(tmp_path)
    assert found.files == ()
    assert found.damage == ()
    assert found.session.intervals is not None
    assert found.session.intervals.rows == 3
    damage: list[Damage] = []
    table = read_intervals(found, damage)
    assert damage == []
    assert table["acked"].to_pylist() == [3, 2, 6]
    path = next(tmp_path.rglob("intervals.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert read_intervals(found, damage).num_rows == 0
    assert "its digest differs" in damage[0].detail


async def test_a_killed_process_leaves_whole_rows(tmp_path: Path) -> None:
    """They are read from the journal, up to its last complete frame."""
    log = await SequenceLog.open(tmp_path, session())
    for batch in recorded():
        log.record(batch)
    await log.sync()
    await log.revise(lambda same: same)
    log._writing.submit(lambda: None).result()
    (found,) = find_sessions(tmp_path)
    assert found.session.intervals is None
    damage: list[Damage] = []
    assert read_intervals(found, damage)["acked"].to_pylist() == [3, 2, 6]
    assert damage == []
    path = next(tmp_path.rglob("intervals.journal"))
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    assert read_intervals(found, damage)["acked"].to_pylist() == [3]
    assert [each.rows for each in damage] == [0]
    path.write_bytes(content)
    await log.close()


async def test_rows_that_are_counted_are_in_the_log_before(tmp_path: Path) -> None:
    """An interval's rows are written after the rows that were appended before it, or not at all."""
    log = await SequenceLog.open(tmp_path, session())
    stream = StreamId("t", "r", "p", 1, 0)
    log.append([rows.reserved(stream, 0, 10)])
    log.record(recorded()[0])
    log._writing.submit(lambda: None).result()
    assert log.durable_rows == 1
    assert log.pending_rows == 0
    log.append([cast("Row", "no row")])
    log.record(recorded()[1])
    with pytest.raises(SequenceLogError, match="the log cannot be written"):
        await log.close()
    (found,) = find_sessions(tmp_path)
    assert read_intervals(found, [])["acked"].to_pylist() == [3]


async def test_an_interval_that_cannot_be_written_is_an_error_of_the_log(tmp_path: Path) -> None:
    """Whatever the reason is: nothing waits for that write, so the next call raises it."""
    log = await SequenceLog.open(tmp_path, session())
    log.record(cast("pa.RecordBatch", "no batch"))
    log._writing.submit(lambda: None).result()
    with pytest.raises(SequenceLogError, match="the log cannot be written"):
        await log.sync()
    with pytest.raises(SequenceLogError, match="the log cannot be written"):
        await log.close()


async def test_a_salvage_finishes_the_intervals_of_a_dead_session(tmp_path: Path) -> None:
    """In a spool they are a journal; in the log directory they are a listed Parquet file."""
    where, spool = tmp_path / "logs", tmp_path / "spool"
    log = await SequenceLog.open(spool, session())
    log.record(recorded()[0])
    log._writing.submit(lambda: None).result()
    log._directory.release()
    salvage(spool, where)
    (found,) = find_sessions(where)
    assert found.session.intervals is not None
    damage: list[Damage] = []
    assert read_intervals(found, damage)["acked"].to_pylist() == [3]
    assert damage == []


async def test_a_salvage_takes_the_intervals_of_another_version(tmp_path: Path) -> None:
    """Unknown columns are left out, missing ones are null."""
    where, spool = tmp_path / "logs", tmp_path / "spool"
    log = await SequenceLog.open(spool, session())
    ours = recorded()[0]
    theirs = ours.append_column("newer", ours["acked"]).drop_columns(["cpu_seconds"])
    log.record(theirs)
    log._writing.submit(lambda: None).result()
    log._directory.release()
    salvage(spool, where)
    (found,) = find_sessions(where)
    damage: list[Damage] = []
    rows = read_intervals(found, damage)
    assert (rows["acked"].to_pylist(), rows["cpu_seconds"].to_pylist()) == ([3], [None])
    assert damage == []


async def test_a_session_without_intervals_has_none(tmp_path: Path) -> None:
    """Older logs have no such file; that is not damage."""
    await (await SequenceLog.open(tmp_path, session())).close()
    (found,) = find_sessions(tmp_path)
    damage: list[Damage] = []
    assert read_intervals(found, damage).num_rows == 0
    assert damage == []


async def test_a_csv_has_every_figure_and_latencies_as_percentiles(tmp_path: Path) -> None:
    """One line for each row; empty where there is no figure."""
    file = tmp_path / "load.csv"
    begin_csv(file)
    async with await SequenceLog.open(tmp_path, session(), csv=file) as log:
        for batch in recorded():
            log.record(batch)
    lines = list(csv.DictReader(file.read_text().splitlines()))
    assert [line["topic"] for line in lines] == ["b", "a", "b"]
    assert lines[0]["start"] == "2023-11-14T22:13:30.000Z"
    assert (lines[0]["name"], lines[0]["acked"], lines[0]["lag"]) == ("p", "3", "")
    assert float(lines[1]["latency_p50_ms"]) == pytest.approx(0.004, rel=0.01)
    named = {figure.name for figure in FIGURES if not figure.type.startswith("list")}
    assert named - {"started_ns", "ended_ns"} <= set(CSV_COLUMNS)


async def test_a_csv_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    """The figures are in the log all the same, and one warning says so."""
    with structlog.testing.capture_logs() as logged:
        async with await SequenceLog.open(tmp_path, session(), csv=tmp_path) as log:
            for batch in recorded():
                log.record(batch)
    assert [line["log_level"] for line in logged] == ["warning"]
    (found,) = find_sessions(tmp_path)
    assert read_intervals(found, []).num_rows == 3


def test_every_column_is_of_somebody() -> None:
    """Each kind of writer has figures in the table, and no figure is there twice."""
    assert {figure.writer for figure in FIGURES} == set(Writer)
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
