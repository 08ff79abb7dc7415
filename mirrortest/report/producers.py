"""Whose messages: the sums by producer, incarnation and topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.report.words import FINDINGS

if TYPE_CHECKING:
    from mirrortest.report.result import Result

MOST_ROWS = 60
_ALWAYS = ("sent", "acked", "delivered")


@dataclass(frozen=True)
class Sums:
    """One producer's incarnation in one topic; `counts` are those of `ByProducer.columns`."""

    producer: str
    incarnation: int
    topic: str
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ByProducer:
    """The rows, those with most findings first; columns without any are left out."""

    columns: tuple[str, ...] = ()
    rows: list[Sums] = field(default_factory=list)
    left_out: int = 0


def by_producer(result: Result) -> ByProducer:
    """Sum the table of streams; nothing where it is not there. Raises SequenceLogError."""
    table = result.table("by_stream")
    if table is None or not table.num_rows:
        return ByProducer()
    counted = [name for name in (*_ALWAYS, *FINDINGS) if name in table.column_names]
    summed = table.group_by(["producer", "incarnation", "topic"]).aggregate(
        [(name, "sum") for name in counted]
    )
    rows = summed.to_pylist()
    columns = tuple(
        name for name in counted if name in _ALWAYS or any(row[f"{name}_sum"] for row in rows)
    )
    sums = [
        Sums(
            row["producer"],
            row["incarnation"],
            row["topic"],
            tuple(int(row[f"{name}_sum"] or 0) for name in columns),
        )
        for row in rows
    ]
    first_finding = len([name for name in columns if name in _ALWAYS])
    sums.sort(
        key=lambda each: (
            *(-count for count in each.counts[first_finding:]),
            each.producer,
            each.incarnation,
            each.topic,
        )
    )
    return ByProducer(columns, sums[:MOST_ROWS], max(len(sums) - MOST_ROWS, 0))
