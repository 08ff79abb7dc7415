"""How many messages each batch of a lane has, where that is asked for exactly."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mirrortest.timing.draws import Draws

if TYPE_CHECKING:
    from mirrortest.config.shape import Gaussian

_BLOCK = 1024
_KEPT = 16

BatchShape: TypeAlias = "int | Gaussian"


def largest_batch(shape: BatchShape) -> int:
    """The most messages that a batch may have."""
    return shape if isinstance(shape, int) else shape.largest


class BatchCounts:
    """A lane's batches; `seed`, `topic` and the lane's index decide what is drawn."""

    def __init__(self, shape: BatchShape, *, seed: int, topic: str, lane: int) -> None:
        self._shape = shape
        self._draws = Draws(seed, "batch-messages", topic, str(lane))
        self._drawn = 0
        self._ends: list[int] = [0]
        """Where batches end, the latest ones drawn."""

    def end(self, position: int) -> int:
        """Where the batch ends that has the message at a position.

        Positions may go back by a few batches only (ValueError): a batch that was not sent is made
        again.
        """
        if isinstance(self._shape, int):
            return (position // self._shape + 1) * self._shape
        while self._ends[-1] <= position:
            self._draw(self._shape)
        if position < self._ends[0]:
            raise ValueError(f"the batch at {position} was drawn too long ago")
        return self._ends[bisect_right(self._ends, position)]

    def _draw(self, shape: Gaussian) -> None:
        numbers = np.arange(self._drawn, self._drawn + _BLOCK, dtype=np.int64)
        counts = np.rint(float(shape.mean) + float(shape.deviation) * self._draws.normal(numbers))
        ends = self._ends[-1] + np.cumsum(np.maximum(counts, 1.0).astype(np.int64))
        self._ends = [*self._ends[-_KEPT:], *ends.tolist()]
        self._drawn += _BLOCK
