"""Consumers that start, wait, are replaced and end: none hangs, and none skips messages.

The real applications run on simulated clusters; their logs are reconciled, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.errors import FencedError
from mirrortest.model.findings import Finding
from tests.simulation import administration, clients
from tests.simulation.batch import Record, encoded
from tests.simulation.offline import reconciled
from tests.simulation.plan import LEDGER, STATES, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from mirrortest.kafka.ports import TopicDescription
    from tests.simulation.history import Stage
    from tests.simulation.world import World

_PLAN = Plan(messages=40, rate=10.0, direct_ledger=True, deadline=5.0)
_LONG = replace(_PLAN, messages=1000, partitions=2, consumers=2)


def _two_consumers(stage: Stage) -> None:
    """Start a producer, and two consumers of the topic, which exists."""
    Script(stage)
    stage.supervise("produce", "p0")
    stage.supervise("consume", "c0")
    stage.supervise("consume", "c1")


def _strangers(world: World, number: int = 0) -> None:
    """Write a foreign record to a topic that only matches the pattern."""
    record = [(0, b"k", b"somebody else's", ())]
    partition = world.destination.topics["t9"].partitions[number]
    partition.append(encoded(record), [Record(0, b"k", None)], world.now_ns)
    world.news("destination", "t9")


def _claims(world: World, of: bytes) -> list[bytes]:
    """The keys of claims in the state topic that contain `of`."""
    topic = world.destination.topics.get(STATES)
    log = [] if topic is None else topic.partitions[0].log
    keys = [record.key or b"" for batch in log for record in batch.records]
    return [key for key in keys if key.startswith(b'["claim"') and of in key]


def _happened(world: World, what: str) -> bool:
    return any(event == what for _, event, _ in world.events)


# -- fetching --------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_every", [0, 7])
def test_what_came_with_a_lost_position_is_judged_though_its_ends_are_not_answered(
    drop_every: int,
) -> None:
    """A fetch finds partition 0's position lost to retention; partition 1's messages are judged.

    Partition 0 was overtaken in an outage, and not all brokers answer at once.
    """

    async def script(stage: Stage) -> None:
        world = stage.world
        Script(stage)
        stage.supervise("consume", "c0")
        stage.supervise("produce", "p0")
        await asyncio.sleep(1)
        world.net.refused.add(("c0", "fetch"))
        await asyncio.sleep(1.5)
        overtaken = world.destination.topics["t0"].partitions[0]
        overtaken.retain_from(overtaken.end - 1, world.now_ns)
        world.net.refused = {("c0", "ends")}
        await asyncio.sleep(4)
        world.net.refused.clear()

    plan = replace(_PLAN, messages=60, rate=20.0, partitions=2, drop_every=drop_every)
    stage = played(plan, script)
    (report,) = stage.outcome.reports
    sent, arrived = (
        cluster.topics["t0"].partitions[1].end
        for cluster in (stage.world.source, stage.world.destination)
    )
    (other,) = [each for each in report.verdicts.values() if each.delivered.count == arrived]
    assert other.counts() == ({Finding.LOST: sent - arrived} if drop_every else {})
    assert reconciled(stage).counts["lost"] == report.counts["lost"]


# -- starting and waiting --------------------------------------------------------------------------


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("returns", [False, True])
def test_a_consumer_that_begins_while_a_partition_has_no_leader_reads_the_others(
    returns: bool, group: bool
) -> None:
    """It only matches the pattern and may stay leaderless; it is read once it has a leader."""

    async def script(stage: Stage) -> None:
        world = stage.world
        Script(stage)
        stranger = world.destination.create("t9", 1, now_ns=world.now_ns).partitions[0]
        _strangers(world)
        stranger.leaderless = True
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        stranger.leaderless = not returns

    stage = played(replace(_PLAN, group=group), script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)
    assert report.counts["foreign"] == returns
    assert reconciled(stage).exit_code == 0


@pytest.mark.parametrize("group", [False, True])
def test_where_there_are_no_topic_ids_a_partition_without_a_leader_holds_nobody_up(
    group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage, last records are read again; a leaderless partition must not block that."""
    monkeypatch.setattr(clients, "id_of", lambda _: None)
    monkeypatch.setattr(clients.SimulatedConsumer, "sees_topic_ids", False)

    async def script(stage: Stage) -> None:
        world = stage.world
        Script(stage)
        world.destination.create("t9", 1, now_ns=world.now_ns)
        _strangers(world)
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        world.destination.topics["t9"].partitions[0].leaderless = True

    (report,) = played(replace(_PLAN, group=group), script).outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)


def test_what_is_missing_in_a_partition_that_had_no_leader_at_the_start_is_lost() -> None:
    """The run's own partition is read once it has a leader; no run passes before."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        script.write(range(10))
        script.copy.leaderless = True
        stage.supervise("consume", "c0")
        await asyncio.sleep(12)
        script.copy.leaderless = False

    stage = played(replace(_PLAN, messages=15, rate=100.0), script)
    (report,) = stage.outcome.reports
    assert (report.counts["delivered"], report.counts["lost"]) == (10, 5)
    assert reconciled(stage).counts["lost"] == 5


@pytest.mark.parametrize("group", [False, True])
def test_a_topic_that_is_deleted_as_its_next_incarnation_is_begun_holds_nobody_up(
    group: bool,
) -> None:
    """The topic was recreated, only matches the pattern, and may stay missing."""

    async def script(stage: Stage) -> None:
        script, world = Script(stage), stage.world
        world.destination.create("t9", 1, now_ns=world.now_ns)
        _strangers(world)
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        world.destination.delete("t9", world.now_ns)
        world.destination.create("t9", 1, now_ns=world.now_ns)
        _strangers(world)
        await script.until(lambda: _happened(world, "Recreated"), every=0.002)
        world.destination.delete("t9", world.now_ns)

    stage = played(replace(_PLAN, group=group), script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)
    assert reconciled(stage).exit_code == 0


@pytest.mark.parametrize("group", [False, True])
def test_a_topic_that_is_deleted_before_it_is_claimed_holds_nobody_up(group: bool) -> None:
    """It existed when the consumer listed topics; the consumer then waited for the state topic."""

    async def script(stage: Stage) -> None:
        world = stage.world
        Script(stage)
        world.destination.create("t9", 1, now_ns=world.now_ns)
        stage.supervise("produce", "p0")
        world.net.refused.add(("c0", "produce"))
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        world.destination.delete("t9", world.now_ns)
        world.net.refused.clear()

    stage = played(replace(_PLAN, group=group), script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)


def test_the_idle_timeout_ends_a_wait_for_a_topic_that_stays_deleted() -> None:
    """For the run's own topic, only the timeout or a signal ends the wait: inconclusive."""

    async def script(stage: Stage) -> None:
        world = stage.world
        Script(stage)
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", idle_timeout=20.0)
        await asyncio.sleep(3)
        stage.mirror.running = False
        world.destination.delete("t0", world.now_ns)

    stage = played(_PLAN, script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["lost"]) == (3, 0)
    assert "t0 does not exist in the destination" in report.inconclusive


def test_the_idle_timeout_ends_a_wait_for_offsets_that_are_not_answered() -> None:
    """A consumer cannot start: brokers refuse its requests for offsets, and only these."""

    async def script(stage: Stage) -> None:
        Script(stage)
        stage.supervise("produce", "p0")
        stage.world.net.refused.add(("c0", "offsets"))
        await stage.session("consume", "c0", idle_timeout=20.0)

    (report,) = played(_PLAN, script).outcome.reports
    assert report.exit_code == 3


def test_a_share_is_taken_over_while_its_topic_is_deleted() -> None:
    """A consumer takes over shares without waiting for a topic that only matches the pattern."""

    async def script(stage: Stage) -> None:
        script, world = Script(stage), stage.world
        world.destination.create("t9", 2, now_ns=world.now_ns)
        _strangers(world, 1)
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await script.until(lambda: _claims(world, b'"t9",1,'), 90, every=0.001)
        world.destination.delete("t9", world.now_ns)

    stage = played(_LONG, script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 1000)


def test_a_topic_that_a_lagging_broker_does_not_list_yet_is_read_by_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic is assigned to the member before the member finds it; no rebalance follows."""
    heard = administration.SimulatedAdmin.describe_topics

    async def lags(self: Any, topics: list[str] | None) -> list[TopicDescription]:
        return [each for each in await heard(self, topics) if each.name != "t0"]

    async def script(stage: Stage) -> None:
        world, script = stage.world, Script(stage)
        world.destination.delete("t0", world.now_ns)
        await script.only_produced()
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        with monkeypatch.context() as patch:
            patch.setattr(administration.SimulatedAdmin, "describe_topics", lags)
            world.destination.create("t0", 1, now_ns=world.now_ns)
            await asyncio.sleep(2)
        stage.mirror.running = True

    plan = replace(_PLAN, messages=15, rate=100.0, group=True, direct_ledger=False)
    stage = played(plan, script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 15)


# -- ownership of partitions -----------------------------------------------------------------------


def test_a_partition_that_a_member_claimed_after_it_was_given_up_is_taken_back() -> None:
    """The member was paused in a rebalance, claimed late, and died: no rebalance follows."""

    async def script(stage: Stage) -> None:
        world, script = stage.world, Script(stage)
        await script.only_produced()
        world.task(stage.session("consume", "c0"))
        await script.until(lambda: _happened(world, "assigned"), every=0.0005)
        first = stage.current["c0"].process
        first.pause()
        stage.supervise("consume", "c1")
        await asyncio.sleep(14)
        before = len(_claims(world, b'"t0",0,'))
        first.resume()
        # The first claim has a generation that is taken by now.
        await script.until(lambda: len(_claims(world, b'"t0",0,')) >= before + 2, every=0.0005)
        first.kill()
        script.write(range(10))

    plan = replace(_PLAN, messages=15, rate=100.0, group=True, deadline=30.0)
    stage = played(plan, script)
    (report,) = stage.outcome.reports
    assert (report.counts["delivered"], report.counts["lost"]) == (10, 5)
    assert reconciled(stage).counts["lost"] == 5


def test_a_member_that_was_given_up_and_comes_back_does_not_say_that_it_read_nothing() -> None:
    """The other member judged its partitions meanwhile, continuing from its states."""

    async def script(stage: Stage) -> None:
        _two_consumers(stage)
        await asyncio.sleep(6)
        first = stage.current["c0"].process
        first.pause()
        await asyncio.sleep(15)
        first.resume()

    plan = replace(_PLAN, messages=150, partitions=2, consumers=2, group=True)
    stage = played(plan, script)
    assert [report.exit_code for report in stage.outcome.reports] == [0, 0]
    notes = [note for report in stage.outcome.reports for note in report.notes]
    assert [note for note in notes if "was stalled" not in note] == []
    assert reconciled(stage).exit_code == 0


@pytest.mark.parametrize("saves", [True, False])
def test_a_share_is_left_to_a_consumer_that_reads_on_and_cannot_ask_for_ends(saves: bool) -> None:
    """Others see the states that it saves. A consumer that cannot save counts as ended."""

    async def script(stage: Stage) -> None:
        _two_consumers(stage)
        await asyncio.sleep(5)
        asked = {"ends"} if saves else {"ends", "produce"}
        stage.world.net.refused |= {("c1", each) for each in asked}
        await asyncio.sleep(80)
        stage.world.net.refused.clear()

    stage = played(_LONG, script)
    assert [report.exit_code for report in stage.outcome.reports] == [0] * (1 + saves)
    fenced = [each for each in stage.outcome.sessions if isinstance(each.error, FencedError)]
    assert len(fenced) == (not saves)


@pytest.mark.parametrize("again", [False, True])
def test_a_producer_that_is_ended_while_it_registers_says_what_it_had_sent(again: bool) -> None:
    """The ledger does not answer its first registration, or the next one after its sender died."""

    async def script(stage: Stage) -> None:
        script, world = Script(stage), stage.world
        ends = world.task(stage.session("produce", "p0"))
        await script.until(lambda: world.logs, every=0.0005)
        if again:
            await asyncio.sleep(2)
            world.net.refused.add(("p0", "producer id"))
            world.source.topics["t0"].partitions[0].leaderless = True
            await asyncio.sleep(10)
        world.source.topics[LEDGER].partitions[0].leaderless = True
        world.net.refused.clear()
        await asyncio.sleep(2)
        stage.current["p0"].stop.set()
        await ends

    stage = played(_PLAN, script)
    (session,) = stage.outcome.sessions
    why = str(session.why)
    assert why.startswith("could not write the registration to the ledger 'mirrortest.ledger': ")
    assert ("nothing was sent" in why) == (not again)


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [3.3, 30.0])
def test_a_last_state_is_saved_where_the_destination_answers_again(seconds: float) -> None:
    """An outage that is over when the consumer ends does no harm; a longer one is inconclusive."""

    async def script(stage: Stage) -> None:
        Script(stage)
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", until_complete=False, duration=12.0)
        await asyncio.sleep(9)
        stage.world.net.refused.add(("c0", "ends"))
        await asyncio.sleep(seconds)
        stage.world.net.refused.clear()

    (report,) = played(_PLAN, script).outcome.reports
    assert report.counts["delivered"] == 40
    assert report.exit_code == (0 if seconds < 10 else 3)
