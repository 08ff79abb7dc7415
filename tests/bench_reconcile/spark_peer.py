"""The judgement as one naive SQL statement on Spark: a full outer join of single messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mirrortest.reconcile.spark_session import spark_session
from tests.bench_reconcile.judgement import CORRUPTED, MISROUTED, THREADS

STREAM = "topic, producer, incarnation, lane"
_JOIN = f"""
    WITH sent AS (
        SELECT {STREAM}, seq, max(outcome = 1) AS acked, max(outcome = 2) AS failed
        FROM producers LATERAL VIEW explode(sequence(seq_lo, seq_hi - 1)) AS seq
        WHERE kind = 'sent' GROUP BY {STREAM}, seq
    ), copies AS (
        SELECT {STREAM}, seq, partition, offset_lo + seq - seq_lo AS offset, findings
        FROM consumers LATERAL VIEW explode(sequence(seq_lo, seq_hi - 1)) AS seq
        WHERE kind = 'seen' AND seq_lo IS NOT NULL
    ), here AS (
        SELECT {STREAM}, seq, partition, min(offset) AS first, count(DISTINCT offset) AS copies,
            bit_or(findings) AS findings
        FROM copies GROUP BY {STREAM}, seq, partition
    ), seen AS (
        SELECT {STREAM}, seq, sum(copies) AS copies, bit_or(findings) AS findings,
            max(late) AS reordered
        FROM (
            SELECT *, coalesce(max(seq) OVER (
                PARTITION BY {STREAM}, partition ORDER BY first
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) > seq, false) AS late FROM here
        ) GROUP BY {STREAM}, seq
    ), lanes AS (
        SELECT {STREAM}, max(if(kind = 'end', seq_hi, NULL)) AS end,
            max(if(kind = 'reserved', seq_hi, NULL)) AS reserved
        FROM producers GROUP BY {STREAM}
    )
    SELECT producer, incarnation, topic, lane, seq, finding FROM (
        SELECT {STREAM}, seq, filter(array(
            if(acked AND copies IS NULL, 'lost', NULL),
            if(copies > 1, 'duplicated', NULL),
            if(reordered, 'reordered', NULL),
            if(findings & {CORRUPTED} <> 0, 'corrupted', NULL),
            if(findings & {MISROUTED} <> 0, 'misrouted', NULL),
            if(copies > 0 AND NOT coalesce(acked, false)
                AND (coalesce(failed, false) OR seq >= least(end, reserved)), 'phantom', NULL)
        ), name -> name IS NOT NULL) AS names
        FROM sent FULL OUTER JOIN seen USING ({STREAM}, seq) LEFT JOIN lanes USING ({STREAM})
    ) LATERAL VIEW explode(names) AS finding
"""


def joined(spark: Any, run: str) -> Any:
    """The answer as a DataFrame."""
    for role in ("producer", "consumer"):
        files = [str(file) for file in Path(run).glob(f"role={role}/*/*.parquet")]
        spark.read.parquet(*files).createOrReplaceTempView(f"{role}s")
    return spark.sql(_JOIN)


def judge(run: str, detail: str, target: str, memory: str, scratch: str) -> None:
    """Judge the logs in a run's directory and write the answer, the same for both details."""
    heap = memory.lower().removesuffix("b")
    # With Spark's defaults: the settings of mirrortest's job suit few intervals.
    with spark_session(f"local[{THREADS}]", heap, untuned=True) as spark:
        joined(spark, run).write.mode("overwrite").parquet(target)


if __name__ == "__main__":
    judge(*sys.argv[1:])
