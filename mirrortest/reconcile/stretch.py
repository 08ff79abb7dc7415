"""The first step of `compact`: join neighbouring rows of a log that continue each other.

A log in detail `messages` has a row for each message, hundreds of them in order. To find where a
stretch ends, each column is compared once with itself; nothing is sorted.
"""

from __future__ import annotations

import bisect
import functools
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.batches import filled
from mirrortest.seqlog.parquet import is_single
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

NONE = -1
"""Null in all columns of stretches: their own numbers are not below zero."""

MERGED = (Kind.SEEN, Kind.SENT, Kind.RESERVED)
"""The kinds with many rows; their codes in `Stretches.kind` are their indices here."""
SEEN, SENT, RESERVED = range(len(MERGED))
OTHER = len(MERGED)


class Names:
    """Numbers for the texts of one column, the same in all batches of a task."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self.texts: list[str] = list(known)
        self._numbers = {text: number for number, text in enumerate(self.texts)}

    def codes(self, column: pa.Array | None) -> NDArray[np.int32] | None:
        """Each row's number, `NONE` for null; None if all are null."""
        if column is None or column.null_count == len(column):
            return None
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        lookup = np.empty(len(column.dictionary) + 1, dtype=np.int32)
        for place, text in enumerate(column.dictionary.to_pylist()):
            number = NONE if text is None else self._numbers.get(text)
            if number is None:
                number = self._numbers[text] = len(self.texts)
                self.texts.append(text)
            lookup[place] = number
        lookup[-1] = NONE
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(lookup) - 1)
        found: NDArray[np.int32] = indices.to_numpy(zero_copy_only=False)
        straight = np.array_equal(lookup[:-1], np.arange(len(lookup) - 1))
        if straight and not column.null_count:
            return found
        return lookup.take(found)


@dataclass
class Stretches:
    """Stretches in the order of the log; all arrays have one value per stretch.

    `row` is the first row's index in its batch. `minute` is that of the intended time, `last_ns`
    the last acknowledgement, or a time on the same side of each horizon; kind `reserved` has
    neither. `cell` differs between the two sides of a zone's bound. Where a stretch is `dense`,
    a chain must not have more offsets than numbers.
    """

    row: Longs
    kind: NDArray[np.int32]
    topic: NDArray[np.int32]
    producer: NDArray[np.int32]
    incarnation: Longs
    lane: Longs
    seq_lo: Longs
    seq_hi: Longs
    partition: Longs
    offset_lo: Longs
    offset_hi: Longs
    identity: Longs
    outcome: Longs
    findings: Longs
    minute: Longs
    last_ns: Longs
    cell: Longs
    dense: Flags

    def __len__(self) -> int:
        """How many there are."""
        return len(self.kind)

    def take(self, which: Any) -> Stretches:
        """Some of them: a mask, indices or a slice."""
        return Stretches(*(getattr(self, each.name)[which] for each in fields(self)))

    @classmethod
    def concat(cls, parts: Sequence[Stretches]) -> Stretches:
        """All of them, in order."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, each.name) for part in parts] for each in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))


@dataclass
class Reader:
    """The reader of a task's batches as stretches.

    `horizons` are times (ns, sorted): within a stretch, all rows end on the same side of each.
    """

    horizons: Longs
    topics: Names = field(default_factory=Names)
    producers: Names = field(default_factory=Names)
    kinds: Names = field(default_factory=lambda: Names([kind.value for kind in MERGED]))
    identities: Names = field(default_factory=Names)

    def stretches(self, rows: pa.RecordBatch) -> tuple[Stretches, Longs]:
        """The batch's stretches of `MERGED` kinds, and the indices of its other rows."""
        kind = numbered(rows, "kind", self.kinds.codes)
        if kind is None:
            raise ValueError("rows without a kind")
        text = {name: numbered(rows, name, names.codes) for name, names in self._texts.items()}
        numbers = {
            name: numbered(rows, name, integers)
            for name in (
                "incarnation", "lane", "seq_lo", "seq_hi", "partition", "offset_lo", "offset_hi",
                "outcome", "findings", "intended_first",
            )
        }  # fmt: skip
        last = _ended(rows)
        begins = np.zeros(rows.num_rows, dtype=bool)
        begins[0] = True
        for values in (kind, *text.values(), *(numbers[name] for name in _SAME)):
            _mark(begins, values)
        for name in ("seq", "offset"):
            lo, hi = numbers[f"{name}_lo"], numbers[f"{name}_hi"]
            if lo is not None and hi is not None:
                begins[1:] |= lo[1:] != hi[:-1]
        intended = numbers["intended_first"]
        _mark(begins, _minutes(intended))
        if last is not None:
            _mark(begins, self._classes(last))
        others = np.flatnonzero(kind >= OTHER) if len(self.kinds.texts) > OTHER else _EMPTY
        begins[others] = True
        behind = others[others < rows.num_rows - 1] + 1
        begins[behind] = True
        starts = np.flatnonzero(begins)
        if len(others):
            starts = starts[kind[starts] < OTHER]
        ends = np.append(starts[1:], rows.num_rows) - 1
        if len(others):
            # A stretch ends before the next row that begins anything, merged or not.
            every = np.append(np.flatnonzero(begins), rows.num_rows)
            ends = every[np.searchsorted(every, starts, side="right")] - 1
        return self._build(kind, text, numbers, last, starts, ends), others

    @property
    def _texts(self) -> dict[str, Names]:
        return {
            "topic": self.topics,
            "producer": self.producers,
            "topic_identity": self.identities,
        }

    def classes(self, last: Longs) -> Longs:
        """How many of the horizons are before each time."""
        return np.searchsorted(self.horizons, last, side="left")

    def _classes(self, last: Longs) -> Longs | None:
        """As `classes`; None where it is the same for all."""
        if not len(self.horizons) or not len(last) or _is_one(last):
            return None
        least = last.min()
        if least >= 0:
            lo, hi = self.classes(np.array([least, last.max()]))
            if lo == hi:
                return None
        return self.classes(last)

    def _build(
        self,
        kind: NDArray[np.int32],
        text: dict[str, NDArray[np.int32] | None],
        numbers: dict[str, Longs | None],
        last: Longs | None,
        starts: Longs,
        ends: Longs,
    ) -> Stretches:
        def at(values: NDArray[Any] | None, where: Longs) -> Longs:
            if values is None:
                return np.full(len(where), NONE, dtype=np.int64)
            return values[where].astype(np.int64, copy=False)

        begun = kind[starts]
        timeless = begun == RESERVED
        intended = at(numbers["intended_first"], starts)
        counted = np.array([int(name or 0) for name in self.identities.texts] + [0])
        return Stretches(
            row=starts,
            kind=begun,
            topic=at(text["topic"], starts).astype(np.int32),
            producer=at(text["producer"], starts).astype(np.int32),
            incarnation=at(numbers["incarnation"], starts),
            lane=at(numbers["lane"], starts),
            seq_lo=at(numbers["seq_lo"], starts),
            seq_hi=at(numbers["seq_hi"], ends),
            partition=at(numbers["partition"], starts),
            offset_lo=at(numbers["offset_lo"], starts),
            offset_hi=at(numbers["offset_hi"], ends),
            identity=counted[at(text["topic_identity"], starts)],
            outcome=at(numbers["outcome"], starts),
            findings=at(numbers["findings"], starts),
            minute=np.where(timeless | (intended < 0), NONE, intended // MINUTE_NS),
            last_ns=np.where(timeless, NONE, _greatest(last, starts, ends)),
            cell=np.zeros(len(starts), dtype=np.int64),
            dense=np.zeros(len(starts), dtype=bool),
        )


ENDED = ("arrived_last", "sent_last", "intended_last")
"""Columns of when a row's send ended; each one replaces nulls of those before it."""


def alike(horizons: Iterable[int]) -> dict[str, Callable[[int], int]]:
    """What `compact` needs of times, as `parquet.Marked` takes it.

    That is on which side of each horizon a send ended, and in which minute it was to be sent.
    """
    bounds = sorted(horizons)
    sides = dict.fromkeys(ENDED, functools.partial(bisect.bisect_left, bounds))
    return {**sides, "intended_first": lambda intended: intended // MINUTE_NS}


_SAME = ("incarnation", "lane", "partition", "outcome", "findings")
_EMPTY = np.zeros(0, dtype=np.int64)


def column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column; None where it was not read."""
    at = rows.schema.get_field_index(name)
    return rows.column(at) if at >= 0 else None


def integers(values: pa.Array | None) -> Longs | None:
    """A column of integers, `NONE` for null; None where all are null."""
    if values is None:
        return None
    if values.null_count and values.null_count == len(values):
        return None
    return filled(values, NONE)


def numbers(rows: pa.Table, name: str) -> Longs:
    """A column of integers, `NONE` for null, also if all are null."""
    found = integers(rows[name])
    if found is None:
        return np.full(rows.num_rows, NONE, dtype=np.int64)
    return found.astype(np.int64, copy=False)


def numbered(
    rows: pa.RecordBatch, name: str, numbers: Callable[[pa.Array | None], NDArray[Any] | None]
) -> NDArray[Any] | None:
    """Convert a column to numbers; where all rows are known to have one value, it is broadcast."""
    values = column(rows, name)
    if values is None or not len(values) or not is_single(rows.schema.field(name)):
        return numbers(values)
    one = numbers(values.slice(0, 1))
    return None if one is None else np.broadcast_to(one, len(values))


def _is_one(values: NDArray[Any]) -> bool:
    """Whether it is one value for all rows, broadcast by `numbered`."""
    return values.strides == (0,)


def _mark(begins: Flags, values: NDArray[Any] | None) -> None:
    if values is not None and not _is_one(values):
        begins[1:] |= values[1:] != values[:-1]


def _ended(rows: pa.RecordBatch) -> Longs | None:
    """When sends were acknowledged; where unknown, when they were sent or intended."""
    first, *rest = ENDED
    ended = column(rows, first)
    if ended is not None and not ended.null_count:
        return numbered(rows, first, integers)
    for other in (column(rows, name) for name in rest):
        if ended is not None and ended.null_count and other is not None:
            ended = pc.coalesce(ended, other)
    return integers(ended)


def _minutes(intended: Longs | None) -> NDArray[Any] | None:
    """Values that change where the minute does; None: it does not change."""
    if intended is None or not len(intended) or _is_one(intended):
        return None
    least, most = intended.min(), intended.max()
    if most < 0 or (least >= 0 and least // MINUTE_NS == most // MINUTE_NS):
        return None
    timed = intended >= 0
    known = intended[timed]
    if known.min() // MINUTE_NS == most // MINUTE_NS:
        return timed
    return np.where(timed, intended // MINUTE_NS, NONE)


def _greatest(column: Longs | None, starts: Longs, ends: Longs) -> Longs:
    """The greatest value of each stretch."""
    if column is None or not len(starts):
        return np.full(len(starts), NONE, dtype=np.int64)
    if _is_one(column) or np.array_equal(starts, ends):
        return column[starts]
    bounds = np.empty(2 * len(starts), dtype=np.int64)
    bounds[::2], bounds[1::2] = starts, ends + 1
    if bounds[-1] == len(column):
        bounds = bounds[:-1]
    found: Longs = np.maximum.reduceat(column, bounds)[::2]
    return found
