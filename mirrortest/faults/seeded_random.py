"""Seeded randomness: hashes of a seed, an act and a message, and of nothing else.

They mix 64-bit words as a message's check value does, for one number or an array.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.wire.descriptor import finish, finish_arrays, mix, mix_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Scope(NamedTuple):
    """The scope in which a number is unique: a stream, or a partition for unreadable records.

    The run is not part of it: a test that is repeated as another run gets the same faults.
    """

    topic: str
    producer: str
    incarnation: int
    lane: int


@lru_cache(maxsize=1 << 16)
def _start(seed: int, act: int, scope: Scope) -> int:
    name = "\0".join(map(str, (seed, act, *scope))).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def hashes(seed: int, act: int, scope: Scope, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash for each number of a scope, for one act."""
    return finish_arrays(mix_arrays(_start(seed, act, scope), (numbers.view(np.uint64),)))


class Draw:
    """A random sequence for one act on one message."""

    def __init__(self, seed: int, act: int, scope: Scope, number: int) -> None:
        self._state = mix(_start(seed, act, scope), (number & ((1 << 64) - 1), 1))

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        self._state = mix(self._state, (0x9E3779B97F4A7C15,))
        return finish(self._state) % limit

    def other_than(self, value: int, limit: int) -> int:
        """A number in [0, limit) other than `value`."""
        return (value + 1 + self.below(limit - 1)) % limit

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        return bytes(self.below(256) for _ in range(count))
