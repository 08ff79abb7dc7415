"""Wall clocks that are set: what is reported, and what is not a clock step."""

from __future__ import annotations

from mirrortest.consume.consumer_metrics import Clocks
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

HOUR = 3600 * 10**9
SECOND = 10**9
STREAM = StreamId("t", "r1", "ann", 1, 0)


def _row(
    seq_lo: int, seq_hi: int, intended: int, *, stream: StreamId = STREAM, findings: int = 0
) -> SeenRow:
    count = seq_hi - seq_lo
    return SeenRow(stream, seq_lo, seq_hi, 0, count, findings, *(intended,) * 2, *(0,) * 4)


def test_our_own_clock_set_is_told_with_its_size() -> None:
    """Wall and monotonic clock are compared: an hour that passes on both is no step."""
    now = {"wall": 5 * HOUR, "monotonic": 0}
    clocks = Clocks(lambda: now["monotonic"], lambda: now["wall"])
    for wall, monotonic in ((HOUR, HOUR), (-HOUR + SECOND, SECOND)):
        now["wall"] += wall
        now["monotonic"] += monotonic
        clocks.poll()
    assert (clocks.watch.steps, clocks.watch.stepped_ns) == (1, HOUR)
    (note,) = clocks.notes
    assert "-3600.000 s" in note


def test_a_clock_that_was_set_forwards_makes_nothing_overdue() -> None:
    """The earliest time ignores a step forwards, and follows a step back at once."""
    now = {"wall": 5 * HOUR, "monotonic": 0}
    clocks = Clocks(lambda: now["monotonic"], lambda: now["wall"])
    for wall, earliest in ((2 * HOUR, 6 * HOUR), (-3 * HOUR, 4 * HOUR), (HOUR, 5 * HOUR)):
        now["wall"] += wall
        now["monotonic"] += HOUR
        assert clocks.earliest_ns() == earliest, wall


def test_a_clock_that_was_set_back_lets_nothing_seem_to_be_sent_later() -> None:
    """The latest time ignores a step back; it dates when unread offsets were found deleted."""
    now = {"wall": 5 * HOUR, "monotonic": 0}
    clocks = Clocks(lambda: now["monotonic"], lambda: now["wall"])
    for wall, latest in ((-2 * HOUR, 6 * HOUR), (HOUR, 7 * HOUR), (9 * HOUR, 13 * HOUR)):
        now["wall"] += wall
        now["monotonic"] += HOUR
        assert clocks.latest_ns() == latest, wall


def test_a_producer_whose_clock_was_set_back_is_told_once() -> None:
    """All its lanes show the step; one note names the incarnation."""
    clocks = Clocks()
    other = STREAM._replace(lane=3)
    clocks.follow([_row(0, 5, 2 * HOUR), _row(0, 5, 2 * HOUR, stream=other)])
    clocks.follow([_row(5, 9, HOUR), _row(5, 9, HOUR, stream=other)])
    (note,) = clocks.notes
    assert "producer ann (incarnation 1)" in note
    assert "3600.000 s" in note


def test_a_replay_and_a_restamped_message_set_no_clock_back() -> None:
    """Copies carry the original's times; times that the mirror changed come from no clock."""
    clocks = Clocks()
    clocks.follow([_row(0, 50, 2 * HOUR), _row(0, 20, HOUR), _row(50, 51, SECOND, findings=64)])
    clocks.follow([_row(51, 60, 2 * HOUR), _row(60, 70, 9 * HOUR)])
    assert clocks.notes == []


def test_small_steps_are_the_noise_of_a_schedule() -> None:
    """A step that slewing explains gives no note."""
    clocks = Clocks()
    clocks.follow([_row(0, 5, HOUR), _row(5, 9, HOUR - 10**6)])
    assert clocks.notes == []
