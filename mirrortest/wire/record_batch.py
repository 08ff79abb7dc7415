"""Kafka's record batch format v2 as arrays: no object per record when building or reading.

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
"""Their offset deltas have at most four bytes. Far fewer records fit into a batch."""


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """The records of one or more batches, one element each; positions are bytes into `buffer`.

    A length of -1 is null. A record's header section begins with its header count. Timestamps are
    in ms since the epoch: the producer's or, with LogAppendTime, the broker's.
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
        """The header section of one record, as `parse_headers` reads it."""
        start = int(self.headers_start[index])
        return self.buffer[start : start + int(self.headers_len[index])].tobytes()

    def _bytes(self, start: int, length: int) -> bytes | None:
        return None if length < 0 else self.buffer[start : start + length].tobytes()


def record_size(key: bytes, value_size: int, after: int, offset_delta: int) -> int:
    """Bytes of a record with this key; `after` is the bytes of its header section."""
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
    """Build an uncompressed batch of `count` records with one key and one timestamp.

    `sizes` is the bytes of each value, or of all of them. A value is `head`, then its fill from
    `window`; if the value is shorter than `head`, `head` is cut off. `after` is the header section
    of every record. `numbers` (position, digits, column) overwrite parts of `head` and `after` with
    each record's number, as ASCII digits or, with 0 digits, as a little-endian 64-bit word;
    positions count through `head` and then `after`. The batch has no producer and no CRC until it
    is sealed. Raises ValueError for no record, or for more than a batch can have.
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
    """The batch with compressed records; the batch itself if that saves nothing."""
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
    """Write Kafka's producer id, epoch and base sequence into a batch, and then its CRC."""
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

    Records are not copied, and the CRC is not checked. Raises MalformedBatchError, also for
    compressed records.
    """
    return decode_batches([buffer])


def decode_batches(buffers: Sequence[Buffer]) -> RecordArrays:
    """Read the records of several batches of one partition as if they were one batch.

    So the fixed cost of the arrays is paid once. Each buffer is as for `decode_records`; there is
    at least one. Buffers that share one memory, as those of a fetch response do, are read in place;
    others are copied into one buffer. Raises MalformedBatchError.
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
    """The memory that all parts share; None if they do not share one."""
    memory = parts[0].obj
    if any(part.obj is not memory for part in parts):
        return None
    return memoryview(memory).cast("B")
