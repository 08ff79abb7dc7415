"""What is plainly lost: settled beside Spark, a stream's numbers bucket by bucket, as arrays.

A hole in a stream's copy is plain where one acknowledgement covers it, nothing of it was seen
anywhere, and the consumers said of all of it, or of none of it, that it is lost. What a statement
would find of such numbers is known: they are lost, and nothing else. So they leave the intervals
here, as if they had been seen, and their counts and ids go on beside. Everything else stays for the
statements to judge. Needs neither Spark nor files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.chain import codes, firsts
from mirrortest.reconcile.holes import BUCKET_BITS, Packed
from mirrortest.reconcile.intervals import INTERVALS, STREAM
from mirrortest.reconcile.spans import Holes, Spans, is_one_of, numbers, pieces
from mirrortest.reconcile.stretch import NONE
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

PLAIN = "plain"
"""The kind of a row that counts `messages` plainly lost, by stream, the partition of the copy that
they are missing in, and minute. No consumer had told of `unnoticed` ones."""
GONE = "gone"
"""The kind of a row with the numbers plainly lost, packed."""
SETTLED = pa.schema([*INTERVALS, pa.field("unnoticed", pa.int64())])
_KEY = (*STREAM, "bucket")


@dataclass(frozen=True)
class Settling:
    """What must be known of a run.

    `horizons` are the times (ns) up to which what was acknowledged is due, beside what logs say has
    expired, by topic: of those where something may be plain; `known` are (producer, incarnation)
    whose logs are here and whole.
    """

    horizons: Mapping[str, int]
    known: frozenset[tuple[str, int]]

    def settle(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `SETTLED`, of rows of intervals with two columns more.

        A row comes once for each `bucket` that it reaches into, sorted by stream and bucket;
        `above` is behind the greatest number that stood before it in its partition.
        """
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if not batch.num_rows:
                continue
            if held and not _alike(held[-1], batch):
                yield from self._groups(held)
                held = []
            last = int(_starts(batch)[-1])
            if last:
                yield from self._groups([*held, batch.slice(0, last)])
                held = []
            held.append(batch.slice(last))
        yield from self._groups(held)

    def _groups(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of whole groups: those without holes are as they are."""
        if not batches:
            return
        rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        bounds = np.append(_starts(rows), rows.num_rows)
        packed = np.add.reduceat(numbers(rows, "holes") > 0, bounds[:-1]) > 0
        alone = ~np.repeat(packed, np.diff(bounds))
        if alone.any():
            yield _as_it_is(rows.filter(pa.array(alone & _own(rows))))
        for number in np.flatnonzero(packed).tolist():
            lo, hi = int(bounds[number]), int(bounds[number + 1])
            yield from _Bucket(self, rows.slice(lo, hi - lo)).settled()


class _Told(NamedTuple):
    """What consumers said was lost: claimed at any time, and found in the end."""

    claimed: Spans
    found: Spans

    def noticed(self, lo: Longs, hi: Longs) -> Flags:
        """Of which [lo, hi) all was told."""
        return self.claimed.covering(lo, hi)[1] | self.found.covering(lo, hi)[1]


class _Bucket:
    """The rows of a stream that reach into one bucket."""

    def __init__(self, settling: Settling, rows: pa.RecordBatch) -> None:
        self._settling = settling
        self._key = {name: rows[name][0].as_py() for name in _KEY}
        own = _own(rows)
        seen, sent, claimed, found, expired = (
            is_one_of(rows["kind"], [kind.value])
            for kind in (Kind.SEEN, Kind.SENT, Kind.CLAIMED, Kind.FOUND, Kind.EXPIRED)
        )
        lost = found & (numbers(rows, "findings") == int(Finding.LOST))
        holed = seen & own & (numbers(rows, "holes") > 0)
        self._chains = rows.filter(pa.array(holed))
        self._rest = rows.filter(pa.array(own & ~holed & ~claimed & ~lost))
        self._seen = Spans.of(rows.filter(pa.array(seen)))
        self._others = Spans.of(rows.filter(pa.array(found & ~lost)))
        self._expired = Spans.of(rows.filter(pa.array(expired))).merged()
        sending = rows.filter(pa.array(sent))
        self._sent = sending.take(pc.array_sort_indices(sending["seq_lo"]))
        self._told = _Told(*(self._claims(rows.filter(pa.array(each))) for each in (claimed, lost)))

    def settled(self) -> Iterator[pa.RecordBatch]:
        """What is left for the statements, and what is not."""
        holes = Holes.of(self._chains)
        plain, minute = self._plain(holes)
        yield _as_it_is(self._rest)
        yield _as_it_is(pieces(self._chains, holes.take(~plain)))
        lost, minute = holes.take(plain), minute[plain]
        gone = Spans(lost.lo, lost.hi).merged()
        yield from self._left(Kind.CLAIMED, self._told.claimed.without(gone))
        lost_bit = {"findings": int(Finding.LOST)}
        yield from self._left(Kind.FOUND, self._told.found.without(gone), **lost_bit)
        if len(lost):
            yield self._counts(numbers(self._chains, "partition")[lost.row], minute, lost)
            yield self._ids(gone)

    def _claims(self, rows: pa.RecordBatch) -> Spans:
        """Numbers of this bucket; what is not packed was cut to its buckets."""
        first = self._key["bucket"] << BUCKET_BITS
        packed = pa.array(numbers(rows, "holes") > 0)
        inside = Spans.packed(rows.filter(packed)).within(first, first + (1 << BUCKET_BITS))
        return inside.and_(Spans.of(rows.filter(pc.invert(packed)))).merged()

    def _plain(self, holes: Holes) -> tuple[Flags, Longs]:
        """Which holes are plainly lost, and each one's minute of intended time."""
        lo, hi = holes.lo, holes.hi
        plain = np.zeros(len(holes), dtype=bool)
        horizon = self._settling.horizons.get(self._key["topic"])
        producer = (self._key["producer"], self._key["incarnation"])
        sent = Spans.of(self._sent)
        apart = len(sent) > 0 and not (sent.lo[1:] < sent.hi[:-1]).any()
        if horizon is None or producer not in self._settling.known or not apart:
            return plain, np.full(len(holes), NONE, dtype=np.int64)
        at = np.maximum(np.searchsorted(sent.lo, lo, "right") - 1, 0)
        plain = (sent.lo[at] <= lo) & (sent.hi[at] >= hi)
        plain &= numbers(self._sent, "outcome")[at] == int(Outcome.ACKED)
        # Nothing but its own chain reaches over it; nor did greater numbers stand before that one,
        # so that filling the hole puts nothing out of order.
        plain &= self._seen.touching(lo, hi) == 1
        plain &= lo >= numbers(self._chains, "above")[holes.row]
        plain &= self._others.touching(lo, hi) == 0
        for some, every in (each.covering(lo, hi) for each in self._told):
            plain &= ~some | every
        last = numbers(self._sent, "last_ns")[at]
        claimed = self._told.claimed.covering(lo, hi)[1]
        due = self._expired.covering(lo, hi)[1] | ((last != NONE) & (last <= horizon))
        plain &= claimed | due
        marks = self._sent["mark_seq"].flatten().to_numpy(zero_copy_only=False)
        minutes = self._sent["mark_minute"].flatten().to_numpy(zero_copy_only=False)
        if not len(marks):
            return np.zeros(len(holes), dtype=bool), np.full(len(holes), NONE, dtype=np.int64)
        mark = np.maximum(np.searchsorted(marks, lo, "right") - 1, 0)
        plain &= (marks[mark] <= lo) & (np.append(marks, hi.max(initial=0))[mark + 1] >= hi)
        return plain, minutes[mark]

    def _left(self, kind: Kind, spans: Spans, **columns: Any) -> Iterator[pa.RecordBatch]:
        if len(spans):
            bounds = {"seq_lo": spans.lo, "seq_hi": spans.hi}
            yield self._made(len(spans), {"kind": kind.value, **bounds, **columns})

    def _counts(self, partition: Longs, minute: Longs, lost: Holes) -> pa.RecordBatch:
        group = codes(partition, minute)
        first = firsts(group)
        messages = np.zeros(len(first), dtype=np.int64)
        unnoticed = messages.copy()
        np.add.at(messages, group, lost.hi - lost.lo)
        noticed = self._told.noticed(lost.lo, lost.hi)
        np.add.at(unnoticed, group, np.where(noticed, 0, lost.hi - lost.lo))
        told = {"messages": messages, "unnoticed": unnoticed}
        at = {"partition": partition[first], "minute": minute[first]}
        return self._made(len(first), {"kind": PLAIN, **at, **told})

    def _ids(self, gone: Spans) -> pa.RecordBatch:
        base, hi = int(gone.lo[0]), int(gone.hi[-1])
        words = np.stack([gone.lo - base, gone.hi - base], axis=1)
        packed = Packed.of(np.array([len(gone)]), words).columns
        return self._made(1, {"kind": GONE, "seq_lo": base, "seq_hi": hi, **packed})

    def _made(self, count: int, columns: dict[str, Any]) -> pa.RecordBatch:
        stream = {name: self._key[name] for name in STREAM}
        return _rows(count, {**stream, **columns})


def _rows(count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    arrays = []
    for each in SETTLED:
        value = columns.get(each.name)
        if value is None:
            arrays.append(pa.nulls(count, each.type))
        elif isinstance(value, np.ndarray):
            arrays.append(pa.array(value, each.type))
        elif isinstance(value, pa.Array):
            arrays.append(value.cast(each.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, each.type), count))
    return pa.record_batch(arrays, schema=SETTLED)


def _as_it_is(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: rows[name] for name in INTERVALS.names}
    return _rows(rows.num_rows, columns)


def _own(rows: pa.RecordBatch) -> Flags:
    """Which rows begin in the bucket that they came for: there they go on."""
    found: Flags = (numbers(rows, "seq_lo") >> BUCKET_BITS) == numbers(rows, "bucket")
    return found


def _starts(rows: pa.RecordBatch) -> Longs:
    """Where another stream or bucket begins."""
    begins = np.zeros(rows.num_rows, dtype=bool)
    begins[0] = True
    for name in _KEY:
        values = rows[name]
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = values.dictionary_encode().indices
        own = values.to_numpy(zero_copy_only=False)
        begins[1:] |= own[1:] != own[:-1]
    return np.flatnonzero(begins)


def _alike(before: pa.RecordBatch, batch: pa.RecordBatch) -> bool:
    """Whether one's last row and the other's first are of one stream and bucket."""
    return all(before[name][-1].as_py() == batch[name][0].as_py() for name in _KEY)
