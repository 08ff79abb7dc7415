"""How long fetched batches wait to be judged together, and what ends the wait."""

from __future__ import annotations

import pytest

from mirrortest.consume.fetch_buffer import (
    ENOUGH_BYTES,
    LARGE_BYTES,
    MOST_MESSAGES,
    MOST_SECONDS,
    WAIT_EACH,
    WAIT_SECONDS,
    FetchBuffer,
)
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.model.topic_partition import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def _batch(
    offset: int, size: int = 100, *, count: int = 1, memory: bytes | None = None
) -> FetchedBatches:
    buffer = bytearray(size) if memory is None else memoryview(memory)[:size]
    return FetchedBatches("t", 0, offset, offset + count, 0, buffer, count)


def _portions(*batches: FetchedBatches) -> list[int]:
    """How many batches of a partition each portion has."""
    gathering = FetchBuffer()
    for batch in batches:
        gathering.add(ONE, batch, 5.0)
    portions: list[tuple[TopicPartition, list[FetchedBatches]]] = []
    while taken := gathering.take():
        portions.append(taken)
    assert [batch for _, portion in portions for batch in portion] == list(batches)
    assert gathering.due_in(5.0) == float("inf")
    return [len(portion) for _, portion in portions]


def test_the_first_to_wait_says_when() -> None:
    """Later batches do not postpone it."""
    gathering = FetchBuffer()
    assert gathering.due_in(5.0) == float("inf")
    gathering.add(ONE, _batch(0), 0.0)
    gathering.add(TWO, _batch(0), WAIT_SECONDS / 2)
    assert gathering.due_in(0.0) == WAIT_SECONDS
    assert gathering.due_in(WAIT_SECONDS) == 0


def test_each_partition_waits_for_itself() -> None:
    """So a consumer of many partitions fetches between judging two of them."""
    gathering = FetchBuffer()
    gathering.add(ONE, _batch(0), 0.0)
    gathering.add(TWO, _batch(0), WAIT_SECONDS / 2)
    gathering.add(ONE, _batch(1), WAIT_SECONDS / 2)
    taken = gathering.take()
    assert taken is not None
    assert taken[0] == ONE
    assert gathering.due_in(WAIT_SECONDS / 2) == WAIT_SECONDS
    gathering.add(ONE, _batch(2), WAIT_SECONDS)
    assert gathering.due_in(WAIT_SECONDS) == pytest.approx(WAIT_SECONDS / 2)


def test_many_partitions_wait_longer() -> None:
    """They wait five times as long as judging them takes, but no longer than a second."""
    gathering = FetchBuffer()
    for count in range(1, 1000):
        gathering.add(TopicPartition("t", count), _batch(0), 0.0)
        assert gathering.due_in(0.0) == min(max(WAIT_SECONDS, count * WAIT_EACH), MOST_SECONDS)


def test_enough_waits_for_nothing() -> None:
    """From `ENOUGH_BYTES` on, nothing waits: at full speed each response is judged at once."""
    gathering = FetchBuffer()
    gathering.add(ONE, _batch(0, ENOUGH_BYTES - 1), 5.0)
    assert gathering.due_in(5.0) > 0
    gathering.add(TWO, _batch(0, 1), 5.0)
    assert gathering.due_in(5.0) == 0


def test_what_is_taken_is_in_order_and_waits_no_more() -> None:
    """It is of one partition; batches without records keep their places."""
    gathering = FetchBuffer()
    empty = FetchedBatches("t", 0, 1, 2, 0, None, 0)
    batches = [_batch(0), empty, _batch(2)]
    for batch in batches:
        gathering.add(ONE, batch, 5.0)
    gathering.add(TWO, _batch(0), 5.0)
    assert gathering.take() == (ONE, batches)
    assert gathering.due_in(5.0) > 0
    gathering.drop(TWO)
    assert gathering.take() is None


def test_many_messages_are_judged_in_portions() -> None:
    """So their columns stay in the cache; a single batch is never split."""
    half = MOST_MESSAGES // 2
    halves = [_batch(number * half, count=half) for number in range(5)]
    assert _portions(*halves) == [2, 2, 1]
    assert _portions(_batch(0, count=3 * half), _batch(3 * half)) == [1, 1]


def test_large_memories_are_judged_one_by_one() -> None:
    """Batches of one response are judged together, however large; small ones are copied."""
    one, two = bytes(2 * LARGE_BYTES), bytes(2 * LARGE_BYTES)
    large = [
        _batch(0, LARGE_BYTES, memory=one),
        _batch(1, LARGE_BYTES, memory=one),
        _batch(2, LARGE_BYTES, memory=two),
        _batch(3, memory=two),
    ]
    assert _portions(*large) == [2, 2]
    small = [_batch(number, LARGE_BYTES - 1) for number in range(4, 7)]
    assert _portions(*small) == [3]
    assert _portions(*small, *large, *small) == [3, 2, 2, 3]


def test_what_comes_too_fast_keeps_no_other_waiting() -> None:
    """A partition that always has batches left takes turns with the others."""
    gathering = FetchBuffer()
    gathering.add(ONE, _batch(0, count=MOST_MESSAGES), 5.0)
    gathering.add(ONE, _batch(1, count=MOST_MESSAGES), 5.0)
    gathering.add(TWO, _batch(0), 5.0)
    turns = []
    for number in range(2, 6):
        taken = gathering.take()
        assert taken is not None
        turns.append(taken[0])
        gathering.add(ONE, _batch(number, count=MOST_MESSAGES), 5.0)
    assert turns == [ONE, TWO, ONE, ONE]
