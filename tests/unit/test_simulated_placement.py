"""Where a faithful mirror may put messages: under a new policy, and after partitions were added.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.partition_views import SavedState
from mirrortest.model.findings import Finding
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.lanes import lane_key, partition_of
from mirrortest.wire.stream import StreamId
from tests.simulation.batch import Record, encoded, rows_of
from tests.simulation.mirror import Habits, Mirror, grow
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage

_HASHED = Plan(partitions=2, messages=40, rate=10.0, direct_ledger=True, rehash=True, deadline=5.0)


def _misrouted(stage: Stage) -> list[int]:
    """The numbers of misrouted messages in the last consumer's report and by the logs."""
    report = stage.outcome.reports[-1]
    summary = reconciled(stage)
    assert summary.online is not None
    assert not summary.online.disagreements
    for exit_code, counts in (
        (report.exit_code, report.counts),
        (summary.exit_code, summary.counts),
    ):
        assert (exit_code == 99) == (counts["misrouted"] > 0), counts
    return [report.counts["misrouted"], summary.counts["misrouted"]]


def _homes(lane: int, *counts: int) -> set[int]:
    """Where the mirror puts a lane's messages, under each partition count."""
    return {partition_of(lane_key(lane), count) for count in counts}


def _stray(script: Script, *counts: int) -> None:
    """Copy a message, whose home differs with each of these counts, to a partition that is none."""
    topic = script.world.destination.topics["t0"]
    message, row = next(
        (message, row)
        for message, row in script._sent().values()
        if len(_homes(message.lane, *counts)) == len(counts)
    )
    away = {partition.number for partition in topic.partitions} - _homes(message.lane, *counts)
    topic.partitions[min(away)].append(
        encoded([row[1:]]), [Record(0, row[2], message)], script.world.now_ns
    )
    script.world.news("destination", "t0")


@pytest.mark.parametrize("last", ["t0", "t1"])
@pytest.mark.parametrize("hashed", [ExpectPartition.MURMUR2, ExpectPartition.ANY])
@pytest.mark.parametrize("strays", [0, 1])
def test_topics_that_are_mirrored_in_different_ways_have_policies_of_their_own(
    last: str, hashed: ExpectPartition, strays: int
) -> None:
    """Each topic has its own consumer; `t1` is mirrored by key, to more partitions."""

    async def script(stage: Stage) -> None:
        world = stage.world
        by_key = Mirror(world, {"t1": "t1"}, Habits(rehash=True, partitions=5))
        stage.mirror._topics = {t: c for t, c in stage.mirror._topics.items() if t != "t1"}
        world.task(by_key.run())
        stage.supervise("produce", "p0")
        for name, topic, policy in (("c0", "t0", ExpectPartition.SOURCE), ("c1", "t1", hashed)):
            after = 1.5 if topic == last else 1.0
            about = {"topics": (topic,), "expect_partition": policy, "shard": None}
            stage.supervise("consume", name, after, **about)
        await asyncio.sleep(2)
        for topic in ("t0", "t1") if strays else ():
            batch = world.source.topics[topic].partitions[0].log[0]
            row, copies = rows_of(batch)[0], world.destination.topics[topic].partitions
            homes = {0} if topic == "t0" else {partition_of(row[2] or b"", n) for n in (3, 4, 5)}
            away = next(each for each in copies if each.number not in homes)
            away.append(encoded([row[1:]]), [Record(0, row[2], batch.records[0].message)], 0)
            world.news("destination", topic)

    plan = Plan(partitions=3, topics=2, messages=60, rate=40.0, deadline=5.0)
    stage = played(plan, script)
    offline = reconciled(stage)
    # Under `any`, a stream may be in two partitions, as three counts may have been in force.
    away = [strays, strays if hashed is ExpectPartition.MURMUR2 else 0]
    reports = {report.name: report.counts["misrouted"] for report in stage.outcome.reports}
    assert [reports["c0"], reports["c1"]] == away
    assert (offline.exit_code, offline.counts["misrouted"]) == (99 if strays else 0, sum(away))
    assert offline.online is not None
    assert not offline.online.disagreements
    assert not any("anew" in note for note in offline.notes)


@pytest.mark.parametrize("before", [ExpectPartition.SOURCE, ExpectPartition.ANY])
@pytest.mark.parametrize("strays", [0, 1])
def test_a_consumer_that_is_given_another_policy_judges_anew_where_messages_belong(
    before: ExpectPartition, strays: int
) -> None:
    """What the earlier policy found does not count; what is misrouted by the new one does."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        stage.mirror.habits.partitions = 3
        grow(stage.world.destination.topics["t0"], 3)
        stage.supervise("produce", "p0")
        session = asyncio.ensure_future(stage.session("consume", "c0", expect_partition=before))
        await asyncio.sleep(3)
        if strays:
            _stray(script, 2, 3)
        await asyncio.sleep(2)
        stage.current["c0"].process.kill()
        await session
        stage.supervise("consume", "c0")

    assert _misrouted(played(_HASHED, script)) == [strays, strays]


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("strays", [0, 1])
def test_where_any_partition_will_do_a_stream_moves_only_where_partitions_were_added(
    grown: bool, strays: int
) -> None:
    """A stream may be in one partition for each partition count, and in no other."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        topic = stage.world.destination.topics["t0"]
        grow(topic, 3)
        stage.mirror.habits.partitions = 3
        stage.supervise("consume", "c0", expect_partition=ExpectPartition.ANY)
        stage.supervise("produce", "p0", destination_partitions=3)
        await asyncio.sleep(2)
        if grown:
            grow(topic, 4)
            stage.mirror.habits.partitions = 4
        await asyncio.sleep(3)
        if strays:
            _stray(script, *((3, 4) if grown else (3,)))

    assert _misrouted(played(replace(_HASHED, partitions=1), script)) == [strays, strays]


@pytest.mark.parametrize("named", [ExpectPartition.SOURCE, ExpectPartition.MURMUR2, None])
def test_a_state_keeps_what_is_misrouted_by_the_present_policy_alone(
    named: ExpectPartition | None,
) -> None:
    """An older version's state names no policy: it counts as judged by the present one."""
    at, stream = TopicPartition("t", 0), StreamId("t", "r1", "p", 1, 0)
    assigned = AssignedPartition.fresh(
        at, 1, source="t", run="r1", policy=named or ExpectPartition.SOURCE, counts=[1]
    )
    found = int(Finding.MISROUTED | Finding.ALTERED_KEY)
    assigned.checker.apply(SeenRow(stream, 0, 4, 0, 4, found, 1, 1, 1, 1, 2, 2))
    state = assigned.to_state()
    if named is None:
        del state["policy"]
    saved = SavedState.read(state, at, run="r1", policy=ExpectPartition.SOURCE)
    another = named is ExpectPartition.MURMUR2
    kept = {Finding.ALTERED_KEY} if another else {Finding.ALTERED_KEY, Finding.MISROUTED}
    assert saved.checker.fragments[stream].by_finding.keys() == kept
    assert saved.rerouted_from == (named if another else None)
    assert PartitionChecker.from_state(saved.checker.to_state()).fullness == saved.checker.fullness
