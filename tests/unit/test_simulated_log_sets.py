"""Incomplete sets of logs: copied while the run goes on, or without some of the run's logs.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.consume.options import Shard
from tests.simulation.batch import MessageId
from tests.simulation.offline import reconciled
from tests.simulation.plan import RUN, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage
    from tests.simulation.sequence_log import SimulatedLog

_PLAN = Plan(messages=100, rate=10.0, direct_ledger=True)


def _copied(stage: Stage, name: str) -> SimulatedLog:
    """A copy of a log as it is now."""
    [log] = [each for each in stage.world.logs if each.session.name == name]
    made = copy(log)
    made.rows = list(log.rows)
    return made


def test_what_a_producer_sent_after_its_log_was_copied_is_no_phantom() -> None:
    """Logs are copied in the middle of a run, the consumer's four seconds later."""
    copies = []

    async def script(stage: Stage) -> None:
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0")
        for name in ("p0", "c0"):
            await asyncio.sleep(4)
            copies.append(_copied(stage, name))

    stage = played(_PLAN, script)
    stage.world.logs[:] = copies
    logs = reconciled(stage)
    assert (logs.exit_code, logs.counts["phantom"]) == (3, 0)
    assert any("copied while they were written" in why for why in logs.inconclusive)


def test_what_a_producer_that_has_ended_did_not_send_is_a_phantom() -> None:
    """The log of a producer that has ended is complete."""

    async def script(stage: Stage) -> None:
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0")

    stage = played(_PLAN, script)
    [log] = [each for each in stage.world.logs if each.session.name == "p0"]
    ends = {"reserved": 90, "sent": 90, "end": 90}
    log.rows = [
        row._replace(seq_hi=min(row.seq_hi or 0, ends[row.kind]), offset_lo=None, offset_hi=None)
        for row in log.rows
        if (row.seq_lo or 0) < ends[row.kind]
    ]
    log.durable_rows = len(log.rows)
    logs = reconciled(stage, without=["c0"])
    assert logs.counts["sent"] == 90
    consumer = [each for each in stage.world.logs if each.session.name == "c0"]
    for each in consumer:  # without the ledger's records
        each.rows = [row for row in each.durable if row.kind != "vouched"]
        each.durable_rows = len(each.rows)
    assert reconciled(stage).counts["phantom"] == 10


def test_the_log_of_a_consumer_that_was_killed_as_it_concluded_passes_nothing() -> None:
    """All messages of p1 are lost, whose log is missing: only the ledger's records name them."""

    async def script(stage: Stage) -> None:
        lost = (MessageId("t0", f"p1@{RUN}.1", 0, seq) for seq in range(20))
        stage.mirror.habits.drops = frozenset(lost)
        stage.supervise("produce", "p0")
        stage.supervise("produce", "p1")
        stage.supervise("consume", "c0", duration=20.0, until_complete=False)

    plan = Plan(messages=20, producers=2, rate=20.0, direct_ledger=True, deadline=60.0)
    stage = played(plan, script)
    assert reconciled(stage, without=["p1"]).exit_code == 3
    [log] = [each for each in stage.world.logs if each.session.name == "c0"]
    log.session = log.session.model_copy(update={"ended_ns": None, "clean": False})
    rows = log.rows
    for end in range(len(rows) - 6, len(rows)):
        log.rows, log.durable_rows = rows[:end], end
        assert reconciled(stage, without=["p1"]).exit_code == 3, rows[end - 1].kind


@pytest.mark.parametrize("second", [False, True])
def test_a_loss_in_a_share_that_nobody_read_is_found_by_another_group(second: bool) -> None:
    """One of two shares has no consumer: it is inconclusive, unless another group reads it."""

    async def script(stage: Stage) -> None:
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0", duration=25.0, until_complete=False)
        if second:
            stage.supervise("consume", "d0", 2.0, group="b", shard=None)

    plan = Plan(messages=40, rate=10.0, partitions=2, idle_share=True, direct_ledger=True)
    logs = reconciled(played(plan, script))
    assert (logs.counts["lost"], logs.exit_code) == (0, 0 if second else 3)
    assert second or "t0-1: no consumer's log covers this partition" in logs.inconclusive
    logs = reconciled(played(replace(plan, drop_every=7), script))
    assert (logs.counts["lost"] > 0, logs.exit_code) == (second, 99 if second else 3)


def test_a_partition_that_was_empty_for_one_group_is_not_read_for_another() -> None:
    """It was filled later, and no consumer of the second group reads it: nothing there is lost."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        early: dict[str, Any] = {"duration": 4.0, "until_complete": False}
        stage.supervise("consume", "c0", group="a", **early)
        await script.until(lambda: "c0" in stage.current)
        await script.until(lambda: stage.current["c0"].ended_ns is not None)
        stage.mirror.running = True
        stage.supervise("consume", "c1", shard=Shard(1, 2), duration=20.0, until_complete=False)

    plan = Plan(messages=20, rate=40.0, partitions=2, direct_ledger=True)
    logs = reconciled(played(plan, script))
    assert (logs.counts["lost"], logs.exit_code) == (0, 3)
    assert logs.counts["delivered"] + logs.counts["inconclusive"] == logs.counts["acked"] == 20


def test_what_may_have_come_late_into_a_missing_log_is_not_lost() -> None:
    """c0 claims 10 and the last messages lost; c1 reads 10, and c2 the others: all are late."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()

        async def ended(name: str) -> None:
            await script.until(lambda: name in stage.current)
            await script.until(lambda: stage.current[name].ended_ns is not None)

        stage.supervise("consume", "c0", shard=None, duration=14.0, until_complete=False)
        await asyncio.sleep(2)
        script.write(number for number in range(12) if number != 10)
        await ended("c0")
        script.write([10])
        stage.supervise("consume", "c1", shard=None, duration=4.0, until_complete=False)
        await ended("c1")
        script.write(range(12, 15))
        stage.supervise("consume", "c2", shard=None)

    stage = played(Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0), script)
    logs = reconciled(stage)
    assert (logs.exit_code, logs.counts["lost"], logs.counts["late"]) == (0, 0, 4)
    logs = reconciled(stage, without=["c1"])
    assert (logs.exit_code, logs.counts["lost"], logs.counts["inconclusive"]) == (3, 0, 1)
    assert logs.counts["late"] == 3
