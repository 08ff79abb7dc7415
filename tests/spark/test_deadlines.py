"""Deadlines pass by the consumer's own clock; wall clocks count only if it logged none.

The consumer's judging rounds and log are the real ones; what they log is reconciled.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.verify.loss import Losses
from tests.spark.spark_history import SECOND, History, seen, sent, stream
from tests.topics_seen import topics_seen
from tests.unit.judged_world import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.writer import SequenceLog

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class _Log(ConsumerLog):
    """The log of a consumer whose topics do not change."""

    async def update_topics(self, topics: JudgedTopics) -> None:
        """Nothing has changed."""


class Run:
    """Three messages, of which the last never arrives; the producer's clock is off.

    `off` is how many seconds the producer's clock is ahead; the last message was acknowledged
    `ago` seconds ago.
    """

    def __init__(self, *, ago: float, off: float, partitions: int = 1) -> None:
        self.history = History({"t": partitions}, expiry_logged=True)
        of = stream()
        at = time.time_ns() + int((off - ago) * SECOND)
        self.history.producer = [
            rows.reserved(of, 0, 3),
            *(sent(of, seq, seq + 1, at=at) for seq in range(3)),
            rows.end(of, 3),
        ]
        self.log: list[Row] = self.history.consumers[0]
        self.log += [seen(of, 0, 2, 0), rows.read("t", 0, 0, 2, topic_identity="0")]
        self.world = World(0, 1).vouch((0, 3), end=3)
        self.world.log = self._log_rows()  # type: ignore[assignment]  # the real one

    def _log_rows(self) -> ConsumerLog:
        log = SimpleNamespace(append=self.log.extend, where="nowhere", durable_rows=0)
        topics = topics_seen()
        return _Log(cast("SequenceLog", log), self.world.options, topics)

    def online(self, *, deadline: float = 60) -> ConsumeReport:
        """Stop the consumer after one judging round and the closing one; return its report."""
        return asyncio.run(self._online(Losses(int(deadline * SECOND))))

    async def _online(self, deadlines: Losses) -> ConsumeReport:
        rounds = self.world.rounds()
        for judge in rounds._context.topics.judges.values():
            judge.losses = deadlines
        await rounds.judge()
        return await rounds.conclude()

    def offline(self, spark: SparkSession, logdir: Path) -> Summary:
        """Reconcile the logs."""
        self.history.write(logdir)
        return reconcile(spark, plan([str(logdir)], None), thresholds(()))


def test_what_is_not_due_by_the_consumers_clock_is_in_flight_offline_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A 5 s old message is not lost at a deadline of 60 s, if the producer is 75 s behind."""
    run = Run(ago=5, off=-75)
    online = run.online()
    assert (online.counts["in_flight"], online.counts["lost"]) == (1, 0)
    offline = run.offline(spark, tmp_path)
    assert (offline.counts["in_flight"], offline.counts["lost"]) == (1, 0)
    assert offline.verdict == "inconclusive"
    assert offline.online is not None
    assert offline.online.disagreements == []


def test_logs_of_before_are_judged_by_wall_clocks_less_what_these_may_be_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    """If no deadline was logged, 75 s may be a clock's error, but ten minutes are a loss."""
    run = Run(ago=5, off=-75)
    run.history.expiry_logged = False
    run.online()
    assert run.offline(spark, tmp_path / "late").counts["lost"] == 0
    run = Run(ago=600, off=0)
    run.history.expiry_logged = False
    run.online()
    offline = run.offline(spark, tmp_path / "due")
    assert offline.counts["lost"] == 1
    assert any("by the wall clocks of producers and consumers" in note for note in offline.notes)


def test_what_the_last_consumer_could_not_decide_the_logs_decide_and_say_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A message is due by the last consumer's clock, but another partition's state is outdated.

    So it is in flight online, and lost by the logs. The producer's clock, an hour ahead, does not
    matter.
    """
    run = Run(ago=5, off=3600, partitions=2)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1),
        1,
        source="t",
        run="r1",
        policy=run.world.assigned.policy,
        counts=[2],
    )
    run.world.states = {other.at: (1, other.to_state())}
    run.world.ends = {("A.t", 0): 2, ("A.t", 1): 5}
    online = run.online(deadline=1e-9)
    assert (online.counts["in_flight"], online.counts["lost"]) == (1, 0)
    read = rows.read("t", 1, 0, 5, topic_identity="0")
    run.history.consumers.insert(0, [read, rows.tail("t", 1, 5, topic_identity="0")])
    offline = run.offline(spark, tmp_path)
    assert (offline.counts["in_flight"], offline.counts["lost"]) == (0, 1)
    assert offline.online is not None
    assert offline.online.disagreements == []
    assert any("1 messages are lost that the last consumer left" in note for note in offline.notes)
