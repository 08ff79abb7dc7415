"""The small facts that the driver needs: sessions, offsets, who is known; never a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import Finding
from mirrortest.reconcile.bundle import BUNDLE, TOLD
from mirrortest.reconcile.coverage import Blind, Coverage, Observed, Span
from mirrortest.reconcile.intervals import ACKED, DAMAGE, LATENCY, RANGE
from mirrortest.reconcile.overlap import Cut, Range, known_beside, online_cuts
from mirrortest.reconcile.tables import rows
from mirrortest.seqlog.schema import ENDLESS, Role
from mirrortest.verify.routing import ExpectPartition, homes_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirrortest.reconcile.plan import Plan


@dataclass
class Facts:
    """What is known of a run beside its sequences.

    `known` are (producer, incarnation) whose logs are here and whole; `horizons` is, by topic,
    the time (ns) up to which what was acknowledged is due, of topics where no log says what was.
    """

    observed: Observed
    topics: set[str]
    sent_to: set[str]
    """Topics that records of the run's producers name, in their logs or in the ledger."""
    known: set[tuple[str, int]]
    horizons: dict[str, int]
    consumer_damaged: bool
    judged_online: bool
    """Whether any consumer logged a finding."""
    ranges: list[Range]
    cuts: list[Cut]
    intervals: int
    """How many there are, about."""
    bundled: bool
    """Whether some of them are in bundles."""
    holes: int
    """How many holes of theirs are packed."""
    last_words: dict[str, int]
    """topic -> the session whose online verdict on it is the last."""
    counts: dict[str, set[int]]
    """By topic, every partition count that its destination had, as producers and consumers knew."""
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_OFFSETS = f"('read', 'unread', 'tail', '{RANGE}')"
# A small row for each (kind, topic, producer, session), for each range of offsets, and for what
# tells of damage; the kinds that are many are only counted.
_OVERVIEW = f"""
    SELECT kind, topic, producer, incarnation, session, task, turn, partition, identity, text,
        lo, hi, minute, sum(number) AS intervals, max(bundled) AS bundled,
        sum(holes) AS holes, max(coalesce(outcome, 0)) AS outcome,
        max(reached) AS reached
    FROM (
        SELECT of AS kind, if(of = 'seen', NULL, topic) AS topic, if(told, producer, NULL)
            AS producer, if(told, incarnation, NULL) AS incarnation,
            if(of = 'seen', NULL, session) AS session, if(placed, task, NULL) AS task,
            if(placed, turn, NULL) AS turn,
            if(placed OR of = 'found', partition, NULL) AS partition,
            if(placed OR of = 'found', identity, NULL) AS identity,
            if(of = '{DAMAGE}', text, NULL) AS text,
            if(placed, coalesce(offset_lo, offset_hi), NULL) AS lo,
            if(placed, offset_hi, NULL) AS hi, if(of = 'unread', minute, NULL) AS minute,
            holes, number, kind = '{TOLD}' AS bundled,
            if(told, outcome, NULL) AS outcome,
            if(of = 'found', offset_hi, NULL) AS reached
        FROM (
            SELECT *, of IN {_OFFSETS} AS placed, of NOT IN {_OFFSETS} AND of <> 'seen' AS told
            FROM (
                SELECT *, if(kind = '{TOLD}', text, kind) AS of,
                    if(kind = '{TOLD}', messages, 1L) AS number
                FROM read_intervals WHERE kind NOT IN ('{LATENCY}', '{ACKED}', '{BUNDLE}')
            )
        )
    ) GROUP BY ALL
"""  # noqa: S608
_COUNT = f"""
    SELECT sum(if(kind = '{TOLD}', messages, 1L)), count_if(kind = '{TOLD}'), sum(holes)
    FROM intervals_again WHERE kind NOT IN ('{LATENCY}', '{ACKED}', '{BUNDLE}')
"""  # noqa: S608
_LITERAL_ROWS = 1000
_SENDING = ("reserved", "sent", "end")


def gather(spark: Any, plan: Plan, intervals: Any) -> Facts:
    """Ask the intervals, as they were read, and the sessions."""
    intervals.createOrReplaceTempView("read_intervals")
    reasons, notes = [*plan.missing_sides(), *plan.read_uncommitted()], list[str]()
    overview = rows(spark.sql(_OVERVIEW))
    damaged: set[int] = set()
    damages = [
        (number, str(damage), damage.harmless)
        for number, found in enumerate(plan.sessions)
        for damage in found.damage
    ] + [
        (row["session"], row["text"], not row["outcome"])
        for row in overview
        if row["kind"] == DAMAGE
    ]
    for number, text, harmless in damages:
        (notes if harmless else reasons).append(f"log damaged: {text}")
        if not harmless:
            damaged.add(number)
    for number, where in not_home(plan):
        reasons.append(
            f"{where}: its producer did not end in order, and its last files may still lie in its "
            "spool: bring them home from there by mirrortest salvage"
        )
        damaged.add(number)
    notes += [
        f"{found.location.shown}: its {found.session.role.value} did not end in order"
        for found in plan.sessions
        if not found.session.clean
    ]
    known, missing = _producers(overview, plan, damaged)
    reasons += [f"the log of producer {name}.{number} is missing" for name, number in missing]
    unproven = sum(
        file.unproven for found in (*plan.sessions, *plan.observers) for file in found.files
    )
    if unproven:
        notes.append(
            f"{unproven:,} log files have no digest, as an earlier version of mirrortest wrote "
            "them: bytes of theirs that have changed since may go unnoticed"
        )
    sent_to = {row["topic"] for row in overview if row["kind"] in {*_SENDING, "vouched"}}
    sent_to |= {topic for _, session in plan.of(Role.PRODUCER) for topic in session.topics}
    topics = sent_to | {row["topic"] for row in overview if row["kind"] in {"tail", "read"}}
    spans: dict[str, list[Any]] = {"read": [], "unread": [], "tail": [], RANGE: []}
    for row in overview:
        if row["kind"] in spans:
            made: Any = Range if row["kind"] == RANGE else Span
            spans[row["kind"]].append(made(*(row[name] for name in made._fields)))
    ranges, tails = spans[RANGE], spans["tail"]
    found = [
        (row["topic"], row["partition"], row["identity"], row["reached"])
        for row in overview
        if row["kind"] == "found" and row["partition"] is not None and row["reached"] is not None
    ]
    observed = Observed(
        read=spans["read"],
        unread=spans["unread"],
        tails=spans["tail"],
        partitions={topic: _partition_count(plan, topic) for topic in sorted(topics)},
        started_ns={number: s.started_ns for number, s in plan.of(Role.CONSUMER)},
    )
    return Facts(
        observed,
        topics,
        sent_to,
        known,
        _horizons(plan, spans["tail"]),
        any(plan.sessions[number].session.role is Role.CONSUMER for number in damaged),
        any(row["kind"] in {"found", "claimed"} for row in overview),
        ranges,
        online_cuts(found, tails, left_out=known_beside(spans["unread"], ranges)),
        sum(row["intervals"] for row in overview),
        any(row["bundled"] for row in overview),
        sum(row["holes"] or 0 for row in overview),
        _last_words(plan, overview),
        _counts(plan),
        reasons,
        notes,
    )


def recounted(spark: Any, known: Facts, intervals: Any) -> Facts:
    """What is known, of intervals some of which were read again.

    In zones they may be more than before, and so may lie in bundles, and have holes packed, that
    did not when they were read first.
    """
    intervals.createOrReplaceTempView("intervals_again")
    count, told, packed = spark.sql(_COUNT).first()
    return replace(known, intervals=count or 0, bundled=bool(told), holes=packed or 0)


def not_home(plan: Plan) -> list[tuple[int, str]]:
    """Producers' sessions whose last files may not be here: (number, where), by number.

    What they reserved is not known, so that nobody is a phantom. (What consumers' logs lack shows
    in the offsets that none of them covers.)
    """
    return [
        (number, found.location.shown)
        for number, found in enumerate(plan.sessions)
        if found.session.spooled and found.session.role is Role.PRODUCER
    ]


def make_views(
    spark: Any,
    facts: Facts,
    coverage: Coverage,
    policy: ExpectPartition | None,
    *,
    whole: bool,
    compacted: bool,
) -> None:
    """The views that the judgement reads beside `intervals`; `whole`: there is that one, too.

    `compacted`: some topics are.
    """
    if facts.consumer_damaged:
        # Rows are gone that might have shown any message: nothing missing is proven lost.
        coverage.blind += [
            Blind(topic, partition, identity, -1, ENDLESS, Finding.INCONCLUSIVE)
            for (topic, partition), identity in sorted(_partitions(facts.observed).items())
        ]
    make_table(
        spark,
        "blind",
        "topic string, partition int, identity bigint, lo bigint, hi bigint, finding int, "
        "minute bigint",
        [(*blind[:5], int(blind.finding), blind.minute) for blind in coverage.blind],
    )
    # Only where something was not read, or is gone, does it matter where a lane belongs.
    asked = policy and (coverage.blind or compacted)
    lanes = _homes(spark, facts.counts, policy, whole=whole) if policy and asked else []
    make_table(spark, "homes", "topic string, lane bigint, partition int", lanes)
    make_table(spark, "known", "producer string, incarnation int", sorted(facts.known))
    make_table(spark, "last_words", "topic string, session int", sorted(facts.last_words.items()))
    make_table(spark, "horizons", "topic string, horizon_ns bigint", sorted(facts.horizons.items()))
    make_table(
        spark, "cuts", "topic string, partition int, identity bigint, cut bigint", facts.cuts
    )


def _homes(
    spark: Any, counts: Mapping[str, Collection[int]], policy: ExpectPartition, *, whole: bool
) -> list[tuple[str, int, int]]:
    """(topic, lane, destination partition where it belongs or did)."""
    left = "UNION ALL SELECT topic, lane, source FROM whole" if whole else ""
    lanes = f"""SELECT topic, lane, max(source) AS source FROM (
            SELECT topic, lane, partition AS source FROM intervals
            WHERE kind IN ('reserved', 'sent') AND lane IS NOT NULL {left}
        ) GROUP BY topic, lane"""  # noqa: S608  # all of it is ours
    return [
        (topic, lane, home)
        for topic, lane, source in (row.values() for row in rows(spark.sql(lanes)))
        for home in sorted(homes_of(policy, lane, source, counts.get(topic, ())))
    ]


def make_table(spark: Any, name: str, schema: str, values: Sequence[tuple[Any, ...]]) -> None:
    """A view of given rows; a few are part of the statements that read them, and cost no job."""
    if len(values) > _LITERAL_ROWS:
        spark.createDataFrame(list(values), schema).createOrReplaceTempView(name)
        return
    fields = [each.strip().split() for each in schema.split(",")]
    names = ", ".join(field for field, _ in fields)
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {field}" for field, kind in fields)
    if values:
        literal = ", ".join(f"({', '.join(map(_literal, row))})" for row in values)
        casts = ", ".join(
            f"decode({field}, 'UTF-8') AS {field}"
            if kind == "string"
            else f"CAST({field} AS {kind}) AS {field}"
            for field, kind in fields
        )
        statement = f"SELECT {casts} FROM VALUES {literal} AS t ({names})"  # noqa: S608  # see _literal
    else:
        statement = f"SELECT {nulls} WHERE false"  # types alone
    spark.sql(statement).createOrReplaceTempView(name)


def _literal(value: str | int | None) -> str:
    """A value in SQL: texts by their UTF-8 bytes, so that no character of theirs means anything."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"X'{value.encode().hex()}'"
    return f"{int(value)}L"


def _partitions(observed: Observed) -> dict[tuple[str, int], int]:
    """All partitions, each with its last incarnation."""
    told = {
        (topic, number): 0
        for topic, count in observed.partitions.items()
        for number in range(count or 1)
    }
    for span in (*observed.read, *observed.unread, *observed.tails):
        at = (span.topic, span.partition)
        told[at] = max(span.newest, told.get(at, 0))
    return told


def _producers(
    overview: Sequence[Mapping[str, Any]], plan: Plan, damaged: set[int]
) -> tuple[set[tuple[str, int]], list[tuple[str, int]]]:
    """Whose logs are whole, and whose the ledger knows and are not here."""
    logged = {
        (row["producer"], row["incarnation"], row["session"])
        for row in overview
        if row["kind"] in _SENDING
    }
    logged |= {
        (session.name, session.incarnation, number)
        for number, session in plan.of(Role.PRODUCER)
        if session.incarnation is not None
    }
    here = {(name, incarnation) for name, incarnation, _ in logged}
    broken = {(name, incarnation) for name, incarnation, at in logged if at in damaged}
    vouched = {
        (row["producer"], row["incarnation"]) for row in overview if row["kind"] == "vouched"
    }
    return here - broken, sorted(vouched - here)


def _partition_count(plan: Plan, topic: str) -> int | None:
    """How many partitions the destination has: as the consumers saw it, else as was assumed."""
    for role in (Role.CONSUMER, Role.PRODUCER):
        told = [
            session.topics[topic].destination_partitions
            for _, session in plan.of(role)
            if topic in session.topics
        ]
        counts = [count for count in told if count is not None]
        if counts:
            return max(counts)
    return None


def _counts(plan: Plan) -> dict[str, set[int]]:
    counts: dict[str, set[int]] = {}
    for role in (Role.CONSUMER, Role.PRODUCER):
        for _, session in plan.of(role):
            for name, topic in session.topics.items():
                last = topic.destination_partitions
                known = counts.setdefault(name, set())
                known.update(
                    topic.earlier_counts if last is None else (*topic.earlier_counts, last)
                )
    return counts


def _last_words(plan: Plan, overview: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By topic: who of those that told how it ended, or what the ledger said of it, ended last."""
    told = {
        (row["topic"], plan.sessions[row["session"]].session.ended_ns or 0, row["session"])
        for row in overview
        if row["kind"] in {"tail", "vouched"}
    }
    return {topic: number for topic, _, number in sorted(told)}


def _horizons(plan: Plan, tails: Collection[Span]) -> dict[str, int]:
    """By topic: when the end that was looked at first was looked at, less the deadline.

    Only of topics of which no consumer logged what was due: two hosts' wall clocks are compared.
    """
    told = {tail.topic for tail in tails if plan.sessions[tail.session].session.expiry_logged}
    by_session = plan.horizons
    looked: dict[tuple[str, int], int] = {}
    for tail in tails:
        if tail.topic not in told:
            at = by_session.get(tail.session, 0)
            key = (tail.topic, tail.partition)
            looked[key] = max(at, looked.get(key, 0))
    horizons: dict[str, int] = {}
    for (topic, _), at in looked.items():
        horizons[topic] = min(at, horizons.get(topic, at))
    return horizons
