"""What judging rounds report: when a run passed, and when nothing was proven.

Objects that return offsets replace Kafka; judge, ledger, partitions and states are the real ones.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from mirrortest.config.threshold import thresholds
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.errors import UnreachableError
from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.fetched import End
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.loss import Losses
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from tests.unit.judged_world import MINUTE, STREAM, World, reasons
from tests.unit.turns import taking_turns

OLD, NEW = "A" * 22, "B" * 22
"""Topic ids."""


async def test_what_was_vouched_for_and_seen_passes() -> None:
    """All is read, every acknowledged seq was seen, every lane has ended: nothing is in doubt."""
    report = await World(0, 1, 2).vouch((0, 3), end=3).report()
    assert (report.verdict, report.inconclusive) == ("passed", [])


async def test_nothing_acknowledged_proves_nothing() -> None:
    """With acks=0 every outcome is unknown: a mirror that copies nothing must not pass."""
    report = await World().vouch(unknown=[(0, 9)], end=9).report()
    assert report.verdict == "inconclusive"
    assert "the outcome of 9 is unknown" in reasons(report)


async def test_a_named_topic_of_which_the_ledger_says_nothing_is_not_passed_over() -> None:
    """This shows a misspelt topic or alias; otherwise nothing of the topic would be judged."""
    ends = {("A.t", 0): 1, ("A.other", 0): 0}
    report = await World(0, ends=ends, topics=("A.t", "A.other")).vouch((0, 1), end=1).report()
    assert report.verdict == "inconclusive"
    assert "A.other: the ledger has no records of 'other'" in reasons(report)


async def test_a_producer_that_the_ledger_does_not_know_yet_is_no_phantom() -> None:
    """The ledger's copy may lag behind the topic's: within a deadline, nothing is a phantom."""
    world = World(0, stream=STREAM._replace(producer="q"), ends={("A.t", 0): 1})
    report = await world.vouch(end=0).report()
    assert report.counts["phantom"] == 0
    assert report.verdict == "inconclusive"
    assert "no records of 1 streams" in reasons(report)


async def test_a_lane_with_missing_parts_ends_inconclusive() -> None:
    """One forged part that claims more than there is kept a run from ever ending."""
    world = World(0, 1).vouch((0, 2), end=2)
    world.follower.ledger.merge(LaneRecord(STREAM, 9, end=9, outcomes=9))
    rounds = world.rounds()
    assert not (await rounds.judge())[0]
    world.elapsed_ns = 600 * 10**9
    assert (await rounds.judge())[0]
    report = await rounds.conclude()
    assert report.verdict == "inconclusive"
    assert "the ledger lacks parts of 1 lanes, or another program wrote one" in reasons(report)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("uncommitted", [True, False])
async def test_what_may_be_of_an_aborted_transaction_fails_nothing_whoever_read_it(
    ours: bool, uncommitted: bool
) -> None:
    """Neither during the run nor at its end; the report gives the reason once."""
    world = World(0, 0, 1).vouch((0, 2), end=2)
    world.options = replace(world.options, thresholds=thresholds(("duplicated==0",)))
    world.assigned.uncommitted = uncommitted
    if not ours:
        world.states = {world.assigned.at: (1, json.loads(json.dumps(world.assigned.to_state())))}
        world.partitions.clear()
    rounds = world.rounds()
    _, status = await rounds.judge()
    assert bool(status.failed) is not uncommitted
    report = await rounds.conclude()
    assert report.verdict == ("inconclusive" if uncommitted else "failed")
    of_transactions = [each for each in report.inconclusive if "in transactions" in each]
    assert len(of_transactions) == uncommitted


async def test_metrics_of_partitions_have_the_source_topic_as_all_others() -> None:
    """The alert on a stalled mirror joins lag with what was produced, by topic."""
    rounds = World(0, ends={("A.t", 0): 4}).vouch((0, 3), end=3).rounds()
    await rounds.judge()
    found = {
        (sample.name, sample.labels.get("partition")): (sample.labels["topic"], sample.value)
        for family in rounds._context.metrics._metrics.collect()
        for sample in family.samples
        if "topic" in sample.labels
    }
    assert found["mirrortest_consumer_lag_messages", "0"] == ("t", 3)
    assert found["mirrortest_consumer_assigned_partitions", None] == ("t", 1)


async def test_a_wrong_lane_leads_to_its_partition() -> None:
    """If it is unknown where a lane belongs, the partition where it was seen is published."""
    rounds = World(0, 0, 1).vouch((0, 2), end=2).rounds()
    await rounds.judge()
    found = {
        (sample.labels["lane"], sample.labels["finding"]): sample.labels["partition"]
        for family in rounds._context.metrics._metrics.collect()
        if family.name == "mirrortest_consumer_lane_findings"
        for sample in family.samples
    }
    assert found == {("0", "duplicated"): "0"}


async def test_a_topic_that_is_gone_at_the_end_is_told() -> None:
    """Without its ends, nothing is claimed lost, the run does not pass, and no tail is logged."""
    world = World(0, ends={}).vouch((0, 2), end=2)
    report = await world.report()
    assert world.log.tails == []
    assert report.counts["lost"] == 0
    assert report.verdict == "inconclusive"
    assert "A.t does not exist" in reasons(report)


async def test_partitions_not_read_to_their_ends_are_told_in_their_order() -> None:
    """The order of the brokers' answers does not matter."""
    ends = {("A.t", number): 5 for number in (1, 0, 3, 2)}
    report = await World(0, ends=ends).vouch((0, 1), end=1).report()
    assert "A.t: not read to the end: partitions 0-3" in reasons(report)


async def test_what_another_consumer_claimed_is_late_for_all() -> None:
    """States contain the claims: for every consumer, a message that arrives afterwards is late."""
    world = World(0, 1).vouch((0, 2), end=2)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.claimed = {STREAM: IntervalSet([(1, 2)])}
    world.states = {other.at: (1, other.to_state())}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 0
    report = await world.report()
    assert (report.counts["late"], report.counts["lost"]) == (1, 0)


async def test_a_verdict_says_what_was_read_here_and_what_states_say() -> None:
    """Other consumers' states are believed, even forged ones; the report shows how far.

    If this consumer read nothing, the verdict rests on states alone.
    """
    world = World(0, 1).vouch((0, 5), end=5)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.checker.apply(SeenRow(STREAM, 2, 5, 0, 3, 0, 1, 1, 1, 1, 2, 2))
    other.checker.apply(SeenRow(STREAM, 2, 4, 3, 5, 0, 1, 1, 1, 1, 2, 2))
    world.states = {other.at: (1, other.to_state())}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 5
    report = await world.report()
    assert report.to_json()["rests_on"] == {
        "read": 2,
        "taken_over": 5,
        "partitions": {
            "A.t-0": {"read": 2, "taken_over": 0},
            "A.t-1": {"read": 0, "taken_over": 5},
        },
    }
    about = {"source": "t", "run": "r1", "policy": ExpectPartition.ANY, "counts": [2]}
    resumed = AssignedPartition.restored(world.assigned.at, 2, world.assigned.to_state(), **about)
    world.partitions = {resumed.at: resumed}
    report = await world.report()
    assert report.basis == (0, 7)
    out = io.StringIO()
    Console(file=out, width=200).print(report.result().view(details=True))
    assert "rests on 0 messages that were read here, and on 7 taken over" in out.getvalue()


async def test_a_policy_that_cannot_be_seen_is_noted_and_makes_what_is_missing_inconclusive() -> (
    None
):
    """Without DescribeConfigs, compaction may be the reason why a message is missing."""
    world = World(0, 1).vouch((0, 2), end=2)
    world.policy_hidden = {"A.t"}
    report = await world.report()
    assert report.verdict == "passed"
    assert any("no permission to see whether" in note for note in report.notes)
    world = World(ends={("A.t", 0): 3}).vouch((0, 3), end=3)
    world.assigned.checker = PartitionChecker("t", 0)
    for offset, seq in ((0, 0), (2, 2)):
        world.assigned.checker.apply(
            SeenRow(STREAM, seq, seq + 1, offset, offset + 1, 0, 1, 1, 1, 1, 2, 2)
        )
    world.policy_hidden = {"A.t"}
    report = await world.report()
    assert (report.counts["inconclusive"], report.counts["lost"]) == (1, 0)
    assert "that may be why 1 messages are missing" in reasons(report)


@pytest.mark.parametrize(
    ("end", "unread"),
    [
        (End(3, 3, NEW), True),
        (End(3, 3, OLD, agrees=False), True),
        (End(2, 2), True),  # without topic ids
        (End(3, 3, OLD), False),
    ],
)
async def test_a_partition_whose_log_was_replaced_after_its_consumer_had_ended_is_unread(
    end: End, *, unread: bool
) -> None:
    """So another consumer takes it over and reads it again; otherwise all would wait for ever."""
    world = World(0, ends={("A.t", 0): 1, ("A.t", 1): end.offset})
    checker = PartitionChecker("t", 1)
    checker.advance(3)
    other = replace(world.assigned, at=TopicPartition("A.t", 1), checker=checker, topic_id=OLD)
    world.states = {other.at: (1, other.to_state())}
    world.logs = {("A.t", 1): end}
    rounds = world.vouch((0, 1), end=1).rounds()
    await rounds.judge()
    assert rounds.unread == ({other.at} if unread else set())


async def test_what_cannot_be_seen_without_topic_ids_is_noted() -> None:
    """With the public API only, or old brokers, a recreated topic may go unnoticed for a while."""
    world = World(0).vouch((0, 1), end=1)
    world.sees_topic_ids = False
    report = await world.report()
    assert report.verdict == "passed"
    assert any(note.startswith("no topic ids") for note in report.notes)


async def test_junk_in_the_ledger_is_noted_and_counted() -> None:
    """Another program writes to the topic: that changes no verdict, but users should know."""
    world = World(0).vouch((0, 1), end=1)
    world.follower.ledger.apply(b"junk", b"junk")
    report = await world.report()
    assert report.verdict == "passed"
    assert any("1 records in the ledger topic" in note for note in report.notes)


async def test_messages_from_the_future_flag_the_latencies() -> None:
    """A clock that was set changes no verdict; a note says that latencies are off."""
    world = World(0, 1).vouch((0, 2), end=2)
    report = await world.report(latencies=[10**6, -3600 * 10**9])
    assert report.verdict == "passed"
    assert any("1 messages arrived up to 3600.000 s before" in note for note in report.notes)


async def test_a_destination_that_is_away_at_the_end_leaves_a_report() -> None:
    """It has what was seen so far, claims nothing lost, and gives the reason for the doubt."""
    world = World(0, 1, ends=UnreachableError("no broker answers at b:1")).vouch((0, 3), end=3)
    report = await world.report()
    assert (report.verdict, report.counts["delivered"], report.counts["lost"]) == (
        "inconclusive",
        2,
        0,
    )
    assert reasons(report).startswith(
        "the destination could not be read to its end: no broker answers at b:1"
    )
    assert "does not exist" not in reasons(report)
    assert world.log.tails == []


async def test_what_befell_a_partition_is_told_by_whoever_reports_it() -> None:
    """A state keeps the note that a topic was recreated, so others report it, too."""
    world = World(0, 1).vouch((0, 2), end=2)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.notes.append("A.t-1 was deleted and made again")
    world.states = {other.at: (1, json.loads(json.dumps(other.to_state())))}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 0
    report = await world.report()
    assert report.verdict == "inconclusive"
    assert "A.t-1 was deleted and made again" in reasons(report)
    assert report.notes == ["A.t-1 was deleted and made again"]


@pytest.mark.parametrize("readable", [True, False])
async def test_no_loss_is_claimed_while_a_state_of_the_topic_cannot_be_read(readable: bool) -> None:
    """Its consumer may have seen any message, in a topic that no longer exists (long/94133)."""
    world = World(0).vouch((0, 2), end=2)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    state = json.loads(json.dumps(other.to_state())) if readable else {}
    world.states = {other.at: (1, state)}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 0
    rounds = world.rounds()
    rounds._context.topics.judges["A.t"].losses = Losses(0)
    await rounds._round()
    report = await rounds.conclude()
    assert report.counts["lost"] == (1 if readable else 0)
    assert report.verdict == ("failed" if readable else "inconclusive")


@pytest.mark.parametrize("continued", [True, False])
@pytest.mark.parametrize("ids", [(OLD, NEW), (None, None)])
async def test_what_a_lost_state_had_seen_is_not_claimed_lost(
    ids: tuple[str | None, str | None], continued: bool
) -> None:
    """The state topic was deleted, the consumer was killed, and the next one had no state.

    The judged topic was recreated meanwhile (final/121574). Messages that the lost state had not
    seen may have been there, too.
    """
    world = World().vouch((0, 4), end=4)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.topic_id = ids[0]
    other.checker.apply(SeenRow(STREAM, 0, 3, 0, 3, 0, 1, 1, 1, 1, 2, 2))
    world.states = {other.at: (1, json.loads(json.dumps(other.to_state())))}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 3
    rounds = world.rounds()
    rounds._context.topics.judges["A.t"].losses = Losses(1 << 60)
    _, status = await rounds.judge()
    assert (status.counts["delivered"], status.counts["in_flight"]) == (3, 1)
    following = AssignedPartition.fresh(
        other.at, 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    if continued:
        following = AssignedPartition.restored(
            *(other.at, 1, json.loads(json.dumps(other.to_state()))),
            source="t", run="r1", policy=ExpectPartition.ANY, counts=[2],
        )  # fmt: skip
        following.start_over(topic_id=ids[1])
        following.identity = 0  # `World`'s log accepts no other
    following.topic_id = ids[1]
    world.states = {other.at: (2, json.loads(json.dumps(following.to_state())))}
    world.ends[other.at] = 0
    rounds._context.topics.judges["A.t"].losses = Losses(0)
    await rounds._round()
    report = await rounds.conclude()
    assert report.verdict == "inconclusive"
    counts = {name: report.counts[name] for name in ("delivered", "lost", "inconclusive")}
    assert counts == {"delivered": 3, "lost": 0, "inconclusive": 1}
    assert ("a saved state was lost" in reasons(report)) is not continued


@pytest.mark.parametrize("left", [[], [OLD]])
async def test_nothing_is_claimed_lost_that_may_have_been_in_a_topic_of_before(
    left: list[str],
) -> None:
    """Another consumer saw that topic; the partition's owner, which started later, did not.

    An owner that had read it has recorded itself what it did not read of it.
    """
    world = World(0).vouch((0, 2), end=2)
    world.assigned.topic_id, world.assigned.left_ids = NEW, left
    rounds = world.rounds()
    judge = rounds._context.topics.judges["A.t"]
    judge.losses, judge.topic_ids = Losses(0), {OLD}
    await rounds._round()
    report = await rounds.conclude()
    assert report.counts["lost"] == (1 if left else 0)
    assert report.verdict == ("failed" if left else "inconclusive")


@pytest.mark.parametrize("ours", [True, False])
async def test_a_round_over_many_streams_lets_the_loop_go_on(ours: bool) -> None:
    """Arriving messages get their times at once, even if another consumer owns the partition."""
    world = World(0).vouch((0, 1))
    streams = [STREAM._replace(lane=lane) for lane in range(1, 101)]
    for stream in streams:
        world.follower.ledger.merge(LaneRecord(stream, 1, IntervalSet([(0, 1)])))
        at = world.assigned.checker.next_offset
        row = SeenRow(stream, 0, 1, at, at + 1, 0, 1, 1, 1, 1, 2, 2)
        world.assigned.checker.apply(row)
    if not ours:
        world.states = {world.assigned.at: (1, json.loads(json.dumps(world.assigned.to_state())))}
        world.partitions.clear()
    rounds = world.rounds()
    rounds._slice = TimeSlice(0)
    async with taking_turns() as arriving:
        _, status = await rounds.judge()
    assert status.counts["delivered"] == 101
    assert arriving.had >= 3 * len(streams)  # its deadline, its verdict, its share of the totals
    assert world.taken_in >= 3 * len(streams)


async def test_a_topic_that_comes_amid_a_round_is_the_next_ones() -> None:
    """An assignment adds it while the ends are requested; this round does not judge it."""
    world = World(0, 1).vouch((0, 2))
    rounds = world.rounds()
    topics, new = rounds._context.topics, TopicPartition("A.u", 0)

    def assigned() -> None:
        topics.judges["A.u"] = TopicJudge("u", "r1", ExpectPartition.ANY, Losses(MINUTE))
        topics.counts["A.u"] = 1
        checker = PartitionChecker("u", 0)
        world.partitions[new] = replace(world.assigned, at=new, source="u", checker=checker)

    world.while_asked = assigned
    _, status = await rounds.judge()
    assert (status.counts["delivered"], status.partitions) == (2, 2)
    assert isinstance(world.ends, dict)
    world.ends[new] = 0
    world.while_asked = lambda: None
    assert set((await rounds._round()).views) == {"A.t", "A.u"}


async def test_another_consumers_state_that_cannot_be_read_ends_nobody() -> None:
    """During a rolling upgrade, a consumer of a newer version ended the others."""
    world = World(0, 1, ends={("A.t", 0): 2, ("A.t", 1): 2}).vouch((0, 2), end=2)
    other = TopicPartition("A.t", 1)
    world.states = {other: (1, {"v": 99})}
    rounds = world.rounds()
    assert not (await rounds.judge())[0]
    report = await rounds.conclude()
    assert report.verdict == "inconclusive"
    assert "A.t-1: the state of its consumer cannot be read" in reasons(report)
    assert "A.t: not read to the end: partition 1" in reasons(report)
    fresh = AssignedPartition.fresh(
        other, 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    fresh.checker.advance(2)
    world.states = {other: (2, fresh.to_state())}
    assert (await rounds.judge())[0], "its next consumer is one that is understood"
