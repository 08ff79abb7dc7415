"""Which messages have latencies if a log is replaced before or while a consumer reads it.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.threshold import thresholds
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from tests.simulation.history import Stage

_SMALL = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=90.0)
_GROUP: dict[str, Any] = {
    "group": "a", "until_complete": False, "thresholds": thresholds(["max<10s"]),
}  # fmt: skip


async def _begun(stage: Stage, seconds: float, mirrored: int = 5) -> Script:
    """Send all messages, mirror some, and let a consumer read them for `seconds`."""
    script = Script(stage)
    await script.only_produced()
    stage.supervise("consume", "c0", duration=seconds, **_GROUP)
    await script.until(lambda: "c0" in stage.current)
    await asyncio.sleep(2)
    script.write(range(mirrored))
    return script


async def _ended(script: Script, name: str) -> None:
    await script.until(lambda: name in script.stage.current)
    await script.until(lambda: script.stage.current[name].ended_ns is not None)


@pytest.mark.parametrize("cut_back", [False, True])
def test_a_log_that_was_replaced_while_nobody_read_it_makes_no_mirror_slow(
    cut_back: bool,
) -> None:
    """The next consumer finds the new log a minute after it was written: it is backlog."""

    async def script(stage: Stage) -> None:
        script = await _begun(stage, 10.0)
        await _ended(script, "c0")
        if cut_back:
            script.copy.elect_unclean(3, script.world.now_ns)
        else:
            script.recreate()
        script.write(range(3, 15))
        await asyncio.sleep(60)
        stage.supervise("consume", "c1", duration=20.0, **_GROUP)
        await _ended(script, "c1")

    stage = played(_SMALL, script)
    report = stage.outcome.reports[-1]
    assert all(each.passed for each in report.thresholds)
    assert report.latency["t0"][0].count == 0
    assert reconciled(stage).backlog["t0"] == report.backlog["t0"] == 10


def test_a_log_that_is_replaced_during_a_standstill_makes_no_mirror_slow() -> None:
    """Messages in the new log may have waited for the paused consumer: they are backlog."""

    async def script(stage: Stage) -> None:
        script = await _begun(stage, 50.0)
        await asyncio.sleep(5)
        stage.current["c0"].process.pause()
        await asyncio.sleep(1)
        script.recreate()
        script.write(range(5, 15))
        await asyncio.sleep(20)
        stage.current["c0"].process.resume()

    report = played(_SMALL, script).outcome.reports[-1]
    assert all(each.passed for each in report.thresholds)
    assert (report.latency["t0"][0].count, report.backlog["t0"]) == (5, 10)


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("paused", [False, True])
def test_a_log_that_is_replaced_while_it_is_read_has_latencies(first: int, paused: bool) -> None:
    """What the mirror writes a minute late is late, also if the old log was empty."""

    async def script(stage: Stage) -> None:
        script = await _begun(stage, 80.0, first)
        if paused:
            await asyncio.sleep(5)
            stage.current["c0"].process.pause()
            await asyncio.sleep(10)
            stage.current["c0"].process.resume()
        await asyncio.sleep(50)
        script.recreate()
        script.write(range(first, 15))

    report = played(_SMALL, script).outcome.reports[-1]
    assert report.latency["t0"][0].count == 15
    assert [each.passed for each in report.thresholds if each.threshold.series] == [False]


@pytest.mark.parametrize("group", [None, "a"])
@pytest.mark.parametrize(("seconds", "late"), [(60.0, 15), (0.0, 0)])
def test_a_topic_that_the_mirror_creates_late_is_late(
    group: str | None, seconds: float, late: int
) -> None:
    """Messages sent before a look that did not find the topic are at least that late.

    Messages sent after it may have arrived at once: they are backlog.
    """

    async def script(stage: Stage) -> None:
        script = Script(stage)
        destination = stage.world.destination
        destination.delete("t0", stage.world.now_ns)
        stage.mirror.running = False
        stage.supervise("consume", "c0", **_GROUP | {"until_complete": True, "group": group})
        await script.until(lambda: "c0" in stage.current)
        await asyncio.sleep(5)
        if not late:
            stage.current["c0"].process.pause()  # it does not look before the topic is created
        await script.produced()
        await asyncio.sleep(seconds)
        destination.create("t0", stage.plan.partitions, now_ns=stage.world.now_ns)
        script.write(range(15))
        if not late:
            stage.current["c0"].process.resume()

    stage = played(replace(_SMALL, rate=10_000.0), script)
    report, offline = stage.outcome.reports[-1], reconciled(stage, ["max<10s"])
    online = report.latency["t0"][0]
    assert report.backlog["t0"] == offline.backlog.get("t0", 0) == 15 - late
    assert online.count == sum(each.count for each in offline.latency_seconds.values()) == late
    assert not late or seconds - 5 < online.minimum / 1e9 <= online.maximum / 1e9 < seconds + 1
    # A latency threshold without any latency is undecided.
    assert report.exit_code == offline.exit_code == (99 if late else 3)


_SLOW = Plan(messages=60, rate=1.0, direct_ledger=True, deadline=60.0)
_IN_TIME: dict[str, Any] = {"thresholds": thresholds(["max<5s"])}


async def _stand_still(stage: Stage, seconds: float) -> None:
    """Let the mirror stand still: some messages are this much late."""
    await asyncio.sleep(5)
    stage.mirror.running = False
    await asyncio.sleep(seconds)


def _latencies(stage: Stage) -> tuple[int, int, bool]:
    """The exit code, how many latencies count, and whether the slowest one is known."""
    offline = reconciled(stage, ["max<5s"])
    latency = offline.latency_seconds["t0"]
    return offline.exit_code, latency.count, 19 < latency.quantiles["p99.9"] < 21


def test_what_a_member_measured_counts_though_another_one_read_before_and_after_it() -> None:
    """A group hands a partition over and back: the first member had not read what is between."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        stage.supervise("consume", "c0", group="a", **_IN_TIME)
        await script.until(lambda: "c0" in stage.current)
        await asyncio.sleep(2)
        stage.supervise("produce", "p0", only_partition=1)
        await asyncio.sleep(10)
        leaving: dict[str, Any] = {"duration": 45.0, "until_complete": False}
        stage.supervise("consume", "c1", group="a", **_IN_TIME, **leaving)
        await asyncio.sleep(7)
        await _stand_still(stage, 20)
        stage.mirror.running = True

    stage = played(replace(_SLOW, messages=80, partitions=2), script)
    backlog = sum(report.backlog["t0"] for report in stage.outcome.reports if report is not None)
    assert _latencies(stage) == (99, 80 - backlog, True)


@pytest.mark.parametrize("deleted", [False, True])
def test_what_only_one_of_two_groups_measured_counts(deleted: bool) -> None:
    """The group that began first is paused meanwhile; what it missed may be deleted, too."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        stage.supervise("consume", "c0", group="a", **_IN_TIME)
        await asyncio.sleep(2)
        stage.supervise("consume", "c1", group="b", **_IN_TIME)
        await asyncio.sleep(2)
        stage.supervise("produce", "p0")
        await _stand_still(stage, 17)
        stage.current["c0"].process.pause()
        await asyncio.sleep(3)
        stage.mirror.running = True
        await asyncio.sleep(4)
        if deleted:
            script.copy.retain_from(script.copy.end, stage.world.now_ns)
        stage.current["c0"].process.resume()

    assert _latencies(played(_SLOW, script)) == (99, 60, True)


def test_what_a_killed_consumer_measured_counts_whatever_its_clock_says() -> None:
    """By its clock it began an hour after its successor, which reads the same as backlog."""

    async def script(stage: Stage) -> None:
        create = stage.world.process

        def process(name: str, *, wall_offset_ns: int = 0) -> Any:
            ahead = 3600 * 10**9 if name == "c0" else 0
            return create(name, wall_offset_ns=wall_offset_ns + ahead)

        stage.world.process = process  # type: ignore[method-assign]
        session = asyncio.ensure_future(stage.session("consume", "c0", **_IN_TIME))
        await asyncio.sleep(2)
        stage.supervise("produce", "p0")
        await _stand_still(stage, 20)
        stage.world.net.refused.add(("c0", "produce"))  # its states are not saved
        stage.mirror.running = True
        await asyncio.sleep(8)
        stage.current["c0"].process.kill()
        await session
        stage.world.net.refused.clear()
        await asyncio.sleep(3)
        stage.supervise("consume", "c1", shard=None, **_IN_TIME)

    stage = played(_SLOW, script)
    [report] = [each for each in stage.outcome.reports if each is not None]
    measured_again = report.latency["t0"][0].count
    assert measured_again < 30 < _latencies(stage)[1]
