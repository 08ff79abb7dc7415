"""Consecutive records of a source partition, read as messages, and the buffer for replays."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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
class SourceBatch:
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
        """The first row at or after this offset."""
        return int(np.searchsorted(self.records.offsets, offset))

    def subject(self, row: int) -> Subject:
        """The message in a row."""
        messages = self.messages
        index = int(messages.id_index[row])
        is_readable = index >= 0
        return Subject(
            self.topic,
            self.partition,
            self.offset(row),
            messages.ids[index] if is_readable else None,
            int(messages.lane[row]),
            int(messages.seq[row]),
            form_at(self.records, row) if is_readable else None,
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
    batch: SourceBatch
    lo: int
    hi: int


class ReplayBuffer:
    """The last records of a partition as they were written, for a replay.

    Attributes:
        length: how far back a replay can go, in source offsets; 0: no replays.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._entries: deque[_Run | AlteredMessage] = deque()

    def add_rows(self, batch: SourceBatch, lo: int, hi: int) -> None:
        """Keep rows that were copied unchanged."""
        if self.length and lo < hi:
            self._entries.append(_Run(batch, lo, hi))
            self._drop_old(batch.offset(hi - 1))

    def add(self, altered: AlteredMessage) -> None:
        """Keep an altered message, if it is written and still has its id."""
        if self.length and altered.raw is not None and not altered.lost_id:
            self._entries.append(altered)
            self._drop_old(altered.subject.offset)

    def last(
        self, count: int, upto: int, without: Container[int]
    ) -> Iterator[tuple[Subject, RawRecord, Target]]:
        """The records written for source offsets (upto - count, upto] that are not in `without`."""
        for entry in self._entries:
            if isinstance(entry, AlteredMessage):
                at = entry.subject.offset
                if upto - count < at <= upto and at not in without and entry.raw is not None:
                    yield entry.subject, entry.raw, entry.target
                continue
            batch = entry.batch
            home = Target(batch.topic, batch.partition)
            lo = max(entry.lo, batch.row_from(upto - count + 1))
            for row in range(lo, min(entry.hi, batch.row_from(upto + 1))):
                yield batch.subject(row), raw_record(batch.records, row), home

    def _drop_old(self, newest: int) -> None:
        while self._entries:
            first = self._entries[0]
            last = (
                first.subject.offset
                if isinstance(first, AlteredMessage)
                else first.batch.offset(first.hi - 1)
            )
            if last > newest - self.length:
                return
            self._entries.popleft()
