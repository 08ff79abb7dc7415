"""The small facts that the driver needs: sessions, offsets, who is known; never a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.compact import DAMAGE
from mirrortest.reconcile.coverage import ENDLESS, Blind, Coverage, Observed, Span
from mirrortest.reconcile.tables import rows, spans
from mirrortest.seqlog.schema import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def gather(spark: Any, plan: Plan) -> Facts:
    """Ask the intervals and the sessions."""
    reasons, notes = plan.missing_sides(), list[str]()
    damaged: set[int] = set()
    for number, found in enumerate(plan.sessions):
        for damage in found.damage:
            (notes if damage.harmless else reasons).append(f"log damaged: {damage}")
            if not damage.harmless:
                damaged.add(number)
    for row in rows(spark.sql(f"SELECT * FROM intervals WHERE kind = '{DAMAGE}'")):  # noqa: S608
        (reasons if row["outcome"] else notes).append(f"log damaged: {row['text']}")
        if row["outcome"]:
            damaged.add(row["session"])
    notes += [
        f"{found.location.shown}: its {found.session.role.value} did not end in order"
        for found in plan.sessions
        if not found.session.clean
    ]
    known, missing = _producers(spark, plan, damaged)
    reasons += [f"the log of producer {name}.{number} is missing" for name, number in missing]
    topics = {
        row["topic"]
        for row in rows(
            spark.sql(
                "SELECT DISTINCT topic FROM intervals WHERE kind IN "
                "('reserved', 'sent', 'end', 'vouched', 'tail', 'read')"
            )
        )
    }
    topics |= {topic for _, session in plan.of(Role.PRODUCER) for topic in session.topics}
    read, unread = _spans(spans(spark, "read")), _spans(spans(spark, "unread"))
    tails = _tails(spark)
    observed = Observed(
        read=read,
        unread=unread,
        tails=tails,
        partitions={topic: _partition_count(plan, topic) for topic in sorted(topics)},
        started_ns={number: s.started_ns for number, s in plan.of(Role.CONSUMER)},
        began_ns={
            row["topic"]: row["began"]
            for row in rows(
                spark.sql(
                    "SELECT topic, min(first_ns) AS began FROM intervals "
                    "WHERE kind = 'sent' AND first_ns IS NOT NULL GROUP BY topic"
                )
            )
        },
    )
    return Facts(
        observed,
        topics,
        known,
        _horizons(plan, tails),
        any(plan.sessions[number].session.role is Role.CONSUMER for number in damaged),
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
    spark: Any, plan: Plan, damaged: set[int]
) -> tuple[set[tuple[str, int]], list[tuple[str, int]]]:
    """Whose logs are whole, and whose the ledger knows and are not here."""
    logged = {
        (row["producer"], row["incarnation"], row["session"])
        for row in rows(
            spark.sql(
                "SELECT DISTINCT producer, incarnation, session FROM intervals "
                "WHERE kind IN ('reserved', 'sent', 'end')"
            )
        )
    }
    logged |= {
        (session.name, session.incarnation, number)
        for number, session in plan.of(Role.PRODUCER)
        if session.incarnation is not None
    }
    here = {(name, incarnation) for name, incarnation, _ in logged}
    broken = {(name, incarnation) for name, incarnation, at in logged if at in damaged}
    vouched = {
        (row["producer"], row["incarnation"])
        for row in rows(
            spark.sql("SELECT DISTINCT producer, incarnation FROM intervals WHERE kind = 'vouched'")
        )
    }
    return here - broken, sorted(vouched - here)


def _spans(found: Iterable[Any]) -> list[Span]:
    return [
        Span(r["topic"], r["partition"], r["identity"], r["lo"], r["hi"], r["session"])
        for r in found
    ]


def _tails(spark: Any) -> list[Span]:
    found = rows(
        spark.sql(
            "SELECT topic, partition, identity, max(offset_hi) AS hi, "
            "max_by(session, struct(offset_hi, session)) AS session FROM intervals "
            "WHERE kind = 'tail' GROUP BY topic, partition, identity"
        )
    )
    return [
        Span(r["topic"], r["partition"], r["identity"], r["hi"], r["hi"], r["session"])
        for r in found
    ]


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
    looked: dict[str, list[int]] = {}
    for tail in tails:
        session = plan.sessions[tail.session].session
        if session.ended_ns is not None:
            looked.setdefault(tail.topic, []).append(session.ended_ns - (session.deadline_ns or 0))
        else:
            looked.setdefault(tail.topic, []).append(0)
    return {topic: min(times) for topic, times in looked.items()}
