"""What two readings of counters give: rates, shares, means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Counters = dict[str, int]


class Change:
    """The change of counters within `seconds`.

    Each figure is None where a counter is missing, or fell: it was reset, so its change is unknown.
    """

    def __init__(self, before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> None:
        self._before = before
        self._now = now
        self._seconds = seconds

    def of(self, *names: str) -> int | None:
        """By how much the sum of these counters rose."""
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
        """By how much their sum rose in a second, a count being `unit`."""
        rise = self.of(*names)
        return None if rise is None or self._seconds <= 0 else rise * unit / self._seconds

    def share(self, *names: str, unit: float) -> float | None:
        """The share of the time that they counted, a count being `unit` seconds; 1 at most."""
        rate = self.per_second(*names, unit=unit)
        return None if rate is None else min(rate, 1.0)


def ratio(part: float | None, whole: float | None) -> float | None:
    """A part of a whole; None where one of them is unknown, or the whole is 0."""
    return part / whole if part is not None and whole else None
