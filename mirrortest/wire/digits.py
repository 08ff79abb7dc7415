"""Fixed-width ASCII decimal numbers, whole arrays at a time.

Writing goes by a table of four digits; reading by arithmetic on eight digits that lie in one
little-endian 64-bit word, the first digit in its lowest byte.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEQ_DIGITS = 12
"""The width of a seq."""

TIME_DIGITS = 19
"""The width of a time in nanoseconds since the epoch."""

SEQ_LIMIT = 10**SEQ_DIGITS
"""One above the greatest seq."""

TIME_LIMIT = 1 << 63
"""One above the greatest time: it must fit a signed 64-bit integer, which 19 digits exceed."""

_ZEROS = np.uint64(0x3030303030303030)
_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_GROUP = np.uint64(10_000)


@cache
def four_digits() -> NDArray[np.uint32]:
    """Table: the number n < 10,000 as four ASCII digits in one little-endian word."""
    text = b"".join(b"%04d" % number for number in range(10_000))
    return np.frombuffer(text, "<u4")


@cache
def three_digits_after(byte: int) -> NDArray[np.uint32]:
    """Table: the number n < 1,000 as three ASCII digits, after `byte`, in one word."""
    text = b"".join(b"%c%03d" % (byte, number) for number in range(1_000))
    return np.frombuffer(text, "<u4")


def split_groups(
    numbers: NDArray[np.uint64], groups: int
) -> tuple[NDArray[np.uint64], list[NDArray[np.uint64]]]:
    """Cut numbers into what stands above, and `groups` groups of four digits, highest first."""
    parts: list[NDArray[np.uint64]] = []
    for _ in range(groups):
        above = numbers // _GROUP
        parts.append(numbers - above * _GROUP)
        numbers = above
    parts.reverse()
    return numbers, parts


def are_digits(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether all eight bytes of each word are ASCII digits."""
    # 0x30..0x39 keep their high nibble when six is added; a carry needs a byte that fails anyway.
    digits: NDArray[np.bool_] = (words & _HIGH_NIBBLES) == _ZEROS
    digits &= ((words + _SIXES) & _HIGH_NIBBLES) == _ZEROS
    return digits


def parse_digits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The number that eight ASCII digits say; meaningless where they are not digits."""
    pairs = ((words - _ZEROS) * np.uint64(2561)) >> np.uint64(8)
    fours = ((pairs & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((fours & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
