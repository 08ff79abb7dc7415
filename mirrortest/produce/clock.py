"""The producer's clock: schedules use monotonic time, messages carry wall time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrortest.timing.clock_watch import ClockWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.timing.clock_watch import ClockStep


class Clock:
    """The monotonic clock, and the wall clock by its offset from it.

    If the wall clock is set during the run, schedules and latencies measured here do not move.
    Only messages encoded afterwards carry other times.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.now = monotonic_ns
        """Monotonic nanoseconds."""
        self._wall_ns = wall_ns
        self.watch = ClockWatch.of(monotonic_ns, wall_ns)

    @property
    def offset_ns(self) -> int:
        """Wall time minus monotonic time, as last measured."""
        return self.watch.offset_ns

    def wall(self, monotonic_ns: int) -> int:
        """The wall time at a monotonic time, ns since the epoch."""
        return monotonic_ns + self.watch.offset_ns

    def refresh(self) -> ClockStep | None:
        """Measure the offset again; return the step if the wall clock was set since."""
        return self.watch.measure(self.now, self._wall_ns)
