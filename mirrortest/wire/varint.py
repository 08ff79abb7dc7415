"""Zigzag varints, one or a whole array of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Buffer = bytes | bytearray | memoryview

_MAX_BYTES = 10
_MASK = (1 << 64) - 1


class MalformedBatchError(ValueError):
    """Bytes that are no record batch; the text says where the structure breaks."""


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


def read_varints(
    data: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers at `positions`, none of which may reach its end, and the positions after them.

    Raises MalformedBatchError.
    """
    if bool((positions >= ends).any()):
        raise MalformedBatchError("a record ends within its fields")
    byte = data[positions]
    after = positions + 1
    result = (byte & np.uint8(0x7F)).astype(np.uint64)
    open_ = np.flatnonzero(byte >= 0x80)
    for shift in range(7, 7 * _MAX_BYTES, 7):
        if not len(open_):
            break
        at = after[open_]
        if bool((at >= ends[open_]).any()):
            raise MalformedBatchError("a record ends within a number")
        byte = data[at]
        result[open_] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        after[open_] = at + 1
        open_ = open_[byte >= 0x80]
    if len(open_):
        raise MalformedBatchError("a number of more than ten bytes")
    magnitude = (result >> np.uint64(1)).view(np.int64)
    return magnitude ^ -(result & np.uint64(1)).view(np.int64), after
