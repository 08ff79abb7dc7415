"""Columns of many records at once: the bytes at one distance from each of many positions.

Where the positions lie at one stride, a column is a view and costs next to nothing; where they do
not, it is gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = bytes | NDArray[np.uint8]

_T = TypeVar("_T", bound=np.generic)
# One comparison takes this many bytes at most, a power of two each, greatest first.
_WORDS = tuple((np.dtype(f"<u{width}"), width) for width in (8, 4, 2, 1))


# More changes of the stride than this, and gathering is quicker than many small views.
_MOST_RUNS = 12
# So far apart, each column would fetch its bytes from memory anew: a copy fetches them once.
_FAR = 512


def rows_at(data: Bytes, starts: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """The `width` bytes of `data` from each of `starts` on: a (starts, width) copy.

    An element of `width` bytes is copied in one go, and rows that stand one behind the other are
    compared twice as fast as rows at a stride, so that this is never slower than a view.
    """
    count = len(data) - width + 1
    every: NDArray[np.void] = np.ndarray((count,), f"V{width}", data, 0, (1,))
    return every[starts].view(np.uint8).reshape(len(starts), width)


class Columns:
    """Bytes of `data`, seen from each of `starts` (ascending int64 positions, at least one).

    `span` is how many bytes from a start on will be asked for, where that is known.
    """

    def __init__(self, data: NDArray[np.uint8], starts: NDArray[np.int64], span: int = 0) -> None:
        self._data = data
        self._starts = starts
        self._runs = _regular_runs(starts)
        far = int(starts[-1] - starts[0]) > _FAR * len(starts)
        if span and (far or not self._runs):
            self._data = rows_at(data, starts, span).reshape(-1)
            self._starts = np.arange(0, len(starts) * span, span)
            self._runs = [(0, len(starts), 0, span)]

    def words(self, offsets: Sequence[int]) -> NDArray[np.uint64]:
        """The little-endian 64-bit words at each of `offsets`: (offsets, positions), a copy."""
        words = np.empty((len(offsets), len(self._starts)), np.uint64)
        for row, offset in zip(words, offsets, strict=True):
            row[:] = self._column(offset, np.dtype("<u8"), 8)
        return words

    def bytes_at(self, offset: int) -> NDArray[np.uint8]:
        """The bytes at `offset`."""
        return self._column(offset, np.dtype(np.uint8), 1)

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
        data, runs = self._data, self._runs
        if not runs:
            every: NDArray[_T] = np.ndarray((len(data) - width + 1,), dtype, data, 0, (1,))
            return every[self._starts + offset]
        views: list[NDArray[_T]] = [
            np.ndarray((hi - lo,), dtype, data, first + offset, (stride,))
            for lo, hi, first, stride in runs
        ]
        return views[0] if len(views) == 1 else np.concatenate(views)


def _regular_runs(starts: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
    """Runs (lo, hi, first position, stride) of equal stride; none where they are too many."""
    steps = np.diff(starts)
    changes = np.flatnonzero(np.diff(steps))
    if len(changes) > 2 * _MOST_RUNS:
        return []
    runs: list[tuple[int, int, int, int]] = []
    # Steps up to and with a change are equal; the last of them leads into the run's last row.
    ends = [*(int(change) + 2 for change in changes), len(starts)]
    lo = 0
    for end in ends:
        if end > lo:
            stride = int(steps[lo]) if end - lo > 1 else 1
            runs.append((lo, end, int(starts[lo]), stride))
            lo = end
    return runs if len(runs) <= _MOST_RUNS else []
