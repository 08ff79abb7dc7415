"""Thresholds that a consumer and the reconciliation of its logs decide alike.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.shape import RATE_FORMS, parse_shape
from mirrortest.config.threshold import thresholds
from mirrortest.kafka.error_table import Code, RequestError
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.results.summary import Summary
    from tests.simulation.history import Stage

_SMALL = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=90.0)
_CLOCKS = "the clocks of producers and consumers disagree"


def _judged(
    conditions: Sequence[str], script: Callable[[Stage, tuple[Any, ...]], Any]
) -> tuple[Any, Summary]:
    """The consumer's report and the reconciliation's summary, with these thresholds."""
    own = thresholds(conditions)
    stage = played(_SMALL, lambda stage: script(stage, own))
    return stage.outcome.reports[-1], reconciled(stage, conditions)


def _delayed(behind_ns: int, seconds: float) -> Callable[[Stage, tuple[Any, ...]], Any]:
    """A script: the mirror delays all messages; the consumer's clock is `behind_ns` behind."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.until(lambda: "c0" in stage.current)
        stage.current["c0"].process.wall_offset_ns -= behind_ns
        await asyncio.sleep(1)
        await script.produced("p0")
        await asyncio.sleep(seconds)
        script.write(range(15))

    return script


@pytest.mark.parametrize("condition", ["p(99)<2s", "max<2s", "mean<2s", "min<2s"])
def test_clocks_that_are_an_hour_apart_prove_no_latency(condition: str) -> None:
    """The mirror took 30 s, but by the clocks every message arrived before it was sent."""
    for result in _judged([condition], _delayed(3600 * 10**9, 30)):
        assert result.exit_code == 3
        (reason,) = result.inconclusive
        assert reason.startswith(
            f"threshold {condition}: 15 of 15 latencies are below zero, by up to 3570 s: {_CLOCKS}"
        )
        (note,) = (each for each in result.notes if "clocks" in each)
        assert note.startswith("t0: 15 messages arrived up to 3569.")


def test_a_slow_mirror_fails_its_condition() -> None:
    """The clocks agree, and the mirror took 30 s."""
    for result in _judged(["p(99)<2s"], _delayed(0, 30)):
        assert result.exit_code == 99
        assert not result.inconclusive


def test_a_killed_consumers_log_says_how_far_the_clocks_are_apart() -> None:
    """Its clock is corrected before it restarts, so only its earlier latencies are below zero."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.until(lambda: "c0" in stage.current)
        stage.current["c0"].process.wall_offset_ns -= 3600 * 10**9
        await asyncio.sleep(1)
        await script.produced("p0")
        script.write(range(5))
        await script.read(5)
        await asyncio.sleep(8)
        stage.current["c0"].process.kill()
        first = stage.current["c0"]
        await script.until(lambda: stage.current["c0"] is not first)
        await asyncio.sleep(3)
        script.write(range(5, 15))

    stage = played(_SMALL, lambda stage: script(stage, ()))
    summary = reconciled(stage, ["max<1h"])
    assert summary.counts["negative_latency"] == 5
    assert summary.exit_code == 3
    assert _CLOCKS in summary.inconclusive[0]
    assert reconciled(stage, ["max<2h"]).exit_code == 0


@pytest.mark.parametrize(
    ("condition", "online", "offline"),
    [("p(99)<20s", 3, 99), ("max<20s", 3, 99), ("max>=5s", 3, 0), ("p(50)<=20s", 0, 0)],
)
def test_what_a_killed_consumer_measured_is_unknown_to_its_successor(
    condition: str, online: int, offline: int
) -> None:
    """It read 3 of 15 messages, 30 s late; its successor read the rest in time."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.until(lambda: "c0" in stage.current)
        first = stage.current["c0"]
        await asyncio.sleep(1)
        load = parse_shape("steps(30 for 100ms, 0 for 40s, 120 for 100ms)", RATE_FORMS, option="")
        stage.supervise("produce", "p0", throughput=load)
        await asyncio.sleep(30)
        script.write(range(3))
        await script.read(3)
        await asyncio.sleep(8)
        first.process.kill()
        await script.until(lambda: stage.current["c0"] is not first)
        await script.until(lambda: stage.current["p0"].ended_ns is not None)
        script.write(range(3, 15))

    report, summary = _judged([condition], script)
    assert (report.exit_code, summary.exit_code) == (online, offline)
    assert len(report.inconclusive) == (online == 3)
    if online == 3:
        assert "another consumer read up to 3 of the messages" in report.inconclusive[0]


def test_what_a_member_that_goes_on_measured_is_in_its_own_report() -> None:
    """Another member joins: both decide a condition, each by what it measured itself."""

    async def script(stage: Stage) -> None:
        stage.supervise("produce", "p0")
        for name, after in (("c0", 0.0), ("c1", 8.0)):
            own = thresholds(["max<20s"])
            stage.supervise("consume", name, after, shard=None, group="g", thresholds=own)

    plan = replace(_SMALL, messages=60, rate=4.0, partitions=2)
    reports = played(plan, script).outcome.reports
    first, second = (each for each in reports if hasattr(each, "rests_on"))
    assert sum(each.taken_over for each in second.rests_on.values()) > 0
    assert [first.exit_code, second.exit_code] == [0, 0]


@pytest.mark.parametrize("copied_late", [False, True])
def test_a_consumer_that_stands_still_makes_no_mirror_slow(*, copied_late: bool) -> None:
    """Messages that arrive while it is paused have no latency; later slow ones are the mirror's."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.until(lambda: "c0" in stage.current)
        await script.produced("p0")
        script.write(range(3))
        await script.read(3)
        stage.current["c0"].process.pause()
        script.write(range(3, 7))
        await asyncio.sleep(30)
        stage.current["c0"].process.resume()
        if not copied_late:
            script.write(range(7, 15))
            return
        await script.read(7)
        await asyncio.sleep(8)
        script.write(range(7, 15))

    for result in _judged(["p(99)<2s"], script):
        assert result.exit_code == (99 if copied_late else 0)
        assert result.counts["delivered"] == 15
        assert result.backlog == {"t0": 4 if copied_late else 12}
    report, _ = _judged(["p(99)<2s"], script)
    assert any("was stalled once, for 30." in each for each in report.notes)


def _stopped_after(copied: int, seconds: float) -> Callable[[Stage, tuple[Any, ...]], Any]:
    """A script: the mirror copies `copied` of 15 messages; the consumer ends after `seconds`."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions, duration=seconds)
        await script.produced("p0")
        script.write(range(copied))

    return script


@pytest.mark.parametrize("condition", ["delivered>=90%", "delivered>=14"])
def test_what_is_under_way_at_the_end_fails_no_condition(condition: str) -> None:
    """The consumer ends while 8 of 15 messages are in flight: the threshold is undecided."""
    for result in _judged([condition], _stopped_after(7, 30)):
        assert result.exit_code == 3
        assert result.counts["in_flight"] == 8
        assert any(each.startswith(f"threshold {condition}: ") for each in result.inconclusive)


@pytest.mark.parametrize("condition", ["acked>=15", "lost<1%", "delivered>=80%"])
def test_what_producers_may_send_yet_may_meet_a_condition(condition: str) -> None:
    """The consumer ends while producers send, so any count or share may still change."""

    async def script(stage: Stage) -> None:
        stage.mirror.running = False
        own = thresholds([condition])
        stage.supervise("consume", "c0", thresholds=own, duration=14.0, deadline=2.0)
        stage.supervise("produce", "p0")

    slow = replace(_SMALL, rate=1.0)
    report = played(slow, script).outcome.reports[0]
    assert 0 < report.counts["acked"] < 15
    assert report.outstanding is None
    assert any(each.startswith(f"threshold {condition}: ") for each in report.inconclusive)


@pytest.mark.parametrize(
    ("condition", "copied", "seconds"),
    [("delivered>=90%", 7, 120), ("delivered<=6", 7, 30), ("acked>=16", 7, 30)],
)
def test_what_nothing_open_can_meet_fails(condition: str, copied: int, seconds: float) -> None:
    """The deadline has passed, too many messages arrived, or all that was sent is known."""
    for result in _judged([condition, "lost<90%"], _stopped_after(copied, seconds)):
        assert result.exit_code == 99


@pytest.mark.parametrize("refused", [0, 1])
def test_sends_that_failed_are_counted(refused: int) -> None:
    """The brokers refuse the first batch, or no batch."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        partition = stage.world.source.topics["t0"].partitions[0]
        left, repeated = iter(range(refused)), partition.repeated

        def refusing(producer: int, sequence: int) -> int | None:
            if next(left, None) is not None:
                raise RequestError(Code.INVALID_TIMESTAMP)
            return repeated(producer, sequence)

        partition.repeated = refusing  # type: ignore[method-assign]
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.produced("p0")

    for result in _judged(["failed==0"], script):
        assert bool(result.counts["failed"]) is bool(refused)
        assert result.counts["failed"] + result.counts["acked"] == 15
        assert result.exit_code == (99 if refused else 0)


def _set_meanwhile(application: str, by: int, seconds: float) -> Callable[[Stage, Any], Any]:
    """A script: a clock is set by `by` seconds; the mirror delays all messages by `seconds`.

    The producer's clock is set while it sends.
    """

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions)
        await script.until(lambda: "c0" in stage.current)
        await asyncio.sleep(2)
        if application == "consume":
            stage.current["c0"].process.wall_offset_ns += by * 10**9
        stage.supervise("produce", "p0")
        await script.until(lambda: "p0" in stage.current)
        await asyncio.sleep(1)
        if application == "produce":
            stage.current["p0"].process.wall_offset_ns += by * 10**9
        await script.until(lambda: stage.current["p0"].ended_ns is not None)
        await asyncio.sleep(seconds)
        script.write(range(15))

    return script


@pytest.mark.parametrize(
    ("application", "by", "seconds", "condition"),
    [
        ("consume", 60, 0.1, "p(99)<6s"),
        ("consume", -29, 30, "p(99)<6s"),
        ("produce", -60, 0.1, "p(99)<6s"),
        ("produce", 29, 30, "p(50)<6s"),
    ],
)
def test_a_clock_that_is_set_decides_no_latency(
    application: str, by: int, seconds: float, condition: str
) -> None:
    """Setting a clock neither fails a fast mirror nor passes a slow one: it is undecided."""
    own = thresholds([condition])
    slow = replace(_SMALL, rate=5.0)
    stage = played(slow, lambda stage: _set_meanwhile(application, by, seconds)(stage, own))
    for result in (stage.outcome.reports[-1], reconciled(stage, [condition])):
        assert result.exit_code == 3
        (reason,) = result.inconclusive
        assert reason.startswith(f"threshold {condition}: wall clocks were set by {abs(by)}")
        assert any("set" in note and "latencies around it are off" in note for note in result.notes)


@pytest.mark.parametrize(
    ("by", "seconds", "condition", "code"),
    [(3, 30, "p(99)<2s", 99), (-3, 30, "p(99)>20s", 0), (3, 0.1, "p(99)<10s", 0)],
)
def test_a_condition_that_ends_alike_however_clocks_were_set_is_decided(
    by: int, seconds: float, condition: str, code: int
) -> None:
    """The latencies differ from the threshold by more than the consumer's clock was set."""
    for result in _judged([condition], _set_meanwhile("consume", by, seconds)):
        assert result.exit_code == code
        assert not result.inconclusive


def _copied_again(late: Sequence[int]) -> Callable[[Stage, tuple[Any, ...]], Any]:
    """A script: a minute later, a mirror copies 5 to 14 again, `late` ones for the first time."""

    async def script(stage: Stage, conditions: tuple[Any, ...]) -> None:
        script = Script(stage)
        stage.mirror.running = False
        stage.supervise("consume", "c0", thresholds=conditions, until_complete=False, duration=80)
        await script.until(lambda: "c0" in stage.current)
        await asyncio.sleep(2)
        await script.produced("p0")
        script.write(each for each in range(15) if each not in late)
        await asyncio.sleep(60)
        script.write(range(5, 15))

    return script


@pytest.mark.parametrize(("late", "code"), [((), 0), ((14,), 99)])
def test_what_a_mirror_copies_again_is_not_late(late: Sequence[int], code: int) -> None:
    """A message's latency is that of its first copy; only a first copy that late is late."""
    for result in _judged(["max<2s"], _copied_again(late)):
        assert result.exit_code == code
        assert result.counts["duplicated"] == 10 - len(late)
        assert not any(result.backlog.values())


def test_copies_have_no_latency_offline_either() -> None:
    """A run of 15 messages has 15 latencies, however many copies there are."""
    (online, offline) = _judged([], _copied_again(()))
    assert online.latency["t0"][0].count == online.latency["t0"][1].count == 15
    assert offline.latency_seconds["t0"].count == 15
