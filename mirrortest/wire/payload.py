"""The fill of a message: a window that slides over one fixed pseudo-random block.

The block has `PERIOD` bytes and repeats for ever. The window of a message starts at
``(seq + phase) % PERIOD``, with a phase for each stream, so that the fills of neighbours and of
streams differ. None is generated: each is a part of the block.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from typing import NamedTuple

PERIOD = 1 << 20
"""Bytes after which the block repeats."""

MAX_SIZE = 16 << 20
"""The greatest value, in bytes, that a message may have."""

GENERATOR = 1
"""The id of this kind of fill in a message's descriptor."""

_NAME = b"mirrortest payload 1"


@cache
def _period() -> bytes:
    # SHAKE-256 is a standard: the block is the same on every machine.
    return hashlib.shake_256(_NAME).digest(PERIOD)


@cache
def _repeated(periods: int) -> bytes:
    return _period() * periods


def block(length: int) -> bytes:
    """At least `length` bytes of the endless block."""
    # Few sizes, so that the cache stays small.
    periods = 2
    while periods * PERIOD < length:
        periods *= 2
    return _repeated(periods)


@lru_cache(maxsize=1 << 16)
def phase_of(topic: str, producer_id: bytes, lane: int) -> int:
    """Where in the block the fill of a stream's seq 0 starts, in [0, PERIOD)."""
    name = b"\0".join((producer_id, topic.encode(), b"%d" % lane))
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") % PERIOD


def fill(phase: int, seq: int, size: int) -> bytes:
    """The `size` bytes of fill of one message."""
    start = (seq + phase) % PERIOD
    return block(start + size)[start : start + size]


class Window(NamedTuple):
    """A part of `block` that begins at `start`; the next message's begins `step` bytes later.

    A `start` of `period` is one of 0 again.
    """

    block: bytes
    start: int
    step: int
    period: int


def windows(phase: int, seq: int, size: int) -> Window:
    """The fills of consecutive seqs from this one on, of at most `size` bytes each."""
    return Window(block(PERIOD + size), (seq + phase) % PERIOD, 1, PERIOD)
