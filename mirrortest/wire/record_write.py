"""Records that are not of one size, written one by one: for those whose content came as objects.

`batch.LaneEncoder` writes whole batches of messages at once, and far cheaper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.wire.batch_header import HEADER, HEADER_SIZE, LENGTH_FROM, LOG_APPEND_TIME, MAGIC
from mirrortest.wire.varint import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Headers = Sequence[tuple[str, bytes | None]]
    Row = tuple[int, int, bytes | None, bytes | None, Headers]
    """(offset, timestamp in ms, key, value, headers)"""

_NULL = varint(-1)
_NONE = varint(0)
_PLAIN = b"\0"
"""A record's attributes: none is in use."""


def record_tail(
    key: bytes | None, value: bytes | None, headers: Headers, *, errors: str = "strict"
) -> bytes:
    """What follows a record's offset delta; `errors` is for names of headers that are no UTF-8."""
    parts = [
        _NULL if key is None else varint(len(key)) + key,
        _NULL if value is None else varint(len(value)) + value,
        varint(len(headers)) if headers else _NONE,
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
    """One uncompressed batch of records as they stand in a partition, at least one.

    Offsets rise, gaps included. With `log_append_time` the rows have one timestamp, the broker's.
    The batch has no producer and no CRC.
    """
    pieces: list[bytes] = [bytes(HEADER_SIZE)]
    base = first = -1
    newest = last = -1
    for offset, timestamp, key, value, headers in rows:
        if len(pieces) == 1:
            base, first, newest = offset, timestamp, timestamp
        tail = record_tail(key, value, headers)
        opening = _PLAIN + varint(timestamp - first) + varint(offset - base)
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
