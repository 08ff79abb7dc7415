"""Two processes with one producer name: the later one continues although the first comes back.

The real applications run on simulated clusters; their logs are reconciled, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import FencedError
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage

_PLAN = Plan(messages=200, rate=20.0, direct_ledger=True, deadline=5.0)
_LONG_SECONDS = 13.0
"""Longer than `delivery.timeout.ms`: a sender that reaches no broker for that long dies."""


def cut_off(successor: int) -> Stage:
    """Cut a producer off for long; meanwhile, another of its name sends `successor` messages.

    With 0, there is no other. A consumer judges the run.
    """

    async def script(stage: Stage) -> None:
        script, source = Script(stage), stage.world.source
        stage.supervise("consume", "c0", shard=None)
        first = asyncio.ensure_future(stage.session("produce", "p0"))
        await script.until(lambda: source.topics["t0"].partitions[0].end >= 6)
        process = stage.current["p0"].process
        process.name = "p0, cut off"  # so that another process named p0 reaches its brokers
        source.unreachable_for.add(process.name)
        await asyncio.sleep(2)
        sessions = [stage.session("produce", "p0", num_records=successor)] if successor else []
        second = asyncio.gather(*sessions)
        await asyncio.sleep(_LONG_SECONDS)
        source.unreachable_for.clear()
        await first
        await second

    stage = played(_PLAN, script)
    assert stage.outcome.hang == ""
    (consumer,) = stage.outcome.consumers
    assert consumer.report.exit_code == 0
    assert reconciled(stage).exit_code == 0
    return stage


@pytest.mark.parametrize("messages", [10, 600])
def test_a_producer_that_was_cut_off_leaves_its_name_to_its_successor(messages: int) -> None:
    """The first producer does not disturb its successor, whether that has ended or still sends."""
    sessions = cut_off(successor=messages).outcome.sessions
    first, second = (each.report for each in sessions if each.application == "produce")
    assert isinstance(first.error, FencedError)
    assert (first.to_json()["incarnations"], second.error) == ([1], None)


def test_a_producer_that_was_cut_off_goes_on_where_nobody_took_its_name() -> None:
    """It continues as a new incarnation."""
    sessions = cut_off(successor=0).outcome.sessions
    (report,) = (each.report for each in sessions if each.application == "produce")
    assert (report.to_json()["incarnations"], report.error) == ([1, 2], None)
