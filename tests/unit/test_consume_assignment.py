"""Saves that go on beside the reading: when they fail, when they end, what they hold.

Reader, admin and store are played; what is held here is the order of things.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import structlog

from mirrortest.config.client_config import ClientConfig
from mirrortest.consume import outage
from mirrortest.consume.partition_views import SavedState
from mirrortest.errors import SequenceLogError, UnreachableError
from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.model.findings import Finding
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_key, partition_of
from mirrortest.wire.stream import ProducerId, StreamId
from tests.unit.played_cluster import Played, consumer_of, saving_of

if TYPE_CHECKING:
    from mirrortest.consume.assigned_partition import JudgedBatch
    from mirrortest.consume.consumer import Consumer
    from mirrortest.model.topic_partition import TopicPartition


async def test_a_topic_that_is_gone_for_now_stays_assigned() -> None:
    """Else it would not be read when it is made again, since it is held all the time."""
    played = Played({"a": 1, "b": 1})
    consumer, topics = consumer_of(played)
    for counts in ({"a": 1, "b": 1}, {"b": 2}):
        played.counts = counts
        await topics.discover()
        await consumer.assignment.take_share()
    assert played.assigned == [("a", 0), ("b", 0), ("b", 1)]


async def test_a_save_that_failed_is_told_by_the_next_round() -> None:
    """However long the interval between two saves is."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    played.broken = SequenceLogError("the disk is full")
    consumer.saves.save_if_due()
    await asyncio.gather(saving_of(consumer), return_exceptions=True)
    object.__setattr__(consumer.context.options, "state_interval", 3600.0)
    with pytest.raises(SequenceLogError, match="disk is full"):
        consumer.saves.save_if_due()


async def test_a_save_that_still_runs_ends_with_the_work() -> None:
    """What ends the work early is told to the user; the save's own failure is not dumped beside."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    played.hold.clear()
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    saving = saving_of(consumer)
    await consumer.saves.close()
    assert saving.done()
    del saving
    consumer.saves._saving = None
    assert told == []


async def test_a_revocation_waits_for_the_save_that_runs_and_writes_the_last_state() -> None:
    """An older snapshot never stands behind a newer one."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    (held,) = consumer.context.partitions.values()
    held.checker.advance(5)
    played.hold.clear()
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    held.checker.advance(9)
    revoked = asyncio.ensure_future(consumer.assignment._on_revoked([("a", 0)]))
    await asyncio.sleep(0)
    played.hold.set()
    await revoked
    assert [next_offset for _, _, next_offset in played.saved] == [5, 9]
    assert not consumer.context.partitions


async def test_a_state_that_cannot_be_saved_is_tried_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is durable all the same; an end in that state says what it costs."""
    monkeypatch.setattr("mirrortest.consume.saves._LAST_SAVE_SECONDS", 0.01)
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    played.away = UnreachableError("no broker answers")
    consumer.saves.save_if_due()
    await asyncio.wait({saving_of(consumer)})
    consumer.saves.save_if_due()
    assert "no broker answers" in str(await consumer.saves.save_last())
    assert (played.synced, played.saved) == (3, [])
    played.away = None
    assert await consumer.saves.save_last() is None
    assert (len(played.saved), played.parted) == (1, 1)


async def test_the_last_save_is_tried_again_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F5: a leader that moves as a consumer ends costs nobody what was read; findings once."""
    monkeypatch.setattr("mirrortest.consume.saves._RETRY_SECONDS", 0)
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    await consumer.assignment.begin()
    answers: list[Exception | None] = [UnreachableError("moving"), UnreachableError("moving"), None]
    found: list[int] = []
    object.__setattr__(played, "found", lambda held: found.append(held.at.partition))
    save = played.save

    async def at_last(*saved: Any, parting: bool = False) -> None:
        played.away = answers.pop(0)
        await save(*saved, parting=parting)

    monkeypatch.setattr(played, "save", at_last)
    assert await consumer.saves.save_last() is None
    assert (answers, len(played.saved), played.parted, found) == ([], 1, 1, [0])


async def test_the_end_does_not_wait_for_a_save_that_hangs_in_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead broker may keep it for minutes; the log is durable all the same."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.take_share()
    stuck = asyncio.Event()

    async def hangs(*_: object, **__: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(played, "save", hangs)
    consumer.saves.save_if_due()
    await stuck.wait()
    consumer.context.outage.begin(UnreachableError("no broker answers"))
    async with asyncio.timeout(10):
        assert "no broker answers" in str(await consumer.saves.save_last())
    assert played.synced == 2
    await consumer.saves.close()


async def test_partitions_assigned_in_an_outage_are_taken_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rebalance is told once: who fails then would never read what was assigned."""
    monkeypatch.setattr(outage, "_RETRY_SECONDS", 0)
    played = Played({"a": 2})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    answers = iter([UnreachableError("away"), UnreachableError("still"), None, None])

    async def claim(_: TopicPartition) -> tuple[int, None]:
        answer = next(answers)
        if answer is not None:
            raise answer
        return 1, None

    monkeypatch.setattr(played, "claim", claim)
    await consumer.assignment.begin()
    assert [at.partition for at in consumer.context.partitions] == [0, 1]
    assert played.sought == [("a", 0, 0), ("a", 1, 0)]


async def test_a_rebalance_is_under_way_until_what_is_ours_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the revocation on, while the claim waits, and where nothing is left to us, too."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    await consumer.assignment.begin()
    assert not consumer.assignment.rebalancing
    (held,) = consumer.context.partitions.values()
    await consumer.assignment._on_revoked([("a", 0)])
    assert (
        consumer.assignment.rebalancing,
        consumer.context.partitions,
        consumer.assignment.released,
    ) == (
        True,
        {},
        [held],
    )
    await consumer.assignment._on_revoked([])
    assert consumer.assignment.released == [held]
    claimed = asyncio.Event()

    async def claim(_: TopicPartition) -> tuple[int, None]:
        await claimed.wait()
        return 2, None

    monkeypatch.setattr(played, "claim", claim)
    taken = asyncio.ensure_future(consumer.assignment._on_assigned([("a", 0)]))
    await asyncio.sleep(0)
    assert consumer.assignment.rebalancing
    claimed.set()
    await taken
    assert (
        consumer.assignment.rebalancing,
        len(consumer.context.partitions),
        consumer.assignment.released,
    ) == (
        False,
        1,
        [],
    )
    await consumer.assignment._on_revoked([("a", 0)])
    await consumer.assignment._on_assigned([])
    assert (consumer.assignment.rebalancing, consumer.context.partitions) == (False, {})


async def test_what_is_assigned_without_a_revocation_is_moving_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member's first consumer takes nothing from it before."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    seen = []

    async def claim(_: TopicPartition) -> tuple[int, None]:
        seen.append(consumer.assignment.rebalancing)
        return 1, None

    monkeypatch.setattr(played, "claim", claim)
    await consumer.assignment._on_assigned([("a", 0)])
    assert (seen, consumer.assignment.rebalancing) == ([True], False)


def _fetched(
    seq: int,
    count: int,
    *,
    arrived_ns: int,
    offset: int | None = None,
    lane: int = 0,
    planned: int = 1,
    run: str = "r1",
    transactional: bool = False,
) -> FetchedBatches:
    """Messages from `seq` on as they stand from `offset` on, by default their own numbers."""
    at = seq if offset is None else offset
    encoder = LaneEncoder("a", ProducerId("p", run, 1), lane, 0, planned, Form.BODY, 200)
    buffer = encoder.encode(seq, np.full(count, 1_000), 1_000).buffer
    struct.pack_into(">q", buffer, 0, at)
    return FetchedBatches(
        "a",
        0,
        at,
        at + count,
        arrived_ns,
        memoryview(bytes(buffer)),
        count,
        transactional=transactional,
    )


async def _read(played: Played, consumer: Consumer, *batches: FetchedBatches) -> None:
    played.fetched = list(batches)
    await consumer.batches.read(0.0)


@pytest.mark.parametrize("grown", [True, False])
async def test_what_is_mirrored_since_partitions_were_added_is_judged_by_their_count(
    grown: bool,
) -> None:
    """F9: though the topics were not looked at since. What stands astray anyhow is misrouted."""
    played = Played({"a": 2})
    consumer, topics = consumer_of(played, expect_partition=ExpectPartition.MURMUR2)
    await topics.discover()
    played.end = 2
    await consumer.assignment.take_share()
    lane = next(n for n in range(99) if partition_of(lane_key(n), 2) == 1
                and partition_of(lane_key(n), 3) == 0)  # fmt: skip
    played.counts = {"a": 3 if grown else 2}
    # Planned for one partition, they may stand in that one.
    await _read(played, consumer, _fetched(0, 2, arrived_ns=time.time_ns()))
    await consumer.batches.judge_all()
    astray = _fetched(2, 3, arrived_ns=time.time_ns(), lane=lane, planned=2)
    await _read(played, consumer, astray)
    await consumer.batches.judge_all()
    found = [
        bool(row.findings & Finding.MISROUTED) for taken in played.judged for row in taken.rows
    ]
    assert found == [False, not grown]
    asked = played.asked
    await _read(played, consumer, _fetched(5, 1, arrived_ns=1, lane=lane, planned=2))
    await consumer.batches.judge_all()
    assert played.asked == asked  # what arrived before is judged by what was told since


async def test_what_little_arrives_is_judged_together_each_by_its_own_arrival() -> None:
    """A few messages wait for more; what is told and saved of a partition is what was judged."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [held] = consumer.context.partitions.values()
    await _read(played, consumer, _fetched(0, 2, arrived_ns=5_000))
    await _read(played, consumer, _fetched(2, 3, arrived_ns=9_000))
    assert (held.checker.next_offset, played.judged) == (0, [])
    await consumer.batches.judge_all()
    assert held.checker.next_offset == 5
    [taken] = played.judged
    assert taken.latency_intended.tolist() == [4_000] * 2 + [8_000] * 3


async def test_what_cannot_be_read_is_an_unread_range_and_reading_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P7: its offsets and the reason are named, and what may have stood there is in doubt."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [held] = consumer.context.partitions.values()
    logged = []
    unread = lambda _, lo, hi, __: logged.append((lo, hi))  # noqa: E731
    monkeypatch.setattr(played, "unread", unread, raising=False)
    bad = FetchedBatches("a", 0, 2, 5, 5_000, None, 0, unread="too much")
    batches = [_fetched(0, 2, arrived_ns=5_000), bad, replace(bad, fetched_from=5, next_offset=9)]
    await _read(played, consumer, *batches, _fetched(9, 2, arrived_ns=5_000))
    await consumer.batches.judge_all()
    assert [taken.messages for taken in played.judged] == [2, 2]
    assert (held.checker.next_offset, logged) == (11, [(2, 5), (5, 9)])
    assert list(held.checker.unread_offsets.intervals()) == [(2, 9)]
    assert held.notes == [
        "a-0: offsets 2 to 4 not read: too much",
        "a-0: offsets 5 to 8 not read: too much",
    ]
    for at in range(11, 99):
        await _read(played, consumer, replace(bad, fetched_from=at, next_offset=at + 1))
    await consumer.batches.judge_all()
    assert (len(held.notes), len(logged)) == (20, 90)


async def test_what_waits_is_forgotten_with_its_partition() -> None:
    """Whoever takes it next reads it again, so that it is judged once."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    await _read(played, consumer, _fetched(0, 2, arrived_ns=5_000))
    await consumer.assignment._on_revoked([("a", 0)])
    await consumer.assignment._on_assigned([("a", 0)])
    assert played.sought[-1] == ("a", 0, 0)
    await _read(played, consumer, _fetched(0, 2, arrived_ns=6_000))
    await consumer.batches.judge_all()
    [taken] = played.judged
    assert taken.messages == 2


async def test_a_topic_that_may_have_been_made_again_meanwhile_is_looked_at_again() -> None:
    """After an outage, or where it was gone: it may have grown beyond what was read of it.

    What waited to be judged is read again, and nothing is judged twice.
    """
    played = Played({"a": 1, "b": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    held = next(held for at, held in consumer.context.partitions.items() if at.topic == "a")
    await _read(played, consumer, _fetched(0, 3, arrived_ns=5_000))
    await consumer.batches.judge_all()
    await _read(played, consumer, _fetched(3, 2, arrived_ns=5_000))
    del played.sought[:]
    await consumer.assignment.recheck({"b"})
    assert played.sought == [("b", 0, 0)]
    played.counts = {"a": 1}
    await topics.discover()
    await consumer.assignment.recheck()
    assert played.sought == [("b", 0, 0), ("a", 0, 2)]
    await _read(played, consumer, _fetched(2, 3, arrived_ns=5_000))
    await consumer.batches.judge_all()
    assert (held.checker.next_offset, held.identity) == (5, 0)
    assert [taken.messages for taken in played.judged] == [3, 2]

    await consumer.assignment.recheck()
    await _read(played, consumer, _fetched(7, 6, arrived_ns=5_000, offset=4))
    await consumer.batches.judge_all()
    assert (held.checker.next_offset, held.identity, played.sought[-1]) == (0, 1, ("a", 0, 0))
    assert "deleted and made again after offset 5" in held.notes[0]


async def test_nothing_more_is_read_while_the_disk_does_not_keep_up() -> None:
    """What was judged waits for it in memory, and there is only so much of that."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    await consumer.batches.read(0)
    assert played.synced == 0
    played.pending_rows = 1 << 20
    played.hold.clear()
    reading = asyncio.create_task(consumer.batches.read(0))
    await asyncio.wait({reading}, timeout=0.05)
    assert not reading.done()
    played.hold.set()
    await reading
    assert played.synced == 1


async def test_no_older_state_is_written_after_a_newer_one() -> None:
    """Many partitions are told in slices; one of them is revoked meanwhile, and saved by that."""
    played = Played({"a": 50})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    consumer.saves._slice = TimeSlice(0)
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    first = consumer.context.partitions[min(consumer.context.partitions)]
    first.checker.advance(7)  # read on, after it was told
    await consumer.assignment._on_revoked([first.at])
    await saving_of(consumer)
    written = [offset for at, _, offset in played.saved if at == first.at]
    assert (written, len(played.saved)) == ([0, 7], 51)


async def test_states_are_told_in_slices() -> None:
    """The loop goes on between two partitions of a save."""
    played = Played({"a": 50})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    consumer.saves._slice = TimeSlice(0)
    consumer.saves.save_if_due()
    turns = 0
    while not saving_of(consumer).done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 50


async def test_what_arrives_amid_a_round_waits_and_keeps_its_own_arrival() -> None:
    """A round must find what it began with; behind it, all is judged as it came."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [held] = consumer.context.partitions.values()
    for at in (0, 2):
        played.fetched = [_fetched(at, 2, arrived_ns=5_000 + at)]
        await consumer.batches.buffer_arrived()
    assert (held.checker.next_offset, played.judged) == (0, [])
    await consumer.batches.judge_all()
    [taken] = played.judged
    assert taken.latency_intended.tolist() == [4_000] * 2 + [4_002] * 2


async def test_a_round_takes_in_no_more_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded however long a round is: what is fetched then stays with the broker."""
    monkeypatch.setattr("mirrortest.consume.fetch_buffer.ENOUGH_BYTES", 1)
    played = Played({"a": 1})
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    for at in (0, 2):
        played.fetched = [_fetched(at, 2, arrived_ns=5_000)]
        await consumer.batches.buffer_arrived()
    assert len(played.fetched) == 1


async def test_what_was_read_of_a_revoked_partition_is_logged_whoever_ends_the_wait() -> None:
    """A stop amid a rebalance cancels it while a save holds the lock."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    logged: list[str] = []
    object.__setattr__(played, "read", lambda held: logged.append(f"read {held.at.partition}"))
    object.__setattr__(played, "found", lambda held: logged.append(f"found {held.at.partition}"))
    async with consumer.saves._one_save:
        revoked = asyncio.ensure_future(consumer.assignment._on_revoked([("a", 0)]))
        await asyncio.sleep(0)
        revoked.cancel()
        await asyncio.wait({revoked})
    assert logged == ["read 0", "found 0"]


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
    """F8: they may have been aborted, and nobody can tell. Others' transactions do not matter.

    The partition's state carries it on, and the log has it before the state moves.
    """
    played = Played({"a": 1})
    client = ClientConfig.load(
        bootstrap_server="localhost:1", command_properties=(f"isolation.level={level}",)
    )
    consumer, topics = consumer_of(played, ("a",), client=client)
    await topics.discover()
    await consumer.assignment.begin()
    await _read(
        played,
        consumer,
        _fetched(0, 2, arrived_ns=5_000),
        _fetched(2, 2, arrived_ns=5_000, run=run, transactional=True),
        _fetched(4, 2, arrived_ns=5_000),
        _fetched(6, 2, arrived_ns=5_000, run=run, transactional=True),
    )
    await consumer.batches.judge_all()
    [held] = consumer.context.partitions.values()
    assert held.checker.next_offset == 8
    assert len(held.to_state()["notes"]) == doubted
    assert played.doubted == ({"a"} if doubted else set())
    assert all("--exactly-once" in note for note in held.notes)


async def _taken_from(played: Played, consumer: Consumer, seq: int, count: int) -> JudgedBatch:
    """What is judged of messages that are read now."""
    await _read(played, consumer, _fetched(seq, count, arrived_ns=9_000))
    await consumer.batches.judge_all()
    return played.judged[-1]


async def test_what_was_in_a_partition_when_it_was_taken_has_no_latency() -> None:
    """F17: a consumer that starts late says nothing of the mirror by reading late what was there.

    It is judged all the same, and counted apart; what comes then is measured.
    """
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played)
    await topics.discover()
    await consumer.assignment.take_share()
    [held] = consumer.context.partitions.values()
    taken = await _taken_from(played, consumer, 0, 5)
    assert (taken.messages, taken.backlog, taken.backlog_rows) == (5, 3, 1)
    assert [(row.seq_lo, row.seq_hi) for row in taken.rows] == [(0, 3), (3, 5)]
    assert taken.latency_intended.tolist() == taken.latency_sent.tolist() == [8_000] * 2
    assert taken.row_index.tolist() == [1, 1]
    assert held.checker.next_offset == 5
    assert consumer.context.metrics.backlog == {"a": 3}
    assert consumer.context.metrics.latency["a"][0].count == 2


async def test_each_time_a_partition_is_taken_what_is_in_it_has_no_latency() -> None:
    """After a rebalance or a restart what waited for a reader waited for us, not for the mirror."""
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
    """The partition is ours all the while: nobody could have read it earlier."""
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
    """`--include-backlog`: how long it takes to catch up."""
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played, include_backlog=True)
    await topics.discover()
    await consumer.assignment.take_share()
    taken = await _taken_from(played, consumer, 0, 5)
    assert (taken.backlog, len(taken.latency_intended)) == (0, 5)


async def test_from_latest_what_is_there_before_is_an_unread_range() -> None:
    """It is in the log and in the judgement, so that what is missing in it is not called lost."""
    played = Played({"a": 1})
    played.end = 3
    consumer, topics = consumer_of(played, from_latest=True)
    await topics.discover()
    await consumer.assignment.begin()
    (held,) = consumer.context.partitions.values()
    assert played.sought == [("a", 0, 3)]
    assert played.unread_ranges == [("a", 0, 0, 3)]
    assert held.checker.unread_offsets.count == 3


async def test_from_latest_reads_all_of_a_partition_that_came_later() -> None:
    """What is in it was written while this consumer ran."""
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


@pytest.mark.parametrize(
    ("state", "incarnation"),
    [
        ({}, (0, None)),
        ({"v": 2, "identity": 3, "topic_id": 4}, (3, None)),
        ({"v": 2, "identity": 3, "topic_id": "no id"}, (3, None)),
        ({"v": 2, "identity": 3, "topic_id": "X" * 22}, (3, "X" * 22)),
        ({"v": 1, "checker": {"next": 10**400}}, (0, None)),
    ],
)
async def test_a_partition_whose_state_cannot_be_read_is_judged_anew(
    state: dict[str, Any], incarnation: tuple[int, str | None]
) -> None:
    """P2: a damaged state, or one of another version, ended every consumer of the run.

    What was seen of an earlier incarnation of the topic is not known any more, so that numbers
    that are missing at the head of a stream are in doubt, and never lost. Records that are in logs
    already are logged again under the same incarnation, where its number can be read: another one
    would make copies of them.
    """
    played = Played({"a": 1})
    played.state = state
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    with structlog.testing.capture_logs() as logged:
        await consumer.assignment.begin()
    (held,) = consumer.context.partitions.values()
    assert held.checker.next_offset == 0
    assert (held.identity, held.topic_id) == incarnation
    assert "a-0: the state of its last consumer cannot be read" in held.notes[0]
    assert [line["event"] for line in logged] == held.notes
    assert held.checker.unsure
    held.checker.apply(SeenRow(StreamId("a", "r1", "p", 1, 0), 5, 9, 0, 4, 0, 1, 1, 1, 1, 2, 2))
    fragment = held.checker.fragment(StreamId("a", "r1", "p", 1, 0))
    assert fragment is not None
    assert fragment.doubtful_below > 9
    again = SavedState.read(json.loads(json.dumps(held.to_state())), held.at, run="r1")
    assert again.notes == held.notes
