"""Zigzag varints, one or a whole array of them, and the walk from record to record."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Buffer = bytes | bytearray | memoryview

_MAX_BYTES = 10
_MASK = (1 << 64) - 1
# A run of records of one length is looked for only after this many equal lengths in a row, so
# that a batch of mixed lengths does not pay for looking.
_PATIENCE = 4
_FIRST_LOOK = 64


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


def record_starts(
    buffer: Buffer, data: NDArray[np.uint8], begin: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the fields of each of `count` records start (after the length) and end.

    The walk goes by the records' lengths. Where one length repeats, the next record lies at a
    fixed stride, and a whole run is walked at once: if the length stands there again, it is the
    next one's, so the run is exact. Raises MalformedBatchError where the records do not fill the
    buffer exactly.
    """
    size = len(data)
    if count > size - begin:
        raise MalformedBatchError(f"{size - begin} bytes cannot hold {count} records")
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    position, index = begin, 0
    repeated, last = 0, -1
    look = _FIRST_LOOK
    while index < count:
        length, start = read_varint(buffer, position)
        end = start + length
        if length < 1 or end > size:
            raise MalformedBatchError(f"record {index} of {length} bytes does not fit its batch")
        repeated = repeated + 1 if length == last else 0
        last = length
        if repeated < _PATIENCE and index >= _PATIENCE:
            starts[index], ends[index] = start, end
            index += 1
            position = end
            continue
        stride = end - position
        possible = min(count - index, (size - position) // stride, look)
        run = _equal_lengths(data, position, start - position, stride, possible)
        starts[index : index + run] = np.arange(start, start + run * stride, stride)
        ends[index : index + run] = np.arange(end, end + run * stride, stride)
        index += run
        position += run * stride
        look = look * 4 if run == look else _FIRST_LOOK
        repeated = _PATIENCE if run == possible else 0
    if position != size:
        raise MalformedBatchError(f"{size - position} bytes after the last record")
    return starts, ends


def _equal_lengths(
    data: NDArray[np.uint8], position: int, width: int, stride: int, possible: int
) -> int:
    """How many records in a row, at least 1, have the bytes of the first one's length."""
    equal = np.ones(possible, np.bool_)
    for byte in range(position, position + width):
        column: NDArray[np.uint8] = np.ndarray((possible,), np.uint8, data.data, byte, (stride,))
        equal &= column == data[byte]
    return possible if bool(equal.all()) else int(equal.argmin())
