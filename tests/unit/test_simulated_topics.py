"""Which topics and partitions decide a run: others delay nothing, and none is missed.

The real applications run on simulated clusters; their logs are reconciled, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.run_naming import TopicMapping
from mirrortest.errors import UsageError
from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, encode
from mirrortest.wire.stream import ProducerId
from tests.simulation.batch import MessageId, Record, encoded, rows_of
from tests.simulation.mirror import grow
from tests.simulation.offline import reconciled
from tests.simulation.plan import LEDGER, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.cluster import Topic
    from tests.simulation.history import Stage
    from tests.simulation.world import World

_PLAN = Plan(messages=40, rate=10.0, direct_ledger=True, deadline=5.0)


def _strangers(world: World, topic: Topic) -> None:
    """Write a foreign record to an unrelated topic."""
    record = [(0, b"k", b"somebody else's", ())]
    topic.partitions[0].append(encoded(record), [Record(0, b"k", None)], world.now_ns)
    world.news("destination", "t9")


def _deleted(world: World) -> None:
    world.destination.delete("t9", world.now_ns)


def _recreated(world: World) -> None:
    world.destination.delete("t9", world.now_ns)
    _strangers(world, world.destination.create("t9", 1, now_ns=world.now_ns))


def _without_leader(world: World) -> None:
    world.destination.topics["t9"].partitions[0].leaderless = True


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("befalls", [_deleted, _recreated, _without_leader])
def test_what_befalls_a_topic_that_is_not_the_runs_decides_nothing(
    befalls: Callable[[World], None], group: bool
) -> None:
    """It only matches the pattern: no consumer waits for it, and nothing is inconclusive."""

    async def script(stage: Stage) -> None:
        world = stage.world
        _strangers(world, world.destination.create("t9", 1, now_ns=world.now_ns))
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(3)
        befalls(world)

    stage = played(Plan(**{**vars(_PLAN), "group": group}), script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)
    assert reconciled(stage).exit_code == 0


@pytest.mark.parametrize("returns", [False, True])
def test_a_topic_that_is_deleted_while_it_is_assigned_holds_nobody_up(returns: bool) -> None:
    """Other topics' partitions are read; its own are read once it exists again."""

    async def script(stage: Stage) -> None:
        world, play = stage.world, Script(stage)
        judged = world.destination.topics["t0"].partitions[0]
        world.destination.create("t9", 1, now_ns=world.now_ns)
        await play.produced("p0")
        judged.leaderless = True
        stage.supervise("consume", "c0", topics=(), topic_pattern="t.*")
        await asyncio.sleep(2)
        world.destination.delete("t9", world.now_ns)
        await asyncio.sleep(2)
        judged.leaderless = False
        if returns:
            await asyncio.sleep(0.5)
            _strangers(world, world.destination.create("t9", 1, now_ns=world.now_ns))

    stage = played(_PLAN, script)
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 40)
    assert report.counts["foreign"] == returns


def _copied(stage: Stage, to: str, run: str, damaged: int = 0) -> None:
    """Copy a run's messages from the source to a topic; change the seq of the first `damaged`."""
    place, source = stage.world.destination.topics[to].partitions[0], stage.world.source.topics
    for batch in source["t0"].partitions[0].log:
        for _, stamp, key, value, headers in rows_of(batch):
            if value is None or f"@{run}.".encode() not in value:
                continue
            text = value.replace(b";0", b";9", 1) if damaged > 0 else value
            damaged -= 1
            raw = encoded([(stamp, key, text, headers)])
            place.append(raw, [Record(0, key, None)], stage.world.now_ns)
    stage.world.news("destination", to)


@pytest.mark.parametrize(
    ("name", "run"), [("t0.dlq", "sim"), ("t0.dlq", "other"), ("dlq.t0", "other")]
)
@pytest.mark.parametrize("damaged", [0, 2])
def test_copies_in_a_topic_that_is_not_the_runs_are_not_corrupted(
    name: str, run: str, damaged: int
) -> None:
    """The topic is a dead-letter topic, or another mirror's; damage in the run's topic counts.

    No consumer waits for such copies to end.
    """

    async def script(stage: Stage) -> None:
        Script(stage)
        stage.world.destination.create(name, 1, now_ns=stage.world.now_ns)
        stage.supervise("produce", "q1", run="other")
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", topics=(), topic_pattern="t0.*|dlq.*")
        await asyncio.sleep(2)
        if damaged:
            _copied(stage, "t0", "sim", damaged)
        while stage.current["c0"].ended_ns is None:
            _copied(stage, name, run)
            await asyncio.sleep(0.7)

    stage = played(_PLAN, script)
    (session,) = stage.outcome.consumers
    report, offline = session.report, reconciled(stage)
    for exit_code, counts in (
        (report.exit_code, report.counts),
        (offline.exit_code, offline.counts),
    ):
        assert (exit_code, counts["corrupted"]) == (99 if damaged else 0, damaged)
    for notes in (report.notes, offline.notes):
        assert any(note.startswith(f"{name}: ") for note in notes)


def test_a_topic_recreated_with_fewer_partitions_ends_the_run_without_a_verdict() -> None:
    """No consumer waits for the end of a partition that the new topic lacks."""

    async def script(stage: Stage) -> None:
        destination, now_ns = stage.world.destination, stage.world.now_ns
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0")
        await asyncio.sleep(2)
        destination.delete("t0", now_ns)
        stage.mirror.habits.partitions = 2
        stage.mirror.start_over("t0")
        destination.create("t0", 2, now_ns=now_ns)

    stage = played(Plan(**{**vars(_PLAN), "partitions": 3, "rehash": True}), script)
    assert not stage.outcome.hang
    (report,) = stage.outcome.reports
    assert (report.exit_code, report.counts["lost"]) == (3, 0)
    assert "t0 has fewer partitions than it had" in report.inconclusive
    offline = reconciled(stage)
    assert (offline.exit_code, offline.counts["lost"]) == (3, 0)


@pytest.mark.parametrize("added", [6.1, 6.2, 6.3, 6.42])
def test_what_came_in_time_into_a_partition_that_is_new_is_not_lost(added: float) -> None:
    """A judging round counts partitions and requests their ends after it reads the clock."""

    async def script(stage: Stage) -> None:
        world = stage.world
        stage.mirror.running = False
        grow(world.source.topics["t0"], 3)
        await Script(stage).produced("p0")
        source, copy = world.source.topics["t0"].partitions, world.destination.topics["t0"]

        def mirror(number: int) -> None:
            for batch in source[number].log:
                records = [Record(0, each.key, each.message) for each in batch.records]
                raw = encoded([row[1:] for row in rows_of(batch)])
                copy.partitions[number].append(raw, records, world.now_ns)
            world.news("destination", "t0")

        stage.supervise("consume", "c0", duration=5.2)
        await asyncio.sleep(0.5)
        mirror(0)
        mirror(1)
        await asyncio.sleep(added - world.seconds)
        grow(copy, 3)
        mirror(2)

    plan = Plan(partitions=2, messages=15, rate=100.0, direct_ledger=True, deadline=4.85)
    stage = played(plan, script)
    (report,) = stage.outcome.reports
    assert report.counts["lost"] == 0
    assert reconciled(stage).counts["lost"] == 0


def test_a_group_that_begins_after_a_topic_was_recreated_learns_of_it_from_another() -> None:
    """The old topic's messages are not lost: the first group has read them."""

    async def script(stage: Stage) -> None:
        play = Script(stage)
        await play.only_produced()
        stage.supervise("consume", "c0", shard=None, group="a", until_complete=False, duration=40.0)
        await asyncio.sleep(2)
        play.write(range(10))
        await play.read(10)
        await asyncio.sleep(3)
        play.recreate()
        play.write(range(10, 15))
        await asyncio.sleep(8)
        stage.supervise("consume", "c1", shard=None, group="b")

    plan = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0)
    first, second = played(plan, script).outcome.reports
    assert first.counts["delivered"] == 15
    assert (second.exit_code, second.counts["lost"]) == (3, 0)
    assert second.counts["inconclusive"] == 10


def test_a_run_that_was_judged_before_says_so() -> None:
    """A second test with the same run id gets the first one's verdict, and a note."""

    async def script(stage: Stage) -> None:
        await Script(stage).produced("p0")
        for _ in range(2):
            await stage.session("consume", "c0")

    first, second = played(_PLAN, script).outcome.reports
    assert first.exit_code == second.exit_code == 0
    (note,) = set(second.notes) - set(first.notes)
    assert note.endswith("all had been judged before it started. For a new test use a new --run")


@pytest.mark.parametrize("phantoms", [0, 1])
def test_another_process_with_the_id_that_writes_to_other_topics_sends_no_phantoms(
    phantoms: int,
) -> None:
    """It has its own ledger, as in another data centre: nothing is known of its messages."""

    async def script(stage: Stage) -> None:
        world = stage.world
        stage.supervise("produce", "p0", topics=("t0",))
        other = stage.session("produce", "p0", topics=("t1",), ledger_topic="other")
        stage.supervise("consume", "c0", 1.0, duration=20.0)
        await other
        await asyncio.sleep(2)
        for seq in range(900, 900 + phantoms):
            sender, now_ns = ProducerId("p0", "sim", 1), world.now_ns
            message = Message("t0", sender, 0, seq, now_ns, now_ns, 0, 1, 120)
            row = encode(message, Form.BODY)
            raw = encoded([(row.timestamp_ms, row.key, row.value, ())])
            copy = world.destination.topics["t0"].partitions[0]
            copy.append(raw, [Record(0, row.key, None)], now_ns)
            world.news("destination", "t0")

    stage = played(Plan(topics=2, messages=20, rate=20.0, deadline=5.0), script)
    logs = stage.world.logs
    stage.world.logs = [log for log in logs if {*log.session.topics} != {"t1"}]
    (report,) = stage.outcome.reports
    offline = reconciled(stage)
    for exit_code, counts in (
        (report.exit_code, report.counts),
        (offline.exit_code, offline.counts),
    ):
        assert (exit_code, counts["phantom"]) == (99 if phantoms else 3, phantoms)
    assert "the ledger has no records of 1 streams that were read" in report.inconclusive
    assert any(
        "20 messages were read whose producers' logs are missing" in each
        for each in offline.inconclusive
    )


@pytest.mark.parametrize("lost", [0, 1])
def test_two_processes_with_one_id_leave_the_run_without_a_verdict(lost: int) -> None:
    """Two clusters' mirrors keep names: only what both lose is known to be lost."""

    async def script(stage: Stage) -> None:
        world, mirror = stage.world, stage.mirror
        mirror._topics = {**mirror._topics, "other": LEDGER}
        both = frozenset(MessageId("t0", "p0@sim.1", 0, seq) for seq in range(lost))
        mirror.habits.drops = both
        await stage.session("produce", "p0")
        logs, world.logs = world.logs, []  # its logs are elsewhere, too
        stage.supervise("consume", "c0")
        await stage.session("produce", "p0", ledger_topic="other")
        world.logs += logs

    stage = played(Plan(messages=20, rate=20.0, deadline=5.0), script)
    (report,), offline = stage.outcome.reports, reconciled(stage)
    for exit_code, counts, reasons in (
        (report.exit_code, report.counts, report.inconclusive),
        (offline.exit_code, offline.counts, offline.inconclusive),
    ):
        assert (exit_code, counts["lost"]) == (99 if lost else 3, lost)
        assert any(each.startswith("several processes sent as producer p0: ") for each in reasons)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_restart_under_a_wrong_name_of_the_source_loses_no_state(group: str | None) -> None:
    """The first messages of the copy are deleted, so the consumer could not read them again."""

    async def script(stage: Stage) -> None:
        play = Script(stage)
        await play.only_produced()
        session = asyncio.ensure_future(stage.session("consume", "c0", group=group))
        await asyncio.sleep(2)
        play.write(range(10))
        await play.read(10)
        await asyncio.sleep(3)
        stage.current["c0"].process.kill()
        await session
        play.copy.retain_from(5, stage.world.now_ns)
        mistaken = await stage.session(
            "consume", "c0", group=group, mapping=TopicMapping(explicit={"t0": "x"}), duration=20.0
        )
        assert isinstance(mistaken.error, UsageError)
        assert "--topic-map t0=t0" in str(mistaken.error)
        play.write(range(10, 15))
        stage.supervise("consume", "c0", group=group)

    plan = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=30.0)
    (report,) = played(plan, script).outcome.reports
    assert (report.exit_code, report.counts["delivered"]) == (0, 15)
