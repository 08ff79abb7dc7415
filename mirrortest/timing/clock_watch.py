"""Compares the wall clock with the monotonic clock.

Schedules and deadlines use the monotonic clock; messages contain wall time, which other machines
can read. The offset between the two clocks follows slow corrections (NTP slews by at most 500 ppm).
A *step* is a larger jump than slewing explains: by `date -s`, when a virtual machine resumes, or
after a machine's sleep, which the monotonic clock does not count. A step changes no verdict;
latencies around it are flagged.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_BOUND_NS = 50_000_000
"""A smaller jump is not a step; two readings are never 50 ms apart by chance."""
SLEW_PPM = 500
_APART_NS = 1_000_000
"""Clocks that were read further apart are read again."""
_TRIES = 5


class ClockStep(NamedTuple):
    """A jump of the wall clock by `by_ns` (forwards if above 0); times are of the next reading."""

    by_ns: int
    wall_ns: int
    monotonic_ns: int


class ClockWatch:
    """Follows one machine's wall clock from the caller's readings; it reads no clock itself.

    Attributes:
        offset_ns: wall time minus monotonic time, at the latest reading.
        least_ns, most_ns: the least and the greatest offset of all readings.
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
        """The range of all offsets: latencies may be wrong by as much; 0 without steps."""
        return self.most_ns - self.least_ns if self.steps else 0

    @classmethod
    def of(cls, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> ClockWatch:
        """A watch that begins with a reading of both clocks."""
        wall, monotonic, _ = _read(monotonic_ns, wall_ns)
        return cls(wall, monotonic)

    def observe(self, wall_ns: int, monotonic_ns: int) -> ClockStep | None:
        """Add a reading of both clocks; return the step since the last one, if there was one.

        Raises ValueError if the monotonic clock ran backwards.
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
        if abs(change) <= STEP_BOUND_NS + slewed:
            return None
        self.steps += 1
        self.stepped_ns += abs(change)
        self.last = ClockStep(change, wall_ns, monotonic_ns)
        return self.last

    def measure(
        self, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]
    ) -> ClockStep | None:
        """Read both clocks; return the step since the last reading, if there was one.

        Without CPU time in between, they are read too far apart: then nothing changes.
        """
        wall, monotonic, apart_ns = _read(monotonic_ns, wall_ns)
        return None if apart_ns > _APART_NS else self.observe(wall, monotonic)


def _read(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> tuple[int, int, int]:
    """Read the wall clock and the monotonic clock, and how far apart at most, all ns.

    The process may get no CPU in between. So it reads again, and returns the closest readings.
    """
    tries: list[tuple[int, int, int]] = []
    while not tries or (tries[-1][2] > _APART_NS and len(tries) < _TRIES):
        before, wall, after = monotonic_ns(), wall_ns(), monotonic_ns()
        tries.append((wall, after, after - before))
    return min(tries, key=itemgetter(2))
