"""Where it happened: a cell for each destination partition, with the worst that was found there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.model.findings import Weight
from mirrortest.report.words import FINDINGS, plain, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.results.summary import Partition

MOST_CELLS = 600
MOST_ROWS = 60
CLEAN = "clean"


@dataclass(frozen=True)
class Cell:
    """A partition: `state` is a `Weight`'s name or clean; `worst` is its gravest finding."""

    partition: int | None
    state: str
    worst: str = ""
    count: int = 0


@dataclass(frozen=True)
class Grid:
    """The cells by topic; `left_out` have no findings, and `rows` the worst partitions' counts."""

    topics: dict[str, list[Cell]] = field(default_factory=dict)
    left_out: int = 0
    columns: tuple[str, ...] = ()
    rows: list[Partition] = field(default_factory=list)
    rows_left_out: int = 0


def grid(partitions: Sequence[Partition]) -> Grid:
    """Lay out the partitions; those with findings stay in where they are too many."""
    cells = {(each.topic, each.partition): _cell(each) for each in partitions}
    shown = dict(sorted(cells.items(), key=lambda item: _gravest(item[1]))[:MOST_CELLS])
    topics: dict[str, list[Cell]] = {}
    for topic, partition in sorted(shown, key=lambda key: (key[0], _number(key[1]))):
        topics.setdefault(topic, []).append(shown[topic, partition])
    columns = tuple(name for name in FINDINGS if any(each.counts.get(name) for each in partitions))
    guilty = sorted(
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
        guilty[:MOST_ROWS],
        max(len(guilty) - MOST_ROWS, 0),
    )


def short(count: int) -> str:
    """A count in four signs: ``950``, ``4.9k``, ``12M``."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # What would round up to 1000k is 1M.
        if count >= size * 0.9995:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def _cell(partition: Partition) -> Cell:
    name = _worst(partition.counts)
    if name is None:
        return Cell(partition.partition, CLEAN)
    state = weight_of(name).value
    return Cell(partition.partition, state, plain(name), partition.counts[name])


def _worst(counts: Mapping[str, int]) -> str | None:
    return next((name for name in FINDINGS if counts.get(name)), None)


def _gravest(cell: Cell) -> tuple[int, int]:
    order = [Weight.BAD.value, Weight.DOUBT.value, Weight.NOTE.value, CLEAN]
    return (order.index(cell.state), -cell.count)


def _number(partition: int | None) -> int:
    return -1 if partition is None else partition
