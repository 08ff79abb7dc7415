"""`consume --workers`: one command's verdict on what several processes read.

The real applications run on simulated clusters; their logs are reconciled, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.threshold import thresholds
from tests.simulation.batch import Record, encoded, rows_of
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.pool import consumed_by_workers
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from mirrortest.consume.consume_report import ConsumeReport
    from tests.simulation.history import Stage

_PLAN = Plan(messages=40, rate=40.0, partitions=2, direct_ledger=True, deadline=5.0)
_SETTLE_SECONDS = 5.0
_SAVE_SECONDS = 5.0
"""A worker learns what the others have read once they save their states."""


def judged(
    wrong: tuple[int, int] | None = None, *, after: float = 0.0, **changes: Any
) -> tuple[ConsumeReport, float, Stage]:
    """The report of two workers on a run, the virtual seconds they took, and the stage.

    `wrong` (from, to): the first message of one partition is written again, to another one,
    `after` seconds after all was mirrored.
    """
    found: list[ConsumeReport] = []
    took = 0.0

    async def script(stage: Stage) -> None:
        nonlocal took
        script, world = Script(stage), stage.world
        options = stage.consume_options(
            "c0", shard=None, settle_time=_SETTLE_SECONDS, state_interval=_SAVE_SECONDS, **changes
        )
        reporting = asyncio.ensure_future(consumed_by_workers(stage, options, 2))
        await script.produced()
        copies = world.destination.topics["t0"].partitions
        await script.until(lambda: sum(copy.end for copy in copies) >= _PLAN.messages)
        began = world.seconds
        await asyncio.sleep(after)
        if wrong is not None:
            assert not reporting.done()
            batch = copies[wrong[0]].log[0]
            row = rows_of(batch)[0]
            message = batch.records[0].message
            copies[wrong[1]].append(encoded([row[1:]]), [Record(0, row[2], message)], world.now_ns)
            world.news("destination", "t0")
        found.append(await reporting)
        took = world.seconds - began

    stage = played(_PLAN, script)
    assert stage.outcome.hang == ""
    return found[0], took, stage


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_what_any_worker_reads_in_the_settle_time_is_in_the_verdict(
    group: str | None, before: int, after: int
) -> None:
    """A message reaches the wrong partition after the run is complete; either worker reads it."""
    report, _, stage = judged((before, after), after=9.0, group=group)
    assert report.counts["misrouted"] == 1
    assert report.exit_code == 99
    assert reconciled(stage).exit_code == 99


@pytest.mark.parametrize("partition", [0, 1])
def test_a_copy_in_the_settle_time_begins_it_anew(partition: int) -> None:
    """Either worker reads the copy; with `--exactly-once`, it fails the run as usual."""
    exact = thresholds((), exactly_once=True)
    report, took, _ = judged((partition, partition), after=9.0, thresholds=exact)
    assert (report.counts["duplicated"], report.exit_code) == (1, 99)
    assert took >= 9.0 + _SETTLE_SECONDS


@pytest.mark.parametrize("group", [None, "g"])
def test_workers_pass_a_faithful_copy_once_it_is_complete_and_silent(group: str | None) -> None:
    """The workers wait for the settle time; their logs pass as well."""
    report, took, stage = judged(group=group)
    assert (report.exit_code, report.reading.messages) == (0, _PLAN.messages)
    assert list(report.inconclusive) == []
    assert _SETTLE_SECONDS <= took <= _SETTLE_SECONDS + _SAVE_SECONDS + 3
    assert reconciled(stage).exit_code == 0


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_the_verdict_rests_on_the_last_states_of_all_workers(
    group: str | None, before: int, after: int
) -> None:
    """The misrouted message ends the run: the worker that read it saves it when it ends."""
    ends: dict[str, Any] = {"until_complete": False, "num_records": _PLAN.messages + 1}
    report, took, _ = judged((before, after), after=3.0, group=group, **ends)
    assert (report.counts["misrouted"], report.exit_code) == (1, 99)
    assert list(report.inconclusive) == []
    assert took < 3.0 + _SETTLE_SECONDS
