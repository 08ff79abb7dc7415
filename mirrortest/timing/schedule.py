"""The intended time of each message at a constant rate: an open loop in exact integer arithmetic.

Messages have indices from 0. A slow sender does not delay the schedule: a message that is not sent
in time stays due, and its latency counts from its intended time. Times are int nanoseconds of the
clock of `start_ns`; producers use the monotonic one (see `clock_watch`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.config.units import SECOND_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INT64 = (1 << 63) - 1
_FEW = 16
"""Up to this many times are computed one by one: six array operations cost more."""
ENDLESS = 1 << 62
"""How many messages are due if there is neither a rate nor a limit."""


class ConstantRate:
    """Evenly spaced messages: message i at ``start_ns + floor(i * 10**9 / per_second)``.

    `per_second` may be any positive rate, also below one; ValueError if it is not positive. There
    is no `limit`.
    """

    limit: int | None = None

    def __init__(self, per_second: Fraction, start_ns: int) -> None:
        if per_second <= 0:
            raise ValueError("a rate must be above 0")
        self.start_ns = start_ns
        spacing = SECOND_NS / per_second
        # Message i is due i * _step // _parts nanoseconds after the start.
        self._step, self._parts = spacing.numerator, spacing.denominator

    def due(self, now_ns: int) -> int:
        """How many messages are due by now."""
        elapsed = now_ns - self.start_ns
        if elapsed < 0:
            return 0
        # floor(i * step / parts) <= elapsed, solved for i: i * step < (elapsed + 1) * parts.
        return -(-(elapsed + 1) * self._parts // self._step)

    def intended(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The exact times of messages [lo, hi), as int64."""
        count = max(hi - lo, 0)
        if count <= _FEW:
            return self._one_by_one(lo, hi)
        first, rest = divmod(lo * self._step, self._parts)
        step, part = divmod(self._step, self._parts)
        if self._parts + count * part > _INT64:
            # A rate with many digits would overflow int64; Python's integers do not overflow.
            return self._one_by_one(lo, hi)
        index = np.arange(count, dtype=np.int64)
        base = np.int64(self.start_ns + first)
        return np.asarray(base + index * step + (rest + index * part) // self._parts)

    def _one_by_one(self, lo: int, hi: int) -> NDArray[np.int64]:
        start, step, parts = self.start_ns, self._step, self._parts
        return np.array([start + i * step // parts for i in range(lo, hi)], dtype=np.int64)

    def next_time(self, index: int) -> int:
        """When message `index` is due."""
        return self.start_ns + index * self._step // self._parts


def exact_rate(per_second: float) -> Fraction:
    """A rate as the exact fraction of its decimal text: 0.1 is exactly a tenth."""
    return Fraction(repr(per_second))
