"""Columns of many records at once: the bytes at one distance from each of many positions.

Where the positions lie at one stride, a column is a view and costs next to nothing; where they do
not, it is gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)
# One comparison takes this many bytes at most, a power of two each, greatest first.
_WORDS = tuple((np.dtype(f"<u{width}"), width) for width in (8, 4, 2, 1))


class Columns:
    """Bytes of `data`, seen from each of `starts` (int64 positions, at least one)."""

    def __init__(self, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self._data = data
        self._starts = starts
        self._first = int(starts[0])
        step = int(starts[1]) - self._first if len(starts) > 1 else 1
        regular = step > 0 and (len(starts) < 3 or bool((np.diff(starts) == step).all()))
        self._stride = step if regular else 0

    def words(self, offset: int) -> NDArray[np.uint64]:
        """The little-endian 64-bit words at `offset`: a copy."""
        return self._column(offset, np.dtype("<u8"), 8).astype(np.uint64)

    def bytes_at(self, offset: int) -> NDArray[np.uint8]:
        """The bytes at `offset`."""
        return self._column(offset, np.dtype("u1"), 1).astype(np.uint8, copy=False)

    def rows(self, offset: int, width: int, lo: int, hi: int) -> NDArray[np.uint8]:
        """The `width` bytes at `offset` of the positions lo to hi: (hi - lo, width)."""
        if self._stride:
            start = self._first + lo * self._stride + offset
            return np.ndarray((hi - lo, width), np.uint8, self._data, start, (self._stride, 1))
        every: NDArray[np.uint8]
        every = np.ndarray((len(self._data) - width + 1, width), np.uint8, self._data, 0, (1, 1))
        return every[self._starts[lo:hi] + offset]

    def equal(self, offset: int, expected: bytes) -> NDArray[np.bool_]:
        """Where exactly these bytes stand at `offset`."""
        same = np.ones(len(self._starts), np.bool_)
        position = 0
        for dtype, width in _WORDS:
            while len(expected) - position >= width:
                word = np.frombuffer(expected, dtype, 1, position)[0]
                same &= self._column(offset + position, dtype, width) == word
                position += width
        return same

    def _column(self, offset: int, dtype: np.dtype[_T], width: int) -> NDArray[_T]:
        data = self._data
        if self._stride:
            shape = (len(self._starts),)
            return np.ndarray(shape, dtype, data, self._first + offset, (self._stride,))
        every: NDArray[_T] = np.ndarray((len(data) - width + 1,), dtype, data, 0, (1,))
        return every[self._starts + offset]
