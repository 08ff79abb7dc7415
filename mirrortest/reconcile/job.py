"""The job: scan the logs, judge lanes in parts, write tables and summary."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.config.threshold import evaluate, undecided
from mirrortest.model.findings import BY_REPEATS, OPEN, Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.verdict import Verdict
from mirrortest.reconcile import facts, holes, minutes, session_topics
from mirrortest.reconcile.attribution import ATTRIBUTED
from mirrortest.reconcile.coverage import cover
from mirrortest.reconcile.missing import Ids, Undelivered
from mirrortest.reconcile.online import Comparison, comparison
from mirrortest.reconcile.overlap import (
    beyond,
    cuts_around,
    cuts_at,
    measured,
    misjudged,
    overlaps,
    touched,
)
from mirrortest.reconcile.parts import Part
from mirrortest.reconcile.result_files import write_table
from mirrortest.reconcile.result_tables import (
    BY_MINUTE,
    BY_PARTITION,
    BY_STREAM,
    COMPARED,
    COUNTED,
    SCHEMAS,
    STREAMLESS,
    SUMS,
    sums_of,
    without_others,
)
from mirrortest.reconcile.source import reading
from mirrortest.reconcile.steps import Spark
from mirrortest.results.summary import (
    ALL_TOPICS,
    TOPIC_NAMED_ALL,
    Latency,
    Minute,
    Online,
    Partition,
    RestsOn,
    Summary,
    Threshold,
)
from mirrortest.results.words import below_zero, clock_set, unproven_copies
from mirrortest.seqlog.options import Role
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.config.threshold import Threshold as Condition
    from mirrortest.reconcile.compact import Zone
    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.reconcile.plan import Plan
    from mirrortest.reconcile.source import Reading
    from mirrortest.reconcile.steps import Bundles, Engine
    from mirrortest.seqlog.location import Location

HIDDEN = (
    "{}: no consumer could see whether the topic is compacted (grant them DescribeConfigs on it): "
    "missing messages that compaction could explain are inconclusive, not lost"
)


@dataclass
class _Result:
    counts: dict[str, int]
    reasons: list[str]
    notes: list[str]
    comparison: Comparison
    undelivered: Undelivered
    latency: Histogram
    by_topic: dict[str, Histogram]
    partitions: list[Partition]
    minutes: list[Minute]
    minutes_total: int
    rests_on: RestsOn
    excused: dict[str, int]
    outstanding: int | None = None


def reconcile(
    spark: Any,
    plan: Plan,
    conditions: Sequence[Condition],
    output: Location | None = None,
    look_up: LookUp | None = None,
) -> Summary:
    """Judge a run on a Spark session; see `reconcile_by`."""
    engine = Spark(spark)
    try:
        return reconcile_by(engine, plan, conditions, output, look_up)
    finally:
        engine.close()


def reconcile_by(
    engine: Engine,
    plan: Plan,
    conditions: Sequence[Condition],
    output: Location | None = None,
    look_up: LookUp | None = None,
) -> Summary:
    """Judge a run from its logs and write the result below `output` (LOGDIR/run=R/result).

    `look_up` searches the destination for missing messages, at offsets that no consumer read.

    Raises SequenceLogError: the result cannot be written.
    """
    place = output if output is not None else plan.default_output
    result = _judge(engine, plan, place, look_up)
    results = evaluate(
        conditions,
        result.counts,
        total=result.counts["acked"],
        latencies={"latency": result.latency},
        excused=result.excused,
        outstanding=result.outstanding,
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
        latency_seconds=_latency_seconds(result),
        backlog=_backlog(result),
        thresholds=[Threshold.of(each) for each in results],
        inconclusive=reasons,
        notes=result.notes,
        online=Online(
            partitions=result.comparison.partitions,
            disagreements=[str(each) for each in result.comparison.disagreements],
        ),
        rests_on=result.rests_on,
        undelivered=result.undelivered.first,
        undelivered_ranges=result.undelivered.ranges,
        attribution=result.undelivered.attribution,
        minutes=result.minutes,
        minutes_total=result.minutes_total,
        workloads=plan.workloads,
        tables=place.shown,
    )
    with place.checked("written"):
        place.child("summary.json").write_text(summary.encode())
    return summary


def _judge(engine: Engine, plan: Plan, place: Location, look_up: LookUp | None) -> _Result:
    work = reading(plan, engine.cores, placed=bool(plan.observers))
    work = work._replace(packing=holes.PACKING)
    scanned = engine.scan(range(len(work.tasks)), work.read)
    for_driver = scanned.driver_rows()
    known = facts.gather(plan, for_driver)
    if apart := facts.unmatched_sessions(plan, known):
        return _judge(engine, plan.without(apart), place, look_up)
    twice = overlaps(known.ranges, known.observed)
    behind = beyond(known.ranges, known.cuts)
    coverage = cover(known.observed, known.sent_to or known.topics)
    zones = [*twice, *cuts_at(known.ranges, behind), *cuts_around(known.ranges, coverage.unread)]
    if zones:
        scanned = _scanned_again(engine, scanned, work, touched(known.ranges, zones), zones)
        for_driver = scanned.driver_rows()
        # Which latencies there are in zones is only known now.
        with_latencies = measured(for_driver)
        again = overlaps(known.ranges, known.observed, with_latencies)
        if tasks := misjudged(twice, again, with_latencies):
            zones = [*again, *zones[len(twice) :]]
            scanned = _scanned_again(engine, scanned, work, tasks, zones)
            for_driver = scanned.driver_rows()
    given = facts.given(plan, known, coverage.unread, overlapping=bool(twice))
    later = bool(plan.observers) or look_up is not None
    part = Part(plan.run, given, attributed_later=later)
    judged = scanned.map_parts(work.parts.number, part.judge)
    _clear(place)
    sums = _sums(judged)
    timed = minutes.latencies(for_driver)
    write_table(minutes.latency_table(timed), place.child("latency.parquet"))
    audit = minutes.by_minute(for_driver, sums[BY_MINUTE], timed)
    write_table(audit, place.child("by_minute.parquet"))
    every = sums_of(BY_PARTITION, sums[BY_PARTITION])
    by_partition, of_others = without_others(every, known.sent_to)
    write_table(by_partition, place.child("by_partition.parquet"))
    by_stream = sums_of(BY_STREAM, sums[BY_STREAM])
    write_table(by_stream, place.child("by_stream.parquet"))
    by_run = {name: pc.sum(by_stream[name], min_count=0).as_py() for name in COUNTED}
    write_table(
        pa.table({name: pa.array([count], pa.int64()) for name, count in by_run.items()}),
        place.child("by_run.parquet"),
    )
    compared = comparison(
        sums_of(COMPARED, sums[COMPARED]),
        known.topics if known.observed.tails else (),
        partitions=len(known.cuts),
    )
    ids = Ids(engine, plan, known, work.parts, scanned, judged)
    ids.write_findings(place)
    undelivered = ids.write_undelivered(
        place, look_up, later=later, any_missing=any(by_run[name] for name in ATTRIBUTED)
    )
    partitions = [
        Partition(topic=row.pop("topic"), partition=row.pop("partition"), counts=row)
        for row in by_partition.to_pylist()
    ]
    latency, by_topic = _latencies(timed, plan)
    result = _Result(
        _counts(by_run, partitions),
        [*known.reasons, *coverage.reasons],
        [
            *known.notes,
            *_decided(compared, known),
            *map(HIDDEN.format, session_topics.hidden_topics(plan)),
            *undelivered.notes,
            *itertools.starmap(unproven_copies, of_others.items()),
            *([clock_set("a wall clock", latency.off_ns)] if latency.off_ns else []),
            *(below_zero(topic, each) for topic, each in by_topic.items() if each.negative),
        ],
        compared,
        undelivered,
        latency,
        by_topic,
        partitions,
        minutes.worst(audit),
        audit.num_rows,
        _rests_on(plan, known),
        _excused(plan, by_stream, known),
    )
    result.counts["negative_latency"] = result.latency.negative
    _explain(result, emptied=bool(given.holes))
    return result


def _scanned_again(
    engine: Engine, scanned: Bundles, work: Reading, tasks: Sequence[int], zones: Sequence[Zone]
) -> Bundles:
    """The bundles with those of some tasks scanned again, with zones."""
    return scanned.replaced(tasks, engine.scan(tasks, work._replace(zones=tuple(zones)).read))


def _sums(judged: Bundles) -> dict[str, list[pa.Table]]:
    """By name, the tables of sums of all parts."""
    found = {name: [SCHEMAS[name].empty_table()] for name in SUMS}
    for name, table in judged.tables(*SUMS):
        found[name].append(table)
    return found


def _latencies(
    timed: Mapping[minutes.Place, Histogram], plan: Plan
) -> tuple[Histogram, dict[str, Histogram]]:
    """The latencies of all topics together, and of each.

    Rows have the number of latencies below zero. Sessions have the lowest one by topic, and by how
    much clocks were set.
    """
    below_zero_ns, off_ns = session_topics.below_zero(plan), session_topics.clocks_set_ns(plan)
    total = Histogram()
    by_topic: dict[str, Histogram] = {}
    for (topic, _), histogram in timed.items():
        by_topic.setdefault(topic, Histogram()).merge(histogram)
    for topic, histogram in by_topic.items():
        histogram.off_ns = off_ns
        if histogram.negative:
            histogram.minimum = min(histogram.minimum, -below_zero_ns[topic])
        total.merge(histogram)
    return total, by_topic


def _latency_seconds(result: _Result) -> dict[str, Latency]:
    found = dict(result.by_topic)
    if len(found) > 1:
        found = {
            TOPIC_NAMED_ALL if topic == ALL_TOPICS else topic: each for topic, each in found.items()
        }
        found[ALL_TOPICS] = result.latency
    return {topic: Latency.of(each) for topic, each in found.items() if each.count}


def _backlog(result: _Result) -> dict[str, int]:
    """By topic, messages whose latencies no consumer measured."""
    seen: Counter[str] = Counter()
    for each in result.partitions:
        seen[each.topic] += each.counts["seen"]
    measured = {topic: histogram.count for topic, histogram in result.by_topic.items()}
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


def _excused(plan: Plan, by_stream: pa.Table, known: facts.Facts) -> dict[str, int]:
    """By finding's label, messages that may have it for another reason than the mirror.

    `BY_REPEATS`: the producer may not have been idempotent (older logs do not record it), several
    processes sent as it, or its complete log is not here; or a consumer read uncommitted messages.
    Altered timestamps: no message of the stream was acknowledged, and only the acknowledgements
    show whether brokers stamp its records.
    """
    clients: dict[str, set[str | None]] = {}
    for _, session in plan.of(Role.PRODUCER):
        clients.setdefault(session.name, set()).add(session.client.get("enable.idempotence"))
    repeating = {name for name, idempotent in clients.items() if idempotent != {"true"}}
    repeating |= {*known.contested}
    once = {sender for sender in known.complete if sender[0] not in repeating}
    sender = pc.binary_join_element_wise(
        *(pc.cast(by_stream[name], pa.string()) for name in ("producer", "incarnation", "topic")),
        "/",
    )

    def counted(finding: Finding, rows: pa.ChunkedArray) -> int:
        return int(pc.sum(by_stream.filter(rows)[finding.label], min_count=0).as_py())

    read_all = pa.array([*plan.uncommitted], pa.string())
    names = pa.array(["/".join(map(str, each)) for each in once], pa.string())
    repeated = pc.or_(pc.invert(pc.is_in(sender, names)), pc.is_in(by_stream["topic"], read_all))
    unanswered = pc.equal(by_stream["acked"], 0)
    return {
        **{each.label: counted(each, repeated) for each in BY_REPEATS},
        Finding.ALTERED_TIMESTAMP.label: counted(Finding.ALTERED_TIMESTAMP, unanswered),
    }


def _decided(comparison: Comparison, known: facts.Facts) -> list[str]:
    """Notes on lost messages that the consumers left undecided: what the decision rests on."""
    return [
        f"{topic}: {count:,} messages are lost that the last consumer left undecided: the deadline "
        "had passed at its last end-offset snapshot, and all partitions were read up to it"
        + (", by the wall clocks of producers and consumers" if topic in known.horizons else "")
        for topic, count in comparison.decided
    ]


def _counts(by_run: Mapping[str, int], partitions: Sequence[Partition]) -> dict[str, int]:
    totals = dict(by_run)
    for name in STREAMLESS:
        totals[name] = sum(each.counts[name] for each in partitions)
    # A message whose id is unknown is corrupted, too.
    totals["corrupted"] += totals["corrupted_unknown_id"]
    return totals


def _explain(result: _Result, *, emptied: bool) -> None:
    """Add why the run is inconclusive, by its counts; `emptied`: compaction left holes."""
    counts, reasons = result.counts, result.reasons
    unlogged, unaccounted = counts.pop("unlogged"), counts.pop("unaccounted")
    if not counts["acked"]:
        reasons.append(
            "no message was acknowledged, so nothing is proven"
            + (f": the outcome of {counts['unknown']:,} is unknown" if counts["unknown"] else "")
        )
    if unlogged:
        reasons.append(
            f"the ledger records {unlogged:,} acknowledged messages that no producer's log has: "
            "a log is missing or damaged"
        )
    if unaccounted:
        reasons.append(
            f"{unaccounted:,} messages were read whose producers' logs are missing or incomplete "
            "(copied while they were written)"
        )
    latencies, copies = result.latency.count, counts["seen"] + counts["surplus"]
    if latencies > copies:
        reasons.append(
            f"a log is damaged: {latencies:,} latencies of {copies:,} messages that were seen"
        )
    if not reasons:
        result.outstanding = sum(counts[each.label] for each in OPEN)
    if counts["inconclusive"]:
        reasons.append(
            f"{counts['inconclusive']:,} acknowledged messages may be in offsets that no consumer "
            "read" + (", or that compaction emptied" if emptied else "")
        )
    if counts["in_flight"]:
        reasons.append(
            f"{counts['in_flight']:,} acknowledged messages were still under way: the destination "
            "was not read to its end, or the deadline was not past"
        )
    reasons += [f"online and offline disagree: {each}" for each in result.comparison.disagreements]


def _clear(place: Location) -> None:
    """Create the directory, and delete an earlier summary and its report.

    Their tables are about to be replaced.
    """
    with place.checked("written"):
        place.filesystem.create_dir(place.path, recursive=True)
        for name in ("summary.json", "report.html"):
            with contextlib.suppress(FileNotFoundError):
                place.filesystem.delete_file(place.child(name).path)
