"""Records of one source partition in a row, read as messages, and what stays in mind of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.faults.alteration import AlteredMessage, Subject, Target
from mirrortest.faults.records import RawRecord, form_at, raw_record

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from numpy.typing import NDArray

    from mirrortest.wire.batch_decoder import MessageArrays
    from mirrortest.wire.record_batch import RecordArrays


@dataclass(frozen=True, slots=True, eq=False)
class SourceRecords:
    """Consecutive records of one source partition."""

    topic: str
    partition: int
    records: RecordArrays
    messages: MessageArrays

    def __len__(self) -> int:
        return len(self.records)

    def offset(self, row: int) -> int:
        """The source offset of a row."""
        return int(self.records.offsets[row])

    def row_from(self, offset: int) -> int:
        """The first row at this offset or behind it."""
        return int(np.searchsorted(self.records.offsets, offset))

    def first(self, rows: int) -> SourceRecords:
        """The first so many rows, at least one."""
        cut = slice(0, rows)
        arrays = {
            item.name: getattr(self.records, item.name)[cut]
            for item in fields(self.records)
            if item.name not in {"header", "buffer"}
        }
        columns = {
            item.name: getattr(self.messages, item.name)[cut]
            for item in fields(self.messages)
            if item.name != "ids"
        }
        return replace(
            self,
            records=replace(self.records, **arrays),
            messages=replace(self.messages, **columns),
        )

    def subject(self, row: int) -> Subject:
        """Which message stands in a row."""
        messages = self.messages
        index = int(messages.id_index[row])
        known = index >= 0
        return Subject(
            self.topic,
            self.partition,
            self.offset(row),
            messages.ids[index] if known else None,
            int(messages.lane[row]),
            int(messages.seq[row]),
            form_at(self.records, row) if known else None,
        )

    def later_in_stream(self, subject: Subject, lo: int, hi: int) -> NDArray[np.int64]:
        """The rows in [lo, hi) of messages of the subject's stream with a later seq."""
        messages = self.messages
        if subject.id not in messages.ids:
            return np.empty(0, np.int64)
        where = slice(lo, hi)
        later = messages.id_index[where] == messages.ids.index(subject.id)
        later &= messages.lane[where] == subject.lane
        later &= messages.seq[where] > subject.seq
        return np.flatnonzero(later) + lo


class _Run(NamedTuple):
    stretch: SourceRecords
    lo: int
    hi: int


class History:
    """The last records of a partition as they were written, for a replay.

    `length` is how far back a replay may go, in source offsets; 0 keeps nothing.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._kept: deque[_Run | AlteredMessage] = deque()

    @property
    def length(self) -> int:
        """How far back it goes, in source offsets."""
        return self._length

    def add_rows(self, stretch: SourceRecords, lo: int, hi: int) -> None:
        """Remember rows that were copied as they stand."""
        if self._length and lo < hi:
            self._kept.append(_Run(stretch, lo, hi))
            self._forget(stretch.offset(hi - 1))

    def add(self, fate: AlteredMessage) -> None:
        """Remember what was made of one record, if it was written and names its id."""
        if self._length and fate.raw is not None and not fate.gone:
            self._kept.append(fate)
            self._forget(fate.subject.offset)

    def last(
        self, count: int, upto: int, besides: Container[int]
    ) -> Iterator[tuple[Subject, RawRecord, Target]]:
        """What was written of source offsets (upto - count, upto], but for those in `besides`."""
        for kept in self._kept:
            if isinstance(kept, AlteredMessage):
                at = kept.subject.offset
                if upto - count < at <= upto and at not in besides and kept.raw is not None:
                    yield kept.subject, kept.raw, kept.target
                continue
            stretch = kept.stretch
            home = Target(stretch.topic, stretch.partition)
            lo = max(kept.lo, stretch.row_from(upto - count + 1))
            for row in range(lo, min(kept.hi, stretch.row_from(upto + 1))):
                yield stretch.subject(row), raw_record(stretch.records, row), home

    def _forget(self, newest: int) -> None:
        while self._kept:
            first = self._kept[0]
            last = (
                first.subject.offset
                if isinstance(first, AlteredMessage)
                else first.stretch.offset(first.hi - 1)
            )
            if last > newest - self._length:
                return
            self._kept.popleft()
