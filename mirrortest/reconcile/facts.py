"""The small facts that the driver needs: sessions, offsets, who is known; never a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.compact import DAMAGE
from mirrortest.reconcile.coverage import ENDLESS, Blind, Coverage, Observed, Span
from mirrortest.reconcile.sweep import islands
from mirrortest.reconcile.tables import rows
from mirrortest.seqlog.schema import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.reconcile.plan import Plan


@dataclass
class Facts:
    """What is known of a run beside its sequences.

    `known` are (producer, incarnation) whose logs are here and whole; `horizons` is, by topic,
    the time (ns) up to which what was acknowledged is due.
    """

    observed: Observed
    topics: set[str]
    known: set[tuple[str, int]]
    horizons: dict[str, int]
    consumer_damaged: bool
    judged_online: bool
    """Whether any consumer logged a finding."""
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# One small row for each (kind, topic, producer, session), and the few rows that tell of damage.
_OVERVIEW = f"""
    SELECT kind, topic, producer, incarnation, session, text,
        max(coalesce(outcome, 0)) AS outcome, min(first_ns) AS began
    FROM (
        SELECT kind, topic, producer, incarnation, session, outcome, first_ns,
            if(kind = '{DAMAGE}', text, NULL) AS text
        FROM intervals WHERE kind NOT IN ('seen', 'latency')
    ) GROUP BY kind, topic, producer, incarnation, session, text
"""  # noqa: S608
_OFFSETS = f"""
    SELECT kind, topic, partition, identity, session, lo, hi FROM ({
    islands(
        ("kind", "topic", "partition", "identity", "session"),
        "(SELECT *, coalesce(offset_lo, offset_hi) AS start FROM intervals "
        "WHERE kind IN ('read', 'unread', 'tail'))",
        "start",
        "offset_hi",
    )
})
"""  # noqa: S608
_SENDING = ("reserved", "sent", "end")


def gather(spark: Any, plan: Plan) -> Facts:
    """Ask the intervals and the sessions."""
    reasons, notes = plan.missing_sides(), list[str]()
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
    notes += [
        f"{found.location.shown}: its {found.session.role.value} did not end in order"
        for found in plan.sessions
        if not found.session.clean
    ]
    known, missing = _producers(overview, plan, damaged)
    reasons += [f"the log of producer {name}.{number} is missing" for name, number in missing]
    topics = {
        row["topic"] for row in overview if row["kind"] in {*_SENDING, "vouched", "tail", "read"}
    }
    topics |= {topic for _, session in plan.of(Role.PRODUCER) for topic in session.topics}
    spans: dict[str, list[Span]] = {"read": [], "unread": [], "tail": []}
    for row in rows(spark.sql(_OFFSETS)):
        spans[row.pop("kind")].append(Span(**row))
    began: dict[str, int] = {}
    for row in overview:
        if row["kind"] == "sent" and row["began"] is not None:
            began[row["topic"]] = min(row["began"], began.get(row["topic"], ENDLESS))
    observed = Observed(
        read=spans["read"],
        unread=spans["unread"],
        tails=spans["tail"],
        partitions={topic: _partition_count(plan, topic) for topic in sorted(topics)},
        started_ns={number: s.started_ns for number, s in plan.of(Role.CONSUMER)},
        began_ns=began,
    )
    return Facts(
        observed,
        topics,
        known,
        _horizons(plan, spans["tail"]),
        any(plan.sessions[number].session.role is Role.CONSUMER for number in damaged),
        any(row["kind"] in {"found", "claimed"} for row in overview),
        reasons,
        notes,
    )


def make_views(spark: Any, facts: Facts, coverage: Coverage) -> None:
    """The views that the judgement reads beside `intervals`."""
    if facts.consumer_damaged:
        # Rows are gone that might have shown any message: nothing missing is proven lost.
        coverage.blind += [
            Blind(topic, partition, 0, -1, ENDLESS, Finding.INCONCLUSIVE)
            for topic, partition in sorted(_partitions(facts.observed))
        ]
    _make(
        spark,
        "blind",
        "topic string, partition int, identity long, lo long, hi long, finding int",
        [(*blind[:5], int(blind.finding)) for blind in coverage.blind],
    )
    _make(spark, "known", "producer string, incarnation int", sorted(facts.known))
    _make(spark, "horizons", "topic string, horizon_ns long", sorted(facts.horizons.items()))


def _make(spark: Any, name: str, schema: str, values: Sequence[tuple[Any, ...]]) -> None:
    spark.createDataFrame(list(values), schema).createOrReplaceTempView(name)


def _partitions(observed: Observed) -> set[tuple[str, int]]:
    told = {(s.topic, s.partition) for s in (*observed.read, *observed.unread, *observed.tails)}
    for topic, count in observed.partitions.items():
        told |= {(topic, number) for number in range(count or 1)}
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


def _horizons(plan: Plan, tails: Iterable[Span]) -> dict[str, int]:
    """By topic: when the end that was looked at first was looked at, less the deadline."""
    looked: dict[tuple[str, int], int] = {}
    for tail in tails:
        session = plan.sessions[tail.session].session
        at = 0 if session.ended_ns is None else session.ended_ns - (session.deadline_ns or 0)
        key = (tail.topic, tail.partition)
        looked[key] = max(at, looked.get(key, 0))
    horizons: dict[str, int] = {}
    for (topic, _), at in looked.items():
        horizons[topic] = min(at, horizons.get(topic, at))
    return horizons
