"""Rates, shares and ratios from two readings of counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Counters = dict[str, int]


class Change:
    """The change of counters within `seconds`.

    Each figure is None if a counter is missing, or fell: it was reset, so its change is unknown.
    """

    def __init__(self, before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> None:
        self._before = before
        self._now = now
        self._seconds = seconds

    def of(self, *names: str) -> int | None:
        """The rise of the sum of these counters."""
        total = 0
        for name in names:
            if name not in self._before or name not in self._now:
                return None
            rise = self._now[name] - self._before[name]
            if rise < 0:
                return None
            total += rise
        return total

    def per_second(self, *names: str, unit: float = 1) -> float | None:
        """The rise of their sum per second, times `unit`, the size of a count."""
        rise = self.of(*names)
        return None if rise is None or self._seconds <= 0 else rise * unit / self._seconds

    def share(self, *names: str, unit: float) -> float | None:
        """The share of the time that they counted, at most 1; a count is `unit` seconds."""
        rate = self.per_second(*names, unit=unit)
        return None if rate is None else min(rate, 1.0)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """The quotient; None if one of the numbers is unknown, or the denominator is 0."""
    return numerator / denominator if numerator is not None and denominator else None
