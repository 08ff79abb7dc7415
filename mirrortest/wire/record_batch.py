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
from mirrortest.wire.record_walk import record_starts, walk_sections
from mirrortest.wire.varint import MalformedBatchError, read_varints, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirrortest.wire.batch_header import Buffer

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

_LARGE_RECORD, _LARGE_BATCH = 1 << 9, 1 << 16
"""Bytes from which a copy costs more than to do with the gaps between batches."""
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
    pieces: Sequence[bytes | NDArray[np.uint8]],
    overlays: Sequence[tuple[int, NDArray[np.generic]]],
    count: int,
    timestamp_ms: int,
) -> memoryview:
    """Build an uncompressed batch of `count` records of one size and one timestamp.

    `pieces`, joined, are what follows the offset delta in every record: bytes that are the same in
    all, or a (count, width) array with a row for each. An overlay (position, column) then writes
    one element a record at that byte of the joined pieces. The batch has no producer and no CRC
    until it is sealed. Raises ValueError where there is no record.
    """
    if count < 1:
        raise ValueError("a batch has at least one record")
    widths = [len(piece) if isinstance(piece, bytes) else piece.shape[1] for piece in pieces]
    segments: list[tuple[int, int, int, bytes]] = []
    size, lo = HEADER_SIZE, 0
    for width, limit in enumerate(_WIDTH_LIMITS, start=1):
        # One timestamp for all keeps its delta at one byte; only the offset delta's width changes.
        hi = min(count, limit)
        if lo < hi:
            opening = varint(2 + width + sum(widths)) + b"\0\0"
            segments.append((lo, hi, width, opening))
            size += (hi - lo) * (len(opening) + width + sum(widths))
            lo = hi
    if lo < count:
        raise ValueError(f"{count} records are too many for a batch")
    # Every byte of it is written below: to fill it first would cost as much as sending it.
    buffer = np.empty(size, np.uint8).data
    position = HEADER_SIZE
    for lo, hi, width, opening in segments:
        stride = len(opening) + width + sum(widths)
        rows: NDArray[np.uint8] = np.ndarray((hi - lo, stride), np.uint8, buffer, position)
        rows[:, : len(opening)] = np.frombuffer(opening, np.uint8)
        _write_offset_deltas(rows[:, len(opening) : len(opening) + width], lo, hi)
        column = content = len(opening) + width
        for piece, piece_width in zip(pieces, widths, strict=True):
            if isinstance(piece, bytes):
                rows[:, column : column + piece_width] = np.frombuffer(piece, np.uint8)
            else:
                rows[:, column : column + piece_width] = piece[lo:hi]
            column += piece_width
        for offset, values in overlays:
            start = position + content + offset
            target: NDArray[np.generic] = np.ndarray(
                (hi - lo,), values.dtype, buffer, start, (stride,)
            )
            target[:] = values[lo:hi]
        position += (hi - lo) * stride
    HEADER.pack_into(
        buffer, 0, 0, size - LENGTH_FROM, -1, MAGIC, 0, 0, count - 1,
        timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    return buffer


def _write_offset_deltas(target: NDArray[np.uint8], lo: int, hi: int) -> None:
    zigzag = np.arange(2 * lo, 2 * hi, 2, dtype=np.uint32)
    width = target.shape[1]
    for byte in range(width):
        part = (zigzag >> np.uint32(7 * byte)) & np.uint32(0x7F)
        target[:, byte] = part if byte == width - 1 else part | np.uint32(0x80)


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
    header = read_header(buffer)
    if records is not None:
        return _decode([header], records, np.array([0]), ())
    _not_compressed(header)
    return _decode([header], buffer, np.array([HEADER_SIZE]), ())


def decode_batches(batches: Sequence[tuple[Buffer, Buffer | None]]) -> RecordArrays:
    """Read the records of several batches of one partition as if they were one.

    Each batch is what `decode_records` takes, and at least one is given. Small batches cost less
    so: their records are copied together, and the arrays' fixed cost is paid once. Large records
    that lie in one memory, as a response's do, are read where they are. Raises MalformedBatchError
    where the structure of one of them does not hold.
    """
    if len(batches) == 1:
        return decode_records(*batches[0])
    headers: list[BatchHeader] = []
    sections: list[memoryview] = []
    for buffer, records in batches:
        header = read_header(buffer)
        if records is None:
            _not_compressed(header)
            records = memoryview(buffer)[HEADER_SIZE:]  # noqa: PLW2901  # one meaning from here on
        headers.append(header)
        sections.append(memoryview(records))
    sizes = [len(section) for section in sections]
    count = sum(header.records for header in headers)
    large = sum(sizes) >= max(_LARGE_RECORD * count, _LARGE_BATCH * len(sizes))
    source = _shared(sections) if large else None
    if source is None:
        begins = np.cumsum([0, *sizes])[:-1]
        return _decode(headers, b"".join(sections), begins, sizes)
    begins = np.array([_address(section) for section in sections]) - _address(source)
    return _decode(headers, source, begins, sizes)


def _shared(sections: Sequence[memoryview]) -> memoryview | None:
    """The memory that all sections are parts of; None where there is none."""
    whole = sections[0].obj
    if any(section.obj is not whole for section in sections):
        return None
    return memoryview(whole).cast("B")


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def _not_compressed(header: BatchHeader) -> None:
    if header.codec:
        raise MalformedBatchError("the records are still compressed")


def _decode(
    headers: Sequence[BatchHeader],
    source: Buffer,
    begins: NDArray[np.int64],
    sizes: Sequence[int],
) -> RecordArrays:
    counts = [header.records for header in headers]
    data = np.frombuffer(source, np.uint8)
    if len(headers) == 1:
        starts, ends = record_starts(source, data, int(begins[0]), counts[0])
    else:
        starts, ends = walk_sections(data, begins, sizes, counts)
    timestamps, position = read_varints(data, starts + 1, ends)
    offsets, position = read_varints(data, position, ends)
    key_len, key_start = read_varints(data, position, ends)
    value_len, value_start = read_varints(data, _after(key_start, key_len, ends), ends)
    headers_start = _after(value_start, value_len, ends)
    if bool((headers_start >= ends).any()):
        raise MalformedBatchError("a record ends before its headers")
    offsets += np.repeat([header.base_offset for header in headers], counts)
    timestamps += np.repeat([header.first_timestamp for header in headers], counts)
    if any(header.log_append_time for header in headers):
        appended = np.repeat([header.log_append_time for header in headers], counts)
        stamps = np.repeat([header.max_timestamp for header in headers], counts)
        timestamps[appended] = stamps[appended]
    return RecordArrays(
        headers[0],
        data,
        offsets,
        timestamps,
        key_start,
        np.maximum(key_len, -1),
        value_start,
        np.maximum(value_len, -1),
        headers_start,
        ends - headers_start,
    )


def _after(
    start: NDArray[np.int64], length: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where a nullable field of that length ends."""
    # Compared before it is added: a hostile length must not overflow into a valid position.
    if bool((length > ends - start).any()):
        raise MalformedBatchError("a key or value goes beyond its record")
    return start + np.maximum(length, 0)
