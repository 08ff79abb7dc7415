"""The findings by destination partition, by message id and by producer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.report.html.tones import ORDER, Tones
from mirrortest.results.words import FINDINGS, rank, readable_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.result import Result
    from mirrortest.results.summary import Partition

MOST_CELLS = 600
MOST_ROWS = 60
CLEAN = "clean"


@dataclass(frozen=True)
class Cell:
    """A partition: `state` is a tone or clean; `worst` is its gravest finding."""

    partition: int | None
    state: str
    worst: str = ""
    count: int = 0


@dataclass(frozen=True)
class Grid:
    """The cells by topic; the `left_out` are the least grave. `rows` are the worst partitions."""

    topics: dict[str, list[Cell]] = field(default_factory=dict)
    left_out: int = 0
    columns: tuple[str, ...] = ()
    rows: list[Partition] = field(default_factory=list)
    rows_left_out: int = 0


def grid(partitions: Sequence[Partition], tones: Tones) -> Grid:
    """Lay out the partitions; if they are too many, those with the gravest findings stay in."""
    cells = {(each.topic, each.partition): _cell(each, tones) for each in partitions}
    shown = dict(sorted(cells.items(), key=lambda item: _gravest(item[1]))[:MOST_CELLS])
    topics: dict[str, list[Cell]] = {}
    for topic, partition in sorted(shown, key=lambda key: (key[0], _number(key[1]))):
        topics.setdefault(topic, []).append(shown[topic, partition])
    columns = tuple(name for name in FINDINGS if any(each.counts.get(name) for each in partitions))
    affected = sorted(
        (each for each in partitions if any(each.counts.get(name) for name in columns)),
        key=lambda each: (
            *(-each.counts.get(name, 0) for name in columns),
            each.topic,
            _number(each.partition),
        ),
    )
    return Grid(
        topics,
        len(cells) - len(shown),
        columns,
        affected[:MOST_ROWS],
        max(len(affected) - MOST_ROWS, 0),
    )


def short(count: int) -> str:
    """A count in at most four characters: ``950``, ``4.9k``, ``12M``."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # What would round up to 1000k is 1M.
        if count >= size * 0.9995:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def _cell(partition: Partition, tones: Tones) -> Cell:
    name = tones.worst(partition.counts)
    if name is None:
        return Cell(partition.partition, CLEAN)
    return Cell(partition.partition, tones.of(name), readable_name(name), partition.counts[name])


def _gravest(cell: Cell) -> tuple[int, int]:
    order = (*ORDER, CLEAN)
    return (order.index(cell.state), -cell.count)


def _number(partition: int | None) -> int:
    return -1 if partition is None else partition


MOST = 100
FEWEST_OF_A_KIND = 5
TABLES = {"undelivered": "verdict", "findings": "finding"}
"""The tables of ids, each with the column that has their kind."""
MISSING = ("lost", "inconclusive", "in_flight")
"""The kinds that are in both tables: in `undelivered` with their attribution."""


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
    """The ranges that are shown, out of `total`; `tables` are the tables that have all of them."""

    ranges: list[Range]
    total: int
    tables: tuple[str, ...]

    @property
    def attributed(self) -> bool:
        """Whether it is known of any range how far its messages came."""
        return any(each.attribution for each in self.ranges)


def first_ids(result: Result) -> Ids:
    """The first hundred ranges, some of every kind among them. Raises SequenceLogError."""
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
    """The first ranges of each wanted kind; reading ends once each counted kind has enough."""
    column = TABLES[table]
    counted = {name for name in wanted if result.summary.counts.get(name)}
    kinds: dict[str, list[Range]] = {}
    for batch in result.batches(table):
        if counted and all(len(kinds.get(name, ())) >= MOST for name in counted):
            break
        for kind in pc.unique(batch[column]).to_pylist():
            collected = kinds.setdefault(kind, [])
            if kind in wanted and len(collected) < MOST:
                rows = batch.filter(pc.equal(batch[column], kind)).slice(0, MOST - len(collected))
                collected += [_range(row, kind) for row in rows.to_pylist()]
    return {kind: ranges for kind, ranges in kinds.items() if ranges}


def _rows_of(result: Result, kinds: Sequence[str]) -> int:
    """How many rows of the table `findings` have one of these kinds."""
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
    """The rows, those with most findings first; columns of findings without any are left out."""

    columns: tuple[str, ...] = ()
    rows: list[Sums] = field(default_factory=list)
    left_out: int = 0


def by_producer(result: Result) -> ByProducer:
    """Sum the table `by_stream`; empty if it does not exist. Raises SequenceLogError."""
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
