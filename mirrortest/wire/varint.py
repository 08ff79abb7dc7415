"""Zigzag varints, as in Kafka's records."""

from __future__ import annotations

from functools import lru_cache

Buffer = bytes | bytearray | memoryview

_MAX_BYTES = 10
_MASK = (1 << 64) - 1


class MalformedBatchError(ValueError):
    """Bytes that are not a record batch; the text names the place of the error."""


@lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """The zigzag varint of a signed 64-bit number."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it. Raises MalformedBatchError."""
    result = 0
    try:
        for shift in range(0, 7 * _MAX_BYTES, 7):
            byte = buffer[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                result &= _MASK
                return (result >> 1) ^ -(result & 1), position
    except IndexError:
        raise MalformedBatchError("a number goes beyond the end") from None
    raise MalformedBatchError("a number of more than ten bytes")
