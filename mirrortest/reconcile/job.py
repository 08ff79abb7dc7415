"""The job: logs in, tables and a summary out."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions

from mirrortest.check.routing import ExpectPartition
from mirrortest.config.threshold import evaluate, undecided
from mirrortest.errors import SequenceLogError
from mirrortest.reconcile import facts, tables
from mirrortest.reconcile.coverage import Coverage, cover
from mirrortest.reconcile.judge import judge
from mirrortest.reconcile.online import Comparison, compare
from mirrortest.reconcile.source import read_intervals, write_table
from mirrortest.report.summary import (
    Latency,
    Missing,
    Online,
    Partition,
    Summary,
    Threshold,
    Verdict,
)
from mirrortest.seqlog.schema import Role
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.config.threshold import Threshold as Condition
    from mirrortest.reconcile.plan import Plan
    from mirrortest.seqlog.location import Location

SHOWN_RANGES = 20
_ORDER = "'lost', 'inconclusive', 'in_flight', 'failed', 'unknown'"
ALL_TOPICS = "all"


@dataclass
class _Result:
    counts: dict[str, int]
    coverage: Coverage
    reasons: list[str]
    notes: list[str]
    comparison: Comparison
    latency: dict[str, Histogram] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)
    undelivered: list[Missing] = field(default_factory=list)
    ranges: int = 0


def reconcile(
    spark: Any, plan: Plan, conditions: Sequence[Condition], output: Location | None = None
) -> Summary:
    """Judge a run from its logs and write the result below `output` (LOGDIR/run=R/result).

    Raises:
        SequenceLogError: the result cannot be written.
    """
    place = output if output is not None else plan.default_output
    with contextlib.ExitStack() as stack:
        intervals = read_intervals(spark, plan).persist()
        stack.callback(intervals.unpersist)
        intervals.createOrReplaceTempView("intervals")
        result = _judge(spark, plan, stack, place)
    results = evaluate(
        conditions,
        result.counts,
        total=result.counts["acked"],
        latencies={"latency": result.latency[ALL_TOPICS]},
    )
    reasons = [*result.reasons, *undecided(results)]
    verdict = Verdict.of(
        failed=any(not each.passed for each in results), inconclusive=bool(reasons)
    )
    summary = Summary(
        run=plan.run,
        verdict=verdict,
        exit_code=verdict.exit_code,
        counts=result.counts,
        partitions=result.partitions,
        latency_seconds={
            topic: Latency.of(histogram)
            for topic, histogram in result.latency.items()
            if histogram.count
        },
        thresholds=[Threshold.of(each) for each in results],
        inconclusive=reasons,
        notes=result.notes,
        online=Online(
            partitions=result.comparison.partitions,
            disagreements=[str(each) for each in result.comparison.disagreements],
        ),
        undelivered=result.undelivered,
        undelivered_ranges=result.ranges,
        tables=place.shown,
    )
    _write_summary(place, summary)
    return summary


def _judge(spark: Any, plan: Plan, stack: contextlib.ExitStack, place: Location) -> _Result:
    known = facts.gather(spark, plan)
    coverage = cover(known.observed)
    facts.make_views(spark, known, coverage)
    for table in judge(spark, any_partition=_policy(plan) is ExpectPartition.ANY):
        stack.callback(table.unpersist)
    counts = _counts(spark)
    settled = known.topics - {blind.topic for blind in coverage.blind}
    comparison = compare(spark, settled if known.observed.tails else ())
    result = _Result(
        counts,
        coverage,
        [*known.reasons, *coverage.reasons],
        list(known.notes),
        comparison,
        _latency(spark),
    )
    counts["negative_latency"] = result.latency[ALL_TOPICS].negative
    _explain(result)
    with _written(place):
        _tables(spark, plan, place, result)
    return result


def _policy(plan: Plan) -> ExpectPartition | None:
    told = {s.expect_partition for _, s in plan.of(Role.CONSUMER) if s.expect_partition}
    return ExpectPartition(told.pop()) if len(told) == 1 else None


def _counts(spark: Any) -> dict[str, int]:
    totals = {
        name: int(count or 0) for name, count in spark.sql(tables.BY_RUN).first().asDict().items()
    }
    alien = {"foreign": 0, "other_run": 0, "corrupted_unknown_id": 0}
    for row in tables.rows(spark.sql(tables.STREAMLESS)):
        for name in alien:
            alien[name] += row[name]
    # A message whose id is unknown is corrupted none the less.
    totals["corrupted"] += alien["corrupted_unknown_id"]
    return totals | alien | {"compacted": 0}


def _explain(result: _Result) -> None:
    """Say in words why the run is inconclusive, from its counts."""
    counts, reasons = result.counts, result.reasons
    unlogged, unaccounted = counts.pop("unlogged"), counts.pop("unaccounted")
    if not counts["acked"]:
        reasons.append(
            "no message was acknowledged, so that nothing is proven"
            + (f": the outcome of {counts['unknown']:,} is unknown" if counts["unknown"] else "")
        )
    if unlogged:
        reasons.append(
            f"the ledger vouches for {unlogged:,} messages that their producers' logs do not hold: "
            "a log is missing or damaged"
        )
    if unaccounted:
        reasons.append(f"{unaccounted:,} messages were seen whose producers' logs are not here")
    if counts["inconclusive"]:
        reasons.append(
            f"{counts['inconclusive']:,} acknowledged messages may stand where nobody read"
        )
    if counts["in_flight"]:
        reasons.append(
            f"{counts['in_flight']:,} acknowledged messages were still under way: the destination "
            "was not read to its end, or the deadline was not past"
        )
    reasons += [f"online and offline disagree: {each}" for each in result.comparison.disagreements]


def _latency(spark: Any) -> dict[str, Histogram]:
    negative = {
        row["topic"]: row["negative"]
        for row in tables.rows(spark.sql(tables.NEGATIVE))
        if row["kind"] == "seen"
    }
    buckets: dict[str, list[tuple[int, int]]] = {topic: [] for topic in negative}
    for row in tables.rows(spark.sql(tables.LATENCY)):
        if row["kind"] == "seen":
            buckets[row["topic"]].append((row["bucket"], row["number"]))
    total = Histogram()
    found: dict[str, Histogram] = {}
    for topic, pairs in sorted(buckets.items()):
        pairs.sort()
        found[topic] = Histogram.from_sparse(
            [bucket for bucket, _ in pairs], [n for _, n in pairs], negative[topic] or 0
        )
        total.merge(found[topic])
    return {**found, ALL_TOPICS: total}


def _tables(spark: Any, plan: Plan, place: Location, result: _Result) -> None:
    undelivered = tables.ids(spark, tables.UNDELIVERED, plan.run, "verdict").persist()
    try:
        result.ranges = undelivered.count()
        worst_first = undelivered.orderBy(
            functions.expr(f"array_position(array({_ORDER}), verdict)"), "topic", "producer",
            "incarnation", "lane", "seq_lo",
        )  # fmt: skip
        result.undelivered = [
            Missing(**{name: row[name] for name in Missing.model_fields})
            for row in tables.rows(worst_first.limit(SHOWN_RANGES))
        ]
        by_partition = tables.rows(spark.sql(tables.BY_PARTITION + " ORDER BY 1, 2"))
        result.partitions = [
            Partition(topic=row.pop("topic"), partition=row.pop("partition"), counts=row)
            for row in by_partition
        ]
        for name, table in {
            "undelivered": undelivered,
            "findings": tables.ids(spark, tables.FOUND, plan.run, "finding"),
            "by_stream": spark.sql(tables.BY_STREAM),
            "by_partition": spark.sql(tables.BY_PARTITION),
            "by_minute": spark.sql(tables.BY_MINUTE),
            "by_run": spark.sql(tables.BY_RUN),
        }.items():
            write_table(table, place.child(name))
    finally:
        undelivered.unpersist()


@contextlib.contextmanager
def _written(place: Location) -> Iterator[None]:
    """Turn what a file system says into an error for the user; nothing stale stays beside it."""
    try:
        place.filesystem.create_dir(place.path, recursive=True)
        with contextlib.suppress(FileNotFoundError):
            place.filesystem.delete_file(place.child("summary.json").path)
        yield
    except (OSError, pa.ArrowException) as error:
        raise SequenceLogError(f"{place.shown}: the result cannot be written: {error}") from error


def _write_summary(place: Location, summary: Summary) -> None:
    with (
        _written(place),
        place.filesystem.open_output_stream(place.child("summary.json").path) as sink,
    ):
        sink.write(summary.encode().encode())
