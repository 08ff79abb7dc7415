"""Who lost it: for each message that is missing, how far it is known to have come.

What the source observers' logs say (`Plan.observed`), what the producers were acknowledged, and
what was found in the destination where no consumer had read (`lookup`) are brought together.
Nothing here changes a verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import DEFINITIONS, Outcome, Scope
from mirrortest.reconcile.compact import Zone
from mirrortest.reconcile.facts import make_table
from mirrortest.reconcile.intervals import DAMAGE, STREAM
from mirrortest.reconcile.judge import settle, view
from mirrortest.reconcile.session import together
from mirrortest.reconcile.source import read_intervals, reading
from mirrortest.reconcile.sweep import Spans, islands, sweep
from mirrortest.reconcile.tables import rows
from mirrortest.seqlog.schema import ENDLESS

if TYPE_CHECKING:
    from mirrortest.reconcile.lookup import LookedUp
    from mirrortest.reconcile.plan import Plan
    from mirrortest.reconcile.settling import Gone


class Attribution(StrEnum):
    """How far a missing message came."""

    NEVER_IN_SOURCE = "never in the source log"
    """Acknowledged, and not there where it should stand: an observer of the source has read that
    offset, or has claimed it lost: overdue, with the source read to its end."""
    NOT_MIRRORED = "in the source and not mirrored"
    """An observer saw it in the source; it is not in the destination."""
    NOT_CONSUMED = "mirrored and not consumed"
    """It stands in the destination, at an offset that no consumer read."""
    ACKNOWLEDGED = "acknowledged, not observed in the source"
    """The source acknowledged it; no observer read the place where it stood then."""
    UNKNOWN = "unknown"
    """Nothing but the ledger's word, or it may stand where nobody could look."""


_MISSING_FINDINGS = tuple(each.finding for each in DEFINITIONS if each.scope is Scope.MISSING)
VERDICTS = (*(finding.label for finding in _MISSING_FINDINGS), "failed", "unknown")
"""What a message not delivered is called, the worst first."""
ATTRIBUTED = VERDICTS[:3]

_COLUMNS = ", ".join(STREAM)
_OF_STREAM = f"SELECT DISTINCT {_COLUMNS} FROM missing"  # noqa: S608

_MISSING = f"""
    SELECT {_COLUMNS}, lo, hi,
        if(is_acked AND accounted AND NOT unlogged, 1, 0) AS logged, CASE
        {
    " ".join(
        f"WHEN findings & {int(finding)} <> 0 THEN {rank}"
        for rank, finding in enumerate(_MISSING_FINDINGS, 1)
    )
}
        WHEN is_unknown THEN {len(VERDICTS)}
        ELSE {len(VERDICTS) - 1} END AS rank
    FROM judged WHERE NOT seen
"""  # noqa: S608

_MADE_AGAIN = f"identity > 0 OR (kind = 'unread' AND offset_hi >= {ENDLESS})"
_SOURCE_READ = islands(
    ("topic", "partition"),
    f"""source_intervals LEFT ANTI JOIN source_compacted USING (topic)
    WHERE kind = 'read' AND (topic, partition) NOT IN (
        SELECT topic, partition FROM source_intervals
        WHERE partition IS NOT NULL AND ({_MADE_AGAIN})
    )""",  # noqa: S608  # all of it is ours
    "offset_lo",
    "offset_hi",
)
"""What the observers read, by source partition; not of a topic that was made again, whose offsets
are no longer those that the producers were told, nor of one that is compacted."""

_DENSE = "offset_hi - offset_lo = seq_hi - seq_lo"
_LOOKED_FOR = f"""(
    SELECT {_COLUMNS}, if({_DENSE}, greatest(offset_lo, there.lo) - offset_lo, 0) + seq_lo AS lo,
        if({_DENSE}, least(offset_hi, there.hi) - offset_lo + seq_lo, seq_hi) AS hi
    FROM sent_intervals JOIN source_read AS there USING (topic, partition)
    LEFT SEMI JOIN ({_OF_STREAM}) USING ({_COLUMNS})
    WHERE kind = 'sent' AND outcome = {int(Outcome.ACKED)} AND offset_lo IS NOT NULL
        AND offset_lo < there.hi AND offset_hi > there.lo
        AND ({_DENSE} OR (offset_lo >= there.lo AND offset_hi <= there.hi))
)"""  # noqa: S608
"""Numbers acknowledged at offsets that an observer read."""

_STRADDLING = f"""
    SELECT 1 FROM intervals JOIN source_read AS there USING (topic, partition)
    LEFT SEMI JOIN ({_OF_STREAM}) USING ({_COLUMNS})
    WHERE kind = 'sent' AND NOT ({_DENSE}) AND offset_lo < there.hi AND offset_hi > there.lo
        AND (offset_lo < there.lo OR offset_hi > there.hi) LIMIT 1
"""  # noqa: S608
"""Chains of which nobody can say which of their numbers stood within what was read."""

_OBSERVED = f"""(
    SELECT {_COLUMNS}, seq_lo, seq_hi
    FROM source_intervals LEFT SEMI JOIN ({_OF_STREAM}) USING ({_COLUMNS})
    WHERE kind = 'seen' AND seq_lo IS NOT NULL
)"""  # noqa: S608


def missing(spark: Any, gone: Gone | None) -> dict[str, int]:
    """Make the view `missing`: segments of `judged` not delivered; the messages by verdict.

    With what is `gone` from the intervals because it is plainly lost.
    """
    statement = _MISSING
    if gone is not None:
        gone.rows("").createOrReplaceTempView("gone")
        statement += f"UNION ALL SELECT {_COLUMNS}, seq_lo, seq_hi, 1, 1 FROM gone"  # noqa: S608
    view(spark, "missing", statement)
    counts = rows(spark.sql("SELECT rank, sum(hi - lo) AS messages FROM missing GROUP BY rank"))
    return {VERDICTS[row["rank"] - 1]: row["messages"] for row in counts}


def attribute(spark: Any, plan: Plan, looked: LookedUp | None) -> list[str]:
    """Make the view `attributed` of `missing`: (stream, lo, hi, verdict, attribution).

    The attribution is null of what was not acknowledged, and of what may still be on its way and
    nobody has looked for. Returns what limits the attribution, in words.
    """
    notes: list[str] = []
    spans = [Spans("missing", {"rank": "rank", "logged": "logged"}, "lo", "hi")]
    if plan.observers:
        spans += _source(spark, plan, notes)
    else:
        notes.append(
            "no source observer logged this run (mirrortest consume --role source): what is lost "
            "cannot be told to be lost by the source or by the mirror"
        )
    if looked is None:
        notes.append(
            "the destination was not looked at (--bootstrap-server): what stands there and was "
            "not consumed is not told"
        )
    else:
        notes += looked.notes
        _table(spark, "found_unread", f"{_SCHEMA}, seq_lo long, seq_hi long", _found(looked))
        spans.append(Spans("found_unread", {"found": "1"}))
    incomplete = sorted(looked.incomplete) if looked is not None else []
    _table(spark, "not_looked", "topic string", [(topic,) for topic in incomplete])
    if len(spans) > 1:
        settle(spark, "attributed", _attributed(spans, looked=looked is not None))
    else:
        view(spark, "attributed", _attributed(spans, looked=False))
    return notes


def leave_out(spark: Any) -> None:
    """Make the view `attributed` where nothing is missing that could be attributed."""
    named = f"SELECT {_COLUMNS}, lo, hi, {_verdict('rank')}, CAST(NULL AS STRING) AS attribution"
    view(spark, "attributed", f"{named} FROM missing")


def totals(spark: Any) -> list[dict[str, Any]]:
    """How many messages of each verdict have which attribution: rows of those three columns."""
    order = ", ".join(f"'{name}'" for name in VERDICTS)
    return rows(
        spark.sql(
            f"""SELECT verdict, attribution, sum(hi - lo) AS messages FROM attributed
            WHERE attribution IS NOT NULL GROUP BY verdict, attribution
            ORDER BY array_position(array({order}), verdict), messages DESC, attribution"""  # noqa: S608
        )
    )


def _attributed(spans: list[Spans], *, looked: bool) -> str:
    there = {name for each in spans for name in each.weights}
    observed, looked_for, found = (
        name if name in there else "0" for name in ("observed", "looked_for", "found")
    )
    told = f"""CASE
        WHEN rank > {len(ATTRIBUTED)} THEN NULL
        WHEN {found} > 0 THEN '{Attribution.NOT_CONSUMED}'
        WHEN {observed} = 0 AND {looked_for} > 0 THEN '{Attribution.NEVER_IN_SOURCE}'
        WHEN rank > 1 AND {"partly.topic IS NOT NULL" if looked else "true"} THEN NULL
        WHEN {observed} > 0 THEN '{Attribution.NOT_MIRRORED}'
        WHEN logged > 0 THEN '{Attribution.ACKNOWLEDGED}'
        ELSE '{Attribution.UNKNOWN}' END"""
    return f"""
        SELECT {_COLUMNS}, lo, hi, {_verdict("rank")}, {told} AS attribution
        FROM {f"({sweep(STREAM, spans)}) AS swept" if len(spans) > 1 else "missing"}
        LEFT JOIN not_looked AS partly USING (topic)
        WHERE rank > 0
    """  # noqa: S608


def _verdict(rank: str) -> str:
    names = ", ".join(f"'{name}'" for name in VERDICTS)
    return f"element_at(array({names}), CAST({rank} AS INT)) AS verdict"


def _source(spark: Any, plan: Plan, notes: list[str]) -> list[Spans]:
    """What the observers saw, and where they looked."""
    work = reading(plan.observed, spark.sparkContext.defaultParallelism, placed=False)
    observed = together(read_intervals(spark, work).persist())
    observed.createOrReplaceTempView("source_intervals")
    damage = [str(each) for found in plan.observers for each in found.damage if not each.harmless]
    damage += [
        row["text"]
        for row in rows(
            spark.sql(
                f"SELECT text FROM source_intervals WHERE kind = '{DAMAGE}' AND outcome = 1"  # noqa: S608
            )
        )
    ]
    spans = [Spans(_OBSERVED, {"observed": "1"})]
    if damage:
        # Rows are gone that might have shown any message in the source.
        notes += [f"source observer's log damaged: {each}" for each in damage]
        return spans
    # Compaction takes away what was there: only a claim, which knows of it, accuses the source.
    _table(spark, "source_compacted", "topic string", _compacted(plan))
    view(spark, "source_read", _SOURCE_READ)
    _sent(spark, plan)
    return [
        *spans,
        Spans(_LOOKED_FOR, {"looked_for": "1"}, "lo", "hi"),
        Spans("source_intervals WHERE kind = 'claimed'", {"looked_for": "1"}),
    ]


def _sent(spark: Any, plan: Plan) -> None:
    """Make the view `sent_intervals`, where no chain lies on both sides of a bound of reading."""
    if not rows(spark.sql(_STRADDLING)):
        view(spark, "sent_intervals", "SELECT * FROM intervals")
        return
    bounds = {
        Zone(row["topic"], row["partition"], 0, at, at)
        for row in rows(spark.table("source_read"))
        for at in (row["lo"], row["hi"])
    }
    work = reading(plan.producing, spark.sparkContext.defaultParallelism, placed=True)
    anew = read_intervals(spark, work._replace(zones=tuple(sorted(bounds))))
    anew.createOrReplaceTempView("sent_intervals")


def _compacted(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        (name,)
        for found in plan.observers
        for name, topic in found.session.topics.items()
        if topic.compacted
    ]


_SCHEMA = "topic string, producer string, incarnation int, lane long"


def _found(looked: LookedUp) -> list[tuple[Any, ...]]:
    return [
        (stream.topic, stream.producer, stream.incarnation, stream.lane, lo, hi)
        for stream, numbers in looked.found.items()
        for lo, hi in numbers.intervals()
    ]


def _table(spark: Any, name: str, schema: str, values: list[tuple[Any, ...]]) -> None:
    make_table(spark, name, schema, values)
