"""What a consumer judges, logs and saves when a topic is recreated or a log truncated."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.consume import assignment as assignment_module
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.partition_views import SavedState
from mirrortest.errors import UnreachableError
from mirrortest.kafka.fetched import (
    Diverged,
    End,
    FetchedBatches,
    OutOfRange,
    ReadPosition,
    Recreated,
)
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.reconcile.coverage import ReadOffsets, Span, cover
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId, StreamId
from tests.unit.played_cluster import Played, consumer_of

if TYPE_CHECKING:
    from mirrortest.consume.consumer import Consumer

X, Y, Z = (letter * 22 for letter in "XYZ")
"""Topic ids."""
AT, TP = TopicPartition("a", 0), TopicPartition("a", 0)
STREAM = StreamId("a", "r1", "p", 1, 0)


def fetched(
    seq: int, count: int, offset: int, *, epoch: int = 0, topic_id: str | None = X
) -> FetchedBatches:
    """Messages from `seq` on, at the offsets from `offset` on."""
    encoder = LaneEncoder("a", ProducerId("p", "r1", 1), 0, 0, 1, Form.BODY, 200)
    buffer = encoder.encode(seq, np.full(count, 1_000), 1_000).buffer
    struct.pack_into(">q", buffer, 0, offset)
    batch = memoryview(bytes(buffer))
    return FetchedBatches("a", 0, offset, offset + count, 5, batch, count, epoch, topic_id)


class Ordered(Played):
    """Records the order in which log and states became durable, and the newest state."""

    def __init__(self, topic_id: str | None = X) -> None:
        super().__init__({"a": 1})
        if topic_id:
            self.topic_ids = {"a": topic_id}
        self.order: list[str] = []
        self.states: list[dict[str, Any]] = []
        self.state: dict[str, Any] | None = None
        self.fenced_from: int | None = None

    async def claim(self, _: TopicPartition) -> tuple[int, Any]:
        return 1, self.state

    async def save(
        self, at: TopicPartition, generation: int, state: dict[str, Any], *, parting: bool = False
    ) -> None:
        await super().save(at, generation, state, parting=parting)
        self.state = json.loads(json.dumps(state))
        self.states.append(self.state)
        self.order.append(f"state {state['identity']} {state.get('topic_id')}")

    async def sync(self) -> None:
        await super().sync()
        self.order.append("log")

    def left(self, assigned: AssignedPartition, found_ns: int | None = None) -> None:
        self.order.append(f"left {assigned.identity}")

    def seek(self, at: Any, offset: int, **about: Any) -> None:
        super().seek(at, offset, **about)
        self.order.append(f"seek {offset}")

    def fenced(self, *_: TopicPartition | int) -> bool:
        return self.fenced_from is not None and len(self.states) >= self.fenced_from

    def unread(
        self, assigned: AssignedPartition, lo: int, hi: int, found_ns: int | None = None
    ) -> None:
        self.order.append(f"unread {assigned.identity} {lo} {hi}")


async def reading(played: Ordered) -> tuple[Consumer, AssignedPartition]:
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    await consumer.assignment.take_share()
    played.order.clear()
    return consumer, consumer.context.partitions[AT]


async def read(played: Played, consumer: Consumer, *items: FetchedBatches | OutOfRange) -> None:
    played.fetched = list(items)
    await consumer.batches.read(0.0)
    await consumer.batches.judge_all()


def seen(assigned: AssignedPartition) -> list[tuple[int, int]]:
    fragment = assigned.checker.fragments[STREAM]
    return list(fragment.seen.intervals())


@pytest.mark.parametrize("position", [5, 10])
async def test_what_stands_in_a_topic_created_again_behind_a_stalled_consumer_is_read(
    position: int,
) -> None:
    """Wherever the new topic ends, it is read from its beginning, and nothing is lost."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, position, 0))
    played.topic_ids = {"a": Y}
    await read(played, consumer, Recreated("a", 0, position, Y))
    assert played.placed[TP] == ReadPosition(0, -1, Y)
    await read(played, consumer, fetched(position, 10, 0, topic_id=Y))
    assert seen(assigned) == [(0, position + 10)]
    assert (assigned.identity, assigned.topic_id, assigned.left_ids) == (1, Y, [X])
    [note] = assigned.notes
    assert note == (
        f"a-0 was deleted and recreated after offset {position}: judged again from its beginning"
    )


async def test_a_state_names_an_incarnation_before_anything_of_it_is_read() -> None:
    """The successor of a killed consumer counts incarnations as that one did."""
    played = Ordered()
    consumer, _ = await reading(played)
    await read(played, consumer, fetched(0, 3, 0))
    played.order.clear()
    await read(played, consumer, Recreated("a", 0, 3, Y))
    assert played.order == ["left 0", "log", f"state 1 {Y}", "seek 0"]
    # The consumer is killed here, whatever it had read; the topic is recreated again.
    played.topic_ids = {"a": Z}
    successor, assigned = await reading(played)
    assert (assigned.identity, assigned.topic_id) == (1, Y)
    assert played.placed[TP] == ReadPosition(0, -1, Y)
    await read(played, successor, Recreated("a", 0, 0, Z))
    assert (assigned.identity, assigned.topic_id, assigned.left_ids) == (2, Z, [X, Y])


async def test_the_first_incarnation_is_named_by_a_state_too() -> None:
    """A consumer killed before its first save has read that topic, and no other."""
    played = Ordered()
    await reading(played)
    assert [(state["identity"], state["topic_id"]) for state in played.states] == [(0, X)]
    played.topic_ids = {"a": Y}
    consumer, assigned = await reading(played)
    assert played.placed[TP].topic_id == X
    await read(played, consumer, Recreated("a", 0, 0, Y))
    assert assigned.identity == 1


async def test_a_topic_created_again_before_its_last_partition_is_claimed_is_told_there_too() -> (
    None
):
    """No consumer has read the topic that was assigned: its messages are in doubt, not lost."""
    played = Ordered()
    played.counts = {"a": 2}

    async def claimed(at: TopicPartition) -> tuple[int, Any]:
        if at.partition == 1:
            played.topic_ids = {"a": Y}
        return 1, None

    object.__setattr__(played, "claim", claimed)
    consumer, _ = await reading(played)
    assert played.placed[TopicPartition("a", 1)].topic_id == X
    await read(played, consumer, Recreated("a", 1, 0, Y))
    assigned = consumer.context.partitions[TopicPartition("a", 1)]
    assert (assigned.identity, assigned.topic_id, assigned.left_ids) == (1, Y, [X])


@pytest.mark.parametrize("damage", [{"topic_id": "x"}, {"left_ids": ["\xe9" * 22]}])
async def test_what_is_no_topics_id_is_not_asked_for(damage: dict[str, Any]) -> None:
    """A fetch with an id that cannot be encoded ended the consumer, and each later one."""
    played = Ordered()
    _, assigned = await reading(played)
    with pytest.raises(RecordError, match="is no topic's id"):
        SavedState.read(assigned.to_state() | damage, AT, run="r1", policy=assigned.policy)


async def test_what_a_new_leader_wrote_and_nobody_can_read_is_of_its_epoch() -> None:
    """Otherwise the broker is asked for the end of the epoch before, below what was read."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, epoch=3))
    unreadable = replace(fetched(3, 1, 3, epoch=4), buffer=None, unread="it does not decompress")
    await read(played, consumer, unreadable)
    assert assigned.read_position == ReadPosition(4, 4, X)


async def test_an_outage_amid_an_incarnations_beginning_is_sat_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is read meanwhile, and the incarnation is counted once."""
    monkeypatch.setattr("mirrortest.consume.outage._RETRY_SECONDS", 0)
    played = Ordered()
    consumer, assigned = await reading(played)
    played.away = UnreachableError("no broker answers")
    task = asyncio.ensure_future(read(played, consumer, Recreated("a", 0, 0, Y)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    assert not [each for each in played.order if each.startswith("seek")]
    played.away = None
    await task
    assert (assigned.identity, played.order.count("left 0"), played.order[-1]) == (1, 1, "seek 0")


async def test_who_was_replaced_reads_nothing_of_the_next_incarnation() -> None:
    """The partition's new owner finds the same incarnation, and gives it the same number."""
    played = Ordered()
    consumer, _ = await reading(played)
    played.fenced_from = len(played.states) + 1
    await read(played, consumer, Recreated("a", 0, 0, Y))
    assert played.paused == {AT}
    assert not [each for each in played.order if each.startswith("seek")]


async def test_a_topic_that_was_left_does_not_come_back() -> None:
    """An isolated broker may still report the old topic."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, Recreated("a", 0, 0, Y))
    await read(played, consumer, Recreated("a", 0, 0, X))
    assert (assigned.identity, assigned.topic_id) == (1, Y)


async def test_a_log_that_was_cut_back_goes_on_where_it_agrees() -> None:
    """New records at offsets that had been read before are read, and all records after them.

    Messages that were read and then truncated stay seen, and come before the new ones in order.
    """
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 10, 0, epoch=3))
    assert assigned.read_position == ReadPosition(10, 3, X)
    await read(played, consumer, Diverged("a", 0, 10, 3, 6))
    assert played.order == ["left 0", "log", f"state 1 {X}", "seek 6"]
    assert played.placed[TP] == ReadPosition(6, 3, X)
    assert (assigned.begins_at, assigned.read_from, assigned.left_ids) == (6, 0, [])
    await read(played, consumer, fetched(10, 4, 6, epoch=4))
    assert seen(assigned) == [(0, 14)]
    assert not assigned.checker.fragments[STREAM].duplicated
    assert not assigned.checker.fragments[STREAM].reordered
    assert assigned.read_position == ReadPosition(10, 4, X)
    [note] = assigned.notes
    assert "a-0 was truncated after offset 10 was read" in note


async def test_a_log_agrees_no_further_than_the_epochs_that_were_read() -> None:
    """The leader's log may contain more records of an epoch than were read of it."""
    played = Ordered()
    consumer, assigned = await reading(played)
    for seq, count, epoch in ((0, 4, 1), (4, 2, 3), (6, 4, 5)):
        await read(played, consumer, fetched(seq, count, seq, epoch=epoch))
    assert assigned.epochs == [(1, 0), (3, 4), (5, 6)]
    assert [assigned.common_end(*end) for end in ((3, 8), (3, 5), (2, 9), (0, 7), (5, 9))] == [
        6, 5, 4, 0, 9,
    ]  # fmt: skip
    await read(played, consumer, Diverged("a", 0, 10, 3, 8))
    assert (assigned.epochs, assigned.checker.next_offset) == ([(1, 0), (3, 4)], 6)


async def test_who_takes_over_at_a_cut_logs_what_lies_before_it() -> None:
    """The row for these offsets may not have been durable when the state was."""
    played = Ordered()
    consumer, _ = await reading(played)
    await read(played, consumer, fetched(0, 10, 0, epoch=3))
    await read(played, consumer, Diverged("a", 0, 10, 3, 6))
    _, assigned = await reading(played)
    assert (assigned.checker.next_offset, assigned.read_from) == (6, 0)
    assert played.placed[TP] == ReadPosition(6, 3, X)


async def test_a_shorter_log_of_the_same_topic_without_a_known_epoch_is_in_doubt() -> None:
    """How much of it was read before is unknown: all its present offsets count as unread."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 10, 0, epoch=-1))
    played.ended = {TP: End(7, 7, X)}
    await read(played, consumer, OutOfRange("a", 0, 10))
    assert (assigned.identity, assigned.checker.next_offset) == (1, 7)
    assert played.order.index("unread 1 0 7") < played.order.index(f"state 1 {X}")
    assert assigned.checker.unread_offsets
    # The consumer is killed here: its successor does not read the unread range either.
    _, successor = await reading(played)
    assert successor.read_position == assigned.read_position == ReadPosition(7, -1, X)
    assert successor.checker.unread_offsets


async def test_retention_forgets_which_leader_wrote_what_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last known epoch may have ended before the new position: that is no truncation."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, epoch=3))

    async def begins(wanted: Any) -> Any:
        return dict.fromkeys(wanted, 50)

    monkeypatch.setattr(played, "beginning_offsets", begins)
    played.ended = {TP: End(60, 60, X)}
    await read(played, consumer, OutOfRange("a", 0, 3))
    assert (assigned.identity, assigned.read_position) == (0, ReadPosition(50, -1, X))


async def test_a_state_of_the_version_before_is_resumed_by_its_last_record() -> None:
    """It has no topic id: the last record proves that the topic is the same, or is not."""
    played = Ordered(topic_id=None)
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, epoch=-1, topic_id=None))
    state = assigned.to_state()
    for key in ("topic_id", "left_ids", "begins_at", "epochs"):
        del state[key]
    played.topic_ids = {"a": X}
    for again, identity in ((fetched(2, 3, 2), 0), (fetched(7, 6, 2), 1)):
        played.state = json.loads(json.dumps(state))
        consumer, assigned = await reading(played)
        assert played.placed[TP] == ReadPosition(2, -1, X)
        assert assigned.to_state()["topic_id"] is None  # not before it is proven
        await read(played, consumer, again)
        assert (assigned.identity, assigned.topic_id, assigned.left_ids) == (identity, X, [])
        assert assigned.to_state()["topic_id"] == X


async def test_a_partition_that_is_claimed_while_its_topic_is_gone_stays_bound_to_that_topic() -> (
    None
):
    """Otherwise the id is forgotten, and a new topic that ends at the last record is not found."""
    played = Ordered()
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0))
    played.state = json.loads(json.dumps(assigned.to_state()))
    played.topic_ids = {}
    _, assigned = await reading(played)
    assert played.placed[TP] == ReadPosition(3, 0, X)
    assert assigned.to_state()["topic_id"] == X


async def test_without_topic_ids_an_idle_partition_is_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recreated topic may end exactly at the next offset, so that no message arrives."""
    played = Ordered(topic_id=None)
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, topic_id=None))
    monkeypatch.setattr(assignment_module, "_IDLE_SECONDS", 0.0)
    await consumer.assignment.recheck(set())
    played.order.clear()
    await consumer.assignment.recheck(set())
    assert played.order == ["seek 2"]
    await read(played, consumer, fetched(7, 1, 2, topic_id=None))
    assert (assigned.identity, played.order[-1]) == (1, "seek 0")


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("readable", [False, True])
async def test_without_topic_ids_a_log_that_lacks_the_record_that_was_judged_last_is_another_one(
    compacted: bool, readable: bool
) -> None:
    """A marker may be at its offset: the new topic was read from there, and all before was lost.

    Compaction may have removed the record from the same log, which proves nothing.
    """
    played = Ordered(topic_id=None)
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, topic_id=None))
    played.state = json.loads(json.dumps(assigned.to_state()))
    consumer, assigned = await reading(played)
    consumer.context.topics.judges["a"].compact = compacted
    behind = fetched(7, 3, 3, topic_id=None)
    if readable:
        await read(played, consumer, replace(behind, fetched_from=2))
    else:
        await read(played, consumer, replace(behind, fetched_from=2, buffer=None, count=0))
    assert assigned.identity == (not compacted)
    assert assigned.checker.next_offset == (6 if compacted else 0)


async def test_without_topic_ids_an_unreadable_record_does_not_prove_another_log() -> None:
    """The last judged record may have been damaged since: it cannot be compared."""
    played = Ordered(topic_id=None)
    consumer, assigned = await reading(played)
    await read(played, consumer, fetched(0, 3, 0, topic_id=None))
    played.state = json.loads(json.dumps(assigned.to_state()))
    consumer, assigned = await reading(played)
    damaged = replace(fetched(2, 1, 2, topic_id=None), buffer=None, count=0, unread="damaged")
    await read(played, consumer, damaged, fetched(3, 2, 3, topic_id=None))
    assert (assigned.identity, assigned.checker.next_offset) == (0, 5)


async def test_with_topic_ids_nothing_is_looked_at_again() -> None:
    """Every fetch compares them, and a seek would forget which leader wrote the last batch."""
    played = Ordered()
    consumer, _ = await reading(played)
    await consumer.assignment.recheck()
    assert played.order == []


def test_a_place_survives_its_state() -> None:
    """Other consumers compare it with the partition's end."""
    assigned = AssignedPartition.fresh(
        AT, 1, source="a", run="r1", policy=ExpectPartition.ANY, counts=[1]
    )
    assigned.checker.advance(9)
    assigned.topic_id, assigned.epochs = X, [(3, 0), (5, 4)]
    assert (
        SavedState.read(
            json.loads(json.dumps(assigned.to_state())),
            assigned.at,
            run=assigned.run,
            policy=assigned.policy,
        ).read_position
        == assigned.read_position
        == ReadPosition(9, 5, X)
    )


def test_offline_what_lies_before_a_cut_is_covered() -> None:
    """The rest of the truncated log is in doubt, and nothing of the new one."""
    observed = ReadOffsets(
        read=[Span("a", 0, 0, 0, 10, 1), Span("a", 0, 1, 0, 14, 1)],
        unread=[Span("a", 0, 0, 10, 1 << 62, 1)],
        tails=[Span("a", 0, 1, 14, 14, 1)],
        partitions={"a": 1},
        started_ns={1: 0},
    )
    found = cover(observed, "a")
    assert [(blind.identity, blind.lo) for blind in found.unread] == [(0, 10)]
    assert found.reasons == [
        "a-0: the topic was deleted and recreated after offset 10, or truncated before it"
    ]
