"""Backlogs: their messages have no latency, or are not read at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrortest.model.topic_partition import TopicPartition
from tests.unit.fetched_messages import fetched, read
from tests.unit.played_cluster import Played, consumer_of

if TYPE_CHECKING:
    from mirrortest.consume.assigned_partition import JudgedBatch
    from mirrortest.consume.consumer import Consumer


async def _taken_from(played: Played, consumer: Consumer, seq: int, count: int) -> JudgedBatch:
    """Read messages now, and return what is judged of them."""
    await read(played, consumer, fetched(seq, count, arrived_ns=9_000))
    await consumer.batches.judge_all()
    return played.judged[-1]


async def test_what_was_in_a_partition_when_it_was_taken_has_no_latency() -> None:
    """It is read late because the consumer started late, not because of the mirror.

    It is still judged, and counted separately; later messages are measured.
    """
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [assigned] = consumer.context.partitions.values()
    taken = await _taken_from(played, consumer, 0, 5)
    assert (taken.messages, taken.backlog) == (5, 3)
    assert [(row.seq_lo, row.seq_hi) for row in taken.rows] == [(0, 3), (3, 5)]
    assert taken.latency_intended.tolist() == taken.latency_sent.tolist() == [8_000] * 2
    assert taken.row_index.tolist() == [1, 1]
    assert assigned.checker.next_offset == 5
    assert consumer.context.metrics.backlog == {"a": 3}
    assert consumer.context.metrics.latency["a"][0].count == 2


async def test_each_time_a_partition_is_taken_what_is_in_it_has_no_latency() -> None:
    """During a rebalance or restart, messages wait for a consumer, not for the mirror."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    assert (await _taken_from(played, consumer, 0, 2)).backlog == 0
    await consumer.assignment._on_revoked([("a", 0)])
    played.end = 4
    await consumer.assignment._on_assigned([("a", 0)])
    taken = await _taken_from(played, consumer, 0, 6)
    assert (taken.backlog, len(taken.latency_intended)) == (4, 2)


async def test_what_comes_late_by_an_outage_has_its_latency() -> None:
    """The consumer owns the partition all the time: no other could have read it earlier."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    await _taken_from(played, consumer, 0, 2)
    played.end = 4
    await consumer.assignment.recheck()
    taken = await _taken_from(played, consumer, 2, 2)
    assert (taken.backlog, len(taken.latency_intended)) == (0, 2)


async def test_a_backlog_is_measured_where_that_is_asked_for() -> None:
    """`--include-backlog` measures how old it was when this consumer read it."""
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played, include_backlog=True)
    await topics.discover()
    await consumer.assignment.take_share()
    taken = await _taken_from(played, consumer, 0, 5)
    assert (taken.backlog, len(taken.latency_intended)) == (0, 5)


async def test_from_latest_what_is_there_before_is_an_unread_range() -> None:
    """Log and checker have the range, so that messages in it are not claimed lost."""
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played, from_latest=True)
    await topics.discover()
    await consumer.assignment.begin()
    (assigned,) = consumer.context.partitions.values()
    assert played.sought == [("a", 0, 3)]
    assert played.unread_ranges == [("a", 0, 0, 3)]
    assert assigned.checker.unread_offsets.count == 3


async def test_from_latest_reads_all_of_a_partition_that_came_later() -> None:
    """Its messages were written while this consumer ran."""
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played, from_latest=True)
    await topics.discover()
    await consumer.assignment.begin()
    played.counts["a"] = 2
    await topics.discover()
    await consumer.assignment.take_share()
    assert played.sought[-1] == ("a", 1, 0)
    assert played.unread_ranges == [("a", 0, 0, 3)]


async def test_what_is_in_a_partition_that_was_added_came_after_the_look_before() -> None:
    """Messages sent before that look were late at least until then, for every consumer."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    (first, second) = TopicPartition("a", 0), TopicPartition("a", 1)
    before_ns = time.time_ns()
    await topics.discover()
    after_ns = time.time_ns()
    played.counts["a"] = 2
    await topics.discover()
    assert topics.absent_ns(first) == 0
    assert before_ns <= topics.absent_ns(second) <= after_ns
    await topics.discover()
    assert topics.absent_ns(second) <= after_ns
    await consumer.assignment.take_share()
    assert consumer.context.partitions[second].absent_ns == topics.absent_ns(second)


async def test_after_a_standstill_a_topic_that_came_late_is_still_late() -> None:
    """The rest of its backlog was not measured: `p(99)<2s` passed although the mirror was late."""
    played = Played({})
    played.end = 4
    consumer, topics = consumer_of(played, ("a",))
    for _ in range(3):
        await topics.discover()
    played.counts["a"] = 1
    await topics.discover()
    await consumer.assignment.take_share()
    absent_ns = topics.absent_ns(TopicPartition("a", 0))
    assert absent_ns
    taken = [await _taken_from(played, consumer, 0, 2)]
    consumer.context.stalls._stalled = True
    taken.append(await _taken_from(played, consumer, 2, 2))
    consumer.batches.end_backlogs({"a": {0: 6}})
    taken.append(await _taken_from(played, consumer, 4, 2))
    for each in taken:
        assert each.latency_intended.tolist() == [absent_ns - 1_000] * 2


async def test_a_broker_that_lists_a_topic_no_more_for_once_makes_no_backlog_late() -> None:
    """Messages that had been in it for hours had latencies of hours, and failed thresholds."""
    played = Played({"a": 2, "b": 1})
    consumer, topics = consumer_of(played)
    for counts in ({"a": 2, "b": 1}, {"a": 1}, {"a": 2, "b": 1}):
        played.counts = counts
        await topics.discover()
    await consumer.assignment.take_share()
    assert [assigned.absent_ns for assigned in consumer.context.partitions.values()] == [0, 0, 0]


async def test_one_answer_without_a_topic_does_not_prove_that_it_came_later() -> None:
    """The broker that a consumer asks first may have just started, and list no topics yet."""
    played = Played({})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    played.counts["a"] = 1
    await topics.discover()
    await consumer.assignment.take_share()
    (assigned,) = consumer.context.partitions.values()
    assert assigned.absent_ns == 0
