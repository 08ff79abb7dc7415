"""Decodes batches of messages, with the same result as `message.decode` of every record.

A compiled loop reads all records with the same layout (and producer id) together, then those with
the next layout. The rest is read one by one: foreign messages, the ancestor's, and rare layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire import message_columns
from mirrortest.wire.descriptor import identity_hash
from mirrortest.wire.digests import digests
from mirrortest.wire.digits import SEQ_DIGITS, TIME_DIGITS
from mirrortest.wire.form import HEADER_NAMES, ID, PROOF, SEQ, TIME
from mirrortest.wire.message import FIXED_HEADER, Record, decode
from mirrortest.wire.payload import GENERATORS, OWN, Generator, block, phase_of
from mirrortest.wire.single_records import header_spans, parse_headers
from mirrortest.wire.stream import ProducerId
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.wire.record_batch import RecordArrays

MIN_GROUP = 16
"""From this many records on, reading those of one layout together is faster."""
_SINGLE_COST = 500
"""Reading one record by itself takes as long as this many comparisons without a match."""
_MAX_MISSES = 32
"""After this many comparisons without a match per record, the rest is read one by one."""
_SCATTER = 0x9E3779B1
"""Its multiples modulo any number are spread evenly (Knuth's multiplicative hashing)."""
_MAX_STEP = 8
"""Among foreign records, at most this many are read one by one before the next attempt."""
_LONGEST_ID = 100
"""More bytes than an id can have: 64 of name, 16 of run, 9 digits, 2 separators."""

_GENERATORS = {**GENERATORS, OWN.number: OWN}

Span = tuple[int, int]
"""(offset, number of bytes)"""


class Layout(NamedTuple):
    """The positions of a record's parts, and what all records of this layout have in common.

    Their header sections have the same length and the same bytes in `constants`. Their values have
    the same first `opening` bytes. In body form, their values have at least `fill_at` bytes, and
    exactly that many without a descriptor. Offsets count from the start of the value in body form,
    and of the header section in header form; `fill_at` counts from the value in both. Without a
    descriptor (unproven), `proof_at` and `generator` are None.
    """

    in_headers: bool
    id: ProducerId
    raw_id: bytes
    opening: int
    seq_at: int
    time_at: int
    proof_at: int | None
    generator: Generator | None
    fill_at: int
    altered: Finding
    constants: list[Span]


@dataclass(frozen=True, slots=True)
class MessageArrays:
    """The messages of one or more batches, one element each, in their order.

    `id_index` points into `ids`, which may contain unused ids. `id_index`, `lane` and `seq` are -1
    if the message is in no stream: foreign, or corrupted with an unknown id. `intended_ns` and
    `sent_ns` are 0 if no trustworthy field has them. Without a descriptor, `source_partition` is -1
    and `destination_partitions` 0. `findings` are bits of `Finding`.
    """

    ids: list[ProducerId]
    id_index: NDArray[np.int32]
    lane: NDArray[np.int64]
    seq: NDArray[np.int64]
    offset: NDArray[np.int64]
    intended_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    source_partition: NDArray[np.int32]
    destination_partitions: NDArray[np.int32]
    findings: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def unread(cls, offset: NDArray[np.int64]) -> MessageArrays:
        """Arrays for the messages at these offsets, to be filled in."""
        count = len(offset)
        return cls(
            [],
            np.full(count, -1, np.int32),
            np.full(count, -1, np.int64),
            np.full(count, -1, np.int64),
            offset,
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.full(count, -1, np.int32),
            np.zeros(count, np.int32),
            np.zeros(count, np.uint32),
        )


def _block(generator: Generator | None, largest: int) -> bytes:
    """The block with which fills of at most `largest` bytes are compared."""
    return b"" if generator is None or generator is OWN else block(generator, largest)


def record_at(records: RecordArrays, row: int, errors: str = "replace") -> Record | None:
    """The record at `row`; None if its headers cannot be read.

    `errors` is for header names that are not UTF-8, as in `bytes.decode`.
    """
    try:
        headers = parse_headers(records.raw_headers(row), errors)
    except MalformedBatchError:
        return None
    stamp = int(records.timestamps[row])
    return Record(records.key(row), records.value(row), headers, stamp)


@dataclass(slots=True)
class BatchDecoder:
    """Decodes batches of the copy of one source topic. No content of a record makes it raise."""

    topic: str
    min_group: int = MIN_GROUP
    _index: dict[ProducerId, int] = field(default_factory=dict, init=False, repr=False)

    def decode(self, records: RecordArrays) -> MessageArrays:
        """Decode the records of one batch or of several."""
        messages = MessageArrays.unread(records.offsets)
        self._index = {}
        largest = int(records.value_len.max(initial=0))
        rows = np.arange(len(records))
        proven: NDArray[np.uint64] | None = None
        misses, step, probe = 0, 1, 0
        while len(rows) >= self.min_group and misses < _MAX_MISSES * len(records):
            # Spread attempts soon hit a frequent layout, wherever its records are.
            probe += _SCATTER
            at = probe % len(rows)
            row = int(rows[at])
            layout = layout_of(records, row)
            others = rows
            if layout is not None:
                if layout.generator is OWN and proven is None:
                    proven = digests(records.buffer, records.value_start, records.value_len)
                others = message_columns.read(
                    records,
                    rows,
                    row,
                    layout,
                    identity_hash(self.topic, layout.raw_id),
                    partial(phase_of, self.topic, layout.raw_id),
                    _block(layout.generator, largest),
                    proven,
                    self.index_of(layout.id),
                    messages,
                )
            taken = len(rows) - len(others)
            if taken:
                misses += max(0, len(rows) - _SINGLE_COST * taken)
                rows, step = others, 1
                continue
            for each in rows[at : at + step].tolist():
                self._decode_one(records, each, messages)
            rows = np.concatenate((rows[:at], rows[at + step :]))
            step = min(2 * step, _MAX_STEP)
        for row in rows.tolist():
            self._decode_one(records, row, messages)
        messages.ids.extend(self._index)
        return messages

    def _decode_one(self, records: RecordArrays, row: int, messages: MessageArrays) -> None:
        record = record_at(records, row)
        if record is None:
            messages.findings[row] = Finding.FOREIGN
            return
        decoded = decode(record, self.topic)
        messages.findings[row] = decoded.findings
        if decoded.id is None or decoded.lane is None or decoded.seq is None:
            return
        messages.id_index[row] = self.index_of(decoded.id)
        messages.lane[row] = decoded.lane
        messages.seq[row] = decoded.seq
        messages.intended_ns[row] = decoded.intended_ns or 0
        messages.sent_ns[row] = decoded.sent_ns or 0
        if decoded.source_partition is not None:
            messages.source_partition[row] = decoded.source_partition
        messages.destination_partitions[row] = decoded.destination_partitions or 0

    def index_of(self, producer_id: ProducerId) -> int:
        """The id's index in the table of this batch."""
        return self._index.setdefault(producer_id, len(self._index))


def layout_of(records: RecordArrays, row: int) -> Layout | None:
    """The layout of one record; None if the record must be read by itself."""
    raw = records.raw_headers(row)
    try:
        spans = header_spans(raw)
    except MalformedBatchError:
        return None
    names = [raw[name_lo:name_hi].decode(errors="replace") for name_lo, name_hi, _, _ in spans]
    values = {name: (lo, hi) for name, (_, _, lo, hi) in zip(names[::-1], spans[::-1], strict=True)}
    variable = {(lo, hi) for _, _, lo, hi in spans if lo >= 0}
    if ID not in values or SEQ not in values:
        return _of_body(records, row, _constants(raw, variable), bool(names))
    variable.discard(values[ID])
    return _of_headers(raw, names, values, _constants(raw, variable))


def _constants(raw: bytes, variable: set[tuple[int, int]]) -> list[Span]:
    """The parts of a header section between the values in `variable`."""
    constants: list[Span] = []
    position = 0
    for lo, hi in sorted(variable):
        constants.append((position, lo - position))
        position = hi
    constants.append((position, len(raw) - position))
    return constants


def _of_body(
    records: RecordArrays, row: int, constants: list[Span], has_headers: bool
) -> Layout | None:
    start, length = int(records.value_start[row]), int(records.value_len[row])
    if length < 0:
        return None
    opening = records.buffer[start : start + min(length, _LONGEST_ID)].tobytes()
    raw_id, semicolon, _ = opening.partition(b";")
    producer_id = ProducerId.parse(raw_id)
    if not semicolon or producer_id is None or not producer_id.run:
        return None
    header = len(raw_id) + FIXED_HEADER
    proven = length >= header + descriptors.SIZE
    opening = records.buffer[start + header : start + header + 2].tobytes()
    generator = _generator(opening) if proven else None
    if (generator is None and length != header) or generator is OWN:
        return None
    return Layout(
        in_headers=False,
        id=producer_id,
        raw_id=raw_id,
        opening=len(raw_id) + 1,
        seq_at=len(raw_id) + 1,
        time_at=len(raw_id) + SEQ_DIGITS + 2,
        proof_at=header if proven else None,
        generator=generator,
        fill_at=header + descriptors.SIZE if proven else header,
        altered=Finding.ALTERED_HEADERS if has_headers else Finding(0),
        constants=constants,
    )


def _generator(opening: bytes) -> Generator | None:
    """The generator of the descriptor with this opening; None if it is not a descriptor's."""
    return _GENERATORS[opening[1]] if opening in descriptors.OPENINGS else None


def _of_headers(
    raw: bytes,
    names: list[str],
    values: dict[str, tuple[int, int]],
    constants: list[Span],
) -> Layout | None:
    for name, width in ((SEQ, SEQ_DIGITS), (TIME, TIME_DIGITS), (PROOF, None)):
        lo, hi = values.get(name, (-1, -1))
        if lo < 0 or hi - lo != (width or descriptors.size_of(raw[lo:hi])):
            return None
    lo, hi = values[ID]
    producer_id = ProducerId.parse(raw[lo:hi]) if lo >= 0 else None
    if producer_id is None or not producer_id.run:
        return None
    proof_at = values[PROOF][0]
    return Layout(
        in_headers=True,
        id=producer_id,
        raw_id=raw[lo:hi],
        opening=0,
        seq_at=values[SEQ][0],
        time_at=values[TIME][0],
        proof_at=proof_at,
        generator=_generator(raw[proof_at : proof_at + 2]),
        fill_at=0,
        altered=Finding(0) if tuple(names) == HEADER_NAMES else Finding.ALTERED_HEADERS,
        constants=constants,
    )
