"""The third step of `compact`, where much is missing: join chains with only holes between them.

A mirror that loses single messages all over a run leaves as many chains as losses. Here the chains
of a stream in a place that only lack numbers between them become one row with its holes packed.
Numbers that consumers claimed lost are packed, too. So Spark moves and stores few rows.
`stream_rows` unpacks them where they are judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Finding
from mirrortest.reconcile.chain import Chains, codes
from mirrortest.reconcile.stretch import NONE, Names, column, integers, numbers
from mirrortest.reconcile.sweep import changes, runs
from mirrortest.seqlog.batches import filled, positions
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.reconcile.stretch import Flags, Longs

_BUCKET_BITS = 20
"""All holes of a row begin in one bucket of 2**20 numbers, so a row stays below some 10 MB."""
_WORD = np.dtype("<u4")
_OFFSET_BITS = 31
"""A row's offsets are in one bucket of 2**31, so relative to its first one they fit a word."""
HOLE_WORDS = 4
"""Words of a hole: its bounds in numbers, and in offsets, relative to the row's first ones."""
SPAN_WORDS = 2
"""Words of a span of numbers, which has no offsets."""


class Packing(NamedTuple):
    """How many chains a task, and how many holes a row, must at least have to be packed."""

    chains: int
    holes: int


NO_PACKING = Packing(1 << 62, 1)
PACKING = Packing(4096, 8)


@dataclass
class Packed:
    """Rows' holes: row n has the next `counts[n]` of `words`, each of which is a hole or a span."""

    counts: Longs
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, counts: Longs, words: Longs) -> Packed:
        """Convert numbers, which must fit words."""
        return cls(counts, words.astype(_WORD))

    @property
    def columns(self) -> dict[str, pa.Array]:
        """The columns `holes` and `packed` of `INTERVALS`: how many, and all of them."""
        size = self.words.shape[1] * _WORD.itemsize
        bounds = np.append(0, np.cumsum(self.counts * size)).astype(np.int32)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(self.words))]
        packed = pa.Array.from_buffers(pa.binary(), len(self.counts), buffers)
        return {"holes": pa.array(self.counts), "packed": packed}


def _words(rows: pa.Table, words: int) -> Longs:
    """All holes or spans of rows, as rows of `words` numbers each."""
    raw = b"".join(rows["packed"].to_pylist())
    return np.frombuffer(raw, dtype=_WORD).reshape(-1, words).astype(np.int64)


def unpacked_claims(rows: pa.Table) -> pa.Table:
    """A row for each span that is packed in rows of claims."""
    counts = numbers(rows, "holes")
    words = _words(rows, SPAN_WORDS)
    row, _ = positions(counts)
    base = numbers(rows, "seq_lo")[row]
    return _repeated(rows, row, {"seq_lo": words[:, 0] + base, "seq_hi": words[:, 1] + base})


def unpacked_chains(rows: pa.Table) -> pa.Table:
    """Chains, cut at the holes that are packed in their rows."""
    counts = numbers(rows, "holes")
    first_lo, last_hi = numbers(rows, "seq_lo"), numbers(rows, "seq_hi")
    from_offset, to_offset = numbers(rows, "offset_lo"), numbers(rows, "offset_hi")
    words = _words(rows, HOLE_WORDS)
    # There is one piece more than holes: a piece begins where the chain does, or after a hole.
    chain, nth = positions(counts + 1)
    ends = np.cumsum(counts + 1) - 1
    behind = np.flatnonzero(nth)
    seq, offset = np.repeat(first_lo, counts), np.repeat(from_offset, counts)
    seq_lo, seq_hi = first_lo[chain], last_hi[chain]
    offset_lo, offset_hi = from_offset[chain], to_offset[chain]
    seq_hi[behind - 1], seq_lo[behind] = words[:, 0] + seq, words[:, 1] + seq
    offset_hi[behind - 1], offset_lo[behind] = words[:, 2] + offset, words[:, 3] + offset
    seq_hi[ends], offset_hi[ends] = last_hi, to_offset
    bounds = {
        "seq_lo": seq_lo, "seq_hi": seq_hi, "offset_lo": offset_lo, "offset_hi": offset_hi,
        **_marks(rows, chain, seq_lo, seq_hi),
    }  # fmt: skip
    return _repeated(rows, chain, bounds)


def _marks(rows: pa.Table, chain: Longs, lo: Longs, hi: Longs) -> dict[str, pa.Array]:
    """The marks of pieces, from their chains' marks."""
    marks = rows["mark_seq"].combine_chunks()
    counts = filled(pc.list_value_length(marks), 0).astype(np.int64)
    of, _ = positions(counts)
    first = np.cumsum(counts) - counts
    seqs = pc.list_flatten(marks).to_numpy()
    minutes = pc.list_flatten(rows["mark_minute"].combine_chunks()).to_numpy()
    # Marks as ranks, so that those of all chains are in one order.
    ranks = np.unique(seqs)
    place = of * len(ranks) + np.searchsorted(ranks, seqs)
    base = chain * len(ranks)
    begins = np.searchsorted(place, base + np.searchsorted(ranks, lo, "right"))
    begins = np.maximum(begins - 1, first[chain])
    ends = np.searchsorted(place, base + np.searchsorted(ranks, hi))
    own = np.maximum(ends - begins, 0)
    piece, nth = positions(own)
    at = begins[piece] + nth
    lists = pa.array(np.append(0, np.cumsum(own)).astype(np.int32))
    return {
        "mark_seq": pa.ListArray.from_arrays(lists, np.maximum(seqs[at], lo[piece])),
        "mark_minute": pa.ListArray.from_arrays(lists, minutes[at]),
    }


def _repeated(rows: pa.Table, row: Longs, columns: dict[str, Any]) -> pa.Table:
    """The rows with these indices, with other values in some columns, and nothing packed."""
    for name in ("holes", "packed", "mark_seq", "mark_minute"):
        # Do this before rows are repeated: what is packed in one row may be megabytes.
        rows = _replaced(rows, name, pa.nulls(rows.num_rows, rows.schema.field(name).type))
    rows = rows.take(pa.array(row))
    for name, values in columns.items():
        rows = _replaced(rows, name, pa.array(values))
    return rows


def _replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(name), values)


def holed(chains: Chains, number: Longs, packing: Packing) -> tuple[Chains, Packed | None]:
    """Join chains over holes; `number` is each stretch's range: two ranges are never joined."""
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
    starts, ends = runs(~joins)
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
    stretches = of.take(starts)
    stretches.seq_hi, stretches.offset_hi = of.seq_hi[ends], of.offset_hi[ends]
    stretches.last_ns = np.maximum.reduceat(of.last_ns, starts)
    kept = changes(chains.mark_minute)
    kept[chains.first_mark[starts]] = True
    first = np.append(0, np.cumsum(kept))[np.append(chains.first_mark[starts], len(kept))]
    joined = Chains(
        stretches,
        first.astype(np.int32),
        chains.mark_seq[kept],
        chains.mark_minute[kept],
        chains.at[starts],
    )
    return joined, Packed.of(np.bincount(row, minlength=len(starts)), words)


def _joins(chains: Chains, number: Longs) -> Flags:
    """Which chains follow the one before them with only a hole between them."""
    of = chains.of
    clean = (of.findings <= 0) & ~of.dense & (of.seq_lo != NONE)
    clean &= (of.lane != NONE) & (of.producer != NONE)
    found = np.zeros(len(of), dtype=bool)
    found[1:] = clean[1:] & clean[:-1]
    found[1:] &= of.seq_lo[1:] > of.seq_hi[:-1]
    found[1:] &= of.offset_lo[1:] >= of.offset_hi[:-1]
    for values in (
        of.topic, of.producer, of.incarnation, of.lane, of.partition, of.identity, of.outcome,
        of.findings, of.cell, number, of.seq_lo >> _BUCKET_BITS, of.offset_lo >> _OFFSET_BITS,
    ):  # fmt: skip
        found[1:] &= values[1:] == values[:-1]
    return found


@dataclass
class Claims:
    """The numbers that a session's log calls lost, where these are many rows of a batch."""

    topics: Names
    producers: Names
    packing: Packing
    count: int = 0
    _pending: list[tuple[NDArray[Any], ...]] = field(default_factory=list)

    def take(self, rows: pa.RecordBatch, others: Longs) -> Longs:
        """Take the losses of the rows at `others`; returns the indices of the rest."""
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
        mine &= numbers["seq_hi"] - numbers["seq_lo"] <= 1 << _BUCKET_BITS  # type: ignore[operator]
        at = np.flatnonzero(mine)
        chosen = pa.array(others[at])
        topic = self.topics.codes(rows["topic"].take(chosen))
        producer = self.producers.codes(rows["producer"].take(chosen))
        if len(at) < self.packing.chains or topic is None or producer is None:
            return others
        self._pending.append(
            (is_found[at], topic, producer, *(values[at] for values in numbers.values()))  # type: ignore[index]
        )
        self.count += len(at)
        return others[~mine]

    def flush(self) -> dict[str, Any] | None:
        """The collected numbers as columns of packed rows; None: there are none."""
        if not self._pending:
            return None
        is_found, topic, producer, incarnation, lane, lo, hi = (
            np.concatenate(values) for values in zip(*self._pending, strict=True)
        )
        self._pending, self.count = [], 0
        group = codes(is_found, topic, producer, incarnation, lane, lo >> _BUCKET_BITS)
        order = np.lexsort((lo, group))
        group, lo, hi = group[order], lo[order], hi[order]
        first = changes(group)
        first[1:] |= lo[1:] > hi[:-1]
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
