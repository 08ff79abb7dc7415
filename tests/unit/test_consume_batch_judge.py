"""Fetched batches are judged in portions, each message by its own arrival time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.consume.partition_views import SavedState
from mirrortest.errors import UnreachableError
from mirrortest.kafka.fetched import FetchedBatches, OutOfRange
from mirrortest.model.findings import Finding
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.lanes import lane_key, partition_of
from tests.unit.fetched_messages import fetched, read
from tests.unit.played_cluster import Played, consumer_of


@pytest.mark.parametrize("grown", [True, False])
async def test_what_is_mirrored_since_partitions_were_added_is_judged_by_their_count(
    grown: bool,
) -> None:
    """A misplaced message makes the consumer count the partitions again.

    It is misrouted unless partitions were added.
    """
    played = Played({"a": 2})
    consumer, topics = consumer_of(played, expect_partition=ExpectPartition.MURMUR2)
    await topics.discover()
    played.end = 2
    await consumer.assignment.take_share()
    lane = next(n for n in range(99) if partition_of(lane_key(n), 2) == 1
                and partition_of(lane_key(n), 3) == 0)  # fmt: skip
    played.counts = {"a": 3 if grown else 2}
    # Planned for one partition, they may be in that one.
    await read(played, consumer, fetched(0, 2, arrived_ns=time.time_ns()))
    await consumer.batches.judge_all()
    astray = fetched(2, 3, arrived_ns=time.time_ns(), lane=lane, planned=2)
    await read(played, consumer, astray)
    await consumer.batches.judge_all()
    found = [
        bool(row.findings & Finding.MISROUTED) for taken in played.judged for row in taken.rows
    ]
    assert found == [False, not grown]
    asked = played.asked
    await read(played, consumer, fetched(5, 1, arrived_ns=1, lane=lane, planned=2))
    await consumer.batches.judge_all()
    assert played.asked == asked  # what arrived before the last count is judged by it


async def test_what_little_arrives_is_judged_together_each_by_its_own_arrival() -> None:
    """Small batches wait for more; the partition's next offset counts only what was judged."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [assigned] = consumer.context.partitions.values()
    await read(played, consumer, fetched(0, 2, arrived_ns=5_000))
    await read(played, consumer, fetched(2, 3, arrived_ns=9_000))
    assert (assigned.checker.next_offset, played.judged) == (0, [])
    await consumer.batches.judge_all()
    assert assigned.checker.next_offset == 5
    [taken] = played.judged
    assert taken.latency_intended.tolist() == [4_000] * 2 + [8_000] * 3


async def test_what_cannot_be_read_is_an_unread_range_and_reading_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A note names its offsets and the reason, and the checker counts them as unread."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [assigned] = consumer.context.partitions.values()
    logged = []
    unread = lambda _, lo, hi, __: logged.append((lo, hi))  # noqa: E731
    monkeypatch.setattr(played, "unread", unread, raising=False)
    bad = FetchedBatches("a", 0, 2, 5, 5_000, None, 0, unread="too much")
    batches = [fetched(0, 2, arrived_ns=5_000), bad, replace(bad, fetched_from=5, next_offset=9)]
    await read(played, consumer, *batches, fetched(9, 2, arrived_ns=5_000))
    await consumer.batches.judge_all()
    assert [taken.messages for taken in played.judged] == [2, 2]
    assert (assigned.checker.next_offset, logged) == (11, [(2, 5), (5, 9)])
    assert list(assigned.checker.unread_offsets.intervals()) == [(2, 9)]
    assert assigned.notes == [
        "a-0: offsets 2 to 4 not read: too much",
        "a-0: offsets 5 to 8 not read: too much",
    ]
    for at in range(11, 99):
        await read(played, consumer, replace(bad, fetched_from=at, next_offset=at + 1))
    await consumer.batches.judge_all()
    assert (len(assigned.notes), len(logged)) == (20, 90)


async def test_what_came_with_a_lost_position_is_judged_whoever_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader returns these batches only once, but the lost position until the next seek."""
    played = Played({"a": 1, "b": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()

    async def ends(_: object) -> None:
        raise UnreachableError("fewer than half of the brokers answer")

    monkeypatch.setattr(played, "ends", ends)
    with pytest.raises(UnreachableError):
        await read(played, consumer, OutOfRange("b", 0, 0), fetched(0, 3, arrived_ns=5_000))
    await consumer.batches.judge_all()
    assert [taken.messages for taken in played.judged] == [3]


async def test_what_waits_is_forgotten_with_its_partition() -> None:
    """The partition's next owner reads these batches again, so they are judged once."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    await read(played, consumer, fetched(0, 2, arrived_ns=5_000))
    await consumer.assignment._on_revoked([("a", 0)])
    await consumer.assignment._on_assigned([("a", 0)])
    assert played.sought[-1] == ("a", 0, 0)
    await read(played, consumer, fetched(0, 2, arrived_ns=6_000))
    await consumer.batches.judge_all()
    [taken] = played.judged
    assert taken.messages == 2


async def test_a_topic_that_may_have_been_made_again_meanwhile_is_looked_at_again() -> None:
    """After an outage, or once a missing topic is back, the last judged record is read again.

    The new topic may be longer than what was read of the old one. Batches that waited to be judged
    are read again, and no message is judged twice.
    """
    played = Played({"a": 1, "b": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    assigned = next(
        assigned for at, assigned in consumer.context.partitions.items() if at.topic == "a"
    )
    await read(played, consumer, fetched(0, 3, arrived_ns=5_000))
    await consumer.batches.judge_all()
    await read(played, consumer, fetched(3, 2, arrived_ns=5_000))
    del played.sought[:]
    await consumer.assignment.recheck({"b"})
    assert played.sought == [("b", 0, 0)]
    played.counts = {"a": 1}
    await topics.discover()
    await consumer.assignment.recheck()
    assert played.sought == [("b", 0, 0), ("a", 0, 2)]
    await read(played, consumer, fetched(2, 3, arrived_ns=5_000))
    await consumer.batches.judge_all()
    assert (assigned.checker.next_offset, assigned.identity) == (5, 0)
    assert [taken.messages for taken in played.judged] == [3, 2]

    await consumer.assignment.recheck()
    await read(played, consumer, fetched(7, 6, arrived_ns=5_000, offset=4))
    await consumer.batches.judge_all()
    assert (assigned.checker.next_offset, assigned.identity, played.sought[-1]) == (
        0,
        1,
        ("a", 0, 0),
    )
    assert "deleted and recreated after offset 5" in assigned.notes[0]


async def test_nothing_more_is_read_while_the_disk_does_not_keep_up() -> None:
    """Judged rows wait in memory until they are on disk, and memory is limited."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    await consumer.batches.read(0)
    assert played.synced == 0
    played.pending_rows = 1 << 20
    played.may_save.clear()
    reading = asyncio.create_task(consumer.batches.read(0))
    await asyncio.wait({reading}, timeout=0.05)
    assert not reading.done()
    played.may_save.set()
    await reading
    assert played.synced == 1


async def test_what_arrives_amid_a_round_waits_and_keeps_its_own_arrival() -> None:
    """Checkers must not change during a round; after it, the batches are judged in their order."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [assigned] = consumer.context.partitions.values()
    for at in (0, 2):
        played.fetched = [fetched(at, 2, arrived_ns=5_000 + at)]
        await consumer.batches.buffer_arrived()
    assert (assigned.checker.next_offset, played.judged) == (0, [])
    await consumer.batches.judge_all()
    [taken] = played.judged
    assert taken.latency_intended.tolist() == [4_000] * 2 + [4_002] * 2


async def test_a_round_takes_in_no_more_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded in a long round: if the buffer is full, batches stay in the reader."""
    monkeypatch.setattr("mirrortest.consume.fetch_buffer.ENOUGH_BYTES", 1)
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    for at in (0, 2):
        played.fetched = [fetched(at, 2, arrived_ns=5_000)]
        await consumer.batches.buffer_arrived()
    assert len(played.fetched) == 1


@pytest.mark.parametrize(
    ("sees_markers", "policy", "holes"),
    [(True, "delete", 3), (False, "delete", 0), (False, "compact", 4), (False, None, 4)],
)
async def test_markers_are_no_holes_where_they_can_be_told_apart(
    sees_markers: bool, policy: str | None, holes: int
) -> None:
    """If markers are not visible, all empty offsets count as such, unless compaction is possible.

    Two offsets that compaction emptied, a marker, messages, and one more empty offset.
    """
    played = Played({"a": 1})
    played.sees_markers = sees_markers
    consumer, topics = consumer_of(played)
    await topics.discover()
    topics.judges["a"].compact = policy == "compact"
    topics.policy_hidden = set() if policy else {"a"}
    await consumer.assignment.take_share()
    [assigned] = consumer.context.partitions.values()
    gap = replace(fetched(0, 1, arrived_ns=1), buffer=None, count=0)
    marker = replace(gap, next_offset=3, markers_from=2 if sees_markers else None)
    emptied = replace(gap, fetched_from=5, next_offset=6)
    await read(played, consumer, marker, fetched(3, 2, arrived_ns=1), emptied)
    await consumer.batches.judge_all()
    assert (assigned.checker.next_offset, assigned.checker.holes) == (6, holes)


@pytest.mark.parametrize(
    ("level", "run", "doubted"),
    [
        ("read_uncommitted", "r1", True),
        ("read_uncommitted", "other", False),
        ("read_committed", "r1", False),
    ],
)
async def test_messages_in_transactions_that_are_read_uncommitted_are_in_doubt(
    level: str, run: str, doubted: bool
) -> None:
    """The transactions may have been aborted. Those of other runs do not matter.

    Both the partition's state and the log record the doubt.
    """
    played = Played({"a": 1})
    client = ClientConfig.load(
        bootstrap_server="localhost:1", command_properties=(f"isolation.level={level}",)
    )
    consumer, topics = consumer_of(played, ("a",), client=client)
    await topics.discover()
    await consumer.assignment.begin()
    await read(
        played,
        consumer,
        fetched(0, 2, arrived_ns=5_000),
        fetched(2, 2, arrived_ns=5_000, run=run, transactional=True),
        fetched(4, 2, arrived_ns=5_000),
        fetched(6, 2, arrived_ns=5_000, run=run, transactional=True),
    )
    await consumer.batches.judge_all()
    [assigned] = consumer.context.partitions.values()
    assert assigned.checker.next_offset == 8
    saved = SavedState.read(assigned.to_state(), assigned.at, run="r1", policy=assigned.policy)
    assert saved.uncommitted is doubted
    assert played.doubted == ({"a"} if doubted else set())
