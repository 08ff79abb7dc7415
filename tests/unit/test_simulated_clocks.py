"""Wall clocks that are far apart, and unread offsets: verdicts online and from the logs.

The real applications run on simulated clusters.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.verify.placement import ExpectPartition
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage

_HOUR = 3600
_PLAN = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0)


def _set(stage: Stage, name: str, seconds: int) -> None:
    """Start all processes of this name with a wall clock that is `seconds` ahead."""
    create = stage.world.process

    def process(of: str, *, wall_offset_ns: int = 0) -> object:
        ahead = seconds * 1_000_000_000 if of == name else 0
        return create(of, wall_offset_ns=wall_offset_ns + ahead)

    stage.world.process = process  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("name", "seconds"), [("p0", 0), ("p0", _HOUR), ("c0", -_HOUR), ("p0", -_HOUR), ("c0", _HOUR)]
)
def test_what_may_have_been_in_unread_offsets_is_not_lost_whatever_clocks_say(
    name: str, seconds: int
) -> None:
    """Seqs 3 and 4 were deleted unread: they are inconclusive, even if a clock is an hour off."""

    async def script(stage: Stage) -> None:
        _set(stage, name, seconds)
        script = Script(stage)
        consumer = await script.consumed((0, 1))
        consumer.process.pause()
        await asyncio.sleep(0.2)
        script.write((3, 4))
        script.copy.retain_from(4, script.world.now_ns)
        script.write((2, *range(5, 15)))
        consumer.process.resume()

    stage = played(_PLAN, script)
    logs = reconciled(stage)
    for counts in (stage.outcome.reports[0].counts, logs.counts):
        assert (counts["lost"], counts["inconclusive"], counts["reordered"]) == (0, 2, 0)


@pytest.mark.parametrize(("name", "seconds"), [("p0", _HOUR), ("c0", -_HOUR)])
def test_a_late_consumer_ends_no_doubt_by_a_clock_that_is_ahead(name: str, seconds: int) -> None:
    """It finds offsets deleted before it has read any message that shows the wrong clock."""

    async def script(stage: Stage) -> None:
        _set(stage, name, seconds)
        script = Script(stage)
        await script.only_produced()
        script.write(range(10, 15))
        script.copy.retain_from(5, script.world.now_ns)
        script.write(range(10))
        await script.consuming()

    stage = played(_PLAN, script)
    logs = reconciled(stage)
    for counts in (stage.outcome.reports[0].counts, logs.counts):
        assert (counts["lost"], counts["inconclusive"]) == (0, 5)


@pytest.mark.parametrize("seconds", [_HOUR, -_HOUR])
def test_what_is_lost_where_all_was_read_is_lost_whatever_clocks_say(seconds: int) -> None:
    """If all offsets were read, clocks do not matter: 5 is lost, and 3 was written after 4."""

    async def script(stage: Stage) -> None:
        _set(stage, "p0", seconds)
        script = Script(stage)
        await script.consumed((0, 1))
        script.write((2, 4, 3, *range(6, 15)))

    stage = played(_PLAN, script)
    logs = reconciled(stage)
    for counts in (stage.outcome.reports[0].counts, logs.counts):
        assert (counts["lost"], counts["inconclusive"], counts["reordered"]) == (1, 0, 1)
    assert logs.online is not None
    assert not logs.online.disagreements


@pytest.mark.parametrize("seconds", [0, 3 * _HOUR, -3 * _HOUR])
@pytest.mark.parametrize("right", [True, False])
def test_the_policy_of_whoever_took_over_counts_whatever_clocks_say(
    seconds: int, right: bool
) -> None:
    """The first consumer had another --expect-partition, on a host whose clock is off."""
    policies = [ExpectPartition.SOURCE, ExpectPartition.MURMUR2]
    first, second = policies if right else reversed(policies)

    async def script(stage: Stage) -> None:
        _set(stage, "c0", seconds)
        stage.world.destination.create("t0", 5)
        stage.supervise("produce", "p0", destination_partitions=5)
        of_first: dict[str, Any] = {"duration": 3.0, "until_complete": False}
        stage.supervise("consume", "c0", expect_partition=first, **of_first)
        await asyncio.sleep(6)
        stage.supervise("consume", "c1", expect_partition=second)

    plan = Plan(messages=40, rate=10.0, partitions=3, rehash=True, direct_ledger=True)
    logs = reconciled(played(plan, script))
    assert (logs.counts["misrouted"] == 0, logs.exit_code) == (right, 0 if right else 99)
