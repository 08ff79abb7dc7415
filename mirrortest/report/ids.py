"""Which messages: the first ranges of ids of every kind of finding, the gravest kinds first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.report.words import FINDINGS, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.result import Result

MOST = 100
FEWEST_OF_A_KIND = 5
TABLES = {"undelivered": "verdict", "findings": "finding"}
"""Where ids lie, and the column that says of which kind they are."""
MISSING = ("lost", "inconclusive", "in_flight")
"""The kinds that stand in both tables: in `undelivered` with their attribution."""


@dataclass(frozen=True)
class Range:
    """Consecutive messages of one stream and one kind: [seq_lo, seq_hi)."""

    kind: str
    topic: str
    producer: str
    incarnation: int
    lane: int
    seq_lo: int
    seq_hi: int
    attribution: str = ""


@dataclass(frozen=True)
class Ids:
    """The ranges that are shown, of how many; `tables` are the names of those that hold all."""

    ranges: list[Range]
    total: int
    tables: tuple[str, ...]

    @property
    def attributed(self) -> bool:
        """Whether any range says how far its messages came."""
        return any(each.attribution for each in self.ranges)


def first_ids(result: Result) -> Ids:
    """The first hundred ranges, every kind among them. Raises SequenceLogError."""
    tables = tuple(name for name in TABLES if result.row_count(name))
    total = sum(result.row_count(name) for name in tables)
    kinds = _first(result, "undelivered", (*MISSING, "failed", "unknown"))
    if "undelivered" in tables:
        kinds |= _first(result, "findings", [name for name in FINDINGS if name not in MISSING])
        total -= _rows_of(result, MISSING)
    else:
        kinds |= _first(result, "findings", FINDINGS)
    ranges: list[Range] = []
    left = MOST
    for after, kind in zip(reversed(range(len(kinds))), sorted(kinds, key=rank), strict=True):
        shown = kinds[kind][: max(left - FEWEST_OF_A_KIND * after, FEWEST_OF_A_KIND)]
        ranges += shown
        left -= len(shown)
    return Ids(ranges, total, tables)


def _first(result: Result, table: str, wanted: Sequence[str]) -> dict[str, list[Range]]:
    """The first ranges of each wanted kind; reading ends once all that were counted are full."""
    column = TABLES[table]
    counted = {name for name in wanted if result.summary.counts.get(name)}
    kinds: dict[str, list[Range]] = {}
    for batch in result.batches(table):
        if counted and all(len(kinds.get(name, ())) >= MOST for name in counted):
            break
        for kind in pc.unique(batch[column]).to_pylist():
            known = kinds.setdefault(kind, [])
            if kind in wanted and len(known) < MOST:
                rows = batch.filter(pc.equal(batch[column], kind)).slice(0, MOST - len(known))
                known += [_range(row, kind) for row in rows.to_pylist()]
    return {kind: ranges for kind, ranges in kinds.items() if ranges}


def _rows_of(result: Result, kinds: Sequence[str]) -> int:
    """How many rows of the table `findings` are of these kinds."""
    return sum(
        int(pc.sum(pc.is_in(batch["finding"], pa.array(kinds, pa.string()))).as_py() or 0)
        for batch in result.batches("findings", ["finding"])
    )


def _range(row: dict[str, Any], kind: str) -> Range:
    return Range(
        kind,
        row["topic"],
        row["producer"],
        row["incarnation"],
        row["lane"],
        row["seq_lo"],
        row["seq_hi"],
        row.get("attribution") or "",
    )
