"""The reconciliation of synthetic logs finds exactly their truth."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.seqlog.options import Detail
from tests.bench_reconcile.judgement import answer, difference
from tests.bench_reconcile.spark_peer import joined

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    "options",
    [
        {"detail": Detail.INTERVALS, "incarnations": 2, "skew": True, "topics": ("a", "b")},
        {"detail": Detail.MESSAGES},
    ],
)
def test_what_was_seeded_is_found_and_nothing_else(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Equal by producer, incarnation, topic, lane, seq and finding; consumers found the same."""
    written = synthesize(
        SynthOptions(
            log_dir=tmp_path,
            run="s",
            messages=20_000,
            anomalies=spread(len(KINDS) * 10, None),
            lanes=5,
            seed=7,
            **options,
        )
    )
    summary = reconcile(spark, plan([str(tmp_path)], None), thresholds(()))
    truth = pq.read_table(written.truth)
    columns = truth.schema.names[:-2]
    found = pq.read_table(tmp_path / "run=s" / "result" / "findings.parquet").to_pylist()
    assert {
        (*(row[name] for name in columns), seq, row["finding"])
        for row in found
        for seq in range(row["seq_lo"], row["seq_hi"])
    } == {tuple(row.values()) for row in truth.to_pylist()}
    counts = Counter(truth["finding"].to_pylist())
    assert {label: summary.counts[label] for label in counts} == counts
    assert summary.counts["acked"] == 20_000
    assert summary.online is not None
    assert summary.online.disagreements == summary.inconclusive == []
    assert summary.verdict == "failed"
    # The naive full outer join of messages, which the bench compares with, finds the same.
    naive = joined(spark, str(tmp_path / "run=s")).toArrow()
    assert difference(answer(truth), answer(naive)) is None
