"""Which messages may have been at unread offsets, and which not: online and from the logs.

The real applications run on simulated clusters.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.batch import MessageId
from tests.simulation.mirror import grow
from tests.simulation.offline import reconciled
from tests.simulation.plan import RUN, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage


def test_a_lane_of_one_producer_is_not_at_home_where_anothers_lane_of_that_number_is() -> None:
    """Lane 0 goes to partition 0 of two, and to partition 2 of three; partition 0 is unread."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        world, mirror = stage.world, stage.mirror
        lost = MessageId("t0", f"p1@{RUN}.1", 0, 1)
        mirror.habits = replace(mirror.habits, drops=frozenset({lost}))
        await script.produced("p0")
        await asyncio.sleep(3)
        grow(world.source.topics["t0"], 3)
        await asyncio.sleep(2)
        await script.produced("p1")
        await asyncio.sleep(3)
        script.copy.retain_from(script.copy.end, world.now_ns)
        stage.supervise("consume", "c0")
        await asyncio.sleep(1)
        await script.produced("p2")

    stage = played(Plan(partitions=2, producers=3, messages=20, rate=2.0, deadline=5.0), script)
    (consumer,) = stage.outcome.consumers
    logs = reconciled(stage)
    assert (consumer.report.counts["lost"], consumer.report.counts["inconclusive"]) == (1, 17)
    assert (logs.counts["lost"], logs.counts["inconclusive"]) == (1, 17)
    assert logs.online is not None
    assert not logs.online.disagreements


def test_a_partition_of_which_its_only_consumer_missed_offsets_is_compared() -> None:
    """No other log shows more than the online verdict rests on."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        consumer = await script.consumed(range(10))
        consumer.process.pause()
        await asyncio.sleep(0.2)
        script.write(range(10, 20))
        script.copy.retain_from(15, stage.world.now_ns)
        script.write(range(20, 40))
        consumer.process.resume()

    stage = played(Plan(messages=40, rate=100.0, direct_ledger=True, deadline=5.0), script)
    logs = reconciled(stage)
    assert logs.counts["inconclusive"] == 5
    assert logs.online is not None
    assert (logs.online.partitions, logs.online.disagreements) == (1, [])
