"""Reports a real reconciliation: the columns that the report's tests create are the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.report.html import render
from mirrortest.report.html.log_timeline import best_timeline
from mirrortest.report.html.page import page
from mirrortest.report.result import read_result
from mirrortest.seqlog import rows
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.location import Location
from tests.made_result import SCHEMAS
from tests.spark.spark_history import RUN, START, History, seen, sent, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_reconciliation_can_be_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Its tables have all columns of `made_result`; the page shows what was found, and when."""
    history = History()
    history.producer = [
        rows.reserved(stream(), 0, 1000),
        sent(stream(), 0, 600),
        sent(stream(), 600, 1000),
        rows.end(stream(), 1000),
    ]
    # One row per second, as read; 500 to 509 never came, and the last hundred came twice.
    arrived = [*range(0, 500, 10), *range(510, 1000, 10), *range(900, 1000, 10)]
    history.consumers[0] += [
        seen(stream(), lo, lo + 10, number * 10) for number, lo in enumerate(arrived)
    ]
    history.reads(1090)
    history.write(tmp_path)
    EventLog(tmp_path, RUN).note("kill", "mirror", time_ns=START + 49_000_000_000)
    summary = reconcile(spark, plan([str(tmp_path)], None), thresholds(["p(99)<2s"]))

    place = Location.parse(tmp_path / f"run={RUN}" / "result")
    for name, schema in SCHEMAS.items():
        written = pq.read_schema(place.child(f"{name}.parquet").path)
        types = dict(zip(written.names, written.types, strict=True))
        made = dict(zip(schema.names, schema.types, strict=True))
        assert made.items() <= types.items(), name

    result = read_result(place)
    assert result.summary == summary
    assert (result.tables_absent, result.absent) == (frozenset(), ())
    shown = page(result)
    assert shown["first"].text.startswith("10 messages were lost in topic t, among those meant to")
    assert "the last event before: “mirror: kill” at 2023-03-28 10:40:49 UTC" in shown["first"].text
    timeline = best_timeline(result)
    assert timeline is not None
    assert timeline.latencies is not None
    assert timeline.from_logs
    # Ten messages per second: from 500 on they were meant to be sent 50 s after the start.
    assert timeline.total("lost")[50] == 10
    assert timeline.total("duplicated").sum() == 100
    assert timeline.latencies.distribution().count == 1090
    latency = result.table("latency")
    assert latency is not None
    minutes = latency.to_pylist()
    assert [sum(row["latency_count"]) for row in minutes] == [590, 500]
    assert sum(len(curve["curve"]) for curve in shown["charts"]["latency"]["topics"]) > 0
    assert [row.name for row in shown["latency_rows"]] == ["all topics"]
    assert [(each.kind, each.seq_lo, each.seq_hi) for each in shown["ids"].ranges] == [
        ("lost", 500, 510),
        ("duplicated", 900, 1000),
    ]
    assert "run r1: failed" in render(result)
