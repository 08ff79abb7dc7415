"""Consumers that count a topic's incarnations differently: their logs are matched by topic id.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirrortest.consume.options import Shard
from tests.simulation.offline import reconciled
from tests.simulation.plan import STATES, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.history import Stage

_PLAN = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0)


async def _first_group_reads(
    script: Script, numbers: Collection[int] = range(10), *, seconds: float
) -> None:
    """Send all messages, copy these, and let a consumer of group a read them.

    If `seconds` is at most 10, also wait until the consumer has ended.
    """
    stage = script.stage
    await script.only_produced()
    stage.supervise("consume", "c0", group="a", until_complete=False, duration=seconds)
    await asyncio.sleep(2)
    script.write(numbers)
    await script.read(len(numbers))
    await asyncio.sleep(3)
    await script.until(lambda: seconds > 10 or stage.current["c0"].ended_ns is not None)


def _forget_topic_ids(stage: Stage, named: Collection[str] = ()) -> None:
    """Take the topics' ids out of the logs, except those of the consumers in `named`."""
    for log in stage.world.logs:
        if log.session.name not in named:
            topics = {
                name: topic.model_copy(update={"incarnations": ()})
                for name, topic in log.session.topics.items()
            }
            log.session = log.session.model_copy(update={"topics": topics})


async def _two_groups_around_a_recreation(stage: Stage) -> None:
    """Group b starts after a topic was recreated; the new topic has message 12 twice."""
    script = Script(stage)
    await _first_group_reads(script, seconds=40.0)
    script.recreate()
    script.write((*range(10, 15), 12))
    await asyncio.sleep(8)
    stage.supervise("consume", "c1", group="b")


def test_what_two_groups_read_of_a_recreated_topic_is_no_duplicate() -> None:
    """Group b has not seen the old topic; only message 12 was written twice."""
    logs = reconciled(played(_PLAN, _two_groups_around_a_recreation))
    assert logs.counts["duplicated"] == 1
    assert (logs.counts["seen"], logs.counts["surplus"], logs.counts["lost"]) == (15, 1, 0)
    assert logs.online is not None
    assert not logs.online.disagreements


def test_what_one_group_read_before_does_not_cover_what_another_did_not_read() -> None:
    """Offsets 0 and 1 were read in the old topic, and deleted unread in the new one."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await _first_group_reads(script, seconds=4.0)
        script.recreate()
        script.write((*range(10, 15), 13))
        script.copy.retain_from(2, script.world.now_ns)
        stage.supervise("consume", "c1", group="b", until_complete=False, duration=15.0)

    logs = reconciled(played(_PLAN, script))
    assert (logs.counts["lost"], logs.counts["inconclusive"]) == (0, 2)
    assert logs.counts["duplicated"] == 1


@pytest.mark.parametrize("deleted_for", [0.0, 12.0])
def test_a_group_does_not_claim_what_stood_in_a_topic_before_its_first_assignment(
    deleted_for: float,
) -> None:
    """Its consumers never judged the old topic, which had messages 0 to 4: none is lost."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await _first_group_reads(script, range(5), seconds=30.0)
        before = script.world.destination.delete("t0", script.world.now_ns)
        assert before is not None
        stage.supervise("consume", "c1", shard=Shard(2, 2), duration=20.0)
        await asyncio.sleep(deleted_for)
        script.world.destination.create("t0", 1, now_ns=script.world.now_ns)

    stage = played(_PLAN, script)
    first, second = stage.outcome.reports
    assert (second.counts["lost"], second.counts["inconclusive"]) == (0, 15)
    assert (second.exit_code, first.counts["delivered"]) == (3, 5)
    assert reconciled(stage).counts["lost"] == 0


def test_a_group_learns_of_a_topic_of_before_from_one_that_stopped_as_it_had_begun() -> None:
    """Group a's consumer is paused once its first state is saved; group b learns from that."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        script.write(range(15))
        stage.supervise("consume", "c0", group="a", until_complete=False, duration=40.0)
        topics = script.world.destination.topics
        await script.until(
            lambda: (
                STATES in topics
                and any(
                    b'"commit"' in (each.key or b"")
                    for each in topics[STATES].partitions[0].history
                )
            )
        )
        first = stage.current["c0"].process
        first.pause()
        script.recreate()
        stage.supervise("consume", "c1", group="b", duration=20.0)
        await script.until(lambda: "c1" in stage.current)
        await script.until(lambda: stage.current["c1"].ended_ns is not None)
        first.resume()

    reports = {report.name: report for report in played(_PLAN, script).outcome.reports}
    assert reports["c1"].counts["lost"] == 0
    assert reports["c1"].exit_code == 3


@pytest.mark.parametrize("named", [True, False])
def test_what_was_read_again_after_a_state_was_lost_is_no_duplicate(*, named: bool) -> None:
    """The next consumer of the group counts incarnations again; only 11 was written twice.

    If logs do not name the topics (older versions, `--portable`), those of before count.
    """

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        session = asyncio.ensure_future(stage.session("consume", "c0"))
        await asyncio.sleep(2)
        script.write(range(10))
        await script.read(10)
        await asyncio.sleep(3)
        script.recreate()
        script.write((*range(10, 14), 11))
        await asyncio.sleep(4)
        script.recreate(STATES)
        stage.current["c0"].process.kill()
        await session
        script.write([14])
        stage.supervise("consume", "c0")

    stage = played(replace(_PLAN, deadline=30.0), script)
    if not named:
        _forget_topic_ids(stage)
    logs = reconciled(stage)
    assert logs.counts["duplicated"] == 1
    assert (logs.counts["seen"], logs.counts["surplus"]) == (15 if named else 14, 1)
    assert logs.counts["lost"] == 0
    assert any("reconcile these logs apart" in why for why in logs.inconclusive) is not named


def test_a_log_that_was_cut_back_twice_has_three_incarnations_of_one_topic() -> None:
    """Messages that are written again after an unclean election are duplicated."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        stage.supervise("consume", "c0", until_complete=False, duration=15.0)
        await asyncio.sleep(2)
        script.write(range(10))
        for _ in range(2):
            await asyncio.sleep(3)
            script.copy.elect_unclean(6, script.world.now_ns)
            script.write((6, 7, 8, 9))
            script.write_others(1)
        await asyncio.sleep(3)
        stage.current["c0"].process.kill()
        script.write(range(10, 15))

    logs = reconciled(played(_PLAN, script))
    assert (logs.counts["duplicated"], logs.counts["surplus"]) == (4, 8)
    assert logs.counts["seen"] == 15


@pytest.mark.parametrize("ahead", [0, 10_800, -10_800])
def test_clocks_do_not_put_what_two_groups_read_of_two_topics_out_of_order(ahead: int) -> None:
    """No group read both topics, and a clock is hours off; only 1 was written out of order."""

    async def script(stage: Stage) -> None:
        create = stage.world.process

        def process(of: str, *, wall_offset_ns: int = 0) -> object:
            return create(of, wall_offset_ns=wall_offset_ns + (of == "c0") * ahead * 10**9)

        stage.world.process = process  # type: ignore[method-assign,assignment]
        script = Script(stage)
        await _first_group_reads(script, (0, 2, 1, *range(3, 10)), seconds=6.0)
        script.recreate()
        script.write((*range(10, 15), 14))
        stage.supervise("consume", "c1", group="b", until_complete=False, duration=15.0)

    logs = reconciled(played(replace(_PLAN, deadline=30.0), script))
    assert (logs.counts["reordered"], logs.counts["duplicated"]) == (1, 1)
    assert (logs.counts["seen"], logs.counts["lost"]) == (15, 0)


def test_what_a_missing_log_shows_of_a_topic_of_before_is_not_lost() -> None:
    """Group b knows that there was an older topic, but group a's log is missing."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await _first_group_reads(script, seconds=4.0)
        script.recreate()
        script.write(range(10, 14))
        stage.supervise("consume", "c1", group="b", until_complete=False, duration=15.0)

    stage = played(_PLAN, script)
    logs = reconciled(stage, without=["c0"])
    assert stage.outcome.reports[1].exit_code == logs.exit_code == 3
    assert (logs.counts["lost"], logs.counts["delivered"]) == (0, 4)


def _behind_a_cut(*, twice: int | None) -> Stage:
    """Group b starts after a truncation; message `twice` is written twice, unless it is None."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await _first_group_reads(script, seconds=30.0)
        script.copy.elect_unclean(6, script.world.now_ns)
        script.write((*range(10, 15), *(() if twice is None else (twice,))))
        await asyncio.sleep(4)
        stage.supervise("consume", "c1", group="b")

    return played(_PLAN, script)


@pytest.mark.parametrize(("twice", "code"), [(None, 3), (12, 99)])
def test_a_group_that_begins_behind_a_cut_makes_no_duplicates(twice: int | None, code: int) -> None:
    """Its log, which lacks the truncation, is left out if the other group's log is there."""
    stage = _behind_a_cut(twice=twice)
    logs = reconciled(stage, ["duplicated==0"])
    assert (logs.counts["duplicated"], logs.exit_code) == (int(twice is not None), code)
    assert (logs.counts["seen"], logs.counts["lost"]) == (15, 0)
    assert "reconcile these logs apart" in logs.inconclusive[0]


def test_the_log_of_a_group_that_began_behind_a_cut_is_judged_by_itself() -> None:
    """For that group, the truncated messages are lost; 12 is duplicated."""
    logs = reconciled(_behind_a_cut(twice=12), without=["c0"])
    assert (logs.counts["seen"], logs.counts["lost"], logs.counts["duplicated"]) == (11, 4, 1)
    assert not any("apart" in reason for reason in logs.inconclusive)


@pytest.mark.parametrize("named", [(), ("c0",), ("c1",)])
def test_groups_whose_logs_do_not_name_topics_are_not_mixed(named: tuple[str, ...]) -> None:
    """In an older version's logs, number 0 of group b is the incarnation 1 of group a."""
    stage = played(_PLAN, _two_groups_around_a_recreation)
    _forget_topic_ids(stage, named)
    logs = reconciled(stage)
    assert (logs.counts["duplicated"], logs.counts["lost"]) == (1, 0)
    assert any("reconcile these logs apart" in why for why in logs.inconclusive)
