"""The judgement on DuckDB: one aggregation turns messages into intervals, the rest is small.

Rows of a stream in a partition continue each other while the distance of offset and seq is
constant; only breaks need judging. `lag`, sorted by offset, finds them. Sweep lines and windows
then judge the few remaining islands exactly.
"""

from __future__ import annotations

import sys
from typing import Any

import duckdb

from tests.bench_reconcile.judgement import CORRUPTED, MISROUTED, THREADS

STREAM = "topic, producer, incarnation, lane"
_ENDLESS = 1 << 62


def judge(run: str, detail: str, target: str, memory: str, scratch: str) -> None:
    """Judge the logs in a run's directory and write the answer."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": THREADS,
        "memory_limit": memory,
        "temp_directory": scratch,
        "preserve_insertion_order": False,
    }
    with duckdb.connect(config=settings) as db:
        for role in ("producer", "consumer"):
            db.execute(
                f"CREATE VIEW {role} AS SELECT * FROM "
                f"read_parquet('{run}/role={role}/*/*.parquet', hive_partitioning = false)"
            )
        db.execute(
            f"""CREATE TEMP TABLE streams AS SELECT *, row_number() OVER () AS stream FROM (
                SELECT DISTINCT {STREAM} FROM producer WHERE kind IN ('reserved', 'end')
            )"""
        )
        _runs(db, detail)
        _islands(db)
        _judged(db)
        db.execute(
            f"""COPY (
                SELECT producer, incarnation, topic, lane, seq, finding
                FROM found JOIN streams USING (stream)
            ) TO '{target}' (FORMAT parquet)"""
        )


def _runs(db: Any, detail: str) -> None:
    """Tables `seen_runs` and `sent_runs`: the logged intervals, or intervals made of messages."""
    for name, role, what in (("seen", "consumer", "partition"), ("sent", "producer", "outcome")):
        # A message that was not acknowledged has no offset.
        rows = f"""SELECT {STREAM}, {what}, seq_lo AS lo, seq_hi AS hi,
            coalesce(offset_lo - seq_lo, -{_ENDLESS}) AS distance
            FROM {role} WHERE kind = '{name}' AND seq_lo IS NOT NULL"""
        runs = f"stream, {what}, lo, hi, distance"
        if detail == "intervals":
            db.execute(
                f"""CREATE TEMP TABLE {name}_runs AS
                SELECT {runs} FROM ({rows}) JOIN streams USING ({STREAM})"""
            )
            continue
        db.execute(
            f"""CREATE TEMP TABLE {name}_groups AS
            SELECT * FROM (
                SELECT {STREAM}, {what}, distance, min(lo) AS lo, max(hi) AS hi,
                    count(*) AS messages
                FROM ({rows}) GROUP BY ALL
            ) JOIN streams USING ({STREAM})"""
        )
        db.execute(
            f"""CREATE TEMP TABLE {name}_runs AS
            SELECT {runs} FROM {name}_groups WHERE messages = hi - lo"""
        )
        # Groups with holes or repeated messages are read a second time.
        torn = f"(SELECT * EXCLUDE (lo, hi) FROM {name}_groups WHERE messages <> hi - lo)"
        if db.execute(f"SELECT 1 FROM {torn} LIMIT 1").fetchone():
            db.execute(
                f"""INSERT INTO {name}_runs SELECT DISTINCT {runs}
                FROM ({rows}) JOIN {torn} USING ({STREAM}, {what}, distance)"""
            )


def _islands(db: Any) -> None:
    """Tables `seen` and `sent`: adjacent runs, joined."""
    for name, what, order in (("seen", "partition", "lo + distance"), ("sent", "outcome", "lo")):
        own = f"PARTITION BY stream, {what} ORDER BY"
        db.execute(
            f"""CREATE TEMP TABLE {name} AS
            SELECT stream, {what}, lo, distance, coalesce(ended, last) AS hi FROM (
                SELECT *, lead(before) OVER ({own} place) AS ended
                FROM (
                    SELECT stream, {what}, lo, distance, {order} AS place,
                        lag(hi) OVER ({own} {order}) AS before
                    FROM {name}_runs
                ) WHERE before IS DISTINCT FROM lo
            ) JOIN (
                SELECT stream, {what}, arg_max(hi, {order}) AS last FROM {name}_runs GROUP BY ALL
            ) USING (stream, {what})"""
        )


def _judged(db: Any) -> None:
    """Table `found`: (stream, seq, finding)."""
    spans = f"""
        SELECT stream, lo, hi, 1 AS seen, 0 AS acked, 0 AS failed, 0 AS reserved FROM seen
        UNION ALL
        SELECT stream, lo, hi, 0, if(outcome = 1, 1, 0), if(outcome = 2, 1, 0), 1 FROM sent
        UNION ALL
        SELECT stream, seq_lo, seq_hi, 0, 0, 0, 1 FROM producer JOIN streams USING ({STREAM})
            WHERE kind = 'reserved'
        UNION ALL
        SELECT stream, seq_hi, {_ENDLESS}, 0, 0, 1, 0 FROM producer JOIN streams USING ({STREAM})
            WHERE kind = 'end'
    """
    names = ("seen", "acked", "failed", "reserved")
    db.execute(
        f"""CREATE TEMP TABLE segments AS
        SELECT stream, place AS lo, lead(place) OVER line AS hi,
            {", ".join(f"sum({name}) OVER line AS {name}" for name in names)}
        FROM (
            SELECT stream, place, {", ".join(f"sum({name}) AS {name}" for name in names)} FROM (
                SELECT stream, lo AS place, {", ".join(names)} FROM ({spans})
                UNION ALL
                SELECT stream, hi, {", ".join(f"-{name}" for name in names)} FROM ({spans})
            ) GROUP BY stream, place
        ) WINDOW line AS (PARTITION BY stream ORDER BY place)"""
    )
    db.execute(
        f"""CREATE TEMP TABLE found AS
        SELECT stream, unnest(range(lo, hi)) AS seq, finding FROM (
            SELECT stream, lo, hi, unnest(list_filter([
                if(acked > 0 AND seen = 0, 'lost', NULL),
                if(seen > 1, 'duplicated', NULL),
                if(seen > 0 AND acked = 0 AND (failed > 0 OR reserved = 0), 'phantom', NULL)
            ], lambda name: name IS NOT NULL)) AS finding FROM segments
        )
        UNION ALL
        SELECT DISTINCT stream, seq, 'reordered' FROM (
            SELECT stream, partition, place, unnest(range(lo, least(hi, above))) AS seq FROM (
                SELECT *, lo + distance AS place, max(hi) OVER (
                    PARTITION BY stream, partition ORDER BY lo + distance
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS above FROM seen
            ) WHERE lo < above
        ) AS late WHERE NOT EXISTS (
            SELECT 1 FROM seen WHERE seen.stream = late.stream
                AND seen.partition = late.partition AND lo <= seq AND seq < hi
                AND lo + distance < late.place
        )
        UNION ALL
        SELECT DISTINCT stream, unnest(range(seq_lo, seq_hi)) AS seq, finding
        FROM consumer JOIN streams USING ({STREAM})
        JOIN (VALUES ({CORRUPTED}, 'corrupted'), ({MISROUTED}, 'misrouted')) AS names (bit, finding)
            ON findings & bit <> 0
        WHERE kind = 'seen' AND findings <> 0 AND seq_lo IS NOT NULL"""
    )


if __name__ == "__main__":
    judge(*sys.argv[1:])
