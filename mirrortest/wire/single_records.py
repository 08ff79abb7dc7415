"""Single records: writes batches of any records, one by one, and reads header sections.

`batch.LaneEncoder` encodes batches of messages at once, at far lower cost. A header section is a
count, then names and nullable values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.wire.batch_header import HEADER, HEADER_SIZE, LENGTH_FROM, LOG_APPEND_TIME, MAGIC
from mirrortest.wire.varint import MalformedBatchError, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Headers = Sequence[tuple[str, bytes | None]]
    Row = tuple[int, int, bytes | None, bytes | None, Headers]
    """(offset, timestamp in ms, key, value, headers)"""

_NULL = varint(-1)
_ATTRIBUTES = b"\0"
"""Kafka uses no record attributes."""


def record_tail(
    key: bytes | None, value: bytes | None, headers: Headers, *, errors: str = "strict"
) -> bytes:
    """What follows a record's offset delta; `errors` is for header names that are not UTF-8."""
    parts = [
        _NULL if key is None else varint(len(key)) + key,
        _NULL if value is None else varint(len(value)) + value,
        varint(len(headers)),
    ]
    for name, content in headers:
        raw = name.encode(errors=errors)
        parts += (
            varint(len(raw)),
            raw,
            _NULL if content is None else varint(len(content)) + content,
        )
    return b"".join(parts)


def write_records(rows: Iterable[Row], *, log_append_time: bool = False) -> bytearray:
    """Build an uncompressed batch of a partition's records; there is at least one.

    Offsets must ascend, and may have gaps. With `log_append_time`, all rows have the same
    timestamp, the broker's. The batch has no producer and no CRC.
    """
    pieces: list[bytes] = [bytes(HEADER_SIZE)]
    base = first = -1
    newest = last = -1
    for offset, timestamp, key, value, headers in rows:
        if len(pieces) == 1:
            base, first, newest = offset, timestamp, timestamp
        tail = record_tail(key, value, headers)
        opening = _ATTRIBUTES + varint(timestamp - first) + varint(offset - base)
        pieces += (varint(len(opening) + len(tail)), opening, tail)
        newest, last = max(newest, timestamp), offset
    if len(pieces) == 1:
        raise ValueError("a batch has at least one record")
    buffer = bytearray().join(pieces)
    HEADER.pack_into(
        buffer, 0, base, len(buffer) - LENGTH_FROM, -1, MAGIC, 0,
        LOG_APPEND_TIME if log_append_time else 0, last - base,
        first, newest, -1, -1, -1, len(pieces) // 3,
    )  # fmt: skip
    return buffer


def parse_headers(raw: bytes, errors: str = "replace") -> tuple[tuple[str, bytes | None], ...]:
    """Read a record's header section. `errors` is for names that are not UTF-8.

    Raises MalformedBatchError.
    """
    return tuple(
        (raw[name_lo:name_hi].decode(errors=errors), None if lo < 0 else raw[lo:hi])
        for name_lo, name_hi, lo, hi in header_spans(raw)
    )


def header_spans(raw: bytes) -> list[tuple[int, int, int, int]]:
    """The positions of each header's name and value, half-open; (-1, -1) for a null value.

    Raises MalformedBatchError.
    """
    count, position = read_varint(raw, 0)
    if not 0 <= count <= len(raw):
        raise MalformedBatchError(f"a record of {count} headers")
    spans: list[tuple[int, int, int, int]] = []
    for _ in range(count):
        length, name_lo = read_varint(raw, position)
        name_hi = name_lo + length
        if length < 0 or name_hi > len(raw):
            raise MalformedBatchError("a header's name goes beyond its record")
        length, lo = read_varint(raw, name_hi)
        position = lo + max(length, 0)
        if position > len(raw):
            raise MalformedBatchError("a header's value goes beyond its record")
        spans.append((name_lo, name_hi, *((-1, -1) if length < 0 else (lo, position))))
    if position != len(raw):
        raise MalformedBatchError("bytes after the last header of a record")
    return spans
