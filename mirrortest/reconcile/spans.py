"""Spans of numbers as arrays, and rows of intervals read and made of them; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.holes import HOLE_WORDS, SPAN_WORDS, unpacked
from mirrortest.reconcile.stretch import NONE, integers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """Spans [lo, hi)."""

    lo: Longs
    hi: Longs

    def __len__(self) -> int:
        """How many there are."""
        return len(self.lo)

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Spans:
        """The extents of rows."""
        return cls(numbers(rows, "seq_lo"), numbers(rows, "seq_hi"))

    @classmethod
    def packed(cls, rows: pa.RecordBatch) -> Spans:
        """All spans packed in rows."""
        words = _words(rows, SPAN_WORDS)
        base = np.repeat(numbers(rows, "seq_lo"), numbers(rows, "holes"))
        return cls(words[:, 0] + base, words[:, 1] + base)

    def and_(self, other: Spans) -> Spans:
        """Those of both."""
        return Spans(np.append(self.lo, other.lo), np.append(self.hi, other.hi))

    def within(self, lo: int, hi: int) -> Spans:
        """What of them lies in [lo, hi)."""
        low, high = np.maximum(self.lo, lo), np.minimum(self.hi, hi)
        kept = low < high
        return Spans(low[kept], high[kept])

    def merged(self) -> Spans:
        """The same numbers as disjoint spans, in order."""
        lo, hi = self.lo, self.hi
        if not len(lo):
            return self
        if (lo[1:] < lo[:-1]).any():
            order = np.argsort(lo, kind="stable")
            lo, hi = lo[order], hi[order]
        hi = np.maximum.accumulate(hi)
        begins = np.append(True, lo[1:] > hi[:-1])
        return Spans(lo[begins], hi[np.append(begins[1:], True)])

    def touching(self, lo: Longs, hi: Longs) -> Longs:
        """How many of them have a number in each [lo, hi)."""
        # Mostly they are in order: then a stable sort only looks through them.
        begun = np.searchsorted(np.sort(self.lo, kind="stable"), hi, "left")
        ended = np.searchsorted(np.sort(self.hi, kind="stable"), lo, "right")
        found: Longs = begun - ended
        return found

    def covering(self, lo: Longs, hi: Longs) -> tuple[Flags, Flags]:
        """Whether they, being disjoint and in order, have some, or all, of each [lo, hi)."""
        if not len(self.lo):
            return np.zeros(len(lo), dtype=bool), np.zeros(len(lo), dtype=bool)
        at = np.searchsorted(self.lo, lo, "right") - 1
        some = np.searchsorted(self.lo, hi, "left") > np.searchsorted(self.hi, lo, "right")
        return some, (at >= 0) & (self.hi[at] >= hi)

    def without(self, gone: Spans) -> Spans:
        """What is left of disjoint spans, in order, without some that lie in one of them each."""
        at = np.searchsorted(self.lo, gone.lo, "right") - 1
        inside = (at >= 0) & (self.hi[at] >= gone.hi) if len(self) else np.zeros(len(gone), bool)
        lo = np.sort(np.append(self.lo, gone.hi[inside]), kind="stable")
        hi = np.sort(np.append(self.hi, gone.lo[inside]), kind="stable")
        return Spans(lo[lo < hi], hi[lo < hi])


@dataclass(frozen=True)
class Holes:
    """Holes of chains: numbers [lo, hi) between the offsets `before` and `behind`.

    `row` is the place of each one's chain.
    """

    row: Longs
    lo: Longs
    hi: Longs
    before: Longs
    behind: Longs

    def __len__(self) -> int:
        """How many there are."""
        return len(self.lo)

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Holes:
        """All holes of rows, in their order."""
        counts = numbers(rows, "holes")
        words = _words(rows, HOLE_WORDS)
        seq = np.repeat(numbers(rows, "seq_lo"), counts)
        offset = np.repeat(numbers(rows, "offset_lo"), counts)
        row = np.repeat(np.arange(rows.num_rows), counts)
        return cls(
            row, words[:, 0] + seq, words[:, 1] + seq, words[:, 2] + offset, words[:, 3] + offset
        )

    def take(self, which: Flags) -> Holes:
        """Some of them."""
        columns = (self.row, self.lo, self.hi, self.before, self.behind)
        return Holes(*(values[which] for values in columns))


def pieces(rows: pa.RecordBatch, cut: Holes) -> pa.RecordBatch:
    """Chains, cut at some of their holes and without the others."""
    own = np.arange(rows.num_rows)
    chain = np.concatenate([own, cut.row])
    seq = np.concatenate([numbers(rows, "seq_lo"), cut.hi])
    order = np.lexsort((seq, chain))
    chain = chain[order]
    seq_lo = seq[order]
    offset_lo = np.concatenate([numbers(rows, "offset_lo"), cut.behind])[order]
    # A piece ends where the next hole of its chain begins, the last one where the chain does.
    seq_hi, offset_hi = numbers(rows, "seq_hi")[chain], numbers(rows, "offset_hi")[chain]
    followed = np.flatnonzero(np.append(chain[1:] == chain[:-1], False))
    behind = np.lexsort((cut.lo, cut.row))
    seq_hi[followed], offset_hi[followed] = cut.lo[behind], cut.before[behind]
    mark_seq, mark_minute = _marks(rows, chain, seq_lo, seq_hi)
    made = {
        "seq_lo": seq_lo, "seq_hi": seq_hi, "offset_lo": offset_lo, "offset_hi": offset_hi,
        "mark_seq": mark_seq, "mark_minute": mark_minute,
    }  # fmt: skip
    taken = rows.take(pa.array(chain))
    for name in ("holes", "packed"):
        made[name] = pa.nulls(len(chain), taken.schema.field(name).type)
    return replaced(taken, made)


def replaced(rows: pa.RecordBatch, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows with other values in some columns: arrays of numpy or Arrow."""
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(name).type
        array = values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
        rows = rows.set_column(at, rows.schema.field(name), array)
    return rows


def united(group: NDArray[np.int32], lo: Longs, hi: Longs) -> tuple[Longs, Longs, Longs]:
    """Spans of each group that overlap or touch, as one: the place of its first, its bounds."""
    if not len(lo):
        return np.zeros(0, dtype=np.int64), lo, hi
    order = np.lexsort((lo, group))
    its, low = group[order].astype(np.int64), lo[order]
    # The greatest end so far, within a group: ranks, so that groups lie apart.
    ends, rank = np.unique(hi[order], return_inverse=True)
    reached = np.maximum.accumulate(its * len(ends) + rank)
    high = ends[reached % len(ends)]
    begins = np.append(True, (its[1:] != its[:-1]) | (low[1:] > high[:-1]))
    return order[begins], low[begins], high[np.append(begins[1:], True)]


def _marks(rows: pa.RecordBatch, chain: Longs, lo: Longs, hi: Longs) -> tuple[pa.Array, pa.Array]:
    """The marks of pieces, of their chains' marks."""
    counts = lengths(rows["mark_seq"])
    first = np.cumsum(counts) - counts
    seqs = rows["mark_seq"].flatten().to_numpy(zero_copy_only=False)
    minutes = rows["mark_minute"].flatten().to_numpy(zero_copy_only=False)
    of = np.repeat(np.arange(rows.num_rows), counts)
    begins, ends = (_found(of, seqs, chain, at, side) for at, side in ((lo, "right"), (hi, "left")))
    begins = np.maximum(begins - 1, first[chain])
    own = np.maximum(ends - begins, 0)
    bounds = np.append(0, np.cumsum(own))
    at = np.repeat(begins - bounds[:-1], own) + np.arange(bounds[-1])
    told = np.maximum(seqs[at], np.repeat(lo, own))
    lists = pa.array(bounds.astype(np.int32))
    return (
        pa.ListArray.from_arrays(lists, pa.array(told)),
        pa.ListArray.from_arrays(lists, pa.array(minutes[at])),
    )


def _found(of: Longs, seqs: Longs, chain: Longs, at: Longs, side: Any) -> Longs:
    """Where numbers of chains stand among marks, both by chain and then by number."""
    found = np.empty(len(at), dtype=np.int64)
    bounds = np.searchsorted(of, np.arange(int(chain.max(initial=0)) + 2))
    starts = np.searchsorted(chain, np.arange(len(bounds)))
    for number in range(len(bounds) - 1):
        mine = slice(starts[number], starts[number + 1])
        marks = seqs[bounds[number] : bounds[number + 1]]
        found[mine] = bounds[number] + np.searchsorted(marks, at[mine], side)
    return found


def numbers(rows: pa.RecordBatch, name: str) -> Longs:
    """A column of integers as such, `NONE` for null."""
    found = integers(rows[name])
    if found is None:
        return np.full(rows.num_rows, NONE, dtype=np.int64)
    return found.astype(np.int64, copy=False)


def lengths(values: pa.Array) -> Longs:
    """How many elements each list has; null has none."""
    found: Longs = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def is_one_of(values: pa.Array, names: Sequence[str]) -> Flags:
    """Which texts are among these."""
    found: Flags = pc.is_in(values, pa.array(names, pa.string())).to_numpy(zero_copy_only=False)
    return found


def _words(rows: pa.RecordBatch, words: int) -> Longs:
    return unpacked(b"".join(rows["packed"].to_pylist()), words)
