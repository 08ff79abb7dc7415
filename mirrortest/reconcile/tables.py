"""What is read off the judgement: sums by run, stream, partition and minute, and exact ids."""

from __future__ import annotations

from typing import Any, NamedTuple

from mirrortest.model.findings import IN_PARTITION, MISSING, Finding
from mirrortest.reconcile.intervals import STREAM
from mirrortest.reconcile.judge import HELD, JUDGED
from mirrortest.reconcile.sweep import islands

STREAM_COLUMNS = ", ".join(STREAM)

FINDINGS = (*JUDGED, Finding.COMPACTED)
"""The findings of a segment of `judged`, once `compaction` has explained what it can."""
MESSAGES = ("sent", "acked", "failed", "unknown", "unknown_seen", "seen", "delivered", "surplus")
"""Counts of messages that are no findings; `surplus` are copies beyond the first."""

FACTS = f"""
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
        for finding in FINDINGS
    )
}
"""

COUNTED = (*MESSAGES, "unlogged", "unaccounted", *(finding.label for finding in FINDINGS))
"""The columns of `FACTS`, sums over segments of `judged`."""

_FLAGS = ("seen", "is_sent", "is_acked", "is_failed", "is_unknown", "unlogged", "accounted")
_COUNTED = ", ".join((*STREAM, "messages", "copies", "findings", *_FLAGS))
_TRUE = {"seen", "is_sent", "is_acked", "accounted"}


class Beside(NamedTuple):
    """What `settling` has taken out of the intervals: which of its views there are.

    Sums of `judged` and `held` have their rows, too.
    """

    lost: bool = False
    whole: bool = False


def plainly_lost(columns: str) -> str:
    """Rows for sums of `judged`, of the view of that name.

    What it counts was judged as delivered, as if it had been seen: that is taken back, and it is
    lost. The statement gives `columns`, `messages`, `copies`, `findings` and all flags.
    """
    seen, lost = (_flags(flags) for flags in (_TRUE, _TRUE - {"seen"}))
    return f"""
        SELECT {columns}, -messages AS messages, 1 AS copies, 0 AS findings, {seen}
        FROM plainly_lost
        UNION ALL
        SELECT {columns}, messages, 0, {int(Finding.LOST)}, {lost} FROM plainly_lost
    """  # noqa: S608


def _flags(true: set[str]) -> str:
    return ", ".join(f"{name in true} AS {name}" for name in _FLAGS)


def _judged(beside: Beside) -> str:
    if not any(beside):
        return "judged"
    statements = [f"SELECT {_COUNTED} FROM judged"]  # noqa: S608
    if beside.lost:
        statements.append(f"SELECT {_COUNTED} FROM ({plainly_lost(STREAM_COLUMNS)})")  # noqa: S608
    if beside.whole:
        whole = f"""SELECT {STREAM_COLUMNS}, messages, 1 AS copies, 0 AS findings, {_flags(_TRUE)}
            FROM whole"""  # noqa: S608
        statements.append(f"SELECT {_COUNTED} FROM ({whole})")  # noqa: S608
    return f"({' UNION ALL '.join(statements)})"


def _held(beside: Beside) -> str:
    if not any(beside):
        return "held"
    columns = ", ".join(HELD)
    statements = [f"SELECT {columns}, lo, hi, copies, found FROM held"]  # noqa: S608
    if beside.lost:
        statements.append(f"SELECT {columns}, 0L, -messages, 1, 0 FROM plainly_lost")  # noqa: S608
    if beside.whole:
        statements.append(f"SELECT {columns}, 0L, messages, 1, 0 FROM whole")  # noqa: S608
    return f"({' UNION ALL '.join(statements)})"


BY_RUN = f"SELECT {', '.join(f'sum({name}) AS {name}' for name in COUNTED)} FROM by_stream"  # noqa: S608


def by_stream(beside: Beside) -> str:
    """The sums of each stream."""
    judged = _judged(beside)
    return f"SELECT {STREAM_COLUMNS}, {FACTS} FROM {judged} GROUP BY {STREAM_COLUMNS}"  # noqa: S608


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


def by_partition(beside: Beside) -> str:
    """What was seen and found in each partition, and what is missing.

    That counts under the partition that holds the most of its stream; null: none does.
    """
    held = _held(beside)
    return f"""
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
        FROM {held} GROUP BY topic, partition
    ), missing AS (
        SELECT topic, home AS partition, {
        ", ".join(
            f"sum(if(findings & {int(finding)} <> 0, messages, 0)) AS {finding.label}"
            for finding in MISSING
        )
    } FROM {_judged(beside)} LEFT JOIN (
            SELECT {STREAM_COLUMNS}, min_by(partition, rank) AS home FROM (
                SELECT {", ".join(HELD)}, struct(-sum(hi - lo), partition) AS rank
                FROM {held} WHERE copies > 0 GROUP BY {", ".join(HELD)}
            ) GROUP BY {STREAM_COLUMNS}
        ) USING ({STREAM_COLUMNS})
        WHERE findings & {sum(map(int, MISSING))} <> 0
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
                *(finding.label for finding in (*IN_PARTITION, *MISSING)),
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


UNDELIVERED = islands((*STREAM, "verdict", "attribution"), "attributed", "lo", "hi")

FOUND = islands(
    (*STREAM, "finding"),
    f"""(
        SELECT {STREAM_COLUMNS}, label AS finding, lo, hi FROM judged JOIN (
            VALUES {", ".join(f"({int(finding)}, '{finding.label}')" for finding in FINDINGS)}
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
        FROM latency_by_minute
        LATERAL VIEW explode(arrays_zip(latency_bucket, latency_count)) AS zipped
        UNION ALL
        SELECT topic, {BELOW_ZERO}, negative FROM latency_by_minute
    ) GROUP BY topic, bucket ORDER BY topic, bucket
"""  # noqa: S608

LATENCY_BY_MINUTE = """
    WITH told AS (
        SELECT topic, minute, negative, arrays_zip(latency_bucket, latency_count) AS pairs
        FROM intervals WHERE kind = 'latency' AND text = 'seen'
    ), below AS (
        SELECT topic, minute, sum(negative) AS negative FROM told GROUP BY topic, minute
    ), counted AS (
        SELECT topic, minute, pair.latency_bucket AS bucket, sum(pair.latency_count) AS number
        FROM told LATERAL VIEW explode(pairs) AS pair GROUP BY topic, minute, bucket
    ), listed AS (
        SELECT topic, minute, array_sort(collect_list(struct(bucket, number))) AS pairs
        FROM counted GROUP BY topic, minute
    )
    SELECT topic, if(minute < 0, NULL, timestamp_seconds(minute * 60)) AS minute, negative,
        coalesce(pairs.bucket, array()) AS latency_bucket,
        coalesce(pairs.number, array()) AS latency_count
    FROM below LEFT JOIN listed USING (topic, minute) ORDER BY topic, minute
"""
"""A histogram of latencies for each topic and minute of intended time, as in the logs' rows."""


def ids(spark: Any, statement: str, run: str, *names: str) -> Any:
    """A table of exact ids: (topic, run, producer, incarnation, lane, `names`, seq_lo, seq_hi)."""
    return spark.sql(
        f"""SELECT topic, '{run}' AS run, producer, incarnation, lane, {", ".join(names)},
        lo AS seq_lo, hi AS seq_hi FROM ({statement})
        ORDER BY topic, producer, incarnation, lane, lo"""  # noqa: S608  # a run's id is letters
    )


def rows(table: Any) -> list[dict[str, Any]]:
    """Collect a small table."""
    return [row.asDict() for row in table.collect()]
