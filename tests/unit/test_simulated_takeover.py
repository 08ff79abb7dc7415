"""Partitions that a consumer takes late: how it judges what they contained before.

The real applications run on simulated clusters; their logs are reconciled, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.consume.options import Shard
from tests.simulation.mirror import grow
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage

_GROWN = Plan(partitions=2, messages=30, rate=50.0, direct_ledger=True, rehash=True, deadline=5.0)


@pytest.mark.parametrize("shards", [1, 2])
def test_what_stood_in_an_abandoned_share_before_partitions_were_added_is_not_misrouted(
    shards: int,
) -> None:
    """The share was filled while there were fewer partitions; with one shard, it is taken over."""

    async def script(stage: Stage) -> None:
        await Script(stage).produced("p0")
        await asyncio.sleep(2)
        grow(stage.world.destination.topics["t0"], 3)
        await asyncio.sleep(1)
        for index in range(shards):
            stage.supervise("consume", f"c{index}", shard=Shard(index + 1, 2))

    stage = played(_GROWN, script)
    assert [report.exit_code for report in stage.outcome.reports] == [0] * shards
    assert reconciled(stage).exit_code == 0


def test_what_waited_in_an_abandoned_share_says_nothing_of_the_mirrors_latency() -> None:
    """No consumer read it for a minute: it is backlog, as when a consumer starts."""

    async def script(stage: Stage) -> None:
        await Script(stage).produced("p0")
        await asyncio.sleep(2)
        conditions = thresholds(("p(99)<10s",))
        stage.supervise("consume", "c0", shard=Shard(1, 2), thresholds=conditions)

    (report,) = played(Plan(partitions=2, messages=30, deadline=5.0), script).outcome.reports
    assert report.backlog == {"t0": 30}
    assert report.inconclusive == ["threshold p(99)<10s: nothing measured"]


@pytest.mark.parametrize("grown_back", [False, True])
def test_what_stood_in_a_recreated_topic_before_it_grew_is_not_misrouted(grown_back: bool) -> None:
    """The new topic had fewer partitions, and grew before its consumer saw it."""

    async def script(stage: Stage) -> None:
        played, world = Script(stage), stage.world
        grow(world.destination.topics["t0"], 3)
        await played.only_produced()
        consumer = await played.consuming("c0")
        await asyncio.sleep(2)
        consumer.process.pause()
        world.destination.delete("t0", world.now_ns)
        world.destination.create("t0", 2 if grown_back else 3, now_ns=world.now_ns)
        stage.mirror.running = True
        await asyncio.sleep(2)
        if grown_back:
            grow(world.destination.topics["t0"], 3)
        consumer.process.resume()

    stage = played(_GROWN, script)
    (report,) = stage.outcome.reports
    assert (report.counts["delivered"], report.counts["misrouted"]) == (30, 0)
    assert reconciled(stage).counts["misrouted"] == 0
