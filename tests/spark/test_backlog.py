"""Messages from before a consumer took their partition (backlog) are judged without a latency.

Partition, decoder and log are the consumer's real ones; what they log is reconciled.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog.options import Detail
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId
from tests.spark.spark_history import RUN, SECOND, START, History, stream
from tests.topics_seen import topics_seen

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.writer import SequenceLog

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ON_TIME, LATE = START + SECOND // 50, START + 40 * SECOND
"""Arrivals after 20 ms and after 40 s."""


class Reader:
    """A consumer that takes partition 0 when `end` messages are in it, and logs what it reads."""

    def __init__(self, log: list[Row], *, end: int) -> None:
        topics = topics_seen()
        kept = cast("SequenceLog", SimpleNamespace(append=log.extend))
        options = cast("ConsumeOptions", SimpleNamespace(run=RUN))
        self.book = ConsumerLog(kept, options, topics)
        self.assigned = AssignedPartition.fresh(
            TopicPartition("t", 0),
            1,
            source="t",
            run=RUN,
            policy=ExpectPartition.SOURCE,
            counts=[1],
        )
        self.assigned.read_from = 0
        self.assigned.begin_backlog(end)
        self.book.backlog(self.assigned)

    def read(self, *batches: tuple[int, int, int]) -> None:
        """Read batches of messages: (first seq, count, arrival time)."""
        encoder = LaneEncoder("t", ProducerId("p", RUN, 1), 0, 0, 1, Form.BODY, 200)
        for seq, count, arrived in batches:
            buffer = encoder.encode(seq, np.full(count, START), START).buffer
            buffer[:8] = seq.to_bytes(8, "big")
            self.book.seen(self.assigned, self.assigned.take(decode_records(buffer), arrived))

    def end(self) -> None:
        """Log how far it read, what it found, and that the partition ends there."""
        self.book.read(self.assigned)
        self.book.found(self.assigned)
        self.book.tail(self.assigned.reached, self.assigned.checker.next_offset)


def judged(spark: SparkSession, history: History, logdir: Path) -> Summary:
    """Write the logs, and reconcile them with a threshold for latencies."""
    history.write(logdir)
    return reconcile(spark, plan([str(logdir)], None), thresholds(["p(99)<2s"]))


@pytest.mark.parametrize("detail", list(Detail))
def test_a_consumer_that_starts_late_makes_no_mirror_slow(
    spark: SparkSession, tmp_path: Path, detail: Detail
) -> None:
    """All 100 messages count as delivered; only the 40 after the backlog have a latency.

    The run passes a threshold that the backlog's messages, read after 40 s, would fail.
    """
    history = History(detail=detail)
    history.sends(stream(), 100)
    reader = Reader(history.consumers[0], end=60)
    # The backlog ends within the second batch.
    reader.read((0, 50, LATE), (50, 50, ON_TIME))
    reader.end()
    summary = judged(spark, history, tmp_path)
    assert summary.verdict == "passed"
    assert summary.counts["delivered"] == 100
    latency = summary.latency_seconds["t"]
    assert latency.count == 40
    assert latency.quantiles["p99"] == pytest.approx(0.02, rel=0.01)
    assert summary.backlog == {"t": 60}
    assert sum(each.counts["delivered"] for each in summary.minutes) == 100


def test_what_is_read_again_keeps_the_latency_of_the_first_reading(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A consumer dies before it saves; its successor reads the same again as backlog."""
    history = History()
    history.sends(stream(), 100)
    Reader(history.consumers[0], end=0).read((0, 80, ON_TIME))
    history.consumers.append([])
    second = Reader(history.consumers[1], end=90)
    second.read((0, 90, LATE), (90, 10, ON_TIME))
    second.end()
    summary = judged(spark, history, tmp_path)
    assert summary.verdict == "passed"
    assert (summary.counts["delivered"], summary.counts["duplicated"]) == (100, 0)
    assert summary.latency_seconds["t"].count == 90
    assert summary.latency_seconds["t"].quantiles["p99"] < 1
    assert summary.rests_on is not None
    assert summary.rests_on.model_dump() == {"producers": 1, "consumers": 2, "offsets_read": 100}
    assert summary.backlog == {"t": 10}


def test_where_all_was_there_no_latency_passes(spark: SparkSession, tmp_path: Path) -> None:
    """If nothing was measured, a latency threshold is undecided: the run is inconclusive."""
    history = History()
    history.sends(stream(), 10)
    reader = Reader(history.consumers[0], end=10)
    reader.read((0, 10, LATE))
    reader.end()
    summary = judged(spark, history, tmp_path)
    assert summary.verdict == "inconclusive"
    assert summary.backlog == {"t": 10}
    assert any("nothing measured" in reason for reason in summary.inconclusive)
