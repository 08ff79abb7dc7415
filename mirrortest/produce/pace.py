"""When the messages of a lane are due.

Message *i* of a topic goes to lane *i* modulo the number of lanes. So the lanes of a topic with a
constant rate have exact constant rates, shifted against each other. Messages that are late, for
example after a broker outage, are never dropped, and keep their intended times. They are sent at no
more than `CATCH_UP` times the rate (of a shape, the highest one), so no flood follows an outage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirrortest.config.shape import Shape
from mirrortest.config.units import SECOND_NS
from mirrortest.timing.schedule import ENDLESS, ConstantRate, exact_rate
from mirrortest.timing.shaped_rate import EveryNth, ShapedRate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.produce.workload import Workload

CATCH_UP = 2
_BURST_SECONDS = 0.25


class Pace(Protocol):
    """The schedule of one lane; times are monotonic ns.

    `position` counts the messages taken or skipped, `skipped` those skipped.
    """

    position: int
    skipped: int

    @property
    def limit(self) -> int | None:
        """How many messages there are in all; None: unlimited."""

    def start(self, at_ns: int) -> None:
        """Start the schedule: the topic's message 0 is due at this time."""

    def skip(self, now_ns: int) -> None:
        """Skip the messages that were due before now."""

    def available(self, now_ns: int) -> int:
        """How many messages may be sent now."""

    def owed(self, now_ns: int) -> int:
        """How many messages are due and not taken yet."""

    def next_ns(self, now_ns: int, count: int = 1) -> int | None:
        """When `available` will reach `count`, if it is less now; None: never."""

    def linger_end_ns(self, now_ns: int, linger_ns: int) -> int:
        """When the oldest due message (there must be one) will have waited for `linger_ns`."""

    def take(self, count: int, now_ns: int) -> NDArray[np.int64]:
        """Take `count` messages; return their intended times."""

    def lag_ns(self, now_ns: int, count: int = 1) -> int:
        """How long ago the next `count` messages, which are sent at once, were all due; or 0."""

    def ahead(self, now_ns: int, within_ns: int) -> int | None:
        """About how many messages will be sent within a time from now; None: no schedule."""


class Schedule(Protocol):
    """When a lane's messages are due (`ConstantRate`, `EveryNth`); ns after the topic's message 0.

    `limit` is how many messages the lane has; None: unlimited.
    """

    limit: int | None

    def due(self, now_ns: int) -> int:
        """How many messages are due by now."""

    def intended(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The intended times of the messages [lo, hi)."""

    def next_time(self, index: int) -> int | None:
        """When message `index` is due; None past the end."""


def lane_share(total: int | None, index: int, lanes: int) -> int | None:
    """How many of a topic's first `total` messages go to the `index`-th of `lanes` lanes."""
    return None if total is None else max(0, -((index - total) // lanes))


def last_tick(moment_ns: int, period_ns: int) -> int:
    """The last multiple of a period up to a moment; the moment itself if the period is 0.

    Lanes send their batches at such ticks, one linger apart. So a broker gets one request with a
    batch of each lane instead of a request for each, and no message waits longer than the linger.
    """
    return moment_ns - moment_ns % period_ns if period_ns else moment_ns


class ScheduledPace:
    """The pace of a lane with a schedule.

    `highest` is the schedule's highest rate, in messages/s; `steady`: it is the only one. The lane
    gets at most `limit` messages, and only those due before `duration_ns` after the topic's message
    0. A batch may need `batch` messages at once.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        highest: float,
        steady: bool,
        limit: int | None = None,
        duration_ns: int | None = None,
        batch: int = 1,
    ) -> None:
        self._schedule = schedule
        self._highest = highest
        self._steady = steady
        self._started = False
        self._start_ns = 0
        within = None if duration_ns is None else schedule.due(duration_ns - 1)
        limits = [each for each in (limit, within, schedule.limit) if each is not None]
        self.limit = min(limits, default=None)
        self._credit_per_ns = CATCH_UP * highest / SECOND_NS
        self._burst = max(float(batch), CATCH_UP * highest * _BURST_SECONDS)
        self._credit = self._burst
        self._credited_ns = 0
        self.position = self.skipped = 0

    def start(self, at_ns: int) -> None:
        """See `Pace`."""
        self._started = True
        self._start_ns = self._credited_ns = at_ns

    def skip(self, now_ns: int) -> None:
        """See `Pace`."""
        count = self.owed(now_ns - 1)
        self.position += count
        self.skipped += count

    def available(self, now_ns: int) -> int:
        """See `Pace`."""
        return min(self.owed(now_ns), int(self._refill(now_ns)))

    def next_ns(self, now_ns: int, count: int = 1) -> int | None:
        """See `Pace`."""
        if self.limit is not None and self.position + count > self.limit:
            return None
        if (due_ns := self._start_ns + self._due_ns(self.position + count - 1)) > now_ns:
            return due_ns
        missing = max(0.0, count - self._refill(now_ns))
        return now_ns + int(missing / self._credit_per_ns) + 1

    def linger_end_ns(self, now_ns: int, linger_ns: int) -> int:  # noqa: ARG002  # it is fixed
        """See `Pace`."""
        return self._start_ns + self._due_ns(self.position) + linger_ns

    def take(self, count: int, now_ns: int) -> NDArray[np.int64]:
        """See `Pace`."""
        lo = self.position
        self.position += count
        self._credit = self._refill(now_ns) - count
        return self._schedule.intended(lo, self.position) + self._start_ns

    def lag_ns(self, now_ns: int, count: int = 1) -> int:
        """See `Pace`."""
        if self.owed(now_ns) < count:
            return 0
        return now_ns - self._start_ns - self._due_ns(self.position + count - 1)

    def _due_ns(self, index: int) -> int:
        due_ns = self._schedule.next_time(index)
        assert due_ns is not None  # noqa: S101  # the pace ends with its schedule
        return due_ns

    def ahead(self, now_ns: int, within_ns: int) -> int | None:
        """See `Pace`."""
        most = int(self._highest * within_ns / SECOND_NS) + 1
        if self._steady:
            return most
        # The first numbers are reserved before `start`: count from the schedule's beginning then.
        begun_ns = now_ns if self._started else 0
        return min(most, self.owed(begun_ns + within_ns) + 1)

    def owed(self, now_ns: int) -> int:
        """See `Pace`."""
        # Called several times per tick and lane: `min` and `max` would take as long as the rest.
        due = self._schedule.due(now_ns - self._start_ns)
        if self.limit is not None and due > self.limit:
            due = self.limit
        return due - self.position if due > self.position else 0

    def _refill(self, now_ns: int) -> float:
        if (elapsed := now_ns - self._credited_ns) > 0:
            self._credited_ns = now_ns
            self._credit = min(self._burst, self._credit + elapsed * self._credit_per_ns)
        return self._credit


class UnlimitedPace:
    """The pace of a lane that sends as fast as it can: a message is intended when it is sent."""

    def __init__(
        self, *, index: int, lanes: int, total: int | None = None, duration_ns: int | None = None
    ) -> None:
        self.limit = lane_share(total, index, lanes)
        self._duration_ns = duration_ns
        self._start_ns = 0
        self.position = self.skipped = 0

    def start(self, at_ns: int) -> None:
        """See `Pace`."""
        self._start_ns = at_ns

    def skip(self, now_ns: int) -> None:
        """See `Pace`: without a schedule nothing was due."""

    def available(self, now_ns: int) -> int:
        """See `Pace`."""
        if now_ns < self._start_ns or self._over(now_ns):
            return 0
        return ENDLESS if self.limit is None else self.limit - self.position

    def owed(self, now_ns: int) -> int:  # noqa: ARG002  # without a schedule nothing is due
        """See `Pace`."""
        return 0

    def next_ns(self, now_ns: int, count: int = 1) -> int | None:
        """See `Pace`."""
        at = max(now_ns, self._start_ns)
        return at if self.available(at) >= count else None

    def linger_end_ns(self, now_ns: int, linger_ns: int) -> int:  # noqa: ARG002  # never lingers
        """See `Pace`: there is always more, so batches fill up without waiting."""
        return now_ns

    def take(self, count: int, now_ns: int) -> NDArray[np.int64]:
        """See `Pace`."""
        self.position += count
        return np.full(count, now_ns, dtype=np.int64)

    def lag_ns(self, now_ns: int, count: int = 1) -> int:  # noqa: ARG002  # part of the protocol
        """See `Pace`: without a schedule there is no lag."""
        return 0

    def ahead(self, now_ns: int, within_ns: int) -> None:
        """See `Pace`: there is no schedule."""

    def _over(self, now_ns: int) -> bool:
        return self._duration_ns is not None and now_ns - self._start_ns >= self._duration_ns


def pace_of(
    throughput: float | ShapedRate | None,
    *,
    index: int,
    lanes: int,
    total: int | None = None,
    duration_ns: int | None = None,
    batch: int = 1,
) -> Pace:
    """The pace of a topic's `index`-th lane of `lanes`.

    `throughput` is the topic's rate (messages/s) or schedule; None: unlimited. The topic gets
    `total` messages, and only those due before `duration_ns` after its message 0. A batch may need
    `batch` messages at once.
    """
    if throughput is None:
        return UnlimitedPace(index=index, lanes=lanes, total=total, duration_ns=duration_ns)
    schedule: Schedule
    if isinstance(throughput, ShapedRate):
        schedule = EveryNth(throughput, index=index, of=lanes)
        highest = throughput.highest / lanes
    else:
        rate = exact_rate(throughput)
        # Rounded up: a message is never due before its time.
        schedule = ConstantRate(rate / lanes, -(-index * SECOND_NS // rate))
        highest = float(rate / lanes)
    return ScheduledPace(
        schedule,
        highest=highest,
        steady=not isinstance(throughput, ShapedRate),
        limit=lane_share(total, index, lanes),
        duration_ns=duration_ns,
        batch=batch,
    )


def topic_rate(workload: Workload, topic: str) -> float | ShapedRate | None:
    """A topic's rate of all producers together: messages/s or a schedule; None: unlimited."""
    if isinstance(workload.throughput, Shape):
        return ShapedRate(workload.throughput, seed=workload.seed, topic=topic)
    return workload.throughput


def planned_messages(workload: Workload) -> int | None:
    """How many messages the topic with the fewest gets; None: unlimited."""
    limits = [
        pace_of(
            topic_rate(workload, topic),
            index=0,
            lanes=1,
            total=workload.num_records,
            duration_ns=workload.duration_ns,
        ).limit
        for topic in workload.topics
    ]
    return min((limit for limit in limits if limit is not None), default=None)
