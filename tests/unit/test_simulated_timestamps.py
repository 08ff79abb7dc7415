"""Records that brokers stamp, on either side, are not altered by the mirror.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.simulation.batch import Record, encoded
from tests.simulation.offline import reconciled
from tests.simulation.plan import LEDGER, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.history import Stage

_SMALL = Plan(messages=15, rate=10.0, direct_ledger=True, deadline=5.0)


def _altered(stage: Stage, note: str = "") -> list[int]:
    """The numbers of altered timestamps in the consumer's report and by the logs.

    Both must have the `note` if one is expected, and no other note of this kind.
    """
    report = stage.outcome.reports[-1]
    summary = reconciled(stage)
    assert summary.online is not None
    assert not summary.online.disagreements
    found = []
    for result in (report, summary):
        found.append(result.counts["altered_timestamp"])
        assert result.exit_code == (99 if found[-1] else 0), result
        assert [text for text in result.notes if "LogAppendTime" in text] == (
            [f"t0: {note}: whether the mirror altered timestamps is not judged"] if note else []
        )
    return found


async def _mirrored(stage: Stage) -> None:
    stage.supervise("produce", "p0")
    stage.supervise("consume", "c0")
    await asyncio.sleep(0)


def _restamped(script: Script, seqs: Iterable[int]) -> None:
    """Copy messages with other timestamps than they have in the source."""
    sent = script._sent()
    for seq in seqs:
        message, row = sent[seq]
        raw = encoded([(row[1] + 7, *row[2:])])
        script.copy.append(raw, [Record(0, row[2], message)], script.world.now_ns)
    script.world.news("destination", "t0")


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_brokers_stamp_is_not_altered(side: str, idempotent: bool) -> None:
    """Brokers of one side replace the timestamps of a faithful copy."""
    plan = replace(_SMALL, stamps=side, idempotent=idempotent)
    hidden = ", or the producers could not find out" if side == "source" else ""
    note = f"the {side}'s brokers set its timestamps (message.timestamp.type=LogAppendTime){hidden}"
    assert _altered(played(plan, _mirrored), note) == [0, 0]


def test_a_producer_that_cannot_see_the_configuration_is_told_by_the_answers() -> None:
    """The topic's configuration may be hidden, or change after the producer has read it."""

    async def script(stage: Stage) -> None:
        stage.supervise("produce", "p0")
        source = stage.world.source.topics
        await Script(stage).until(lambda: LEDGER in source)
        source["t0"].partitions[0].stamps = True
        stage.supervise("consume", "c0")

    note = (
        "the source's brokers set its timestamps (message.timestamp.type=LogAppendTime), or the "
        "producers could not find out"
    )
    assert _altered(played(_SMALL, script), note) == [0, 0]


@pytest.mark.parametrize("killed", [False, True])
def test_who_stamped_a_record_is_unknown_before_a_broker_has_answered(killed: bool) -> None:
    """The producer is killed, or the consumer ends, before the first answer to a send."""

    async def script(stage: Stage) -> None:
        script, source = Script(stage), stage.world.source.topics
        producing = asyncio.ensure_future(stage.session("produce", "p0"))
        await script.until(lambda: LEDGER in source)
        source["t0"].partitions[0].stamps = True
        if killed:
            await script.until(lambda: source["t0"].partitions[0].end, every=0.01)
            await asyncio.sleep(0.05)
            stage.current["p0"].process.kill()
            await producing
        consuming = asyncio.ensure_future(stage.session("consume", "c0", idle_timeout=15.0))
        if not killed:
            await script.until(lambda: script.copy.fetched_to, every=0.01)
            await asyncio.sleep(0.1)
            stage.current["c0"].stop.set()
        await asyncio.wait({consuming, producing})

    stage = played(replace(_SMALL, messages=40, rate=20.0), script)
    [report] = [each for each in stage.outcome.reports if each.counts]
    assert (report.exit_code, report.counts["altered_timestamp"] > 0) == (3, True)
    assert reconciled(stage).exit_code == 3


@pytest.mark.parametrize("without", ["p0", "c0"])
def test_either_sides_log_says_that_the_source_stamps(without: str) -> None:
    """The other side's log is enough: no timestamp counts as altered."""
    stage = played(replace(_SMALL, stamps="source"), _mirrored)
    summary = reconciled(stage, without=[without])
    assert not summary.counts["altered_timestamp"]
    assert any("LogAppendTime" in note for note in summary.notes)


def test_a_timestamp_that_the_mirror_altered_is_found_where_no_broker_stamps() -> None:
    """Brokers on both sides keep the producer's timestamps, but the copy has others."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        _restamped(script, range(15))
        stage.supervise("consume", "c0")

    assert _altered(played(_SMALL, script)) == [15, 15]


def test_only_what_a_broker_has_stamped_is_not_judged() -> None:
    """The copy's configuration changes within a fetch; records before it are judged."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        _restamped(script, range(5))
        script.copy.stamps = True
        script.write(range(5, 15))
        stage.supervise("consume", "c0")

    note = "the destination's brokers set its timestamps (message.timestamp.type=LogAppendTime)"
    assert _altered(played(_SMALL, script), note) == [5, 5]


@pytest.mark.parametrize("refused", [False, True])
def test_what_retention_took_as_soon_as_it_was_mirrored_is_not_lost(refused: bool) -> None:
    """Records keep the producer's time, so a copy may be old enough to be deleted at once.

    It was there, but no consumer could read it. A message that the copy's topic refuses for its
    age was never there: it is lost.
    """

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.consumed(range(5))
        if not refused:
            script.write(range(5, 10))
            script.copy.retain_from(10, script.world.now_ns)
        script.write(range(10, 15))

    stage = played(_SMALL, script)
    summary = reconciled(stage)
    missing = "lost" if refused else "inconclusive"
    for result in (stage.outcome.reports[-1], summary):
        assert result.exit_code == (99 if refused else 3)
        assert {name: result.counts[name] for name in ("lost", "inconclusive")} == {
            "lost": 0,
            "inconclusive": 0,
        } | {missing: 5}
