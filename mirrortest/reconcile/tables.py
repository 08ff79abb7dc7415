"""What is read off the judgement: sums by run, stream, partition and minute, and exact ids."""

from __future__ import annotations

from typing import Any

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.judge import HELD, IN_PARTITION, JUDGED, STREAM
from mirrortest.reconcile.sweep import islands

STREAM_COLUMNS = ", ".join(STREAM)

MESSAGES = ("sent", "acked", "failed", "unknown", "unknown_seen", "seen", "delivered", "surplus")
"""Counts of messages that are no findings; `surplus` are copies beyond the first."""

_FACTS = f"""
    sum(if(is_sent, messages, 0)) AS sent,
    sum(if(is_acked, messages, 0)) AS acked,
    sum(if(is_failed, messages, 0)) AS failed,
    sum(if(is_unknown, messages, 0)) AS unknown,
    sum(if(is_unknown AND seen, messages, 0)) AS unknown_seen,
    sum(if(seen, messages, 0)) AS seen,
    sum(if(is_acked AND seen, messages, 0)) AS delivered,
    sum(if(copies > 1, (copies - 1) * messages, 0)) AS surplus,
    sum(if(unlogged, messages, 0)) AS unlogged,
    sum(if(seen AND NOT accounted AND NOT is_sent, messages, 0)) AS unaccounted,
    {
    ", ".join(
        f"sum(if(findings & {int(finding)} <> 0, messages, 0)) AS {finding.label}"
        for finding in JUDGED
    )
}
"""

BY_RUN = f"SELECT {_FACTS} FROM judged"  # noqa: S608
BY_STREAM = f"SELECT {STREAM_COLUMNS}, {_FACTS} FROM judged GROUP BY {STREAM_COLUMNS}"  # noqa: S608
BY_MINUTE = f"""
    SELECT topic, timestamp_seconds(minute * 60) AS minute, {_FACTS}
    FROM judged GROUP BY topic, minute
"""  # noqa: S608

STREAMLESS = f"""
    SELECT topic, partition,
        sum(if(findings & {int(Finding.OTHER_RUN)} <> 0, hi - lo, 0)) AS other_run,
        sum(if(findings & {int(Finding.OTHER_RUN)} = 0
            AND (findings & {int(Finding.FOREIGN)} <> 0 OR findings & {int(Finding.CORRUPTED)} = 0),
            hi - lo, 0)) AS foreign,
        sum(if(findings & {int(Finding.OTHER_RUN | Finding.FOREIGN)} = 0
            AND findings & {int(Finding.CORRUPTED)} <> 0, hi - lo, 0)) AS corrupted_unknown_id
    FROM ({
    islands(
        ("topic", "partition", "identity", "findings"),
        "intervals WHERE kind = 'seen' AND seq_lo IS NULL",
        "offset_lo",
        "offset_hi",
    )
}) GROUP BY topic, partition
"""  # noqa: S608
"""Messages that enter no stream, by partition: each under one name, as online."""

_MISSING = (Finding.LOST, Finding.IN_FLIGHT, Finding.INCONCLUSIVE)

BY_PARTITION = f"""
    WITH here AS (
        SELECT topic, partition,
            sum(if(copies > 0, hi - lo, 0)) AS seen,
            sum(if(copies > 1, (copies - 1) * (hi - lo), 0)) AS surplus,
            {
    ", ".join(
        f"sum(if(found & {int(finding)} <> 0, hi - lo, 0)) AS {finding.label}"
        for finding in IN_PARTITION
    )
}
        FROM held GROUP BY topic, partition
    ), missing AS (
        SELECT topic, home AS partition, {
    ", ".join(
        f"sum(if(findings & {int(finding)} <> 0, messages, 0)) AS {finding.label}"
        for finding in _MISSING
    )
} FROM judged LEFT JOIN (
            SELECT {STREAM_COLUMNS}, min_by(partition, rank) AS home FROM (
                SELECT {", ".join(HELD)}, struct(-sum(hi - lo), partition) AS rank
                FROM held WHERE copies > 0 GROUP BY {", ".join(HELD)}
            ) GROUP BY {STREAM_COLUMNS}
        ) USING ({STREAM_COLUMNS})
        WHERE findings & {int(_MISSING[0] | _MISSING[1] | _MISSING[2])} <> 0
        GROUP BY topic, home
    ), streamless AS ({STREAMLESS}), partitions AS (
        SELECT topic, partition FROM here UNION SELECT topic, partition FROM missing
        UNION SELECT topic, partition FROM streamless
    )
    SELECT partitions.topic, partitions.partition, {
    ", ".join(
        f"coalesce({name}, 0) AS {name}"
        for name in (
            "seen",
            "surplus",
            *(finding.label for finding in (*IN_PARTITION, *_MISSING)),
            "foreign",
            "other_run",
            "corrupted_unknown_id",
        )
    )
}
    FROM partitions
    LEFT JOIN here ON partitions.topic = here.topic AND partitions.partition <=> here.partition
    LEFT JOIN missing
        ON partitions.topic = missing.topic AND partitions.partition <=> missing.partition
    LEFT JOIN streamless
        ON partitions.topic = streamless.topic AND partitions.partition <=> streamless.partition
"""  # noqa: S608
"""What is missing counts under the partition that holds the most of its stream; null: none does."""

UNDELIVERED = islands(
    (*STREAM, "verdict"),
    f"""(
        SELECT {STREAM_COLUMNS}, lo, hi, CASE
            WHEN findings & {int(Finding.LOST)} <> 0 THEN 'lost'
            WHEN findings & {int(Finding.INCONCLUSIVE)} <> 0 THEN 'inconclusive'
            WHEN findings & {int(Finding.IN_FLIGHT)} <> 0 THEN 'in_flight'
            WHEN is_unknown THEN 'unknown'
            ELSE 'failed' END AS verdict
        FROM judged WHERE NOT seen
    )""",  # noqa: S608
    "lo",
    "hi",
)

FOUND = islands(
    (*STREAM, "finding"),
    f"""(
        SELECT {STREAM_COLUMNS}, label AS finding, lo, hi FROM judged JOIN (
            VALUES {", ".join(f"({int(finding)}, '{finding.label}')" for finding in JUDGED)}
        ) AS names (bit, label) ON findings & bit <> 0
    )""",  # noqa: S608
    "lo",
    "hi",
)

BELOW_ZERO = -1
"""The `bucket` under which `LATENCY` counts negative latencies."""
LATENCY = f"""
    SELECT topic, bucket, sum(number) AS number FROM (
        SELECT topic, zipped.latency_bucket AS bucket, zipped.latency_count AS number
        FROM intervals LATERAL VIEW explode(arrays_zip(latency_bucket, latency_count)) AS zipped
        WHERE kind = 'latency' AND text = 'seen'
        UNION ALL
        SELECT topic, {BELOW_ZERO}, negative FROM intervals
        WHERE kind = 'latency' AND text = 'seen'
    ) GROUP BY topic, bucket ORDER BY topic, bucket
"""  # noqa: S608


def ids(spark: Any, statement: str, run: str, name: str) -> Any:
    """A table of exact ids: (topic, run, producer, incarnation, lane, `name`, seq_lo, seq_hi)."""
    return spark.sql(
        f"""SELECT topic, '{run}' AS run, producer, incarnation, lane, {name},
        lo AS seq_lo, hi AS seq_hi FROM ({statement})
        ORDER BY topic, producer, incarnation, lane, lo"""  # noqa: S608  # a run's id is letters
    )


def rows(table: Any) -> list[dict[str, Any]]:
    """Collect a small table."""
    return [row.asDict() for row in table.collect()]
