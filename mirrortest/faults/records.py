"""Records to copy: the bytes after a record's offset delta are copied unchanged.

Only a record that an act changes is decoded and encoded again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.wire import batch_decoder
from mirrortest.wire.batch import EncodedBatch
from mirrortest.wire.batch_header import HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC
from mirrortest.wire.form import ID, SEQ, Form
from mirrortest.wire.single_records import record_tail
from mirrortest.wire.varint import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.wire.message import Record
    from mirrortest.wire.record_batch import RecordArrays

# A header name that is not UTF-8 is written as the same bytes.
_NON_UTF8 = "surrogateescape"
_NO_HEADERS = 1
"""Size of a header section without headers, in bytes."""


class RawRecord(NamedTuple):
    """A record to write: its key, value and headers in Kafka's encoding, and its timestamp."""

    tail: bytes
    timestamp_ms: int

    def digest(self) -> bytes:
        """A digest of its content, without the timestamp: brokers can replace that."""
        return hashlib.blake2b(self.tail, digest_size=16).digest()


def raw_record(records: RecordArrays, row: int) -> RawRecord:
    """One record, unchanged."""
    start = int(records.key_start[row])
    end = int(records.headers_start[row] + records.headers_len[row])
    tail = varint(int(records.key_len[row])) + records.buffer[start:end].tobytes()
    return RawRecord(tail, int(records.timestamps[row]))


def record_at(records: RecordArrays, row: int) -> Record | None:
    """One record, decoded so that `encode_record` writes the same; None if it cannot be read."""
    return batch_decoder.record_at(records, row, errors=_NON_UTF8)


def form_of(record: Record) -> Form:
    """The form in which a record is read, whether or not it is a message."""
    names = {name for name, _ in record.headers}
    return Form.HEADERS if ID in names and SEQ in names else Form.BODY


def form_at(records: RecordArrays, row: int) -> Form:
    """The form in which a record is read."""
    if int(records.headers_len[row]) == _NO_HEADERS:
        return Form.BODY
    record = record_at(records, row)
    return Form.BODY if record is None else form_of(record)


def encode_record(record: Record) -> RawRecord:
    """A record in Kafka's encoding."""
    tail = record_tail(record.key, record.value, record.headers, errors=_NON_UTF8)
    return RawRecord(tail, record.timestamp_ms)


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRows:
    """Records that are copied unchanged: rows [lo, hi)."""

    records: RecordArrays
    lo: int
    hi: int

    def __len__(self) -> int:
        return self.hi - self.lo

    @property
    def size(self) -> int:
        """The number of bytes that are copied."""
        records, last = self.records, self.hi - 1
        end = int(records.headers_start[last] + records.headers_len[last])
        return end - int(records.key_start[self.lo])

    def cut(self, limit: int) -> Iterator[CopiedRows]:
        """The same in pieces of about `limit` bytes at most, each of at least one record."""
        pieces = -(-self.size // limit)
        step = max(1, len(self) // pieces)
        for lo in range(self.lo, self.hi, step):
            yield CopiedRows(self.records, lo, min(lo + step, self.hi))


def encode_batch(parts: Iterable[CopiedRows | RawRecord]) -> EncodedBatch:
    """One uncompressed batch of all these records, in their order; at least one."""
    stamps: list[int] = []
    pieces: list[bytes | memoryview] = [b""]
    first = 0
    for part in parts:
        if isinstance(part, RawRecord):
            first = first if stamps else part.timestamp_ms
            opening = _opening(part.timestamp_ms - first, len(stamps))
            pieces += (varint(len(opening) + len(part.tail)), opening, part.tail)
            stamps.append(part.timestamp_ms)
        else:
            first = first if stamps else int(part.records.timestamps[part.lo])
            _append_rows(pieces, stamps, part, first)
    pieces[0] = bytes(HEADER_SIZE)
    buffer = bytearray().join(pieces)
    count = len(stamps)
    HEADER.pack_into(
        buffer, 0, 0, len(buffer) - LENGTH_FROM, -1, MAGIC, 0, 0, count - 1,
        first, max(stamps), -1, -1, -1, count,
    )  # fmt: skip
    return EncodedBatch(memoryview(buffer), count)


def _opening(timestamp_delta: int, offset_delta: int) -> bytes:
    """Attributes, timestamp delta, offset delta."""
    return b"\0" + varint(timestamp_delta) + varint(offset_delta)


def _append_rows(
    pieces: list[bytes | memoryview], stamps: list[int], rows: CopiedRows, first: int
) -> None:
    records, where = rows.records, slice(rows.lo, rows.hi)
    view = records.buffer.data
    ends = records.headers_start[where] + records.headers_len[where]
    times = records.timestamps[where].tolist()
    columns = zip(
        times,
        records.key_len[where].tolist(),
        records.key_start[where].tolist(),
        ends.tolist(),
        strict=True,
    )
    number, put = len(stamps), pieces.extend
    for offset_delta, (stamp, key_len, start, end) in enumerate(columns, number):
        opening = b"\0" + varint(stamp - first) + varint(offset_delta) + varint(key_len)
        put((varint(len(opening) + end - start), opening, view[start:end]))
    stamps += times
