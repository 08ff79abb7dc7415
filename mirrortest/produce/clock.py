"""The producer's clock: schedules run on the monotonic one, messages carry the wall's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_NS = 500_000_000
"""A wall clock that moved by this much against the monotonic one was set, not slewed."""


class Clock:
    """Monotonic nanoseconds, and what the wall clock shows at them.

    A wall clock that is set during the run moves no schedule and no latency measured here: only
    the times that messages encoded afterwards carry.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.offset_ns = wall_ns() - monotonic_ns()
        """Wall minus monotonic, as last measured."""

    def now(self) -> int:
        """Monotonic nanoseconds."""
        return self._monotonic_ns()

    def wall(self, monotonic_ns: int) -> int:
        """What the wall clock shows at a monotonic time, ns since the epoch."""
        return monotonic_ns + self.offset_ns

    def refresh(self) -> int | None:
        """Measure the offset anew; by how many ns the wall clock was set, None if it was not."""
        offset_ns = self._wall_ns() - self._monotonic_ns()
        moved, self.offset_ns = offset_ns - self.offset_ns, offset_ns
        return moved if abs(moved) >= STEP_NS else None
