"""Record batches as simulated brokers store them: Kafka's bytes, and their messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mirrortest.wire import record_batch
from mirrortest.wire.batch_header import (
    ATTRIBUTES_AT,
    CONTROL,
    LOG_APPEND_TIME,
    PRODUCER_AT,
    TRANSACTIONAL,
)
from mirrortest.wire.single_records import parse_headers, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PREFIX = struct.Struct(">qii")
_DELTA = struct.Struct(">i")
_DELTA_AT = 23
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_PRODUCER = struct.Struct(">qhi")
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.pack(">hi", 0, 0)
NO_PRODUCER = -1

Row: TypeAlias = "tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]"
"""(offset, timestamp in ms, key, value, headers)"""


class MessageId(NamedTuple):
    """Identifies a message, however many copies it has: its topic, sender, lane and seq.

    `sender` is the id as messages carry it: NAME@RUN.INCARNATION.
    """

    topic: str
    sender: str
    lane: int
    seq: int


@dataclass(slots=True, eq=False)
class Record:
    """One record at its offset, from when readers can see it to its removal, in virtual ns.

    `message` is None if the record is not a producer's message. `removed_by` is the cause of its
    removal; `aborted` is None while its transaction is open. `once_more`: a fault appended an old
    record again, and no application wrote it then.
    """

    offset: int
    key: bytes | None
    message: MessageId | None
    born_ns: int = 0
    removed_ns: int | None = None
    removed_by: str = ""
    aborted: bool | None = False
    once_more: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """A record batch: `raw` carries base offset and leader epoch; offsets are [base, next)."""

    raw: bytes
    base: int
    next: int
    epoch: int
    records: list[Record]
    producer: int = NO_PRODUCER
    sequence: int = -1
    transactional: bool = False
    control: bool = False
    stamped: bool = False
    """Whether all its records have the broker's timestamp (LogAppendTime)."""
    rows: list[Row] = field(default_factory=list)
    """The decoded records; empty until they are needed."""


def placed(
    raw: bytes | bytearray | memoryview,
    base: int,
    epoch: int,
    records: list[Record],
    *,
    next_offset: int,
) -> Batch:
    """A batch with the offset and leader epoch that the broker sets; the CRC covers neither."""
    batch_bytes = bytearray(raw)
    _, length, _ = _PREFIX.unpack_from(batch_bytes)
    _PREFIX.pack_into(batch_bytes, 0, base, length, epoch)
    (attributes,) = _ATTRIBUTES.unpack_from(batch_bytes, ATTRIBUTES_AT)
    producer, _, sequence = _PRODUCER.unpack_from(batch_bytes, PRODUCER_AT)
    return Batch(
        bytes(batch_bytes),
        base,
        next_offset,
        epoch,
        records,
        producer,
        sequence,
        bool(attributes & TRANSACTIONAL),
        bool(attributes & CONTROL),
        bool(attributes & LOG_APPEND_TIME),
    )


def stamped(raw: bytes | bytearray | memoryview, at_ms: int) -> bytearray:
    """A batch with the broker's timestamp for all records (LogAppendTime)."""
    batch_bytes = bytearray(raw)
    (attributes,) = _ATTRIBUTES.unpack_from(batch_bytes, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch_bytes, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch_bytes, _MAX_TIMESTAMP_AT, at_ms)
    producer, epoch, sequence = _PRODUCER.unpack_from(batch_bytes, PRODUCER_AT)
    transactional = bool(attributes & TRANSACTIONAL)
    record_batch.seal(batch_bytes, producer, epoch, sequence, transactional=transactional)
    return batch_bytes


def rows_of_raw(raw: bytes | bytearray | memoryview) -> list[Row]:
    """The records of a batch's bytes."""
    found = record_batch.decode_records(raw)
    return [
        (
            int(found.offsets[at]),
            int(found.timestamps[at]),
            found.key(at),
            found.value(at),
            list(parse_headers(found.raw_headers(at))),
        )
        for at in range(len(found))
    ]


def rows_of(batch: Batch) -> list[Row]:
    """A batch's records, with their offsets."""
    if not batch.rows:
        batch.rows = rows_of_raw(batch.raw)
    return batch.rows


def encoded(
    rows: Sequence[tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]],
    *,
    producer: int = NO_PRODUCER,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A sealed batch of (timestamp in ms, key, value, headers); its offsets begin at 0."""
    raw = write_records((at, *row) for at, row in enumerate(rows))
    record_batch.seal(raw, producer, 0, sequence, transactional=transactional)
    return raw


def marker(producer: int, *, commit: bool, timestamp_ms: int) -> bytearray:
    """The control batch that ends a transaction."""
    raw = write_records([(0, timestamp_ms, _MARKER_KEY.pack(0, int(commit)), _MARKER_VALUE, ())])
    _ATTRIBUTES.pack_into(raw, ATTRIBUTES_AT, CONTROL | TRANSACTIONAL)
    record_batch.seal(raw, producer, 0, -1, transactional=True)
    return raw


def thinned(batch: Batch, keep: Callable[[Record], bool]) -> Batch | None:
    """A batch after compaction: remaining records keep their offsets. None if none remain."""
    kept = [record for record in batch.records if keep(record)]
    if len(kept) == len(batch.records):
        return batch
    if not kept:
        return None
    offsets = {record.offset for record in kept}
    raw = write_records(row for row in rows_of(batch) if row[0] in offsets)
    base = kept[0].offset
    _DELTA.pack_into(raw, _DELTA_AT, batch.next - 1 - base)
    (attributes,) = _ATTRIBUTES.unpack_from(batch.raw, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(raw, ATTRIBUTES_AT, attributes)
    record_batch.seal(
        raw, batch.producer, 0, batch.sequence, transactional=bool(attributes & TRANSACTIONAL)
    )
    return placed(raw, base, batch.epoch, kept, next_offset=batch.next)
