"""Topics whose cleanup policy no consumer could see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from tests.spark.spark_history import History, lost, seen, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_what_compaction_could_explain_is_not_lost_where_the_policy_is_hidden(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without DescribeConfigs, [2, 5) may have been compacted, as later messages were seen.

    10 and 11 are lost under any policy: compaction keeps the last message of a key. In a topic
    whose policy is known and not to compact, all five are lost. The consumer's claims of loss are
    no disagreement.
    """
    history = History({"hidden": 1, "plain": 1}, hidden=("hidden",))
    for topic in history.topics:
        of = stream(topic=topic)
        history.sends(of, 12)
        log = history.consumers[0]
        log += [seen(of, 0, 2, 0), seen(of, 5, 10, 5), lost(of, 2, 3), lost(of, 10, 12)]
        history.reads(10, topic=topic)
    history.write(tmp_path)
    summary = reconcile(spark, plan([str(tmp_path)], None), thresholds(()))
    ranges = {
        (each.topic, each.verdict): (each.seq_lo, each.seq_hi) for each in summary.undelivered
    }
    assert ranges["hidden", "inconclusive"] == (2, 5)
    assert ranges["hidden", "lost"] == (10, 12)
    assert summary.counts["inconclusive"] == 3
    assert summary.counts["lost"] == 2 + 5
    assert summary.counts["compacted"] == 0
    assert any(note.startswith("hidden: no consumer could see") for note in summary.notes)
    assert not any(note.startswith("plain:") for note in summary.notes)
    assert summary.online is not None
    assert not any(line.startswith("hidden") for line in summary.online.disagreements)
