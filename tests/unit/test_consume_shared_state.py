"""The shared state outlives a topic's consumers, even if the mirror never created the topic."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import zlib
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import structlog

from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.topic_judge import TopicJudge, TopicRound
from mirrortest.errors import UnreachableError
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.loss import Losses
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.stream import StreamId
from tests.unit.memory_topic import SCOPE, MemoryTopic, following

if TYPE_CHECKING:
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.state_store import StateStore

STREAM = StreamId("t", "r1", "p", 1, 0)
IDS = b",".join(b'"%022d"' % number for number in range(129))
"""More topic ids of one name than a record may have."""
SECOND = 10**9


class Consumer:
    """Judges `A.t`, which the mirror never created; the tests set its clock."""

    def __init__(self, store: StateStore, *, deadline: int = 60) -> None:
        self.now = 1000 * SECOND
        self.store = store
        self.judge = TopicJudge("t", "r1", ExpectPartition.ANY, Losses(deadline * SECOND))
        topics = SimpleNamespace(judges={"A.t": self.judge})
        self.shared = SharedState(cast("JudgedTopics", topics), store, lambda: self.now)

    async def begin(self) -> Consumer:
        await self.store.caught_up()
        return self

    def round(self, ledger: Ledger, seconds: int = 0) -> dict[StreamId, IntervalSet]:
        """Run a judging round `seconds` later; what it newly claims."""
        self.now += seconds * SECOND
        self.shared.merge_written()
        for lane in self.judge.lanes(ledger).values():
            self.judge.note(lane, self.now)
        topic_round = TopicRound(self.judge, ledger, {}, self.now).completed()
        self.judge.losses.open(topic_round.overdue, {})
        return self.judge.claim_losses(topic_round, {})


def _ledger(*acked: tuple[int, int]) -> Ledger:
    ledger = Ledger()
    numbers = IntervalSet(acked)
    ledger.merge(LaneRecord(STREAM, numbers.end, numbers))
    return ledger


def _scattered() -> IntervalSet:
    """More intervals than a record can have, even compressed."""
    rng = random.Random(1)
    starts = accumulate(rng.randrange(1 << 20) + 2 for _ in range(300_000))
    return IntervalSet((start, start + 1) for start in starts)


async def test_claims_on_a_topic_that_was_never_made_reach_the_next_consumer() -> None:
    """A message that still arrives is then late for every consumer."""
    topic, ledger = MemoryTopic(), _ledger((0, 5))
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        first.round(ledger)
        assert first.round(ledger, 61) == {STREAM: IntervalSet([(0, 5)])}
        await first.shared.write()
    async with following(topic, "b") as store:
        second = await Consumer(store).begin()
        assert second.round(ledger) == {}
        assert second.judge.losses.claimed == {STREAM: IntervalSet([(0, 5)])}


async def test_a_restart_does_not_set_deadlines_back() -> None:
    """The time before the restart counts, the time until the next start does not."""
    topic, ledger = MemoryTopic(), _ledger((0, 5))
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        first.round(ledger)
        first.round(ledger, 50)
        await first.shared.write()
    async with following(topic.compacted(), "b") as store:
        second = await Consumer(store).begin()
        assert second.round(ledger, 5000) == {}
        assert second.round(ledger, 9) == {}
        assert second.round(ledger, 3) == {STREAM: IntervalSet([(0, 5)])}


async def test_seqs_noted_while_the_deadlines_are_written_have_ages_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a round between two streams, the next consumer refused the record, with all claims."""
    topic, other, acked = MemoryTopic(), STREAM._replace(lane=1), IntervalSet([(0, 5)])
    step = 60 * SECOND // 64
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        first.now = 1100 * step - SECOND // 100
        for stream in (STREAM, other):
            first.judge.losses.note(stream, acked, first.now)

        async def over() -> bool:
            first.now += SECOND // 50
            first.judge.losses.note(other, IntervalSet([(5, 9)]), first.now)
            return True

        monkeypatch.setattr(first.shared._slice, "over", over)
        await first.shared.write()
    async with following(topic, "b") as store:
        second = await Consumer(store).begin()
        second.shared.merge_written()
        assert second.judge.losses.expired(other, second.now + 62 * SECOND) == IntervalSet([(0, 9)])


async def test_another_deadline_starts_anew() -> None:
    """A message that is overdue by one deadline need not be by another."""
    topic, ledger = MemoryTopic(), _ledger((0, 5))
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        first.round(ledger)
        first.round(ledger, 50)
        await first.shared.write()
    async with following(topic, "b") as store:
        second = await Consumer(store, deadline=40).begin()
        second.round(ledger)
        assert second.round(ledger, 39) == {}
        assert second.round(ledger, 3)


async def test_claims_of_consumers_that_run_side_by_side_are_united() -> None:
    """Each consumer merges the other's claims before it writes."""
    topic = MemoryTopic()
    async with following(topic, "a") as here, following(topic, "b") as there:
        first, second = await Consumer(here).begin(), await Consumer(there).begin()
        first.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        second.judge.losses.merge({STREAM: IntervalSet([(7, 9)])})
        await first.shared.write()
        await second.begin()
        second.shared.merge_written()
        await second.shared.write()
        await first.begin()
        first.shared.merge_written()
    both = {STREAM: IntervalSet([(0, 2), (7, 9)])}
    assert first.judge.losses.claimed == second.judge.losses.claimed == both


async def test_who_begins_after_a_topic_was_recreated_learns_that_there_was_another() -> None:
    """If its partitions' states were lost, only the shared state shows it."""
    topic, first_id = MemoryTopic(), "A" * 22
    async with following(topic, "a") as here, following(topic, "b") as there:
        first, second = await Consumer(here).begin(), await Consumer(there).begin()
        first.judge.first_topic_id(first_id)
        first.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        await first.shared.write()
        await second.begin()
        second.judge.first_topic_id("B" * 22)
        second.shared.merge_written()
    assert second.judge.topic_ids == {first_id, "B" * 22}


async def test_who_begins_once_a_topic_is_compacted_no_more_learns_that_it_was() -> None:
    """Even if nothing else is shared; a record of the previous version lacks the entry."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        await first.shared.write()
        assert store.written("A.t") == []
        first.judge.compact = True
        await first.shared.write()
        old = {"claimed": [], "deadline": 60 * SECOND, "deadlines": []}
        first.shared._merge(first.judge, zlib.compress(json.dumps(old).encode()), deadlines=False)
        assert first.judge.compact
    async with following(topic.compacted(), "b") as store:
        second = await Consumer(store).begin()
        second.round(Ledger())
        assert second.judge.compact


async def test_who_writes_does_not_forget_what_another_wrote() -> None:
    """Even if it has run no round since, and knows a lane without acknowledged seqs."""
    topic, ledger = MemoryTopic(), _ledger((0, 5))
    async with following(topic, "a") as here, following(topic, "b") as there:
        first, second = await Consumer(here).begin(), await Consumer(there).begin()
        second.round(_ledger())
        first.round(ledger)
        first.round(ledger, 61)
        await first.shared.write()
        await second.begin()
        await second.shared.write()
    async with following(topic, "c") as store:
        third = await Consumer(store).begin()
        third.round(ledger)
        assert third.judge.losses.claimed == {STREAM: IntervalSet([(0, 5)])}


@pytest.mark.parametrize("others_first", [True, False])
async def test_claims_written_at_the_same_time_are_all_kept(others_first: bool) -> None:
    """Two consumers end together: neither has read the other's record when it writes its own."""
    topic = MemoryTopic()
    async with following(topic, "a") as here, following(topic, "b") as there:
        ending = [await Consumer(store).begin() for store in (here, there)]
        for consumer, lo in zip(ending, (0, 7), strict=True):
            consumer.judge.losses.merge({STREAM: IntervalSet([(lo, lo + 2)])})
        order = reversed(ending) if others_first else ending
        await asyncio.gather(*(consumer.shared.write() for consumer in order))
    async with following(topic.compacted(), "c") as store:
        after = await Consumer(store).begin()
        after.shared.merge_written()
    assert after.judge.losses.claimed == {STREAM: IntervalSet([(0, 2), (7, 9)])}


async def test_a_record_that_was_replaced_unread_is_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes right before our own, and its writer has ended: its claims are nowhere else."""
    theirs, topic = MemoryTopic(), MemoryTopic()
    async with following(theirs, "b") as there:
        second = await Consumer(there).begin()
        second.judge.losses.merge({STREAM: IntervalSet([(7, 9)])})
        await second.shared.write()
    between = [record[1:] for record in theirs.records if record[2] is not None]
    write = topic.write

    async def behind(key: bytes, value: bytes | None) -> int:
        while value is not None and between:
            await write(*between.pop())
        return await write(key, value)

    monkeypatch.setattr(topic, "write", behind)
    async with following(topic, "a") as here:
        first = await Consumer(here).begin()
        first.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        await first.shared.write()
    async with following(topic.compacted(), "c") as store:
        after = await Consumer(store).begin()
        after.shared.merge_written()
    assert after.judge.losses.claimed == {STREAM: IntervalSet([(0, 2), (7, 9)])}


async def test_claims_too_many_for_a_record_end_no_consumer() -> None:
    """The topic's earlier record stays; the partitions' states have all claims."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        consumer = await Consumer(store).begin()
        consumer.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        await consumer.shared.write()
        stood = list(topic.records)
        consumer.judge.losses.merge({STREAM: _scattered()})
        await consumer.shared.write()
    assert topic.records == stood


async def test_deadlines_too_many_for_a_record_are_left_out() -> None:
    """They start anew with the next consumer; the claims are still written."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        consumer = await Consumer(store).begin()
        consumer.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        consumer.judge.losses.note(STREAM, _scattered(), consumer.now)
        await consumer.shared.write()
    async with following(topic, "b") as store:
        after = await Consumer(store).begin()
        after.shared.merge_written()
    assert after.judge.losses.claimed == {STREAM: IntervalSet([(0, 2)])}
    assert max(len(value or b"") for _, _, value in topic.records) < 1_000_000


async def test_other_scopes_and_junk_are_passed_over() -> None:
    """Another run's record is not ours; one that cannot be read is logged and rewritten."""
    topic = MemoryTopic()
    async with following(topic, "x", SCOPE._replace(run="r2")) as other:
        await other.share("A.t", b"theirs")
    async with following(topic, "a") as store:
        await store.caught_up()
        assert store.written("A.t") == []
        await topic.write(store._table.key("topic", "A.t"), b"junk")
        consumer = await Consumer(store).begin()
        with structlog.testing.capture_logs() as logged:
            consumer.round(Ledger())
        assert [(each["log_level"], each["topic"]) for each in logged] == [("warning", "A.t")]
        consumer.judge.losses.merge({STREAM: IntervalSet([(0, 2)])})
        await consumer.shared.write()
    async with following(topic.compacted(), "b") as store:
        after = await Consumer(store).begin()
        after.shared.merge_written()
    assert after.judge.losses.claimed == {STREAM: IntervalSet([(0, 2)])}


async def test_what_we_wrote_ourselves_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back with each save and brings nothing new; what others wrote is read."""
    topic, ledger = MemoryTopic(), _ledger((0, 5))
    async with following(topic, "a") as here, following(topic, "b") as there:
        first, second = await Consumer(here).begin(), await Consumer(there).begin()
        read: list[bytes] = []
        merge = SharedState._merge

        def merged(shared: SharedState, judge: TopicJudge, raw: bytes, *, deadlines: bool) -> None:
            read.append(raw)
            merge(shared, judge, raw, deadlines=deadlines)

        monkeypatch.setattr(SharedState, "_merge", merged)
        first.round(ledger)
        for _ in range(3):
            first.now += SECOND
            await first.shared.write()
        assert read == []
        second.judge.losses.merge({STREAM: IntervalSet([(7, 9)])})
        await second.begin()
        await second.shared.write()
        await first.begin()
        first.shared.merge_written()
    assert len(read) == 2
    assert first.judge.losses.claimed == {STREAM: IntervalSet([(7, 9)])}


async def test_records_of_the_version_before_and_ours_read_each_others() -> None:
    """In a rolling upgrade, their records lack the closing snapshot, and they ignore ours."""
    before = {
        "claimed": [[list(STREAM), IntervalSet([(0, 2)]).to_list()]],
        "deadline": 60 * SECOND,
        "deadlines": [],
    }
    topic = MemoryTopic()
    async with following(topic, "old") as store:
        await store.share("A.t", zlib.compress(json.dumps(before).encode(), 1))
    closing = ClosingSnapshot((1, 5), {0: 7}, 3)
    async with following(topic, "new") as store:
        consumer = await Consumer(store).begin()
        consumer.shared.merge_written()
        assert consumer.judge.losses.claimed == {STREAM: IntervalSet([(0, 2)])}
        assert consumer.judge.closing is None
        consumer.judge.close(closing)
        await consumer.shared.write()
    written = json.loads(zlib.decompressobj().decompress(topic.records[-1][2] or b""))
    assert written.items() >= before.items()
    async with following(topic.compacted(), "next") as store:
        after = await Consumer(store).begin()
        after.shared.merge_written()
        assert after.judge.closing == closing


async def test_a_shared_look_alone_is_written_and_a_damaged_one_harms_no_claim() -> None:
    """Most runs claim nothing; a damaged closing snapshot is skipped."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        consumer = await Consumer(store).begin()
        consumer.judge.close(ClosingSnapshot((1, 5), {0: 7}, 3))
        await consumer.shared.write()
        damaged = {
            "claimed": [[list(STREAM), IntervalSet([(0, 2)]).to_list()]],
            "deadline": 60 * SECOND,
            "deadlines": [],
            "closing": {"mark": [1, 5], "ends": [[0, -1]], "at_ns": 3},
        }
        await store.share("A.t", zlib.compress(json.dumps(damaged).encode(), 1))
        consumer.shared.merge_written()
        assert consumer.judge.closing == ClosingSnapshot((1, 5), {0: 7}, 3)
        assert consumer.judge.losses.claimed == {STREAM: IntervalSet([(0, 2)])}


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"claimed":[],"deadline":1e999,"deadlines":[]}',
        b'{"claimed":[[["other","r1","p",1,0],[0,5]]],"deadline":60000000000,"deadlines":[]}',
        b'{"claimed":[[["t","r1","p",1,0],[-5,9]]],"deadline":60000000000,"deadlines":[]}',
        b'{"claimed":[],"deadline":60000000000,"deadlines":[[["t","r1","p",1,0],[],[[-2e9,[0,5]]]]]}',
        b'{"claimed":[],"deadline":60000000000,"deadlines":[[["t","r1","p",1,0],[],[[-9999999999,[]]]]]}',
        b'{"claimed":[],"deadline":60000000000,"deadlines":[],"topic_ids":[7]}',
        b'{"claimed":[],"deadline":60000000000,"deadlines":[],"compacted":1}',
        b'{"claimed":[],"deadline":60000000000,"deadlines":[],"topic_ids":[%b]}' % IDS,
        b" " * (17 << 20),
    ],
)
async def test_a_record_that_cannot_be_read_is_taken_over_in_no_part(content: bytes) -> None:
    """It is logged, and our own state is written; nothing larger is decompressed."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        consumer = await Consumer(store).begin()
        await store.share("A.t", zlib.compress(content))
        with structlog.testing.capture_logs() as logged:
            consumer.shared.merge_written()
        assert "cannot be read" in logged[0]["event"]
        assert (
            consumer.judge.losses.claimed,
            list(consumer.judge.losses.clocks_to_state(lambda: 0)),
        ) == (
            {},
            [],
        )
        consumer.judge.losses.merge({STREAM: IntervalSet([(0, 5)])})
        await consumer.shared.write()
    async with following(topic, "b") as store:
        other = await Consumer(store).begin()
        other.shared.merge_written()
        assert other.judge.losses.claimed == {STREAM: IntervalSet([(0, 5)])}


async def test_claims_are_written_again_into_a_topic_created_again() -> None:
    """Nothing had changed, so no consumer wrote them."""
    topic = MemoryTopic()
    async with following(topic, "a") as store:
        first = await Consumer(store).begin()
        first.judge.losses.merge({STREAM: IntervalSet([(0, 5)])})
        await first.shared.write()
        topic.keep_first(0)
        for _ in range(3):
            with contextlib.suppress(UnreachableError):
                await store.caught_up()
        await first.shared.write()
    async with following(topic, "b") as store:
        second = await Consumer(store).begin()
        second.shared.merge_written()
        assert second.judge.losses.claimed == {STREAM: IntervalSet([(0, 5)])}
