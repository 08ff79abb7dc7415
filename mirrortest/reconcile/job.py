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
from mirrortest.reconcile.online import COMPARED, Comparison, compare
from mirrortest.reconcile.result import write_table
from mirrortest.reconcile.source import read_intervals
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
    from collections.abc import Iterator, Mapping, Sequence

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
    intervals = read_intervals(spark, plan).persist()
    try:
        intervals.createOrReplaceTempView("intervals")
        result = _judge(spark, plan, place)
    finally:
        intervals.unpersist()
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
            if histogram.count and (topic != ALL_TOPICS or len(result.latency) > 2)
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


def _judge(spark: Any, plan: Plan, place: Location) -> _Result:
    known = facts.gather(spark, plan)
    coverage = cover(known.observed)
    facts.make_views(spark, known, coverage)
    any_partition = _policy(plan) is ExpectPartition.ANY
    judge(spark, any_partition=any_partition, blind=bool(coverage.blind))
    by_run = spark.sql(tables.BY_RUN).localCheckpoint()
    by_partition = spark.sql(tables.BY_PARTITION + " ORDER BY 1, 2").localCheckpoint()
    partitions = [
        Partition(topic=row.pop("topic"), partition=row.pop("partition"), counts=row)
        for row in tables.rows(by_partition)
    ]
    counts = _counts(by_run.first().asDict(), partitions)
    settled = known.topics - {blind.topic for blind in coverage.blind}
    quiet = not (known.judged_online or any(counts[each.label] for each in COMPARED))
    comparison = compare(spark, settled if known.observed.tails else (), quiet=quiet)
    result = _Result(
        counts,
        coverage,
        [*known.reasons, *coverage.reasons],
        list(known.notes),
        comparison,
        _latency(spark),
        partitions,
    )
    counts["negative_latency"] = result.latency[ALL_TOPICS].negative
    _explain(result)
    undelivered = tables.ids(spark, tables.UNDELIVERED, plan.run, "verdict").localCheckpoint()
    _show_undelivered(undelivered, result)
    with _written(place):
        for name, table in {
            "undelivered": undelivered,
            "findings": tables.ids(spark, tables.FOUND, plan.run, "finding"),
            "by_stream": spark.sql(tables.BY_STREAM),
            "by_partition": by_partition,
            "by_minute": spark.sql(tables.BY_MINUTE),
            "by_run": by_run,
        }.items():
            write_table(table, place.child(f"{name}.parquet"))
    return result


def _policy(plan: Plan) -> ExpectPartition | None:
    told = {s.expect_partition for _, s in plan.of(Role.CONSUMER) if s.expect_partition}
    return ExpectPartition(told.pop()) if len(told) == 1 else None


def _counts(row: Mapping[str, int | None], partitions: Sequence[Partition]) -> dict[str, int]:
    totals = {name: int(count or 0) for name, count in row.items()}
    for name in ("foreign", "other_run", "corrupted_unknown_id"):
        totals[name] = sum(each.counts[name] for each in partitions)
    # A message whose id is unknown is corrupted none the less.
    totals["corrupted"] += totals["corrupted_unknown_id"]
    return totals


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
    sparse: dict[str, list[tuple[int, int]]] = {}
    for row in tables.rows(spark.sql(tables.LATENCY)):
        sparse.setdefault(row["topic"], []).append((row["bucket"], row["number"] or 0))
    total = Histogram()
    found: dict[str, Histogram] = {}
    for topic, pairs in sparse.items():
        above = [(bucket, count) for bucket, count in pairs if bucket != tables.BELOW_ZERO]
        found[topic] = Histogram.from_sparse(
            [bucket for bucket, _ in above],
            [count for _, count in above],
            sum(count for bucket, count in pairs if bucket == tables.BELOW_ZERO),
        )
        total.merge(found[topic])
    return {**found, ALL_TOPICS: total}


def _show_undelivered(table: Any, result: _Result) -> None:
    result.ranges = table.count()
    worst_first = table.orderBy(
        functions.expr(f"array_position(array({_ORDER}), verdict)"),
        *(name for name in Missing.model_fields if name != "verdict"),
    )
    if result.ranges:
        result.undelivered = [
            Missing(**{name: row[name] for name in Missing.model_fields})
            for row in tables.rows(worst_first.limit(SHOWN_RANGES))
        ]


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
