"""How many messages each batch of a lane has, with `--batch-messages`."""

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
    """The maximum number of messages in a batch."""
    return shape if isinstance(shape, int) else shape.largest


class BatchCounts:
    """The batch boundaries of one lane, drawn from `seed`, `topic` and the lane's index."""

    def __init__(self, shape: BatchShape, *, seed: int, topic: str, lane: int) -> None:
        self._shape = shape
        self._draws = Draws(seed, "batch-messages", topic, str(lane))
        self._drawn = 0
        self._ends: list[int] = [0]
        """Where the batches drawn last end (exclusive)."""

    def end(self, position: int) -> int:
        """Where the batch with the message at `position` ends (exclusive).

        A batch that was not sent is built again, so positions may go back by a few batches.

        Raises:
            ValueError: the position went back too far.
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
