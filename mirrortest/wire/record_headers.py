"""The header section of a record: a count, then names and nullable values."""

from __future__ import annotations

from mirrortest.wire.varint import MalformedBatchError, read_varint


def parse_headers(raw: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """Read a record's header section. A name that is no UTF-8 is read with replacements.

    Raises MalformedBatchError where the structure does not hold.
    """
    return tuple(
        (raw[name_lo:name_hi].decode(errors="replace"), None if lo < 0 else raw[lo:hi])
        for name_lo, name_hi, lo, hi in header_spans(raw)
    )


def header_spans(raw: bytes) -> list[tuple[int, int, int, int]]:
    """Where each header's name and value stand, half-open; (-1, -1) for a null value.

    Raises MalformedBatchError where the structure does not hold.
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
