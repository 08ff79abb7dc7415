"""The fill of a message: a part of one fixed pseudo-random block, followed by a run of zeros.

A generator's block has `period` bytes and repeats without end. The part of seq *n* starts at
``(n * step + phase) % period``. Each stream has its own phase, so the fills of neighbours and of
streams differ. No fill is generated: producers copy its part of the block, readers compare it.

What producers write is incompressible: parts of messages that share a batch of 1 MiB are distinct.
If all messages have one size, the step is that size (generator 2), and memory is read in order. If
sizes vary, the step is close to the golden section of the period (generator 3), which keeps parts
of any sizes far from each other. The block has no ``;``, at which the ancestor splits messages. A
share of each fill, which the descriptor names, is zeros; these compress to almost nothing. With
generator 1, which is only read, the part moves by one byte per seq.

The user's payloads (generator 4) are in no block: a digest proves them.
"""

from __future__ import annotations

import hashlib
from array import array
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SIZE = 16 << 20
"""The greatest value, in bytes, that a message may have."""

MOST_COMPRESSIBLE = 100
"""The greatest compressibility, in percent."""


class Generator(NamedTuple):
    """A kind of fill, by its number in a message's descriptor; `period` is a power of two.

    A `step` of 0 means the size of the message's value, made odd.
    """

    number: int
    period: int
    step: int

    def step_of(self, value_size: int) -> int:
        """The step of messages of this size."""
        return self.step or value_size | 1


FIRST = Generator(1, 1 << 20, 1)
CURRENT = Generator(2, 1 << 22, 0)
VARYING = Generator(3, 1 << 22, 2_591_793)
GENERATORS = {generator.number: generator for generator in (FIRST, CURRENT, VARYING)}
OWN = Generator(4, 0, 0)
"""The user's payloads, which are in no block."""

_TAILS = (1 << 16, 1 << 20, MAX_SIZE)
"""How many bytes of the block follow its first period: few sizes, so few copies are cached."""


@cache
def _period(period: int) -> bytes:
    # SHAKE-256 is a standard: the block is the same on every machine.
    if period == FIRST.period:
        return hashlib.shake_256(b"mirrortest payload 1").digest(period)
    # One byte in 256 is removed. This generates one in 64 more: four times as many as needed.
    longer = hashlib.shake_256(b"mirrortest payload 2").digest(period + (period >> 6))
    return longer.replace(b";", b"")[:period]


@lru_cache(maxsize=4)
def _with_tail(period: int, tail: int) -> bytes:
    once = _period(period)
    periods, rest = divmod(tail, period)
    return once * (1 + periods) + once[:rest]


@lru_cache(maxsize=64)
def block(generator: Generator, size: int) -> bytes:
    """The repeated block, as long as fills of at most `size` bytes need it."""
    return _with_tail(
        generator.period, next(tail for tail in _TAILS if tail >= min(size, MAX_SIZE))
    )


@lru_cache(maxsize=1 << 16)
def phase_of(topic: str, producer_id: bytes, lane: int) -> int:
    """Where in the block the fill of a stream's seq 0 starts: 64 bits, modulo the period."""
    name = b"\0".join((producer_id, topic.encode(), b"%d" % lane))
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


def zeros(size: int, compressibility: int) -> int:
    """How many bytes of a fill are zeros, for `compressibility` percent to compress away."""
    # 1 % more, because codecs need some bytes to encode a run: snappy 3 in 64.
    return min(size, (size * compressibility * 101 + 5000) // 10_000)


def fill(
    generator: Generator, compressibility: int, phase: int, seq: int, value_size: int, size: int
) -> bytes:
    """The `size` bytes of fill of one message, whose value has `value_size`."""
    run = zeros(size, compressibility)
    start = (seq * generator.step_of(value_size) + phase) % generator.period
    return block(generator, size)[start : start + size - run] + bytes(run)


class Window(NamedTuple):
    """What values are filled with: each with the part of `block` that begins at its `starts`.

    With a `period`, there is one start: each next message's is `step` bytes further, modulo
    `period`. `zeros` bytes of each fill are zeros.
    """

    block: bytes
    starts: array[int] | NDArray[np.int64]
    step: int
    period: int
    compressibility: int


def windows(
    phase: int, seq: int, value_size: int | None, size: int, compressibility: int
) -> Window:
    """The fills of consecutive seqs from `seq` on, of at most `size` bytes each.

    `value_size` is the size of all their values; None: sizes vary.
    """
    generator = VARYING if value_size is None else CURRENT
    step = generator.step_of(value_size or 0) % generator.period
    start = (seq * step + phase) % generator.period
    starts = array("q", [start])
    return Window(block(generator, size), starts, step, generator.period, compressibility)
