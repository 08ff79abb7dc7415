"""The walk from record to record: where each one starts and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirrortest.wire.varint import MalformedBatchError, read_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Buffer = bytes | bytearray | memoryview

# A run of records of one length is looked for only after this many equal lengths in a row, so
# that a batch of mixed lengths does not pay for looking.
_PATIENCE = 4
_FIRST_LOOK = 64
_TEMPLATES = 4


def walk_sections(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    sizes: Sequence[int],
    counts: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the fields of each record start and end, of sections within `data`.

    A section has its beginning, its size in bytes and its count of records, which fill it
    exactly. Sections of one size and count mostly have records of the same lengths: one of
    them is walked, and where the others have its lengths in its places, they have its records.
    Raises MalformedBatchError.
    """
    rows = np.cumsum([0, *counts])
    starts, ends = np.empty(rows[-1], np.int64), np.empty(rows[-1], np.int64)
    alike: dict[tuple[int, int], list[int]] = {}
    for section, shape in enumerate(zip(sizes, counts, strict=True)):
        alike.setdefault(shape, []).append(section)
    view = data.data
    for (size, count), sections in alike.items():
        waiting = np.array(sections)
        templates = 0
        while len(waiting):
            begin = int(begins[waiting[0]])
            end = begin + size
            first, last = record_starts(view[begin:end], data[begin:end], 0, count)
            # Sections that are all different are walked one by one, without being compared.
            templates += 1
            others = waiting if templates <= _TEMPLATES else waiting[:1]
            same = np.zeros(len(waiting), np.bool_)
            same[: len(others)] = _same_lengths(data, begins[others], first, last)
            places = rows[waiting[same]][:, None] + np.arange(count)
            starts[places] = begins[waiting[same]][:, None] + first
            ends[places] = begins[waiting[same]][:, None] + last
            waiting = waiting[~same]
    return starts, ends


def _same_lengths(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which sections have the lengths of the first one's records, byte by byte, in its places."""
    same = np.ones(len(begins), np.bool_)
    if len(begins) == 1 or not len(starts):
        return same
    at = np.concatenate(([0], ends[:-1]))
    while len(at):
        found = data[begins[:, None] + at]
        same &= (found == found[0]).all(axis=1)
        at = at + 1
        inside = at < starts
        at, starts = at[inside], starts[inside]
    return same


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
