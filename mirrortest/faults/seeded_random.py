"""Seeded chance: hashes that depend on what is asked about, and on nothing else.

The same mixing of 64-bit words as in a message's check value, for one number or a whole array.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.wire.descriptor import finish, finish_arrays, mix, mix_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Place(NamedTuple):
    """What numbers count within: a stream by its names, or a partition for what is unreadable.

    The run is left out, so that a test that is repeated as another run is hurt at the same places.
    """

    topic: str
    producer: str
    incarnation: int
    lane: int


@lru_cache(maxsize=1 << 16)
def _start(seed: int, act: int, place: Place) -> int:
    name = "\0".join(map(str, (seed, act, *place))).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def hashes(seed: int, act: int, place: Place, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash for each number within a place, as one act sees it."""
    return finish_arrays(mix_arrays(_start(seed, act, place), (numbers.view(np.uint64),)))


class Draw:
    """A sequence of chances for one act on one message."""

    def __init__(self, seed: int, act: int, place: Place, number: int) -> None:
        self._state = mix(_start(seed, act, place), (number & ((1 << 64) - 1), 1))

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        self._state = mix(self._state, (0x9E3779B97F4A7C15,))
        return finish(self._state) % limit

    def other_than(self, value: int, limit: int) -> int:
        """A number in [0, limit) that is not `value`, which lies in it."""
        return (value + 1 + self.below(limit - 1)) % limit

    def bytes(self, count: int) -> bytes:
        """So many bytes."""
        return bytes(self.below(256) for _ in range(count))
