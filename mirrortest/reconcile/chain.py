"""The second step of `compact`: join a stream's stretches, wherever in the log, into chains.

A chain's numbers have no gap and are in the log's order. Other streams' messages may be between
them, so a chain may span more offsets than it has numbers. A clean mirror's copy is one chain per
stream, partition and task, however long the run was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirrortest.reconcile.stretch import NONE, Stretches
from mirrortest.reconcile.sweep import changes, runs
from mirrortest.seqlog.batches import positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.reconcile.stretch import Flags, Longs


class Jumps(NamedTuple):
    """Which jumps separate ranges: those over more than `far` offsets.

    In one turn of a partition, they are at most as many as `most`: the widest ones.
    """

    far: int
    most: int


SEEN_JUMPS = Jumps(1024, 64)
"""Jumps that may have skipped what another session read."""
MEASURED_JUMPS = Jumps(0, 1024)
"""Jumps over rows without latencies, which another session may have."""


@dataclass
class Chains:
    """Chains, and the minutes of intended time within each.

    Chain n has the marks [first_mark[n], first_mark[n + 1]): from `mark_seq` on, the messages were
    meant to be sent in `mark_minute`.
    """

    of: Stretches
    first_mark: NDArray[np.int32]
    mark_seq: Longs
    mark_minute: Longs
    at: Longs
    """The index of each chain's first stretch."""

    @property
    def marks(self) -> tuple[pa.Array, pa.Array]:
        """The marks' seqs and minutes, as columns of lists."""
        bounds = pa.array(self.first_mark)
        return (
            pa.ListArray.from_arrays(bounds, pa.array(self.mark_seq)),
            pa.ListArray.from_arrays(bounds, pa.array(self.mark_minute)),
        )


def codes(*columns: NDArray[Any]) -> NDArray[np.int32]:
    """One number for each combination of values, from 0 without gaps."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for values in columns:
        if _constant(values):
            continue
        own = pa.array(values).dictionary_encode()
        # Both are below the number of rows: the product is far from overflowing.
        found = found * len(own.dictionary) + own.indices.to_numpy()
        found = pa.array(found).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found.astype(np.int32)


def firsts(group: NDArray[np.int32] | Longs) -> Longs:
    """The first index of each number that `codes` returned."""
    found = np.zeros(int(group.max()) + 1 if len(group) else 0, dtype=np.int64)
    found[group[::-1]] = np.arange(len(group))[::-1]
    return found


def grouped(group: NDArray[np.int32]) -> Longs:
    """The indices that sort by group and keep the order within each group."""
    order = np.argsort((group & 0xFFFF).astype(np.uint16), kind="stable")
    if len(group) and int(group.max()) > 0xFFFF:
        # Sorting by 16 bits at a time is a radix sort: its cost does not grow with the groups.
        order = order[np.argsort((group[order] >> 16).astype(np.uint16), kind="stable")]
    return order


@dataclass
class Ranges:
    """Ranges of offsets that were read in one go, with their `place` and `turn`.

    A turn ends where the log goes back to earlier offsets.
    """

    place: Longs
    turn: Longs
    lo: Longs
    hi: Longs


@dataclass
class Turns:
    """How often a session's log went back, by place; counted on from batch to batch."""

    reached: Longs
    turn: Longs

    @classmethod
    def none(cls) -> Turns:
        """The state at the log's beginning."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def of(self, place: NDArray[np.int32], lo: Longs, hi: Longs) -> Longs:
        """The turn of each stretch, in the log's order."""
        count = max(len(self.reached), int(place.max()) + 1 if len(place) else 0)
        self.reached = np.append(self.reached, np.zeros(count - len(self.reached), np.int64))
        self.turn = np.append(self.turn, np.zeros(count - len(self.turn), np.int64))
        order = grouped(place)
        at, low, high = place[order], lo[order], hi[order]
        if not len(at):
            return np.zeros(0, dtype=np.int64)
        first = changes(at)
        before = np.empty(len(at), dtype=np.int64)
        before[1:] = high[:-1]
        before[first] = self.reached[at[first]]
        back = np.cumsum(low < before)
        starts, ends = runs(first)
        earlier: Longs = back[starts] - (low[starts] < before[starts])
        turns = back - np.repeat(earlier, ends - starts + 1) + self.turn[at]
        self.reached[at[ends]] = high[ends]
        self.turn[at[ends]] = turns[ends]
        found = np.empty(len(at), dtype=np.int64)
        found[order] = turns
        return found


def ranges(
    place: NDArray[np.int32],
    turn: Longs,
    lo: Longs,
    hi: Longs,
    jumps: Jumps = SEEN_JUMPS,
    passed: Longs | None = None,
) -> tuple[Longs, Ranges]:
    """Divide stretches (in the log's order) into ranges: each stretch's range, and all ranges.

    Jumps over which `passed` changes separate ranges, too.
    """
    if not len(place):
        return np.zeros(0, dtype=np.int64), Ranges(*(np.zeros(0, dtype=np.int64),) * 4)
    order = grouped(codes(place, turn))
    at, its, low, high = place[order], turn[order], lo[order], hi[order]
    first = changes(at, its)
    jump = np.zeros(len(at), dtype=np.int64)
    jump[1:] = low[1:] - high[:-1]
    far = np.flatnonzero((jump > jumps.far) & ~first)
    if len(far) > jumps.most:
        widest = far[np.argsort(-jump[far], kind="stable")]
        group = codes(at[widest], its[widest])
        nth = np.empty(len(widest), dtype=np.int64)
        nth[grouped(group)] = positions(np.bincount(group))[1]
        far = widest[nth < jumps.most]
    first[far] = True
    if passed is not None:
        its_passed = passed[order]
        first[1:] |= (jump[1:] > 0) & (its_passed[1:] != its_passed[:-1])
    number = np.cumsum(first) - 1
    starts, ends = runs(first)
    found = np.empty(len(at), dtype=np.int64)
    found[order] = number
    return found, Ranges(at[starts].astype(np.int64), its[starts], low[starts], high[ends])


def chain(stretches: Stretches, group: NDArray[np.int32], *apart: NDArray[Any]) -> Chains:
    """Join stretches that continue each other in a group (a stream in a place), in the log's order.

    A chain ends where one of `apart`, the outcome, the findings, `cell` or `dense` changes.
    """
    order = grouped(group)
    seq_lo, seq_hi = stretches.seq_lo[order], stretches.seq_hi[order]
    offset_lo, offset_hi = stretches.offset_lo[order], stretches.offset_hi[order]
    minute = stretches.minute[order]
    begins = np.ones(len(order), dtype=bool)
    if len(order):
        begins[1:] = seq_lo[1:] != seq_hi[:-1]
        begins[1:] |= offset_lo[1:] < offset_hi[:-1]
        # Where a stretch is dense, and where it has no seq, offsets must have no gap, either.
        strict = stretches.dense[order] | (seq_lo == NONE)
        begins[1:] |= strict[1:] & (offset_lo[1:] != offset_hi[:-1])
        others = (stretches.outcome, stretches.findings, stretches.cell, stretches.dense)
        for values in (group, *apart, *others):
            if not _constant(values):
                mine = values[order]
                begins[1:] |= mine[1:] != mine[:-1]
    starts, ends = runs(begins)
    marks = begins.copy()
    marks[1:] |= minute[1:] != minute[:-1]
    at = np.flatnonzero(marks)
    joined = stretches.take(order[starts])
    joined.seq_hi, joined.offset_hi = seq_hi[ends], offset_hi[ends]
    if len(starts):
        joined.last_ns = np.maximum.reduceat(stretches.last_ns[order], starts)
    return Chains(
        joined,
        np.append(np.searchsorted(at, starts), len(at)).astype(np.int32),
        seq_lo[at],
        minute[at],
        order[starts],
    )


def _constant(values: NDArray[Any]) -> bool:
    return not len(values) or (values[0] == values[-1] and bool((values == values[0]).all()))


def cut(stretches: Stretches, places: NDArray[np.int32], zones: dict[int, Longs]) -> Stretches:
    """Cut stretches that have offsets at the bounds of zones; mark them as `mark_zones` does."""
    crossing = mark_zones(stretches, places, zones)
    pieces: list[Stretches] = []
    done = 0
    for index in np.flatnonzero(crossing).tolist():
        pieces.append(stretches.take(slice(done, index)))
        pieces.append(_cut_one(stretches.take(slice(index, index + 1)), zones[int(places[index])]))
        done = index + 1
    return Stretches.concat([*pieces, stretches.take(slice(done, None))]) if done else stretches


def mark_zones(stretches: Stretches, places: NDArray[np.int32], zones: dict[int, Longs]) -> Flags:
    """Give stretches another `cell` on each side of a zone's bound, and `dense` within zones.

    `zones` are, by place, sorted disjoint half-open ranges of offsets as rows; an empty range cuts.
    Returns which stretches cross a bound.
    """
    crossing = np.zeros(len(stretches), dtype=bool)
    lo, hi = stretches.offset_lo, stretches.offset_hi
    for place, bounds in zones.items():
        mine = (places == place) & (lo != NONE)
        points = np.unique(bounds)
        cell = np.searchsorted(points, lo, "right")
        crossing |= mine & (cell < np.searchsorted(points, hi))
        stretches.cell[mine] = cell[mine]
        stretches.dense |= mine & _inside(bounds, lo, hi)
    return crossing


def _inside(bounds: Longs, lo: Longs, hi: Longs) -> Flags:
    at = np.searchsorted(bounds[:, 0], lo, "right") - 1
    found: Flags = (at >= 0) & (hi <= bounds[at, 1])
    return found


def _cut_one(one: Stretches, bounds: Longs) -> Stretches:
    lo, hi = int(one.offset_lo[0]), int(one.offset_hi[0])
    points = [lo, *(int(point) for point in np.unique(bounds) if lo < point < hi), hi]
    pieces = one.take(np.zeros(len(points) - 1, dtype=np.int64))
    pieces.offset_lo = np.array(points[:-1], dtype=np.int64)
    pieces.offset_hi = np.array(points[1:], dtype=np.int64)
    if int(one.seq_lo[0]) != NONE:
        pieces.seq_lo = pieces.offset_lo - lo + one.seq_lo[0]
        pieces.seq_hi = pieces.offset_hi - lo + one.seq_lo[0]
    pieces.cell = np.searchsorted(np.unique(bounds), pieces.offset_lo, "right")
    pieces.dense = _inside(bounds, pieces.offset_lo, pieces.offset_hi)
    return pieces
