"""What waits to be judged together: for how long, and what ends the waiting."""

from __future__ import annotations

import pytest

from mirrortest.consume.gathering import (
    ENOUGH_BYTES,
    MOST_SECONDS,
    WAIT_EACH,
    WAIT_SECONDS,
    Gathering,
)
from mirrortest.consume.state import Partition
from mirrortest.kafka.fetched import FetchedBatch

ONE, TWO = Partition("t", 0), Partition("t", 1)


def _batch(offset: int, size: int = 100) -> FetchedBatch:
    return FetchedBatch("t", 0, offset, offset, offset + 1, 0, bytearray(size), 1, 0, -1)


def test_the_first_to_wait_says_when() -> None:
    """What comes later does not put it off."""
    gathering = Gathering()
    assert gathering.due_in(5.0) == float("inf")
    gathering.add(ONE, _batch(0), 0.0)
    gathering.add(TWO, _batch(0), WAIT_SECONDS / 2)
    assert gathering.due_in(0.0) == WAIT_SECONDS
    assert gathering.due_in(WAIT_SECONDS) == 0


def test_each_partition_waits_for_itself() -> None:
    """So that a consumer of many fetches between one and the next."""
    gathering = Gathering()
    gathering.add(ONE, _batch(0), 0.0)
    gathering.add(TWO, _batch(0), 0.03)
    gathering.add(ONE, _batch(1), 0.04)
    taken = gathering.take()
    assert taken is not None
    assert taken[0] == ONE
    assert gathering.due_in(0.03) == WAIT_SECONDS
    gathering.add(ONE, _batch(2), 0.05)
    assert gathering.due_in(0.05) == pytest.approx(WAIT_SECONDS - 0.02)


def test_many_partitions_wait_longer() -> None:
    """Judging them takes a fifth of the time, however many they are; none waits for seconds."""
    gathering = Gathering()
    for count in range(1, 1000):
        gathering.add(Partition("t", count), _batch(0), 0.0)
        assert gathering.due_in(0.0) == min(max(WAIT_SECONDS, count * WAIT_EACH), MOST_SECONDS)


def test_enough_waits_for_nothing() -> None:
    """At full speed each response is judged at once."""
    gathering = Gathering()
    gathering.add(ONE, _batch(0, ENOUGH_BYTES - 1), 5.0)
    assert gathering.due_in(5.0) > 0
    gathering.add(TWO, _batch(0, 1), 5.0)
    assert gathering.due_in(5.0) == 0


def test_what_is_taken_is_in_order_and_waits_no_more() -> None:
    """By partition; batches that hold nothing to read stay in their place."""
    gathering = Gathering()
    empty = FetchedBatch("t", 0, 1, 1, 2, 0, None, 0, 0, -1)
    batches = [_batch(0), empty, _batch(2, ENOUGH_BYTES)]
    for batch in batches:
        gathering.add(ONE, batch, 5.0)
    gathering.add(TWO, _batch(0), 5.0)
    assert gathering.take() == (ONE, batches)
    assert gathering.due_in(5.0) > 0
    gathering.drop(TWO)
    assert gathering.take() is None
