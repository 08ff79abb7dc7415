"""The clock watch distinguishes steps of the wall clock from slewing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.timing.clock_watch import STEP_BOUND_NS, ClockStep, ClockWatch

WALL = 1_800_000_000 * 10**9
SECOND = 10**9


@given(st.lists(st.tuples(st.integers(0, 3600 * SECOND), st.floats(-1, 1)), max_size=20))
def test_slewing_and_jitter_are_no_step(readings: list[tuple[int, float]]) -> None:
    """Slewing by at most 500 ppm, and jitter below the bound, are not reported."""
    watch = ClockWatch(WALL, 0)
    wall, monotonic = WALL, 0
    for elapsed, part in readings:
        monotonic += elapsed
        wall += elapsed + int(part * (elapsed * 500 // 1_000_000))
        jitter = int(part * 0.4 * STEP_BOUND_NS)
        assert watch.observe(wall + jitter, monotonic) is None
        assert monotonic + watch.offset_ns == wall + jitter
    assert watch.steps == 0


@given(st.integers(-(10**13), 10**13), st.integers(0, 60 * SECOND))
def test_a_step_is_told_once_with_its_size(size: int, elapsed: int) -> None:
    """A step may have either direction; later readings are compared with the new offset."""
    watch = ClockWatch(WALL, 5)
    step = watch.observe(WALL + elapsed + size, 5 + elapsed)
    if abs(size) > STEP_BOUND_NS + elapsed // 2000:
        assert step == ClockStep(size, WALL + elapsed + size, 5 + elapsed) == watch.last
        assert (watch.steps, watch.stepped_ns) == (1, abs(size))
    else:
        assert step is None
    assert watch.observe(WALL + elapsed + size + SECOND, 5 + elapsed + SECOND) is None


class Machine:
    """Clocks that nobody sets. After a reading of the wall clock, the process loses the CPU."""

    def __init__(self, *pauses_ms: int) -> None:
        self.now = 0
        self.pauses_ms = list(pauses_ms)

    def monotonic(self) -> int:
        return self.now

    def wall(self) -> int:
        read = WALL + self.now
        self.now += self.pauses_ms.pop(0) * 1_000_000 if self.pauses_ms else 0
        return read


@pytest.mark.parametrize("pauses_ms", [(200,), (200, 90, 300), (200,) * 5, (200,) * 12])
def test_a_process_without_cpu_between_its_readings_sees_no_step(
    pauses_ms: tuple[int, ...],
) -> None:
    """Once, the next reading was compared with the delayed one and seemed to be a step."""
    machine = Machine(*pauses_ms)
    watch = ClockWatch(WALL, 0)
    for _ in range(4):
        machine.now += SECOND
        assert watch.measure(machine.monotonic, machine.wall) is None
        assert watch.offset_ns == WALL
    assert not machine.pauses_ms


def test_a_step_before_a_doubtful_reading_is_told_by_the_next_one() -> None:
    """A doubtful reading is left out; it hides no step."""
    machine = Machine(*(200,) * 5)
    watch = ClockWatch(WALL - SECOND, 0)
    assert watch.measure(machine.monotonic, machine.wall) is None
    step = watch.measure(machine.monotonic, machine.wall)
    assert step is not None
    assert step.by_ns == SECOND


def test_the_first_reading_is_the_closest_of_some() -> None:
    """All later readings are compared with it."""
    machine = Machine(200, 90)
    assert ClockWatch.of(machine.monotonic, machine.wall).offset_ns == WALL
    machine = Machine(200, 90, 2, 90, 90)
    assert ClockWatch.of(machine.monotonic, machine.wall).offset_ns == WALL - 2_000_000


def test_a_monotonic_clock_does_not_run_backwards() -> None:
    """If it does, the caller has mixed up its readings."""
    with pytest.raises(ValueError, match="backwards"):
        ClockWatch(WALL, 5).observe(WALL, 4)


def test_how_far_apart_a_clocks_settings_are_is_no_sum_of_its_steps() -> None:
    """A clock that is set by +2 s, -3 s and +1 s has settings that are at most 3 s apart."""
    watch = ClockWatch(WALL, 0)
    watch.observe(WALL + 30_000_000 + 1_000, 1_000)
    assert watch.set_by_ns == 0
    for at, by in ((2, 2), (3, -1), (4, 0)):
        watch.observe(WALL + at * 10**9 + by * 10**9, at * 10**9)
    assert (watch.set_by_ns, watch.steps) == (3 * 10**9, 3)
