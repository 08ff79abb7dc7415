"""Kafka's record batch format v2 as arrays: a batch is built and read without one object a record.

A record, all lengths zigzag varints, -1 for null::

    length | attributes i8 | timestamp delta | offset delta | key | value | header count, headers
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import crc32c
import numpy as np

from mirrortest.wire import kernels
from mirrortest.wire.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_FROM,
    MAGIC,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from mirrortest.wire.record_headers import parse_headers
from mirrortest.wire.varint import MalformedBatchError, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirrortest.wire.batch_header import Buffer
    from mirrortest.wire.payload import Window

__all__ = [
    "CODEC_MASK",
    "HEADER_SIZE",
    "BatchHeader",
    "MalformedBatchError",
    "RecordArrays",
    "compress_records",
    "decode_batches",
    "decode_records",
    "encode_records",
    "parse_headers",
    "read_header",
    "record_size",
    "seal",
]

# Up to these offset deltas the varint has one, two, three, four bytes.
_WIDTH_LIMITS = (1 << 6, 1 << 13, 1 << 20, 1 << 27)


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """The records of one batch, or of several, an element each; positions are bytes into `buffer`.

    `header` is that of the first batch. Lengths are -1 for null. The header section of a record
    begins with its header count. All times are milliseconds since the epoch, as Kafka stamps them.
    """

    header: BatchHeader
    buffer: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    key_start: NDArray[np.int64]
    key_len: NDArray[np.int64]
    value_start: NDArray[np.int64]
    value_len: NDArray[np.int64]
    headers_start: NDArray[np.int64]
    headers_len: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def base_offset(self) -> int:
        """The offset that the batch's offset deltas count from."""
        return self.header.base_offset

    @property
    def timestamp_type(self) -> int:
        """0: the producer's time (CreateTime); 1: the broker's (LogAppendTime)."""
        return int(self.header.log_append_time)

    def from_offset(self, offset: int) -> RecordArrays:
        """Those records whose offset is not below `offset`: a fetch may begin within a batch."""
        if not len(self) or int(self.offsets.min()) >= offset:
            return self
        keep = self.offsets >= offset
        return RecordArrays(
            self.header,
            self.buffer,
            self.offsets[keep],
            self.timestamps[keep],
            self.key_start[keep],
            self.key_len[keep],
            self.value_start[keep],
            self.value_len[keep],
            self.headers_start[keep],
            self.headers_len[keep],
        )

    def key(self, index: int) -> bytes | None:
        """The key of one record."""
        return self._bytes(int(self.key_start[index]), int(self.key_len[index]))

    def value(self, index: int) -> bytes | None:
        """The value of one record."""
        return self._bytes(int(self.value_start[index]), int(self.value_len[index]))

    def raw_headers(self, index: int) -> bytes:
        """The header section of one record, for `parse_headers`."""
        start = int(self.headers_start[index])
        return self.buffer[start : start + int(self.headers_len[index])].tobytes()

    def _bytes(self, start: int, length: int) -> bytes | None:
        return None if length < 0 else self.buffer[start : start + length].tobytes()


def record_size(content: int, offset_delta: int) -> int:
    """Bytes of a record with `content` bytes after its offset delta."""
    body = 2 + len(varint(offset_delta)) + content
    return len(varint(body)) + body


def encode_records(
    before: bytes,
    window: Window | None,
    after: bytes,
    numbers: Sequence[tuple[int, int, NDArray[np.uint64]]],
    count: int,
    timestamp_ms: int,
) -> memoryview:
    """Build an uncompressed batch of `count` records of one size and one timestamp.

    What follows the offset delta in every record is `before`, a window that slides on by a byte a
    record, and `after`. Over it `numbers` are written (position in it, digits, column): a record's
    number as so many ASCII digits, or with 0 digits as a little-endian word of 64 bits. The batch
    has no producer and no CRC until it is sealed. Raises ValueError where there is no record.
    """
    if count < 1:
        raise ValueError("a batch has at least one record")
    block, start, width = window or (b"", 0, 0)
    content = len(before) + width + len(after)
    segments: list[tuple[int, int, int, bytes]] = []
    size, lo = HEADER_SIZE, 0
    for delta, limit in enumerate(_WIDTH_LIMITS, start=1):
        # One timestamp for all keeps its delta at one byte; only the offset delta's width changes.
        hi = min(count, limit)
        if lo < hi:
            opening = varint(2 + delta + content) + b"\0\0"
            segments.append((lo, hi, delta, opening))
            size += (hi - lo) * (len(opening) + delta + content)
            lo = hi
    if lo < count:
        raise ValueError(f"{count} records are too many for a batch")
    # Every byte is written below: to fill it first would cost as much as sending it.
    buffer = np.empty(size, np.uint8).data
    position = HEADER_SIZE
    for lo, hi, delta, opening in segments:
        begin = len(opening) + delta
        kernels.write_records(
            buffer,
            position,
            lo,
            hi - lo,
            opening + bytes(delta) + before + after,
            len(opening),
            delta,
            begin + len(before),
            block,
            start + lo,
            width,
            [(begin + at, digits, column) for at, digits, column in numbers],
        )
        position += (hi - lo) * (begin + content)
    HEADER.pack_into(
        buffer, 0, 0, size - LENGTH_FROM, -1, MAGIC, 0, 0, count - 1,
        timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    return buffer


def compress_records(
    buffer: memoryview, codec: int, compress: Callable[[bytes], bytes]
) -> memoryview:
    """The batch with its records compressed; the batch itself where that saves nothing."""
    compressed = compress(bytes(buffer[HEADER_SIZE:]))
    if HEADER_SIZE + len(compressed) >= len(buffer):
        return buffer
    smaller = bytearray(buffer[:HEADER_SIZE])
    smaller += compressed
    (attributes,) = struct.unpack_from(">h", smaller, ATTRIBUTES_AT)
    struct.pack_into(">h", smaller, ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    struct.pack_into(">i", smaller, 8, len(smaller) - LENGTH_FROM)
    return memoryview(smaller)


def seal(
    buffer: bytearray | memoryview,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    *,
    transactional: bool = False,
) -> None:
    """Write Kafka's producer state into a batch, and then the CRC, which covers it."""
    (attributes,) = struct.unpack_from(">h", buffer, ATTRIBUTES_AT)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    struct.pack_into(">h", buffer, ATTRIBUTES_AT, attributes)
    PRODUCER.pack_into(buffer, PRODUCER_AT, producer_id, epoch, base_sequence)
    with memoryview(buffer) as view:
        struct.pack_into(">I", buffer, CRC_AT, crc32c.crc32c(view[CRC_FROM:]))


def decode_records(buffer: Buffer, records: Buffer | None = None) -> RecordArrays:
    """Read the records of one batch.

    `buffer` is the whole batch. Where its records are compressed, `records` is that section,
    decompressed, and positions count from its beginning. Neither is copied, and the CRC is not
    looked at. Raises MalformedBatchError where the structure does not hold.
    """
    return decode_batches([(buffer, records)])


def decode_batches(batches: Sequence[tuple[Buffer, Buffer | None]]) -> RecordArrays:
    """Read the records of several batches of one partition as if they were one.

    Each batch is what `decode_records` takes, and at least one is given: the arrays' fixed cost is
    paid once. Records that lie in one memory, as a response's do, are read where they are; others
    are copied together. Raises MalformedBatchError where the structure of one of them does not
    hold.
    """
    headers: list[BatchHeader] = []
    sections: list[memoryview] = []
    for buffer, records in batches:
        header = read_header(buffer)
        if records is None:
            if header.codec:
                raise MalformedBatchError("the records are still compressed")
            records = memoryview(buffer)[HEADER_SIZE:]  # noqa: PLW2901  # one meaning from here on
        headers.append(header)
        sections.append(memoryview(records))
    sizes = np.array([len(section) for section in sections])
    source = _shared(sections)
    if source is None:
        source = memoryview(b"".join(sections))
        begins = np.cumsum(sizes) - sizes
    else:
        begins = kernels.places(source, sections)
    return _decode(headers, source, begins, begins + sizes)


def _shared(sections: Sequence[memoryview]) -> memoryview | None:
    """The memory that all sections are parts of; None where there is none."""
    whole = sections[0].obj
    if any(section.obj is not whole for section in sections):
        return None
    return memoryview(whole).cast("B")


def _decode(
    headers: Sequence[BatchHeader],
    source: memoryview,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> RecordArrays:
    counts = np.array([header.records for header in headers])
    fields = kernels.walk(source, begins, ends, counts)
    timestamps, offsets = fields[:2]
    offsets += np.repeat([header.base_offset for header in headers], counts)
    timestamps += np.repeat([header.first_timestamp for header in headers], counts)
    by_broker = [header.log_append_time for header in headers]
    if any(by_broker):
        appended = np.repeat(by_broker, counts)
        stamps = np.repeat([header.max_timestamp for header in headers], counts)
        timestamps[appended] = stamps[appended]
    return RecordArrays(
        headers[0], np.frombuffer(source, np.uint8), offsets, timestamps, *fields[2:]
    )
