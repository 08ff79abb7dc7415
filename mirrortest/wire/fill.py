"""Whether the fill of many messages is what was sent, byte by byte.

Most messages of a batch stand at one stride, and their fills are windows that slide on by one: then
both sides are views, copied row by row and compared as the C library compares memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.wire.columns import rows_at
from mirrortest.wire.payload import windows, windows_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK_BYTES = 1 << 18
"""Fill compared at once: what stays in the processor's cache."""
_WORTH_IT = 32
"""Rows of a run, on average, from which on views are quicker than gathering."""
_LONG = 256
"""Bytes of a fill, likewise."""


def differing(
    data: NDArray[np.uint8], at: NDArray[np.int64], starts: NDArray[np.int64], size: int
) -> NDArray[np.bool_]:
    """Which of the messages have another fill than the one that belongs to them.

    `at` is where each one's `size` bytes of fill stand in `data`, `starts` where in the endless
    block its window starts, in [0, PERIOD).
    """
    count = len(at)
    differs = np.zeros(count, np.bool_)
    if not size or not count:
        return differs
    step = max(1, _CHUNK_BYTES // size)
    runs = _runs(at, starts) if size >= _LONG else [(0, count, None)]
    for begin, end, stride in runs:
        for lo in range(begin, end, step):
            hi = min(lo + step, end)
            if stride is None:
                found, expected = rows_at(data, at[lo:hi], size), windows_at(starts[lo:hi], size)
            else:
                found = np.ndarray((hi - lo, size), np.uint8, data, int(at[lo]), (stride, 1))
                expected = windows(0, int(starts[lo]), hi - lo, size)
            if found.tobytes() != expected.tobytes():
                differs[lo:hi] = (found != expected).any(axis=1)
    return differs


def _runs(at: NDArray[np.int64], starts: NDArray[np.int64]) -> list[tuple[int, int, int | None]]:
    """Runs (lo, hi, stride) of sliding windows at one stride; all in one without, where short."""
    steps = np.diff(at)
    # Where the next row goes on neither with the stride before it nor with the window.
    breaks = np.diff(steps, prepend=steps[:1]) != 0
    breaks |= np.diff(starts) != 1
    ends = np.flatnonzero(breaks) + 1
    if len(at) < _WORTH_IT * (len(ends) + 1):
        return [(0, len(at), None)]
    edges = [0, *ends.tolist(), len(at)]
    return [(lo, hi, int(steps[lo]) if hi - lo > 1 else 1) for lo, hi in pairwise(edges)]
