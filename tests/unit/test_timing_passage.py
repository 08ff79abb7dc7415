"""Bytes pass a line unaltered, in order, complete, not too early, and not above its rate."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.timing.passage import LATE_NS, Line, Passage

SECOND = 1_000_000_000
TIMES = st.integers(0, SECOND // 5)


class Step(NamedTuple):
    """What happens `after_ns` after the previous step."""

    after_ns: int
    what: str
    data: bytes
    delay_ns: int
    rate: int | None
    cut: bool


STEPS = st.lists(
    st.builds(
        Step,
        TIMES,
        st.sampled_from(["put", "put", "take", "take", "take", "change"]),
        st.binary(max_size=3000),
        TIMES,
        st.none() | st.integers(1, 1_000_000),
        st.booleans(),
    ),
    max_size=60,
)


class Taken(NamedTuple):
    """Bytes that passed, when, and the number of the rate then."""

    at_ns: int
    data: bytes
    era: int


def play(steps: list[Step]) -> tuple[list[tuple[bytes, int]], list[Taken], list[int | None]]:
    """The bytes put with their due times, what was taken, and the rates in their order."""
    line = Line()
    passage = Passage(line)
    now = 1_000 * SECOND
    put: list[tuple[bytes, int]] = []
    taken: list[Taken] = []
    rates: list[int | None] = [None]
    for step in steps:
        now += step.after_ns
        if step.what == "put" and step.data:
            passage.put(step.data, now + step.delay_ns)
            put.append((step.data, now + step.delay_ns))
        elif step.what == "change":
            line.change(now, step.rate, is_cut=step.cut)
            passage.change(now + step.delay_ns)
            put = [(data, min(due, now + step.delay_ns)) for data, due in put]
            rates.append(step.rate)
        at = passage.next_ns(now)
        assert at is None or not line.is_cut
        if step.what == "take" and at is not None and at <= now:
            taken.append(Taken(now, passage.take(), len(rates) - 1))
    line.change(now, None, is_cut=False)
    passage.change(now)
    rates.append(None)
    put = [(data, min(due, now)) for data, due in put]
    while (at := passage.next_ns(now)) is not None:
        assert at <= now
        taken.append(Taken(now, passage.take(), len(rates) - 1))
    assert passage.size == 0
    return put, taken, rates


@given(STEPS)
def test_bytes_leave_as_they_entered(steps: list[Step]) -> None:
    """No byte is altered, reordered, duplicated or lost, however the line changes meanwhile."""
    put, taken, _ = play(steps)
    assert b"".join(each.data for each in taken) == b"".join(data for data, _ in put)


@given(STEPS)
def test_no_byte_passes_before_its_time(steps: list[Step]) -> None:
    """Each byte passes after its delay, or after what a change left of the delay."""
    put, taken, _ = play(steps)
    due = [at for data, at in put for _ in data]
    passed = [each.at_ns for each in taken for _ in each.data]
    assert all(map(int.__ge__, passed, due))


@given(STEPS)
def test_within_any_time_no_more_passes_than_the_rate_allows(steps: list[Step]) -> None:
    """The limit is kept however late and irregularly bytes are taken."""
    _, taken, rates = play(steps)
    for era, rate in enumerate(rates):
        if rate is None:
            continue
        here = [each for each in taken if each.era == era]
        for first in range(len(here)):
            passed = 0
            for each in here[first:]:
                passed += len(each.data)
                window = each.at_ns - here[first].at_ns + LATE_NS
                assert passed <= rate * window / SECOND + max(1, rate // 100)


@given(st.integers(1, 10**6), st.integers(1, 20), st.integers(0, LATE_NS))
def test_a_full_line_passes_its_rate(rate: int, slices: int, late_ns: int) -> None:
    """No rate is lost if each slice is taken up to `LATE_NS` late, as timers are."""
    line = Line()
    line.change(0, rate, is_cut=False)
    passage = Passage(line)
    size = max(1, rate // 100) * slices
    passage.put(bytes(size), 0)
    now = left = 0
    while (at := passage.next_ns(now)) is not None:
        now = max(now, at + late_ns)
        left += len(passage.take())
    assert left == size
    assert now <= size * SECOND / rate + slices + late_ns


def test_connections_that_share_a_line_take_turns() -> None:
    """They get their slices alternately."""
    line = Line()
    line.change(0, 1000, is_cut=False)
    one, two = Passage(line), Passage(line)
    for passage in (one, two):
        passage.put(bytes(30), 0)
    now, order = 0, []
    while one.size or two.size:
        times = {id(each): each.next_ns(now) for each in (one, two)}
        now = min(at for at in times.values() if at is not None)
        mover = next(each for each in (one, two) if times[id(each)] == now)
        mover.take()
        order.append(1 if mover is one else 2)
    assert order == [1, 2, 1, 2, 1, 2]
    assert now == 60 * SECOND // 1000


def test_nothing_passes_a_cut_and_all_of_it_afterwards() -> None:
    """A cut passes no byte; once it is over, all bytes pass, and then the end."""
    line = Line()
    passage = Passage(line)
    line.change(0, None, is_cut=True)
    passage.put(b"held", 0)
    passage.put(b"", 0)
    assert passage.next_ns(SECOND) is None
    line.change(SECOND, None, is_cut=False)
    passage.change(SECOND)
    assert passage.next_ns(SECOND) == SECOND
    assert (passage.take(), passage.take()) == (b"held", b"")
    assert passage.next_ns(SECOND) is None
