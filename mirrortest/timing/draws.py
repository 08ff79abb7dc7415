"""Counter-based random numbers: each is a hash of a seed, a name and a number only.

The draw for number n needs no earlier draw, so processes and restarts agree. The hash mixes 64-bit
words as for a message's check value.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.config.shape import CLIP
from mirrortest.wire.descriptor import finish_arrays, mix_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Draws:
    """The draws for one purpose; `names` separate it from other purposes with the same seed."""

    def __init__(self, seed: int, *names: str) -> None:
        name = "\0".join((str(seed), *names)).encode()
        self._start = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")

    def uniform(self, numbers: NDArray[np.int64], which: int = 0) -> NDArray[np.float64]:
        """A float in [0, 1) for each number; each `which` gives another one."""
        words = (numbers.view(np.uint64), np.full(1, which, np.uint64))
        hashed = finish_arrays(mix_arrays(self._start, words))
        return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """A standard normal draw, clipped to +-`CLIP`, for each number (Box-Muller)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(numbers, 0)))
        found = radius * np.cos(2.0 * np.pi * self.uniform(numbers, 1))
        return np.asarray(np.clip(found, -CLIP, CLIP))
