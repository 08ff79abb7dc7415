"""When messages are due, how far ahead numbers are reserved, and how the clock follows steps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.shape import Burst, Gaussian
from mirrortest.produce.clock import Clock
from mirrortest.produce.lane import Reservation
from mirrortest.produce.pace import (
    CATCH_UP,
    UnlimitedPace,
    lane_share,
    last_tick,
    pace_of,
)
from mirrortest.timing.shaped_rate import ShapedRate

SECOND = 1_000_000_000


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_lanes_share_a_topics_messages(total: int, lanes: int) -> None:
    """Message i goes to lane i modulo the number of lanes; the shares follow from that."""
    shares = [lane_share(total, index, lanes) for index in range(lanes)]
    assert shares == [len(range(index, total, lanes)) for index in range(lanes)]


@given(st.floats(0.01, 1e6), st.integers(1, 50), st.integers(0, 60 * SECOND))
def test_lanes_together_never_exceed_the_topics_rate(rate: float, lanes: int, elapsed: int) -> None:
    """At no time are more messages due than the topic's own schedule has by then."""
    paces = [pace_of(rate, index=index, lanes=lanes) for index in range(lanes)]
    for pace in paces:
        pace.start(5)
    due = sum(pace.owed(5 + elapsed) for pace in paces)
    # Times are whole nanoseconds, rounded down once for the lane and once for the message.
    assert due <= int((elapsed + 2) * rate / SECOND) + 1 + 1e-6 * due
    assert due >= elapsed * rate / SECOND - lanes


@given(st.floats(0.1, 1e5), st.integers(1, 20), st.integers(1, 500))
def test_intended_times_are_the_topics(rate: float, lanes: int, count: int) -> None:
    """Interleaved, the lanes' intended times are the topic's, within about 2 ns."""
    times = np.zeros((count, lanes))
    for index in range(lanes):
        pace = pace_of(rate, index=index, lanes=lanes)
        pace.start(0)
        times[:, index] = pace.take(count, 0)
    expected = np.arange(count * lanes) * SECOND / rate
    assert np.abs(times.ravel() - expected).max() <= 2 + 1e-9 * expected.max()


def test_a_debt_is_kept_and_worked_off_at_a_bounded_rate() -> None:
    """After an outage messages keep their intended times; no flood follows."""
    pace = pace_of(1000, index=0, lanes=1)
    pace.start(0)
    pace.take(pace.available(0), 0)
    now = 10 * SECOND
    assert pace.owed(now) == 10_000
    assert pace.lag_ns(now) == now - SECOND // 1000
    sent, ticks = 0, 100
    for _ in range(ticks):
        count = pace.available(now)
        assert pace.take(count, now)[-1] < now
        sent += count
        now += 10_000_000
    assert sent <= CATCH_UP * 1000 * (ticks * 0.01 + 0.25)
    assert sent >= CATCH_UP * 1000 * ticks * 0.01 * 0.9


def test_a_slow_schedule_catches_up_one_by_one() -> None:
    """Even a lane with less than a message per second catches up."""
    pace = pace_of(0.1, index=0, lanes=1)
    pace.start(0)
    now = 35 * SECOND
    assert pace.owed(now) == 4
    taken = 0
    while pace.owed(now):
        if pace.available(now):
            pace.take(1, now)
            taken += 1
        else:
            at = pace.next_ns(now)
            assert at is not None
            assert at > now
            now = at
    assert taken >= 4


def test_limits_end_a_schedule() -> None:
    """Number of messages and duration each end it, whichever comes first."""
    for total, duration, expected in ((10, None, 4), (None, SECOND, 34), (1000, SECOND, 34)):
        pace = pace_of(100, index=0, lanes=3, total=total, duration_ns=duration)
        pace.start(7)
        assert pace.limit == expected
        pace.take(expected, 7)
        assert pace.available(1 << 60) == 0
        assert pace.next_ns(1 << 60) is None


def test_unlimited_ends_by_time_or_number() -> None:
    """Without a rate, there is always a message to send, until the end."""
    pace = UnlimitedPace(index=1, lanes=2, total=5, duration_ns=SECOND)
    pace.start(0)
    assert pace.available(1) == 2
    assert pace.take(2, 9).tolist() == [9, 9]
    assert pace.next_ns(10) is None
    endless = UnlimitedPace(index=0, lanes=1, duration_ns=SECOND)
    endless.start(0)
    assert endless.available(1) > 1 << 40
    assert endless.available(SECOND) == 0


def test_numbers_are_reserved_in_blocks_before_they_run_out() -> None:
    """The next block is requested when half is used, one at a time, never beyond the limit."""
    reservation = Reservation(ahead=pace_of(100, index=0, lanes=1).ahead, limit=500)
    assert reservation.consider(0, 0)
    assert (reservation.granted, reservation.requested) == (0, 201)
    assert reservation.consider(0, 1)
    assert reservation.requested == 201
    reservation.grant(201)
    assert not reservation.consider(100, 2)
    assert reservation.consider(101, 3)
    reservation.grant(reservation.requested)
    assert reservation.consider(400, 4)
    assert reservation.requested == 500
    reservation.grant(500)
    assert not reservation.consider(500, 5)


def test_unlimited_blocks_adapt() -> None:
    """They double while they are used up fast, and shrink when they last too long."""
    endless = UnlimitedPace(index=0, lanes=1).ahead
    reservation = Reservation(ahead=endless, limit=None, first=1024)
    sizes = []
    for now in (0, SECOND // 10, SECOND // 5, 20 * SECOND, 40 * SECOND):
        assert reservation.consider(reservation.granted, now)
        sizes.append(reservation.requested - reservation.granted)
        reservation.grant(reservation.requested)
    assert sizes == [1024, 2048, 4096, 2048, 1024]


def test_unlimited_blocks_hold_the_batches_that_may_be_underway() -> None:
    """However slow a lane is, a block is enough for full batches; with a rate, it is smaller."""
    endless = UnlimitedPace(index=0, lanes=1).ahead
    reservation = Reservation(ahead=endless, limit=None, first=64, least=500)
    for now in (0, 100 * SECOND, 200 * SECOND):
        before = reservation.granted
        assert reservation.consider(before, now)
        assert reservation.requested - before == 500
        reservation.grant(reservation.requested)
    slow = Reservation(ahead=pace_of(10, index=0, lanes=1).ahead, limit=None, least=500)
    assert slow.consider(0, 0)
    assert slow.requested == 21


def test_the_clock_tells_a_step_and_follows_it() -> None:
    """Setting the wall clock moves later wall times, but not monotonic ones."""
    wall, monotonic = [1000 * SECOND], [5]
    clock = Clock(lambda: monotonic[0], lambda: wall[0])
    assert clock.wall(clock.now()) == 1000 * SECOND
    monotonic[0] += SECOND
    wall[0] += SECOND
    assert clock.refresh() is None
    wall[0] += 3600 * SECOND
    step = clock.refresh()
    assert step is not None
    assert step.by_ns == 3600 * SECOND
    assert clock.now() == 5 + SECOND
    assert clock.wall(clock.now()) == 4601 * SECOND


@pytest.mark.parametrize("rate", [0.5, 3, 1e6])
def test_a_batch_ripens_when_its_oldest_message_has_lingered(rate: float) -> None:
    """The linger time counts from when the oldest waiting message was due."""
    pace = pace_of(rate, index=0, lanes=1)
    pace.start(100)
    assert pace.linger_end_ns(150, 500) == 600


@given(st.integers(0, 10**12), st.integers(0, 10**9))
def test_lanes_share_ticks_that_no_message_waits_for_too_long(due_ns: int, linger_ns: int) -> None:
    """A message is sent within the linger time after it was due, at a tick common to all."""
    tick = last_tick(due_ns + linger_ns, linger_ns)
    assert due_ns <= tick <= due_ns + linger_ns
    assert tick % max(1, linger_ns) == 0


def test_a_schedule_begins_when_it_is_started_for() -> None:
    """Before that nothing is due, with a rate or without one."""
    steady = pace_of(100, index=0, lanes=1)
    endless = pace_of(None, index=0, lanes=1, duration_ns=SECOND)
    for pace in (steady, endless):
        pace.start(50 * SECOND)
        assert pace.available(49 * SECOND) == 0
        assert pace.next_ns(49 * SECOND) == 50 * SECOND
        assert pace.available(50 * SECOND) > 0
        pace.skip(49 * SECOND)
        assert pace.skipped == 0
    assert endless.available(51 * SECOND) == 0
    assert endless.next_ns(51 * SECOND) is None


def test_what_was_due_before_a_producer_was_ready_is_left_out() -> None:
    """It continues with the schedule's next message, at its time; a limit does not move."""
    pace = pace_of(100, index=0, lanes=1, total=1000)
    pace.start(0)
    pace.skip(2 * SECOND + 1)
    assert pace.skipped == 201
    assert pace.available(2 * SECOND + 1) == 0
    assert pace.next_ns(2 * SECOND + 1) == 2 * SECOND + SECOND // 100
    assert pace.limit == 1000
    pace.skip(100 * SECOND)
    assert pace.skipped == 1000
    assert pace.next_ns(100 * SECOND) is None


def test_several_messages_are_there_when_the_last_is_due() -> None:
    """There is no such time if the schedule has fewer messages left."""
    pace = pace_of(100, index=0, lanes=1, total=20)
    pace.start(0)
    assert pace.next_ns(0, 16) == 15 * SECOND // 100
    pace.take(16, SECOND)
    assert pace.next_ns(SECOND, 4) is not None
    assert pace.next_ns(SECOND, 5) is None


def test_a_batch_is_sent_however_slow_the_catching_up_is() -> None:
    """At least one full batch may be caught up with at once."""
    pace = pace_of(1, index=0, lanes=1, batch=16)
    pace.start(0)
    assert pace.available(100 * SECOND) == 16
    pace.take(16, 100 * SECOND)
    later = pace.next_ns(100 * SECOND, 16)
    assert later is not None
    assert pace.available(later) == 16


def test_numbers_are_reserved_for_whole_batches() -> None:
    """However slow the rate is, the next block is requested while a batch is left."""
    reservation = Reservation(ahead=pace_of(1, index=0, lanes=1).ahead, limit=None, batch=100)
    assert reservation.consider(0, 0)
    reservation.grant(reservation.requested)
    assert reservation.granted == 200
    assert not reservation.consider(99, 1)
    assert reservation.consider(100, 1)


def test_a_shape_reserves_what_its_next_seconds_have() -> None:
    """It reserves little in a pause, and more before a burst."""
    bursts = Burst(Fraction(0), Fraction(1000), 60 * SECOND, SECOND)
    pace = pace_of(ShapedRate(bursts, seed=0, topic="t"), index=0, lanes=1)
    pace.start(0)
    pace.take(1000, SECOND)
    assert pace.ahead(10 * SECOND, 2 * SECOND) == 1
    assert pace.ahead(58 * SECOND + SECOND // 2, 2 * SECOND) == 502
    assert pace.ahead(59 * SECOND, 2 * SECOND) == 1001


def test_before_the_start_a_shapes_first_seconds_are_reserved() -> None:
    """They do not count from the clock's origin, which would draw 90 days."""
    now = 90 * 24 * 3600 * SECOND
    shape = Gaussian(Fraction(100), Fraction(20), SECOND)
    pace = pace_of(ShapedRate(shape, seed=0, topic="t"), index=0, lanes=1)
    first = pace.ahead(now, 2 * SECOND)
    pace.start(now)
    assert pace.ahead(now, 2 * SECOND) == first
