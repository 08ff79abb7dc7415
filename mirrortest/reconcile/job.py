"""The job: logs in, tables and a summary out."""

from __future__ import annotations

import contextlib
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from mirrortest.config.threshold import evaluate, undecided
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.verdict import Verdict
from mirrortest.reconcile import compaction, facts, holes, minutes, settling, tables
from mirrortest.reconcile.coverage import cover
from mirrortest.reconcile.judge import hold, judge, settle
from mirrortest.reconcile.missing import Told, tell
from mirrortest.reconcile.online import COMPARED, Comparison, compare
from mirrortest.reconcile.overlap import beyond, cuts_around, cuts_at, overlaps, touched
from mirrortest.reconcile.plain import Settling
from mirrortest.reconcile.result import write_table, written
from mirrortest.reconcile.session import fit, together
from mirrortest.reconcile.source import read_again, read_intervals, reading
from mirrortest.reconcile.tables import Beside
from mirrortest.reconcile.whole import Joining
from mirrortest.results.summary import (
    Latency,
    Minute,
    Online,
    Partition,
    RestsOn,
    Summary,
    Threshold,
)
from mirrortest.seqlog.schema import Role
from mirrortest.timing.histogram import Histogram
from mirrortest.verify.routing import ExpectPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.config.threshold import Threshold as Condition
    from mirrortest.reconcile.compact import Zone
    from mirrortest.reconcile.coverage import Coverage
    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.reconcile.plan import Plan
    from mirrortest.reconcile.settling import Gone
    from mirrortest.reconcile.source import Reading
    from mirrortest.seqlog.location import Location

_AT_ONCE = 3
"""Statements at a time."""
ALL_TOPICS = "all"


@dataclass
class _Result:
    counts: dict[str, int]
    reasons: list[str]
    notes: list[str]
    comparison: Comparison
    missing: Told
    latency: dict[str, Histogram]
    partitions: list[Partition]
    minutes: list[Minute]
    minutes_total: int
    rests_on: RestsOn


def reconcile(
    spark: Any,
    plan: Plan,
    conditions: Sequence[Condition],
    output: Location | None = None,
    look_up: LookUp | None = None,
) -> Summary:
    """Judge a run from its logs and write the result below `output` (LOGDIR/run=R/result).

    With `look_up` the destination itself is asked for what is missing and nobody read.

    Raises:
        ClusterError: the destination cannot be looked at.
        SequenceLogError: the result cannot be written.
    """
    place = output if output is not None else plan.default_output
    cores = spark.sparkContext.defaultParallelism
    work = reading(plan, cores, placed=bool(plan.observers))._replace(packing=holes.PACKING)
    intervals = read_intervals(spark, work).persist(StorageLevel.DISK_ONLY)
    try:
        result = _judge(spark, plan, place, look_up, work=work, intervals=intervals)
    finally:
        spark.catalog.clearCache()
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
        backlog=_backlog(result),
        thresholds=[Threshold.of(each) for each in results],
        inconclusive=reasons,
        notes=result.notes,
        online=Online(
            partitions=result.comparison.partitions,
            disagreements=[str(each) for each in result.comparison.disagreements],
        ),
        rests_on=result.rests_on,
        undelivered=result.missing.undelivered,
        undelivered_ranges=result.missing.ranges,
        attribution=result.missing.attribution,
        minutes=result.minutes,
        minutes_total=result.minutes_total,
        tables=place.shown,
    )
    _write_summary(place, summary)
    return summary


def _judge(
    spark: Any,
    plan: Plan,
    place: Location,
    look_up: LookUp | None,
    *,
    work: Reading,
    intervals: Any,
) -> _Result:
    # Spark drops what it keeps of all that was read through a view once that view is replaced:
    # so the intervals of each step have a view of their own.
    known = facts.gather(spark, plan, intervals)
    fit(spark, known.intervals)
    twice = overlaps(known.ranges, known.observed.started_ns)
    behind = beyond(known.ranges, known.cuts)
    coverage = cover(known.observed, known.sent_to or known.topics)
    zones = [*twice, *cuts_at(known.ranges, behind), *cuts_around(known.ranges, coverage.blind)]
    if zones:
        again = read_again(spark, work, intervals, zones, touched(known.ranges, zones))
        intervals = again.persist(StorageLevel.DISK_ONLY)
        known = facts.recounted(spark, known, intervals)
        fit(spark, known.intervals)
    policy = _policy(plan)
    gone: Gone | None = None
    if known.bundled:
        joining = _joining(plan, known, work, zones)
        intervals = settling.settle_whole(
            spark, intervals, joining, count=known.intervals, holes=known.holes > 0
        )
    if known.holes:
        fit(spark, known.intervals, holes=known.holes)
        told = _settling(plan, known, coverage, policy)
        intervals, gone = settling.settle_holes(spark, intervals, told)
        fit(spark, intervals.count())
    beside = Beside(lost=gone is not None, whole=known.bundled)
    together(intervals).createOrReplaceTempView("intervals")
    compacted = compaction.compacted_topics(plan)
    facts.make_views(spark, known, coverage, policy, whole=beside.whole, compacted=bool(compacted))
    any_partition = policy is ExpectPartition.ANY
    overlapping, blind = bool(twice), bool(coverage.blind)
    _clear(place)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # While one statement is planned, another runs. Latencies are no matter of the judgement.
        latency = pool.submit(_latency, spark, place)
        judge(spark, any_partition=any_partition, blind=blind, overlapping=overlapping)
        hidden = compaction.hidden_topics(plan)
        compaction.explain(spark, compacted, hidden)
        audit = pool.submit(_audit, spark, place, latency, lost=beside.lost)
        by_partition = pool.submit(_by_partition, spark, place, beside, held=any_partition)
        missing = pool.submit(tell, spark, plan, known, look_up, place, gone)
        by_run = pool.submit(_by_run, spark, place, beside)
        partitions = by_partition.result()
        counts = _counts(by_run.result(), partitions)
        quiet = not (known.judged_online or any(counts[each.label] for each in COMPARED))
        comparison = compare(
            spark,
            known.topics if known.observed.tails else (),
            partitions=len(known.cuts),
            beyond=bool(behind),
            overlapping=overlapping,
            quiet=quiet,
            beside=beside.lost,
        )
        result = _Result(
            counts,
            [*known.reasons, *coverage.reasons],
            [
                *known.notes,
                *_decided(comparison, known),
                *map(compaction.HIDDEN.format, hidden),
                *missing.result().notes,
            ],
            comparison,
            missing.result(),
            latency.result(),
            partitions,
            *audit.result(),
            _rests_on(plan, known),
        )
    counts["negative_latency"] = result.latency[ALL_TOPICS].negative
    _explain(result)
    return result


def _backlog(result: _Result) -> dict[str, int]:
    """By topic, messages whose latencies no consumer measured."""
    seen: Counter[str] = Counter()
    for each in result.partitions:
        seen[each.topic] += each.counts["seen"] + each.counts["surplus"]
    measured = {topic: histogram.count for topic, histogram in result.latency.items()}
    left = {topic: count - measured.get(topic, 0) for topic, count in sorted(seen.items())}
    return {topic: count for topic, count in left.items() if count > 0}


def _rests_on(plan: Plan, known: facts.Facts) -> RestsOn:
    read: dict[tuple[str, int, int], IntervalSet] = {}
    for span in known.observed.read:
        at = (span.topic, span.partition, span.identity)
        read.setdefault(at, IntervalSet()).add(span.lo, span.hi)
    return RestsOn(
        producers=len(plan.of(Role.PRODUCER)),
        consumers=len(plan.of(Role.CONSUMER)),
        offsets_read=sum(offsets.count for offsets in read.values()),
    )


def _decided(comparison: Comparison, known: facts.Facts) -> list[str]:
    """Say of what the consumers left undecided, and is lost, what it rests on."""
    return [
        f"{topic}: {count:,} messages are lost that the last consumer left undecided: their "
        "deadline was past when it looked where the partitions end, and all was read up to there"
        + (", by the wall clocks of producers and consumers" if topic in known.horizons else "")
        for topic, count in comparison.decided
    ]


def _audit(
    spark: Any, place: Location, latency: Future[dict[str, Histogram]], *, lost: bool
) -> tuple[list[Minute], int]:
    latency.result()  # whose view it reads
    _write(minutes.audit(spark, lost=lost), place, "by_minute")
    return minutes.worst(spark)


def _by_partition(spark: Any, place: Location, beside: Beside, *, held: bool) -> list[Partition]:
    if not held:
        hold(spark)
    table = spark.sql(tables.by_partition(beside) + " ORDER BY 1, 2").localCheckpoint()
    _write(table, place, "by_partition")
    return [
        Partition(topic=row.pop("topic"), partition=row.pop("partition"), counts=row)
        for row in tables.rows(table)
    ]


def _by_run(spark: Any, place: Location, beside: Beside) -> dict[str, int | None]:
    settle(spark, "by_stream", tables.by_stream(beside))
    table = spark.sql(tables.BY_RUN).localCheckpoint()
    _write(spark.table("by_stream"), place, "by_stream")
    _write(table, place, "by_run")
    counts: dict[str, int | None] = table.first().asDict()
    return counts


def _joining(plan: Plan, known: facts.Facts, work: Reading, zones: Sequence[Zone]) -> Joining:
    return Joining(
        frozenset(known.known),
        frozenset([*compaction.compacted_topics(plan), *compaction.hidden_topics(plan)]),
        work.horizons,
        tuple(zones),
        work.placed,
    )


def _settling(
    plan: Plan, known: facts.Facts, coverage: Coverage, policy: ExpectPartition | None
) -> Settling:
    """Where something may be plain: nothing but loss or a reader's gap makes a number missing."""
    doubtful = {blind.topic for blind in coverage.blind}
    doubtful |= {*compaction.compacted_topics(plan), *compaction.hidden_topics(plan)}
    if known.consumer_damaged or policy is ExpectPartition.ANY:
        doubtful |= known.topics
    horizons = {topic: known.horizons.get(topic, 0) for topic in known.topics - doubtful}
    return Settling(horizons, frozenset(known.known))


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
    latencies, copies = result.latency[ALL_TOPICS].count, counts["seen"] + counts["surplus"]
    if latencies > copies:
        reasons.append(
            f"a log is damaged: {latencies:,} latencies of {copies:,} messages that were seen"
        )
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


def _latency(spark: Any, place: Location) -> dict[str, Histogram]:
    _write(minutes.latencies(spark), place, "latency")
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


def _clear(place: Location) -> None:
    """Make the directory; no summary stays beside tables that are not its own."""
    with written(place):
        place.filesystem.create_dir(place.path, recursive=True)
        with contextlib.suppress(FileNotFoundError):
            place.filesystem.delete_file(place.child("summary.json").path)


def _write(table: Any, place: Location, name: str) -> None:
    write_table(table, place.child(f"{name}.parquet"))


def _write_summary(place: Location, summary: Summary) -> None:
    with (
        written(place),
        place.filesystem.open_output_stream(place.child("summary.json").path) as sink,
    ):
        sink.write(summary.encode().encode())
