"""What was not delivered and what was found, by id: shown in part, and written whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from mirrortest.reconcile import attribution, tables
from mirrortest.reconcile.attribution import Attribution
from mirrortest.reconcile.result import MOST_ROWS, write_parts, write_table
from mirrortest.results.summary import Attributed, Missing

if TYPE_CHECKING:
    from mirrortest.reconcile.facts import Facts
    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.reconcile.plan import Plan
    from mirrortest.reconcile.settling import Gone
    from mirrortest.seqlog.location import Location

SHOWN_RANGES = 20
_ORDER = ", ".join(f"'{verdict}'" for verdict in attribution.VERDICTS)
_KEY = tuple(name for name in Missing.model_fields if name not in {"verdict", "attribution"})
_LOST = attribution.VERDICTS[0]


@dataclass
class Told:
    """What the summary says of messages that were not delivered."""

    notes: list[str] = field(default_factory=list)
    undelivered: list[Missing] = field(default_factory=list)
    ranges: int = 0
    attribution: list[Attributed] = field(default_factory=list)


def tell(
    spark: Any, plan: Plan, known: Facts, look_up: LookUp | None, place: Location, gone: Gone | None
) -> Told:
    """Say how far what is missing came, and write the ids; see `settling` for `gone`.

    Nothing is read where nothing is missing.
    """
    told = Told()
    # Who has been looked for elsewhere, too, must be judged id by id.
    one_by_one = bool(plan.observers) or look_up is not None
    missing = attribution.missing(spark, gone if one_by_one else None)
    beside = None if one_by_one else gone
    if beside is not None or any(missing.get(verdict) for verdict in attribution.ATTRIBUTED):
        looked = look_up.read(known.observed) if look_up is not None else None
        told.notes = attribution.attribute(spark, plan, looked)
        told.attribution = _totals(spark, beside)
    else:
        attribution.leave_out(spark)
    named = {"verdict": _LOST, "attribution": Attribution.ACKNOWLEDGED.value}
    undelivered = tables.ids(spark, tables.UNDELIVERED, plan.run, *named).localCheckpoint()
    told.ranges = undelivered.count()
    first = _first(undelivered) if told.ranges else []
    if beside is not None:
        told.ranges += beside.spans
        mine = [Missing(**row) for row in beside.first(SHOWN_RANGES, plan.run, **named)]
        # The lost come first, in the order of their streams.
        lost = [each for each in first if each.verdict == _LOST]
        rest = [each for each in first if each.verdict != _LOST]
        lost = sorted([*lost, *mine], key=lambda each: [getattr(each, name) for name in _KEY])
        first = [*lost, *rest]
    told.undelivered = first[:SHOWN_RANGES]
    _write(undelivered, beside, plan.run, named, place.child("undelivered.parquet"))
    findings = tables.ids(spark, tables.FOUND, plan.run, "finding")
    _write(findings, gone, plan.run, {"finding": _LOST}, place.child("findings.parquet"))
    return told


def _totals(spark: Any, beside: Gone | None) -> list[Attributed]:
    totals = [Attributed(**row) for row in attribution.totals(spark)]
    if beside is None:
        return totals
    messages = beside.messages
    for each in totals:
        if (each.verdict, each.attribution) == (_LOST, Attribution.ACKNOWLEDGED):
            messages += each.messages
    mine = Attributed(verdict=_LOST, attribution=Attribution.ACKNOWLEDGED, messages=messages)
    rest = [e for e in totals if (e.verdict, e.attribution) != (mine.verdict, mine.attribution)]
    order = attribution.VERDICTS
    return sorted([mine, *rest], key=lambda e: (order.index(e.verdict), -e.messages, e.attribution))


def _first(table: Any) -> list[Missing]:
    worst = table.orderBy(functions.expr(f"array_position(array({_ORDER}), verdict)"), *_KEY)
    return [
        Missing(**{name: row[name] for name in Missing.model_fields})
        for row in tables.rows(worst.limit(SHOWN_RANGES))
    ]


def _write(table: Any, gone: Gone | None, run: str, named: dict[str, str], place: Location) -> None:
    if gone is None:
        write_table(table, place)
    elif gone.spans <= MOST_ROWS:
        every = table.unionByName(gone.rows(run, **named))
        write_table(every.orderBy(*_KEY), place)
    else:
        write_parts(table, place, gone.packed, gone.unpacking(run, named))
