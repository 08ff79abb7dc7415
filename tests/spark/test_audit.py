"""The audit by minute."""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from datetime import UTC, datetime

import pytest

from mirrortest.model.findings import Finding
from mirrortest.reconcile.attribution import Attribution
from mirrortest.seqlog import rows
from mirrortest.timing.histogram import Histogram, Sparse
from tests.spark.scenes import Result, scene
from tests.spark.spark_history import SECOND, START, History, found, lost, seen, sent, stream

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@functools.cache
def audited_minutes() -> tuple[History, dict[int, Histogram]]:
    """Four minutes of messages with random latencies, and each minute's latencies."""
    rng = random.Random(7)
    history = History({"minutes": 1})
    of = stream(topic="minutes")
    count = 2400
    history.producer.append(rows.reserved(of, 0, count))
    history.producer += [sent(of, lo, lo + 600) for lo in range(0, count, 600)]
    history.producer.append(rows.end(of, count))
    missing = {5, 6, 700}
    latencies: dict[int, Histogram] = defaultdict(Histogram)
    offset = 0
    for seq in range(count):
        if seq in missing:
            continue
        latency = rng.choice(
            (-5, 0, 1, 127, 128, 3_000_000, rng.randrange(1 << rng.randint(1, 40)))
        )
        histogram = Histogram()
        histogram.add([latency])
        sparse = histogram.sparse()
        latencies[seq // 600].merge(Histogram.of(sparse))
        history.consumers[0].append(
            seen(of, seq, seq + 1, offset)._replace(
                negative=sparse.negative, latency_bucket=sparse.buckets, latency_count=sparse.counts
            )
        )
        offset += 1
    history.consumers[0] += [
        seen(of, 1300, 1310, offset), lost(of, 1900, 1920), lost(of, 5, 7), lost(of, 700, 701),
        found(of, 1300, 1310, Finding.DUPLICATED, offset + 10),
    ]  # fmt: skip
    history.reads(offset + 10, topic="minutes")
    for _ in range(10):
        histogram = Histogram.of(Sparse(0, (2000,), (1,)))
        latencies[2].merge(histogram)
    return history, latencies


@scene
def _minutes() -> History:
    return audited_minutes()[0]


def test_the_audit_by_minute_adds_up(together: Result) -> None:
    """Counts and percentiles of each minute are those of its messages alone, in UTC.

    A late message does not count as lost. The user's thresholds decide how much may be lost.
    """
    _, latencies = audited_minutes()
    audited = together.rows("by_minute", "minutes")
    assert [row["minute"] for row in audited] == [
        datetime.fromtimestamp(START // SECOND + 60 * minute, UTC) for minute in range(4)
    ]
    names = ("sent", "acked", "delivered", "lost", "duplicated", "late")
    assert [tuple(row[name] for name in names) for row in audited] == [
        (600, 600, 598, 2, 0, 0),
        (600, 600, 599, 1, 0, 0),
        (600, 600, 600, 0, 10, 0),
        (600, 600, 600, 0, 0, 20),
    ]
    shares = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999, "max_ns": 1.0}
    for minute, row in enumerate(audited):
        histogram = latencies[minute]
        assert row["latencies"] == histogram.count
        assert {name: row[name] for name in shares} == {
            name: histogram.quantile(q) for name, q in shares.items()
        }
    assert together.attribution("minutes") == {("lost", Attribution.ACKNOWLEDGED): 3}
    summary = together.summary
    every = together.rows("by_minute")
    assert summary.minutes_total == len(every)
    assert summary.minutes[0].counts["lost"] == max(row["lost"] for row in every)
    (first,) = (
        each
        for each in summary.minutes
        if (each.topic, each.minute) == ("minutes", audited[0]["minute"])
    )
    assert first.counts["lost"] == 2
    assert first.latency_seconds["max"] == audited[0]["max_ns"] / 1e9
    met = {each.expression: each.passed and each.value is not None for each in summary.thresholds}
    # The second one failed, or is undecided if another test's scene lacks logs.
    assert (met["lost<90%"], met["lost<0.1%"]) == (True, False)
    share = summary.counts["lost"] / summary.counts["acked"]
    assert 0.001 < share < 0.9
