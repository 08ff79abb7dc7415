"""The reduction of a log's rows, in whatever detail, to few intervals of the same content.

This runs where the files are read, on Spark's executors, so that little leaves them. Neighbouring
rows become stretches (`stretch`), stretches become chains (`chain`), and latencies are summed
(`latency`). Rows of rare kinds are only merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.reconcile.chain import (
    MEASURED_JUMPS,
    Chains,
    Ranges,
    Turns,
    chain,
    codes,
    cut,
    firsts,
    ranges,
)
from mirrortest.reconcile.holes import NO_PACKING, Claims, Packed, Packing, holed
from mirrortest.reconcile.incarnations import applied
from mirrortest.reconcile.interval_rows import (
    ACKED,
    LATENCY,
    MEASURED,
    RANGE,
    fewer_holes,
    interval_batch,
    merged,
)
from mirrortest.reconcile.latency import LatencySums, latencies
from mirrortest.reconcile.stretch import (
    NONE,
    SEEN,
    SENT,
    Reader,
    Stretches,
    column,
)
from mirrortest.seqlog.batches import conform, filled
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.parquet import is_single, noted_totals
from mirrortest.seqlog.schema import TOTALLED, Kind
from mirrortest.seqlog.totals import totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.reconcile.incarnations import Numbers
    from mirrortest.reconcile.stretch import Flags, Longs

_OF_ALL = (
    "kind", "topic", "run", "producer", "incarnation", "lane", "seq_lo", "seq_hi",
)  # fmt: skip
_SENDING = (
    "partition", "outcome", "intended_first", "intended_last", "sent_last", "arrived_last",
)  # fmt: skip
_PLACED = ("offset_lo", "offset_hi", "topic_identity")
_READING = (
    "partition", *_PLACED, "outcome", "findings", "intended_first", *TOTALLED,
)  # fmt: skip
MOST_STRETCHES = 2_000_000
"""How many stretches a task collects before it joins them into chains: bounds its memory."""
Place = tuple[int, int, int]
"""The numbers of a topic, of a partition, and of the partition's incarnation."""
Named = tuple[str, int, int]
"""The same with the topic's name."""


def columns_of(role: Role, *, placed: bool) -> list[str]:
    """The columns to read of a session's files; `placed`: with a producer's source offsets."""
    if role is Role.PRODUCER:
        return [*_OF_ALL, *_SENDING, *(_PLACED if placed else ())]
    return [*_OF_ALL, *_READING]


class Zone(NamedTuple):
    """Offsets of a partition that were read more than once: chains are dense there.

    An empty zone only cuts chains. `uncounted` are the (session, task, turn) whose latencies there
    do not count, because another reading's do.
    """

    topic: str
    partition: int
    identity: int
    lo: int
    hi: int
    uncounted: tuple[tuple[int, int, int], ...] = ()

    @property
    def place(self) -> Named:
        """The partition's incarnation."""
        return self[:3]


@dataclass
class Compactor:
    """The reduction of a session's batches within one task, added in their order, to intervals."""

    run: str
    session: int
    task: int
    horizons: Longs
    zones: Sequence[Zone] = ()
    packing: Packing = NO_PACKING
    numbers: Numbers = field(default_factory=dict)
    _reader: Reader = field(init=False)
    _claims: Claims = field(init=False)
    _bounds: dict[Named, Longs] = field(init=False)
    _left_out: dict[tuple[Named, int], Longs] = field(init=False)
    """By partition's incarnation and turn, the offsets whose latencies do not count."""
    _places: dict[Place, int] = field(default_factory=dict)
    _latencies: LatencySums = field(default_factory=LatencySums)
    _turns: Turns = field(default_factory=Turns.none)
    _batch_turns: Turns = field(default_factory=Turns.none)
    _measured: list[tuple[NDArray[np.int32], Longs, Longs, Longs]] = field(default_factory=list)
    """Place, turn and bounds of rows with latencies in zones."""
    _pending: list[Stretches] = field(default_factory=list)
    _others: list[pa.RecordBatch] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        """Create the reader of batches and the collector of claims."""
        self._reader = Reader(np.sort(self.horizons))
        self._claims = Claims(self._reader.topics, self._reader.producers, self.packing)
        zones: dict[Named, list[tuple[int, int]]] = {}
        uncounted: dict[tuple[Named, int], list[tuple[int, int]]] = {}
        for zone in self.zones:
            zones.setdefault(zone.place, []).append((zone.lo, zone.hi))
            for session, task, turn in zone.uncounted:
                if (session, task) == (self.session, self.task):
                    uncounted.setdefault((zone.place, turn), []).append((zone.lo, zone.hi))
        self._bounds = {place: apart(each) for place, each in zones.items()}
        self._left_out = {key: apart(each) for key, each in uncounted.items()}

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows, without those of other runs; yields intervals once there are many."""
        noted = noted_totals(rows)
        if noted is not None:
            if self.zones:
                raise ValueError("sums over rows of which some may not count")
            self._latencies.add(each for each in noted if each.run in {None, self.run})
        rows = applied(self._ours(rows), self.numbers)
        if not rows.num_rows:
            return
        found, others = self._reader.stretches(rows)
        others = self._claims.take(rows, others)
        if len(others):
            self._others.append(conform(rows.take(pa.array(others))))
        if self.zones:
            places = self._placed(found)
            zones = self._zones_by_place()
            rows = rows.filter(pa.array(~self._uncounted(rows, found, places, zones)))
            found = cut(found, places, zones)
        if noted is None and column(rows, "latency_bucket") is not None:
            self._latencies.add(totals(rows))
        self._pending.append(found)
        self._count += len(found) + len(others)
        if self._count + self._claims.count >= MOST_STRETCHES:
            yield from self._flush()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining intervals and the sums of latencies."""
        yield from self._flush()
        sums = list(self._latencies.sums())
        if not sums:
            return
        topics, minutes, negative, buckets, counts = zip(*sums, strict=True)
        yield self._batch(
            len(sums),
            kind=LATENCY,
            topic=list(topics),
            minute=list(minutes),
            negative=list(negative),
            latency_bucket=list(buckets),
            latency_count=list(counts),
        )

    def _ours(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        run = column(rows, "run")
        if run is None or run.null_count == len(run):
            return rows
        if is_single(rows.schema.field("run")):
            return rows if run[0].as_py() == self.run else rows.slice(0, 0)
        ours = pc.or_kleene(pc.is_null(run), pc.equal(run, self.run))
        return rows if pc.all(ours).as_py() else rows.filter(pc.fill_null(ours, False))

    def _flush(self) -> Iterator[pa.RecordBatch]:
        unread: list[dict[str, Any]] = []
        if self._others:
            others = merged(self._others, self.session, self.task)
            unread = others.filter(pc.equal(others["kind"], Kind.UNREAD.value)).to_pylist()
            yield fewer_holes(others)
        claims = self._claims.flush()
        if claims is not None:
            yield self._batch(**claims)
        if self._pending:
            everything = Stretches.concat(self._pending)
            is_seen = everything.kind == SEEN
            if is_seen.all():
                yield from self._seen(everything, unread)
            elif not is_seen.any():
                yield from self._sending(everything)
            else:
                yield from self._seen(everything.take(is_seen), unread)
                yield from self._sending(everything.take(~is_seen))
        if self._measured:
            place, turn, lo, hi = (np.concatenate(c) for c in zip(*self._measured, strict=True))
            _, measured = ranges(place, turn, lo, hi, MEASURED_JUMPS)
            yield self._ranges(MEASURED, measured)
        self._pending, self._others, self._measured, self._count = [], [], [], 0

    def _seen(
        self, seen: Stretches, unread: Sequence[Mapping[str, Any]]
    ) -> Iterator[pa.RecordBatch]:
        if not len(seen):
            return
        place = self._placed(seen)
        turn = self._turns.of(place, seen.offset_lo, seen.offset_hi)
        # Before how many of its unread ranges each stretch comes: it saw nothing there.
        passed = np.zeros(len(seen), dtype=np.int64)
        ends: dict[int | None, list[int]] = {}
        for row in unread:
            where = (row["topic"], row["partition"], row["identity"])
            ends.setdefault(self._number(where), []).append(row["offset_hi"])
        for number, its_ends in ends.items():
            mine = np.flatnonzero(place == number)
            passed[mine] = np.searchsorted(np.sort(its_ends), seen.offset_lo[mine], "right")
        of, read = ranges(place, turn, seen.offset_lo, seen.offset_hi, passed=passed)
        group = codes(seen.producer, seen.incarnation, seen.lane, place)
        yield self._chains(*holed(chain(seen, group, of), of, self.packing))
        yield self._ranges(RANGE, read)

    def _ranges(self, kind: str, read: Ranges) -> pa.RecordBatch:
        places = list(self._places)
        topics, partitions, identities = zip(*(places[n] for n in read.place.tolist()), strict=True)
        return self._batch(
            len(topics),
            kind=kind,
            topic=[self._reader.topics.texts[topic] for topic in topics],
            partition=list(partitions),
            identity=list(identities),
            turn=read.turn,
            offset_lo=read.lo,
            offset_hi=read.hi,
        )

    def _sending(self, sent: Stretches) -> Iterator[pa.RecordBatch]:
        if not len(sent):
            return
        group = codes(
            sent.kind, sent.topic, sent.producer, sent.incarnation, sent.lane, sent.partition
        )
        chains = chain(sent, group, self._reader.classes(sent.last_ns))
        yield self._chains(chains)
        topics, minutes, messages = _by_minute(chains)
        yield self._batch(
            len(topics),
            kind=ACKED,
            topic=_texts(topics, self._reader.topics.texts),
            minute=minutes,
            messages=messages,
        )

    def _chains(self, chains: Chains, packed: Packed | None = None) -> pa.RecordBatch:
        of, reader = chains.of, self._reader
        mark_seq, mark_minute = chains.marks
        return self._batch(
            len(of),
            kind=_texts(of.kind, reader.kinds.texts),
            topic=_texts(of.topic, reader.topics.texts),
            producer=_texts(of.producer, reader.producers.texts),
            identity=of.identity,
            mark_seq=mark_seq,
            mark_minute=mark_minute,
            **(packed.columns if packed is not None else {}),
            **{name: _nullable(getattr(of, name)) for name in _COPIED},
        )

    def _batch(self, count: int, **columns: Any) -> pa.RecordBatch:
        return interval_batch(count, {"session": self.session, "task": self.task, **columns})

    def _placed(self, stretches: Stretches) -> NDArray[np.int32]:
        """The number of each stretch's partition, the same in all batches."""
        columns = (stretches.topic, stretches.partition, stretches.identity)
        own = codes(*columns)
        first = firsts(own)
        numbers = np.zeros(len(first), dtype=np.int32)
        for number, at in enumerate(first.tolist()):
            place = (int(columns[0][at]), int(columns[1][at]), int(columns[2][at]))
            numbers[number] = self._places.setdefault(place, len(self._places))
        return numbers[own]

    def _number(self, place: Named) -> int | None:
        topic, partition, identity = place
        topics = self._reader.topics.texts
        if topic not in topics:
            return None
        return self._places.get((topics.index(topic), partition, identity))

    def _zones_by_place(self) -> dict[int, Longs]:
        numbers = ((self._number(place), each) for place, each in self._bounds.items())
        return {number: each for number, each in numbers if number is not None}

    def _uncounted(
        self,
        rows: pa.RecordBatch,
        found: Stretches,
        places: NDArray[np.int32],
        zones: Mapping[int, Longs],
    ) -> Flags:
        """Which rows do not count for latencies; notes those in zones that have latencies."""
        uncounted = np.zeros(rows.num_rows, dtype=bool)
        seen = np.flatnonzero(found.kind == SEEN)
        turns = self._batch_turns.of(places[seen], found.offset_lo[seen], found.offset_hi[seen])
        if not len(seen) or column(rows, "latency_count") is None:
            return uncounted
        messages = latencies(rows)
        timed = np.flatnonzero(messages)
        at = np.searchsorted(found.row[seen], timed, "right") - 1
        timed, at = timed[at >= 0], at[at >= 0]
        place, turn = places[seen][at], turns[at]
        lo, hi = (filled(rows[name], NONE)[timed] for name in ("offset_lo", "offset_hi"))
        # In detail `messages`, the first message's row has the latencies of those after it.
        hi = np.maximum(hi, lo + messages[timed])
        for number, bounds in zones.items():
            mine = np.flatnonzero(place == number)
            mine = mine[_meet(bounds, lo[mine], hi[mine])]
            if len(mine):
                self._measured.append((place[mine], turn[mine], lo[mine], hi[mine]))
        for (where, number), bounds in self._left_out.items():
            mine = np.flatnonzero((place == self._number(where)) & (turn == number))
            uncounted[timed[mine[_meet(bounds, lo[mine], lo[mine] + 1)]]] = True
        return uncounted


def _meet(bounds: Longs, lo: Longs, hi: Longs) -> Flags:
    """Which ranges [lo, hi) share offsets with some of these disjoint ones, in order."""
    bounds = bounds[bounds[:, 0] < bounds[:, 1]]
    before = np.searchsorted(bounds[:, 0], hi)
    ends = np.append(NONE, bounds[:, 1])
    found: Flags = ends[before] > lo
    return found


def _by_minute(chains: Chains) -> tuple[NDArray[np.int32], Longs, Longs]:
    """Counts of acknowledged messages: topics, minutes, messages."""
    of = chains.of
    per_chain = np.diff(chains.first_mark)
    topic = np.repeat(of.topic, per_chain)
    acked = np.repeat((of.kind == SENT) & (of.outcome == int(Outcome.ACKED)), per_chain)
    ends = np.append(chains.mark_seq[1:], 0)
    ends[chains.first_mark[1:] - 1] = of.seq_hi
    messages = (ends - chains.mark_seq)[acked]
    topic, minute = topic[acked], chains.mark_minute[acked]
    group = codes(topic, minute)
    first = firsts(group)
    sums = np.zeros(len(first), dtype=np.int64)
    np.add.at(sums, group, messages)
    return topic[first], minute[first], sums


def apart(zones: list[tuple[int, int]]) -> Longs:
    """Zones as disjoint ones, in order; an empty zone also cuts the zones that contain it."""
    points = sorted({point for zone in zones for point in zone})
    pieces = [
        (lo, hi)
        for lo, hi in pairwise(points)
        if any(first <= lo and hi <= last for first, last in zones)
    ]
    covered = {point for piece in pieces for point in piece}
    pieces += [(point, point) for point in points if point not in covered]
    return np.array(sorted(pieces), dtype=np.int64)


_COPIED = (
    "incarnation", "lane", "seq_lo", "seq_hi", "partition", "offset_lo", "offset_hi", "outcome",
    "findings", "last_ns",
)  # fmt: skip


def _nullable(values: NDArray[Any]) -> pa.Array:
    return pa.array(values, mask=values == NONE)


def _texts(numbers: NDArray[np.int32], texts: list[str]) -> pa.Array:
    """The text for each number."""
    return pa.DictionaryArray.from_arrays(_nullable(numbers), pa.array(texts, pa.string())).cast(
        pa.string()
    )
