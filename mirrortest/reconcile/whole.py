"""The last step of compaction, where streams are many: over tasks and sessions, chains as one.

Each task leaves a chain, at least, of every stream that it met. Here those of a stream are joined
wherever they stood; a stream that then is whole (all of it was acknowledged, stands in one
partition, once and in order, and nobody told anything against it) leaves the intervals for a row
that counts it. What the statements are left with is what they are to judge. Needs neither Spark
nor files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.reconcile.bundle import BUNDLE, OF_STREAM, TOLD, of_stream, opened
from mirrortest.reconcile.chain import chain, codes, firsts, mark_zones
from mirrortest.reconcile.compact import apart
from mirrortest.reconcile.intervals import INTERVALS, STREAM, interval_batch
from mirrortest.reconcile.spans import is_one_of, lengths, numbers, replaced, united
from mirrortest.reconcile.stretch import NONE, Stretches
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from mirrortest.reconcile.compact import Zone

    Codes = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

WHOLE = "whole"
"""The kind of a row that counts the `messages` of a stream that is whole, in its partition."""
JOINED = pa.schema([*INTERVALS, pa.field("source", pa.int32())])
"""What is left of intervals: `source` is the partition of the source that a whole stream is in."""
_CHAINED = (Kind.SEEN, Kind.SENT, Kind.RESERVED)
_AGAINST = (Kind.CLAIMED, Kind.FOUND)
_NUMBERS = (
    "incarnation", "lane", "seq_lo", "seq_hi", "partition", "offset_lo", "offset_hi", "identity",
    "outcome", "findings", "last_ns",
)  # fmt: skip
_MOST_ROWS = 2_000_000
"""Rows that a task holds at most: of more, none is joined."""
_FAR = 1 << 62


@dataclass(frozen=True)
class Joining:
    """What must be known of a run.

    `known` are (producer, incarnation) whose logs are here and whole; of `doubtful` topics no
    stream leaves; `horizons` and `zones` are those of the tasks that read the logs. `placed`:
    where in the source chains stood matters.
    """

    known: frozenset[tuple[str, int]]
    doubtful: frozenset[str]
    horizons: tuple[int, ...]
    zones: tuple[Zone, ...]
    placed: bool

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `JOINED`, of rows of intervals: all those of some streams, and others.

        Of rows with packed holes, which keep their streams here, none is given back.
        """
        held: list[pa.RecordBatch] = []
        rows = 0
        left = opening(batches)
        for batch in left:
            held.append(batch)
            rows += batch.num_rows
            if rows > _MOST_ROWS:
                yield from map(_unpacked, held)
                yield from map(_unpacked, left)
                return
        if rows:
            every = pa.Table.from_batches(held).combine_chunks().to_batches()[0]
            mine = of_stream(every)
            yield _unpacked(every.filter(pc.invert(mine)))
            if mine.true_count:
                yield from _Streams(self, every.filter(mine)).joined()


def opening(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of intervals, those of bundles one by one."""
    for batch in batches:
        rows = interval_batch(batch.num_rows, {name: batch[name] for name in INTERVALS.names})
        is_bundle = is_one_of(rows["kind"], [BUNDLE])
        yield from opened(rows.filter(pa.array(is_bundle)))
        yield rows.filter(pa.array(~is_bundle & ~is_one_of(rows["kind"], [TOLD])))


class _Vouched(NamedTuple):
    """What ledgers vouched for, as spans that do not touch; `row` is the place of a row of each."""

    row: Longs
    lo: Longs
    hi: Longs


class _Streams:
    """All rows of some streams."""

    def __init__(self, joining: Joining, rows: pa.RecordBatch) -> None:
        self._joining = joining
        self._rows = rows
        self._horizons = np.sort(np.array(joining.horizons, dtype=np.int64))
        self._stream = codes(*(_coded(rows[name]) for name in STREAM))
        self._count = int(self._stream.max()) + 1
        is_kind = {kind: is_one_of(rows["kind"], [kind.value]) for kind in OF_STREAM}
        chained = np.logical_or.reduce([is_kind[kind] for kind in _CHAINED])
        # What is packed, and what has no minutes, stays as it is, with all of its stream.
        self._packed = numbers(rows, "holes") > 0
        odd = self._packed | (chained & (lengths(rows["mark_seq"]) < 1))
        self._odd = self._of(self._stream[odd])
        taken = ~self._odd[self._stream]
        self._is = {kind: mine & taken for kind, mine in is_kind.items()}
        self._chained = chained & taken

    def joined(self) -> Iterator[pa.RecordBatch]:
        """What is left of the rows, and the counts of what is whole."""
        chains, marks = self._chains()
        vouched = self._vouched()
        whole, partition, messages = self._whole(chains, vouched)
        left = ~whole[self._stream]
        rest = left & ~self._packed & ~self._chained & ~self._is[Kind.VOUCHED]
        yield _as_it_is(self._rows.filter(pa.array(rest)))
        kept = left[chains.row]
        yield self._told(chains.take(kept), marks.filter(pa.array(kept)))
        kept = left[vouched.row]
        spans = {"seq_lo": vouched.lo[kept], "seq_hi": vouched.hi[kept]}
        yield _as_it_is(replaced(self._rows.take(pa.array(vouched.row[kept])), spans))
        yield self._counts(whole, chains, partition, messages)

    def _chains(self) -> tuple[Stretches, pa.RecordBatch]:
        """Chains joined, `row` being the place of each one's first row; and their marks."""
        found = self._stretches(np.flatnonzero(self._chained))
        order = np.lexsort((found.seq_lo, found.offset_lo, self._group(found)))
        stretches = self._by_minute(found.take(order))
        classes = np.searchsorted(self._horizons, stretches.last_ns, side="left")
        made = chain(stretches, self._group(stretches), classes)
        mark_seq, mark_minute = made.marks
        marks = pa.record_batch([mark_seq, mark_minute], names=["mark_seq", "mark_minute"])
        return made.of, marks

    def _group(self, found: Stretches) -> Codes:
        return codes(found.kind, self._stream[found.row], found.partition, found.identity)

    def _stretches(self, at: Longs) -> Stretches:
        rows = self._rows.take(pa.array(at))
        found = Stretches(
            row=at,
            minute=np.full(len(at), NONE, dtype=np.int64),
            cell=np.zeros(len(at), dtype=np.int64),
            dense=np.zeros(len(at), dtype=bool),
            kind=_coded(rows["kind"]),
            topic=_coded(rows["topic"]),
            producer=_coded(rows["producer"]),
            **{name: numbers(rows, name) for name in _NUMBERS},
        )
        seen = self._is[Kind.SEEN][at]
        if self._joining.placed:
            found.dense |= ~seen
        return self._zoned(found, seen) if self._joining.zones else found

    def _zoned(self, found: Stretches, seen: Flags) -> Stretches:
        """Chains that know of the zones: what was read twice at the same offsets is there once."""
        place = codes(found.topic, found.partition, found.identity)
        place[~seen] = NONE
        topics = self._rows["topic"].take(pa.array(found.row))
        numbered = {
            (topics[at].as_py(), int(found.partition[at]), int(found.identity[at])): number
            for number, at in zip(*np.unique(place, return_index=True), strict=True)
        }
        bounds: dict[int, list[tuple[int, int]]] = {}
        for zone in self._joining.zones:
            number = numbered.get((zone.topic, zone.partition, zone.identity))
            if number is not None:
                bounds.setdefault(number, []).append((zone.lo, zone.hi))
        mark_zones(found, place, {number: apart(each) for number, each in bounds.items()})
        twice = found.dense & seen
        key = np.stack(
            [self._stream[found.row], place, found.seq_lo, found.seq_hi, found.offset_lo]
        )
        _, first = np.unique(key[:, twice], axis=1, return_index=True)
        kept = ~twice
        kept[np.flatnonzero(twice)[first]] = True
        return found.take(kept)

    def _by_minute(self, found: Stretches) -> Stretches:
        """Each chain as one stretch for each of its minutes."""
        rows = self._rows.take(pa.array(found.row))
        counts = lengths(rows["mark_seq"])
        stretches = found.take(np.repeat(np.arange(len(found)), counts))
        starts = np.cumsum(counts) - counts
        stretches.seq_lo = rows["mark_seq"].flatten().to_numpy(zero_copy_only=False)
        stretches.minute = rows["mark_minute"].flatten().to_numpy(zero_copy_only=False)
        stretches.seq_hi = np.append(stretches.seq_lo[1:], NONE)[: len(stretches)]
        stretches.seq_hi[starts + counts - 1] = found.seq_hi
        # Where within its chain a minute's first message stood is not known, nor needed.
        stretches.offset_lo = stretches.offset_hi.copy()
        stretches.offset_lo[starts] = found.offset_lo
        return stretches

    def _vouched(self) -> _Vouched:
        at = np.flatnonzero(self._is[Kind.VOUCHED])
        rows = self._rows.take(pa.array(at))
        group = codes(self._stream[at], numbers(rows, "outcome"))
        first, lo, hi = united(group, numbers(rows, "seq_lo"), numbers(rows, "seq_hi"))
        return _Vouched(at[first], lo, hi)

    def _whole(self, chains: Stretches, vouched: _Vouched) -> tuple[Flags, Longs, Longs]:
        """By stream: whether it is whole, then its partition, and its messages."""
        stream = self._stream[chains.row]
        seen, sent, reserved = (self._is[kind][chains.row] for kind in _CHAINED)
        copy = stream[seen]
        lo, hi, partition = (
            _by_stream(self._count, copy, values[seen])
            for values in (chains.seq_lo, chains.seq_hi, chains.partition)
        )
        whole = np.bincount(copy, minlength=self._count) == 1
        whole &= ~(self._odd | self._doubtful())
        for kind in _AGAINST:
            whole &= ~self._of(self._stream[self._is[kind]])
        whole &= ~self._of(copy[chains.findings[seen] > 0])
        # Each number of the copy, and no other, was acknowledged, once.
        whole &= ~self._of(stream[sent & (chains.outcome != int(Outcome.ACKED))])
        whole &= self._covered(stream[sent], chains.seq_lo[sent], chains.seq_hi[sent], lo, hi)
        # What is reserved beyond it was not used; what is vouched for lies within.
        ended = np.full(self._count, NONE, dtype=np.int64)
        end = self._is[Kind.END]
        np.maximum.at(ended, self._stream[end], numbers(self._rows, "seq_hi")[end])
        last = np.where((ended != NONE) & (ended <= hi), _FAR, hi)
        for of, low, high, limit in (
            (stream[reserved], chains.seq_lo[reserved], chains.seq_hi[reserved], last),
            (self._stream[vouched.row], vouched.lo, vouched.hi, hi),
        ):
            whole &= ~self._of(of[(low < lo[of]) | (high > limit[of])])
        return whole, partition, hi - lo

    def _covered(self, stream: Codes, low: Longs, high: Longs, lo: Longs, hi: Longs) -> Flags:
        """Of which streams spans cover [lo, hi), without a gap and without a number twice."""
        order = np.lexsort((low, stream))
        stream, low, high = stream[order], low[order], high[order]
        begins = np.ones(len(stream), dtype=bool)
        begins[1:] = stream[1:] != stream[:-1]
        broken = np.where(begins, low != lo[stream], np.append(NONE, high[:-1]) != low)
        broken |= np.where(np.append(begins[1:], True), high != hi[stream], False)
        found: Flags = self._of(stream) & ~self._of(stream[broken])
        return found

    def _doubtful(self) -> Flags:
        """Streams that never leave."""
        rows = self._rows.take(pa.array(firsts(self._stream)))
        told = zip(*(rows[name].to_pylist() for name in STREAM[:3]), strict=True)
        known, doubtful = self._joining.known, self._joining.doubtful
        return np.array(
            [topic in doubtful or (name, number) not in known for topic, name, number in told]
        )

    def _of(self, streams: Codes) -> Flags:
        """Which streams are among these."""
        found = np.zeros(self._count, dtype=bool)
        found[streams] = True
        return found

    def _counts(
        self, whole: Flags, chains: Stretches, partition: Longs, messages: Longs
    ) -> pa.RecordBatch:
        """A row for each whole stream."""
        sent = chains.row[self._is[Kind.SENT][chains.row]]
        first = np.zeros(self._count, dtype=np.int64)
        first[self._stream[sent]] = sent
        rows = self._rows.take(pa.array(first[whole]))
        told = {name: rows[name] for name in STREAM}
        counted = {"partition": partition[whole], "messages": messages[whole]}
        made = interval_batch(rows.num_rows, {"kind": WHOLE, **told, **counted})
        return pa.record_batch([*made.columns, rows["partition"]], schema=JOINED)

    def _told(self, chains: Stretches, marks: pa.RecordBatch) -> pa.RecordBatch:
        names = ("seq_lo", "seq_hi", "offset_lo", "offset_hi", "last_ns")
        own = {name: getattr(chains, name) for name in names}
        told = {name: pa.array(values, mask=values == NONE) for name, values in own.items()}
        lists = {name: marks[name] for name in marks.schema.names}
        return _as_it_is(replaced(self._rows.take(pa.array(chains.row)), {**told, **lists}))


def _as_it_is(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([*rows.columns, pa.nulls(rows.num_rows, pa.int32())], schema=JOINED)


def _unpacked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Those without packed holes, as they are."""
    return _as_it_is(rows.filter(pa.array(numbers(rows, "holes") <= 0)))


def _by_stream(count: int, stream: Codes, values: Longs) -> Longs:
    found = np.zeros(count, dtype=np.int64)
    found[stream] = values
    return found


def _coded(values: pa.Array) -> Codes:
    """A number for each value: text or number, none of them null."""
    found: NDArray[np.int32] = values.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return found
