"""The wall clock watched against the monotonic one.

Schedules and deadlines use the monotonic clock; messages have wall time, which other machines can
read. The offset between the two follows slow corrections (NTP slews by at most 500 ppm). A *step*
is a jump by more than slewing explains, as from `date -s`, a virtual machine's resume, or a
machine's sleep, which the monotonic clock does not count. A step changes no verdict; latencies
around it are flagged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_BOUND_NS = 50_000_000
"""The least step by default: two readings are never 50 ms apart by chance."""
SLEW_PPM = 500


class ClockStep(NamedTuple):
    """The wall clock jumped by `by_ns` (forwards above 0); times are of the reading after it."""

    by_ns: int
    wall_ns: int
    monotonic_ns: int


class ClockWatch:
    """Follows one machine's wall clock by readings that it is given; it reads no clock.

    Attributes:
        offset_ns: wall time minus monotonic time, by the latest reading.
        least_ns, most_ns: the least and the greatest of all readings.
        steps: how many steps there were.
        stepped_ns: the sum of their sizes, whatever their direction.
        last: the latest step.
    """

    def __init__(self, wall_ns: int, monotonic_ns: int) -> None:
        self.offset_ns = self.least_ns = self.most_ns = wall_ns - monotonic_ns
        self.steps = 0
        self.stepped_ns = 0
        self.last: ClockStep | None = None
        self._read_at = monotonic_ns

    @property
    def set_by_ns(self) -> int:
        """How far apart two times of the clock were set: one of them was wrong; 0 without steps."""
        return self.most_ns - self.least_ns if self.steps else 0

    def observe(
        self, wall_ns: int, monotonic_ns: int, *, uncertainty_ns: int = 0
    ) -> ClockStep | None:
        """Take a reading of both clocks; returns the step since the last one, if there was one.

        `uncertainty_ns` is how far apart the two clocks may have been read: the monotonic time
        between a reading before the wall clock's and one after it. Raises ValueError where the
        monotonic clock runs backwards.
        """
        elapsed = monotonic_ns - self._read_at
        if elapsed < 0:
            raise ValueError("the monotonic clock runs backwards")
        change = wall_ns - monotonic_ns - self.offset_ns
        self.offset_ns += change
        self.least_ns = min(self.least_ns, self.offset_ns)
        self.most_ns = max(self.most_ns, self.offset_ns)
        self._read_at = monotonic_ns
        slewed = elapsed * SLEW_PPM // 1_000_000
        if abs(change) <= STEP_BOUND_NS + slewed + uncertainty_ns:
            return None
        self.steps += 1
        self.stepped_ns += abs(change)
        self.last = ClockStep(change, wall_ns, monotonic_ns)
        return self.last

    def measure(
        self, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]
    ) -> ClockStep | None:
        """Read both clocks; returns the step since the last reading, if there was one."""
        before = monotonic_ns()
        wall = wall_ns()
        after = monotonic_ns()
        return self.observe(wall, after, uncertainty_ns=after - before)
