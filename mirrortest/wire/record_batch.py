"""Kafka's record batch format v2 as arrays: a batch is built and read without one object a record.

A record, all lengths zigzag varints, -1 for null::

    length | attributes i8 | timestamp delta | offset delta | key | value | header count, headers
"""

from __future__ import annotations

import struct
from array import array
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
    LENGTH_AT,
    LENGTH_FROM,
    MAGIC,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL,
)
from mirrortest.wire.varint import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirrortest.wire.batch_header import Buffer
    from mirrortest.wire.payload import Window


_MOST_RECORDS = 1 << 27
"""Their offset deltas have at most four bytes; far fewer fit into a batch."""


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """The records of one batch, or of several, an element each; positions are bytes into `buffer`.

    Lengths are -1 for null. The header section of a record begins with its header count. All times
    are milliseconds since the epoch, as Kafka stamps them: the producer's, or the broker's.
    """

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

    def from_offset(self, offset: int) -> RecordArrays:
        """The records from `offset` on: a fetch may begin within a batch."""
        if not len(self) or int(self.offsets.min()) >= offset:
            return self
        keep = self.offsets >= offset
        return RecordArrays(
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


def record_size(key: bytes, value_size: int, after: int, offset_delta: int) -> int:
    """Bytes of a record with this key, and so many of value and of header section."""
    body = 2 + len(varint(offset_delta)) + len(varint(len(key))) + len(key)
    body += len(varint(value_size)) + value_size + after
    return len(varint(body)) + body


def encode_records(
    key: bytes,
    head: bytes,
    window: Window | None,
    after: bytes,
    sizes: int | NDArray[np.int64],
    numbers: Sequence[tuple[int, int, NDArray[np.uint64]]],
    count: int,
    timestamp_ms: int,
) -> memoryview:
    """Build an uncompressed batch of `count` records of one key and one timestamp.

    `sizes` is bytes of each value, or of all of them. A value is `head`, then as the
    window says; one that is smaller is cut off. `after` is every record's header
    section. `numbers` (position in head and `after`, digits, column) overwrite both: a record's
    number as so many ASCII digits, or with 0 digits as a little-endian word of 64 bits. The batch
    has no producer and no CRC until it is sealed. Raises ValueError without a record, or with more
    than a batch can have.
    """
    if count < 1:
        raise ValueError("a batch has at least one record")
    if count > _MOST_RECORDS:
        raise ValueError(f"{count} records are too many for a batch")
    buffer = kernels.encode_records(
        HEADER_SIZE,
        varint(len(key)) + key,
        head,
        after,
        np.array([sizes]) if isinstance(sizes, int) else sizes,
        count,
        list(numbers),
        *(window or (b"", array("q"), 0, 0, 0)),
    )
    HEADER.pack_into(
        buffer, 0, 0, len(buffer) - LENGTH_FROM, -1, MAGIC, 0, 0, count - 1,
        timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    return buffer


def compress_records(
    buffer: memoryview, codec: int, compress: Callable[[bytes], bytes]
) -> memoryview:
    """The batch with compressed records; the batch itself where that saves nothing."""
    compressed = compress(bytes(buffer[HEADER_SIZE:]))
    if HEADER_SIZE + len(compressed) >= len(buffer):
        return buffer
    smaller = bytearray(buffer[:HEADER_SIZE])
    smaller += compressed
    _set_codec(smaller, codec)
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


def decompressed(batch: Buffer, records: bytes) -> bytearray:
    """The batch with these uncompressed records; the CRC is not updated."""
    uncompressed = bytearray(memoryview(batch)[:HEADER_SIZE])
    uncompressed += records
    _set_codec(uncompressed, 0)
    return uncompressed


def _set_codec(batch: bytearray, codec: int) -> None:
    """Set the length and the codec in a batch's header."""
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - LENGTH_FROM)


def decode_records(buffer: Buffer) -> RecordArrays:
    """Read the records of one batch, or of several in a row.

    They are not copied, and no CRC is checked. Raises MalformedBatchError, also where the records
    are compressed.
    """
    return decode_batches([buffer])


def decode_batches(buffers: Sequence[Buffer]) -> RecordArrays:
    """Read the records of several batches of one partition as if they were one.

    Each buffer is what `decode_records` takes, and at least one is given: the arrays' fixed cost is
    paid once. Buffers that share one memory, as a response's do, are read in place; others are
    copied together. Raises MalformedBatchError.
    """
    parts = [memoryview(buffer) for buffer in buffers]
    sizes = np.array([len(part) for part in parts])
    source = _shared(parts)
    if source is None:
        source = memoryview(b"".join(parts))
        begins = np.cumsum(sizes) - sizes
    else:
        begins = kernels.places(source, parts)
    fields = kernels.walk(source, begins, begins + sizes)
    return RecordArrays(np.frombuffer(source, np.uint8), *fields)


def _shared(parts: Sequence[memoryview]) -> memoryview | None:
    """The memory that all parts share; else None."""
    memory = parts[0].obj
    if any(part.obj is not memory for part in parts):
        return None
    return memoryview(memory).cast("B")
