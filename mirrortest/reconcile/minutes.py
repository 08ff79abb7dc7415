"""The audit by minute of intended time and topic: counts beside the latency's percentiles.

A `late` message has repaid its loss: it counts as delivered, and no longer as lost.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mirrortest.reconcile.judge import settle
from mirrortest.reconcile.spread import spread
from mirrortest.reconcile.tables import COUNTED, FACTS, LATENCY_BY_MINUTE, rows
from mirrortest.results.summary import MINUTE_COUNTS, MINUTE_LATENCIES, Minute
from mirrortest.timing.histogram import lower_bound

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN_MINUTES = 60

_QUANTILES = {
    "p50_ns": Fraction(1, 2),
    "p90_ns": Fraction(9, 10),
    "p99_ns": Fraction(99, 100),
    "p999_ns": Fraction(999, 1000),
    "max_ns": Fraction(1),
}

_BELOW_ZERO = -1
"""The bucket of negative latencies here: as `Histogram.from_sparse` has it, they are -1 ns."""
_BUCKETS_AN_OCTAVE = 128
_ONE = lower_bound(1)


def _lower(bucket: str) -> str:
    """`timing.histogram.lower_bound` in SQL."""
    octave = f"({bucket} - 1) DIV {_BUCKETS_AN_OCTAVE}"
    part = f"({bucket} - 1) % {_BUCKETS_AN_OCTAVE}"
    return (
        f"if({bucket} = 0, 0L, CAST(ceil({_ONE} * power(2.0D, {octave}) "
        f"* (1 + ({part}) / {_BUCKETS_AN_OCTAVE}.0D)) AS BIGINT))"
    )


def _middle(bucket: str) -> str:
    """`timing.histogram.middle` in SQL, below zero -1."""
    first, after = _lower(bucket), _lower(f"({bucket} + 1)")
    return f"if({bucket} < 0, -1L, ({first} + greatest({after} - 1, {first})) DIV 2)"


def _quantiles() -> str:
    found = []
    for name, share in _QUANTILES.items():
        # As `Histogram.quantile`: the value at rank ceil(share * count), at least the first.
        rank = f"greatest((total * {share.numerator} + {share.denominator - 1}) DIV "
        rank += f"{share.denominator}, 1)"
        found.append(f"min(if(upto >= {rank}, bucket, NULL)) AS {name}")
    values = ", ".join(f"{_middle(name)} AS {name}" for name in _QUANTILES)
    return f"""
        SELECT topic, minute, latencies, {values} FROM (
            SELECT topic, minute, max(total) AS latencies, {", ".join(found)} FROM (
                SELECT topic, minute, bucket,
                    sum(number) OVER (PARTITION BY topic, minute ORDER BY bucket
                        ROWS UNBOUNDED PRECEDING) AS upto,
                    sum(number) OVER (PARTITION BY topic, minute) AS total
                FROM (
                    SELECT topic, minute, {_BELOW_ZERO} AS bucket, negative AS number
                    FROM latency_by_minute WHERE negative > 0
                    UNION ALL
                    SELECT topic, minute, pair.latency_bucket, pair.latency_count
                    FROM latency_by_minute
                    LATERAL VIEW explode(arrays_zip(latency_bucket, latency_count)) AS pair
                )
            ) GROUP BY topic, minute
        )
    """  # noqa: S608  # all of it is ours


def _by_minute() -> str:
    counts = ", ".join(f"coalesce({name}, 0) AS {name}" for name in COUNTED)
    return f"""
        SELECT coalesce(counted.topic, timed.topic) AS topic,
            coalesce(counted.minute, timed.minute) AS minute, {counts},
            coalesce(latencies, 0) AS latencies, {", ".join(_QUANTILES)}
        FROM (
            SELECT topic, timestamp_seconds(minute * 60) AS minute, {FACTS}
            FROM judged_by_minute GROUP BY topic, minute
        ) AS counted FULL OUTER JOIN ({_quantiles()}) AS timed
            ON counted.topic = timed.topic AND counted.minute <=> timed.minute
        ORDER BY topic, minute
    """  # noqa: S608  # all of it is ours


def latencies(spark: Any) -> Any:
    """The table `latency`: a histogram by topic and minute, also as a view `latency_by_minute`."""
    settle(spark, "latency_by_minute", LATENCY_BY_MINUTE)
    return spark.table("latency_by_minute")


def audit(spark: Any, *, lost: bool) -> Any:
    """The table `by_minute`, of the judgement (see `spread`) and of `latencies`."""
    spread(spark, lost=lost)
    settle(spark, "by_minute", _by_minute())
    return spark.table("by_minute")


def worst(spark: Any) -> tuple[list[Minute], int]:
    """The minutes that most is missing of or wrong with, the worst first; how many there are."""
    order = ", ".join(f"{name} DESC" for name in (*MINUTE_COUNTS[3:], "p99_ns", "sent"))
    statement = f"""SELECT *, unix_seconds(minute) AS at FROM by_minute
        ORDER BY {order} LIMIT {SHOWN_MINUTES}"""  # noqa: S608  # all of it is ours
    found = rows(spark.sql(statement))
    return [_minute(row) for row in found], spark.table("by_minute").count()


def _minute(row: Mapping[str, Any]) -> Minute:
    return Minute(
        topic=row["topic"],
        minute=None if row["at"] is None else datetime.fromtimestamp(row["at"], UTC),
        counts={name: row[name] for name in MINUTE_COUNTS},
        latency_seconds={
            name: row[column] / 1e9
            for name, column in MINUTE_LATENCIES.items()
            if row[column] is not None
        },
    )
