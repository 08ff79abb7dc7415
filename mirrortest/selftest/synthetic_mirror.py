"""A synthetic run's mirror: its copies in the order of their arrival, and the seeded anomalies.

A message gets at most one anomaly, and a row at most one that is not a loss: no anomaly hides or
imitates another. Anomalies are spread evenly over the run and drawn at random within a chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.errors import UsageError
from mirrortest.model.findings import PER_MESSAGE, Finding
from mirrortest.selftest.synthetic_options import KINDS
from mirrortest.selftest.synthetic_run import RANDOM_FINDINGS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_run import Chunk, SyntheticRun

    Longs = NDArray[np.int64]

_POINTS = tuple(kind for kind in KINDS if kind not in {Finding.LOST, Finding.PHANTOM})
_UNCUT = frozenset({Finding.DUPLICATED, Finding.LATE})
"""Anomalies that do not cut the row in which they occur."""
_SMALLEST = 4
"""The fewest messages of a row with an anomaly: some precede it, and some follow."""


class Seeded(NamedTuple):
    """Messages of a chunk that get a finding: runs of one stream each.

    `row` indexes the chunk's rows (-1: beyond them); `partition` is where the finding occurs.
    """

    finding: Finding
    row: Longs
    stream: Longs
    seq_lo: Longs
    seq_hi: Longs
    partition: Longs


@dataclass(frozen=True)
class Copies:
    """Runs of messages in the destination, in the order of arrival.

    `turn` numbers the fetches of a chunk; `slot` is that of `SyntheticRun`.
    """

    phase: int
    slot: Longs
    seq_lo: Longs
    seq_hi: Longs
    findings: Longs
    partition: Longs
    offset: Longs
    turn: Longs


class Mirror:
    """A mirror that copies chunk after chunk; `ends` are the destination's end offsets so far."""

    def __init__(self, run: SyntheticRun) -> None:
        self._run = run
        self._options = run.options
        self.ends = np.zeros(run.partitions, dtype=np.int64)

    def copy(self, chunk: Chunk) -> tuple[Copies, list[Seeded]]:
        """Copy a chunk to the destination; return the copies and the anomalies."""
        run, seeded = self._run, self.seeded(chunk)
        slot = chunk.slot
        source = run.partition[slot]
        row, lo, hi, kind = _pieces(chunk, seeded)
        beyond = [each for each in seeded if each.finding is Finding.PHANTOM]
        slot = np.concatenate([slot[row], *(run.home[p.stream] for p in beyond)])
        lo = np.concatenate([lo, *(each.seq_lo for each in beyond)])
        hi = np.concatenate([hi, *(each.seq_hi for each in beyond)])
        kind = np.concatenate([kind, np.zeros(len(lo) - len(kind), dtype=np.int64)])
        new = np.ones(len(chunk.slot), dtype=np.int64)
        new[1:] = (source[1:] != source[:-1]) | (chunk.slot[1:] <= chunk.slot[:-1])
        turn = np.cumsum(new)[row]
        turn = np.concatenate([turn, np.full(len(lo) - len(turn), new.sum() + 1)])
        partition = run.partition[slot]
        away = kind == Finding.MISROUTED
        partition = np.where(away, self._neighbour(partition), partition)
        taken = hi - lo + run.gap[slot]
        shown = kind & int(PER_MESSAGE)
        offset = self._append(partition, taken)
        return Copies(chunk.phase, slot, lo, hi, shown, partition, offset, turn), seeded

    def seeded(self, chunk: Chunk) -> list[Seeded]:
        """The chunk's anomalies, by finding. Raises UsageError if its rows have no room."""
        options, run = self._options, self._run
        rng = np.random.default_rng([options.seed, RANDOM_FINDINGS, chunk.number])
        length = chunk.seq_hi - chunk.seq_lo
        shares = {kind: self._share(options.count(kind), chunk) for kind in _POINTS}
        gaps = self._share(-(-options.count(Finding.LOST) // options.lost_run), chunk)
        found: list[Seeded] = []

        def add(kind: Finding, row: Longs, lo: Longs, hi: Longs) -> None:
            slot = chunk.slot[row]
            partition = run.partition[slot]
            if kind is Finding.MISROUTED:
                partition = self._neighbour(partition)
            found.append(Seeded(kind, row, run.stream[slot], lo, hi, partition))

        if gaps.stop > gaps.start or any(each.stop > each.start for each in shares.values()):
            free = rng.permutation(np.flatnonzero(length >= _SMALLEST))
            for kind, share in shares.items():
                count = len(share)
                row, free = free[:count], free[count:]
                if len(row) < count:
                    raise _too_many(chunk)
                if count:
                    at = chunk.seq_lo[row] + 1 + rng.integers(0, length[row] - 2)
                    add(kind, row, at, at + 1)
            if len(gaps):
                row, at = self._gaps(chunk, free, len(gaps), rng)
                number = np.arange(gaps.start, gaps.stop)
                left = options.count(Finding.LOST) - number * options.lost_run
                add(Finding.LOST, row, at, at + np.minimum(left, options.lost_run))
        if chunk.last and options.count(Finding.PHANTOM):
            found += self._phantoms(chunk.phase)
        return found

    def _share(self, total: int, chunk: Chunk) -> range:
        """The indexes of those of `total` things, spread over the run, that fall into the chunk."""
        messages = self._options.messages
        return range(total * chunk.before // messages, total * chunk.after // messages)

    def _gaps(
        self, chunk: Chunk, free: Longs, count: int, rng: np.random.Generator
    ) -> tuple[Longs, Longs]:
        """Rows and first seqs of `count` gaps that touch neither each other nor a row's ends."""
        room = (chunk.seq_hi - chunk.seq_lo)[free] - 2
        width = self._options.lost_run + 1
        for each in range(1, self._options.run_length):
            wide = free[room >= each * width]
            if len(wide) * each >= count:
                break
        else:
            raise _too_many(chunk)
        rows = np.repeat(wide[: -(-count // each)], each)[:count]
        part = ((chunk.seq_hi - chunk.seq_lo)[rows] - 2) // each
        start = chunk.seq_lo[rows] + 1 + part * (np.arange(count) % each)
        return rows, start + rng.integers(0, part - width + 1)

    def _phantoms(self, phase: int) -> list[Seeded]:
        """Seqs that no producer used, at the end of each stream, where they reorder nothing."""
        options, run = self._options, self._run
        total = options.count(Finding.PHANTOM)
        mine = total * (phase + 1) // options.incarnations - total * phase // options.incarnations
        stream = np.arange(options.streams)
        number = mine // options.streams + (stream < mine % options.streams)
        stream = np.flatnonzero(number)
        lo = run.counts[phase][stream]
        at = run.partition[run.home[stream]]
        no_row = np.full(len(stream), -1)
        return [Seeded(Finding.PHANTOM, no_row, stream, lo, lo + number[stream], at)]

    def _neighbour(self, partition: Longs) -> Longs:
        """Another partition of the same topic."""
        lanes = self._options.lanes
        first = partition - partition % lanes
        other: Longs = first + (partition + 1 - first) % lanes
        return other

    def _append(self, partition: Longs, taken: Longs) -> Longs:
        """Append runs that take `taken` offsets each; return their first offsets."""
        order = np.argsort(partition.astype(np.int32), kind="stable")
        mine, sorted_taken = partition[order], taken[order]
        ahead = np.cumsum(sorted_taken) - sorted_taken
        first = np.searchsorted(mine, np.arange(len(self.ends)))
        before = np.concatenate([ahead, [0]])[np.minimum(first, len(ahead))]
        offset = np.empty(len(partition), dtype=np.int64)
        offset[order] = ahead - before[mine] + self.ends[mine]
        self.ends += np.bincount(partition, taken, len(self.ends)).astype(np.int64)
        return offset


def _pieces(chunk: Chunk, seeded: list[Seeded]) -> tuple[Longs, Longs, Longs, Longs]:
    """Cut rows at their anomalies; reorder and duplicate pieces as the mirror does.

    Returns for each piece its row in the chunk, its seqs and its finding (0: no finding).
    """
    row = np.arange(len(chunk.slot))
    lo, hi = chunk.seq_lo, chunk.seq_hi
    kind = np.zeros(len(row), dtype=np.int64)
    cuts = [a for a in seeded if a.finding not in {*_UNCUT, Finding.PHANTOM} and len(a.row)]
    if cuts:
        bits = [np.full(len(each.row), int(each.finding)) for each in cuts]
        cut = np.concatenate([each.row for each in cuts])
        row = np.concatenate([row, cut, cut])
        rest_lo = np.concatenate([each.seq_hi for each in cuts])
        lo = np.concatenate([lo, *(each.seq_lo for each in cuts), rest_lo])
        kind = np.concatenate([kind, *bits, np.zeros(len(cut), dtype=np.int64)])
        longest = int((chunk.seq_hi - chunk.seq_lo).max())
        order = np.argsort(row * longest + lo - chunk.seq_lo[row])
        row, lo, kind = row[order], lo[order], kind[order]
        hi = chunk.seq_hi[row]
        same = np.flatnonzero(row[1:] == row[:-1])
        hi[same] = lo[same + 1]
        late = np.flatnonzero(kind == Finding.REORDERED)
        for column in (lo, hi, kind):
            column[late], column[late + 1] = column[late + 1], column[late].copy()
        kept = kind != Finding.LOST
        row, lo, hi, kind = row[kept], lo[kept], hi[kept], kind[kept]
    for twice in (a for a in seeded if a.finding is Finding.DUPLICATED and len(a.row)):
        order = np.argsort(twice.row)
        at = np.searchsorted(row, twice.row[order], side="right")
        row = np.insert(row, at, twice.row[order])
        lo = np.insert(lo, at, twice.seq_lo[order])
        hi = np.insert(hi, at, twice.seq_hi[order])
        kind = np.insert(kind, at, 0)
    return row, lo, hi, kind


def _too_many(chunk: Chunk) -> UsageError:
    return UsageError(
        f"too many anomalies for {chunk.after - chunk.before:,} messages in "
        f"{len(chunk.slot):,} rows: ask for fewer, for more --messages, or for another "
        "--run-length or --lost-run"
    )
