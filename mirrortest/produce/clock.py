"""The producer's clock: schedules run on the monotonic one, messages carry the wall's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrortest.timing.clock_watch import ClockWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.timing.clock_watch import ClockStep


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
        self.now = monotonic_ns
        """Monotonic nanoseconds."""
        self._wall_ns = wall_ns
        self.watch = ClockWatch(wall_ns(), monotonic_ns())

    @property
    def offset_ns(self) -> int:
        """Wall minus monotonic, as last measured."""
        return self.watch.offset_ns

    def wall(self, monotonic_ns: int) -> int:
        """What the wall clock shows at a monotonic time, ns since the epoch."""
        return monotonic_ns + self.watch.offset_ns

    def refresh(self) -> ClockStep | None:
        """Measure the offset anew; the step, if the wall clock was set since."""
        return self.watch.measure(self.now, self._wall_ns)
