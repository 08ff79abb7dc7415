"""Deadlines expire after their time, never before, and only by elapsed time."""

from __future__ import annotations

import json
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.loss import Losses
from mirrortest.wire.stream import StreamId

STREAM = StreamId("t", "r", "a", 1, 0)


def ids(intervals: IntervalSet) -> set[int]:
    return {n for lo, hi in intervals.intervals() for n in range(lo, hi)}


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20), st.integers(1, 5))),
    st.booleans(),
)
def test_expiry(deadline: int, notes: list[tuple[int, int, int]], restart: bool) -> None:
    """A seq first noted at t expires from t + deadline on, at most 1/64 of the deadline late."""
    losses, now = Losses(deadline), 0
    noted: dict[int, int] = {}
    for wait, lo, count in notes:
        now += wait
        losses.note(STREAM, IntervalSet([(lo, lo + count)]), now)
        for number in range(lo, lo + count):
            noted.setdefault(number, now)
        if restart:
            state = json.loads(json.dumps(list(losses.clocks_to_state(partial(int, now)))))
            losses = Losses(deadline)
            losses.restore_clocks(state, now, of_topic=STREAM.topic, of_run=STREAM.run)
        expired = ids(losses.expired(STREAM, now))
        assert expired <= {n for n, at in noted.items() if at + deadline <= now}
    grace = deadline // 64 + 1
    assert ids(losses.expired(STREAM, now + deadline + grace)) == set(noted)


def test_waiting_numbers_take_bounded_room() -> None:
    """However often seqs are noted, a stream has at most 65 running deadlines."""
    losses = Losses(64_000)
    for now in range(64_000):
        losses.note(STREAM, IntervalSet([(0, now + 1)]), now)
    (entry,) = losses.clocks_to_state(lambda: 64_000)
    assert len(entry[2]) <= 65


def test_a_stream_without_a_number_is_not_told() -> None:
    """A consumer that has noted no seq of a stream must not overwrite what others noted."""
    losses = Losses(10)
    losses.note(STREAM, IntervalSet(), 5)
    assert list(losses.clocks_to_state(lambda: 5)) == []


def test_an_unknown_stream_has_nothing_expired() -> None:
    """Without noted seqs, none expires; the result is the caller's own copy."""
    losses = Losses(0)
    assert not losses.expired(STREAM, 10)
    losses.note(STREAM, IntervalSet([(0, 1)]), 0)
    losses.expired(STREAM, 0).add(5, 9)
    assert ids(losses.expired(STREAM, 0)) == {0}


def test_all_that_expired_is_what_expired_of_each_stream() -> None:
    """It is by stream, without streams that have no expired seq."""
    losses = Losses(64)
    other = STREAM._replace(lane=1)
    losses.note(STREAM, IntervalSet([(0, 3)]), 0)
    losses.note(STREAM, IntervalSet([(0, 9)]), 60)
    losses.note(other, IntervalSet([(0, 2)]), 60)
    expired = {stream: ids(numbers) for stream, numbers in losses.all_expired(64)}
    assert expired == {STREAM: {0, 1, 2}}
