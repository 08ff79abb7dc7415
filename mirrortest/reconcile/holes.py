"""The third step of compaction, where much is missing: chains that only miss numbers, as one.

A mirror that loses single messages all over a run leaves as many chains as losses. Here chains of
a stream in a place that go on with nothing but a hole between them become one row with its holes
packed, as do the numbers that consumers claimed lost: what Spark moves and holds are few rows.
`plain` settles them, before any statement reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Finding
from mirrortest.reconcile.chain import Chains, codes
from mirrortest.reconcile.stretch import NONE, Names, column, integers
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

BUCKET_BITS = 20
"""Numbers of a stream are settled by so many at a time: no row's holes lie in two buckets."""
_WORD = np.dtype("<u4")
_OFFSET_BITS = 31
"""Offsets of a row's holes are noted from its first one: by then they fit a word."""
HOLE_WORDS = 4
"""A hole: its numbers, and the offsets before and behind it, each from the row's first."""
SPAN_WORDS = 2
"""Numbers without offsets."""


class Packing(NamedTuple):
    """From how many chains of a task, and holes of a row, on it is worth it.

    `rows` of streams of a task, and more, go in a `bundle`.
    """

    chains: int
    holes: int
    rows: int = 1 << 62


NO_PACKING = Packing(1 << 62, 1)
PACKING = Packing(4096, 8, 2048)


@dataclass
class Packed:
    """Rows' holes: row n has the next `counts[n]` of `words` (a hole, or a span, in each)."""

    counts: Longs
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, counts: Longs, words: Longs) -> Packed:
        """Of numbers that fit words."""
        return cls(counts, words.astype(_WORD))

    @property
    def columns(self) -> dict[str, pa.Array]:
        """As columns of intervals: how many, and all of them."""
        size = self.words.shape[1] * _WORD.itemsize
        bounds = np.append(0, np.cumsum(self.counts * size)).astype(np.int32)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(self.words))]
        packed = pa.Array.from_buffers(pa.binary(), len(self.counts), buffers)
        return {"holes": pa.array(self.counts), "packed": packed}


def unpacked(raw: Any, words: int) -> Longs:
    """The holes or spans of a row, as rows of `words` numbers each."""
    return np.frombuffer(raw, dtype=_WORD).reshape(-1, words).astype(np.int64)


def holed(chains: Chains, number: Longs, packing: Packing) -> tuple[Chains, Packed | None]:
    """Join chains over holes; `number` are the stretches' ranges, which are never joined."""
    of = chains.of
    if len(of) < max(packing.chains, 2):
        return chains, None
    joins = _joins(chains, number[chains.at])
    starts = np.flatnonzero(~joins)
    own = np.diff(np.append(starts, len(of)))
    many = own > packing.holes
    if not many.any():
        return chains, None
    joins &= np.repeat(many, own)
    starts = np.flatnonzero(~joins)
    ends = np.append(starts[1:], len(of)) - 1
    behind = np.flatnonzero(joins)
    row = np.cumsum(~joins)[behind] - 1
    seq, offset = of.seq_lo[starts][row], of.offset_lo[starts][row]
    words = np.stack(
        [
            of.seq_hi[behind - 1] - seq,
            of.seq_lo[behind] - seq,
            of.offset_hi[behind - 1] - offset,
            of.offset_lo[behind] - offset,
        ],
        axis=1,
    )
    made = of.take(starts)
    made.seq_hi, made.offset_hi = of.seq_hi[ends], of.offset_hi[ends]
    made.last_ns = np.maximum.reduceat(of.last_ns, starts)
    kept = np.ones(len(chains.mark_seq), dtype=bool)
    kept[1:] = chains.mark_minute[1:] != chains.mark_minute[:-1]
    kept[chains.first_mark[starts]] = True
    first = np.append(0, np.cumsum(kept))[np.append(chains.first_mark[starts], len(kept))]
    whole = Chains(
        made,
        first.astype(np.int32),
        chains.mark_seq[kept],
        chains.mark_minute[kept],
        chains.at[starts],
    )
    return whole, Packed.of(np.bincount(row, minlength=len(starts)), words)


def _joins(chains: Chains, number: Longs) -> Flags:
    """Which chains follow the one before them with nothing but a hole between."""
    of = chains.of
    clean = (of.findings <= 0) & ~of.dense & (of.seq_lo != NONE)
    clean &= (of.lane != NONE) & (of.producer != NONE)
    found = np.zeros(len(of), dtype=bool)
    found[1:] = clean[1:] & clean[:-1]
    found[1:] &= of.seq_lo[1:] > of.seq_hi[:-1]
    found[1:] &= of.offset_lo[1:] >= of.offset_hi[:-1]
    for values in (
        of.topic, of.producer, of.incarnation, of.lane, of.partition, of.identity, of.findings,
        of.cell, number, of.seq_lo >> BUCKET_BITS, of.offset_lo >> _OFFSET_BITS,
    ):  # fmt: skip
        found[1:] &= values[1:] == values[:-1]
    return found


@dataclass
class Claims:
    """Numbers that a session's log says were lost, where these are many rows of a batch."""

    topics: Names
    producers: Names
    packing: Packing
    count: int = 0
    _held: list[tuple[NDArray[Any], ...]] = field(default_factory=list)

    def take(self, rows: pa.RecordBatch, others: Longs) -> Longs:
        """Take of rows those that tell of losses; gives the indices of the rest of `others`."""
        if len(others) < self.packing.chains:
            return others
        kind = rows["kind"].take(pa.array(others)).cast(pa.string())
        lost = pc.equal(integer(rows, "findings", others), int(Finding.LOST))
        nowhere = pc.is_null(integer(rows, "partition", others))
        is_claim = _flags(pc.equal(kind, Kind.CLAIMED.value))
        is_found = _flags(pc.equal(kind, Kind.FOUND.value)) & _flags(lost) & _flags(nowhere)
        numbers = {
            name: integers(integer(rows, name, others))
            for name in ("incarnation", "lane", "seq_lo", "seq_hi")
        }
        mine = is_claim | is_found
        if any(values is None for values in numbers.values()):
            return others
        for values in numbers.values():
            mine &= values != NONE
        mine &= numbers["seq_hi"] - numbers["seq_lo"] <= 1 << BUCKET_BITS  # type: ignore[operator]
        at = np.flatnonzero(mine)
        chosen = pa.array(others[at])
        topic = self.topics.codes(rows["topic"].take(chosen))
        producer = self.producers.codes(rows["producer"].take(chosen))
        if len(at) < self.packing.chains or topic is None or producer is None:
            return others
        self._held.append(
            (is_found[at], topic, producer, *(values[at] for values in numbers.values()))  # type: ignore[index]
        )
        self.count += len(at)
        return others[~mine]

    def flush(self) -> dict[str, Any] | None:
        """What came together, as columns of packed rows; None where there is nothing."""
        if not self._held:
            return None
        is_found, topic, producer, incarnation, lane, lo, hi = (
            np.concatenate(values) for values in zip(*self._held, strict=True)
        )
        self._held, self.count = [], 0
        group = codes(is_found, topic, producer, incarnation, lane, lo >> BUCKET_BITS)
        order = np.lexsort((lo, group))
        group, lo, hi = group[order], lo[order], hi[order]
        first = np.ones(len(lo), dtype=bool)
        first[1:] = (group[1:] != group[:-1]) | (lo[1:] > hi[:-1])
        starts = np.flatnonzero(first)
        lo, hi, group, order = (
            lo[starts],
            np.maximum.reduceat(hi, starts),
            group[starts],
            order[starts],
        )
        begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        counts = np.diff(np.append(begins, len(lo)))
        base = np.repeat(lo[begins], counts)
        packed = Packed.of(counts, np.stack([lo - base, hi - base], axis=1))
        at = order[begins]
        kinds = np.where(is_found[at], Kind.FOUND.value, Kind.CLAIMED.value)
        return {
            "count": len(begins),
            "kind": pa.array(kinds.tolist(), pa.string()),
            "topic": [self.topics.texts[number] for number in topic[at].tolist()],
            "producer": [self.producers.texts[number] for number in producer[at].tolist()],
            "incarnation": incarnation[at],
            "lane": lane[at],
            "seq_lo": lo[begins],
            "seq_hi": np.maximum.reduceat(hi, begins),
            "findings": pa.array(
                np.full(len(at), int(Finding.LOST)), pa.int64(), mask=~is_found[at]
            ),
            **packed.columns,
        }


def integer(rows: pa.RecordBatch, name: str, at: Longs) -> pa.Array:
    """A column at some rows, null where it was not read."""
    found = column(rows, name)
    return pa.nulls(len(at), pa.int64()) if found is None else found.take(pa.array(at))


def _flags(values: pa.Array) -> Flags:
    found: Flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found
