"""The header of Kafka's record batch format v2: 61 bytes, all integers big-endian.

::

     0 base offset i64       23 last offset delta i32    51 producer epoch i16
     8 length i32 (from 12)  27 first timestamp i64      53 base sequence i32
    12 leader epoch i32      35 max timestamp i64        57 record count i32
    16 magic i8 = 2          43 producer id i64          61 records
    17 CRC-32C u32 (from 21)
    21 attributes i16: codec 0-7 | 8 log append time | 16 transactional | 32 control
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mirrortest.wire.varint import MalformedBatchError

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = struct.Struct(">qiibIhiqqqhii")
PRODUCER = struct.Struct(">qhi")
LENGTH_FROM = 12
CRC_AT, CRC_FROM = 17, 21
ATTRIBUTES_AT = 21
PRODUCER_AT = 43


class BatchHeader(NamedTuple):
    """The header of a batch, field by field."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def codec(self) -> int:
        """How the records are compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamped the records when it appended them."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch holds a transaction marker and no records for anyone."""
        return bool(self.attributes & CONTROL)

    @property
    def next_offset(self) -> int:
        """The offset after the batch, records there or compacted away."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch as it came over the wire."""
        return self.length + LENGTH_FROM


def read_header(buffer: Buffer) -> BatchHeader:
    """Read the header of a batch. Raises MalformedBatchError where it is none of format v2."""
    if len(buffer) < HEADER_SIZE:
        raise MalformedBatchError(f"a batch of {len(buffer)} bytes has no header")
    header = BatchHeader._make(HEADER.unpack_from(buffer))
    if header.magic != MAGIC:
        raise MalformedBatchError(f"batch format {header.magic} is not {MAGIC}")
    if header.records < 0:
        raise MalformedBatchError(f"a batch of {header.records} records")
    return header
