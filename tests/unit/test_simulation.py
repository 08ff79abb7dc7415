"""The simulation itself: virtual time, processes, one seed, and a judge that finds faults."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.errors import FencedError
from mirrortest.kafka.error_table import RequestError
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from tests.simulation.faults import KINDS
from tests.simulation.history import Stage, simulating
from tests.simulation.judge import Judge
from tests.simulation.loop import HangError
from tests.simulation.plan import Plan, Strike
from tests.simulation.play import play, shrink, tape_of
from tests.simulation.scenarios import SCENARIOS, play_scenario
from tests.simulation.virtual_time import VIRTUAL_TIME
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulating():
        yield


def _world() -> World:
    return World("a seed")


def test_an_hour_passes_at_once() -> None:
    world = _world()
    before = VIRTUAL_TIME.monotonic()

    async def sleep() -> float:
        await asyncio.sleep(3_600)
        return VIRTUAL_TIME.monotonic()

    ended = world.loop.run_until_complete(world.task(sleep()))
    assert world.seconds == pytest.approx(3_600, abs=0.01)
    assert ended != before
    world.loop.put_away()


def test_what_can_never_go_on_is_a_hang() -> None:
    world = _world()
    with pytest.raises(HangError, match="nothing will ever happen"):
        world.loop.run_until_complete(world.task(asyncio.Event().wait()))
    world.loop.put_away()


def test_a_killed_process_does_nothing_more_not_even_its_cleanup() -> None:
    world, done = _world(), []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            done.append("work")
        finally:
            done.append("cleanup")

    process = world.process("p")
    process.start(work())
    world.later(0.5, process.kill)
    world.loop.run_until_complete(world.task(asyncio.sleep(2)))
    assert done == []
    world.loop.put_away()


def test_a_paused_process_goes_on_where_it_stood() -> None:
    world, woken = _world(), []

    async def work() -> None:
        await asyncio.sleep(1)
        woken.append(world.seconds)

    process = world.process("p")
    process.start(work())
    world.later(0.5, process.pause)
    world.later(5, process.resume)
    world.loop.run_until_complete(world.task(asyncio.sleep(6)))
    assert woken == [pytest.approx(5, abs=0.01)]
    world.loop.put_away()


@pytest.mark.parametrize("number", range(5))
def test_one_seed_decides_a_history_to_its_last_event(number: int) -> None:
    tape = tape_of("digest", number)
    first, again = (play(tape, KINDS)[0].world for _ in range(2))
    assert len(first.events) > 50
    assert first.events == again.events
    assert first.digest() == again.digest()
    assert play(tape_of("digest", number + 5), KINDS)[0].world.digest() != first.digest()


def test_a_plain_history_passes() -> None:
    stage = Stage(Plan(), "plain")
    (consumer,) = stage.run().consumers
    assert consumer.report.exit_code == 0
    assert consumer.report.counts["delivered"] == 20
    assert Judge(stage).judge() == []


def test_what_the_mirror_drops_is_lost() -> None:
    stage = Stage(Plan(drop_every=7), "drops")
    (consumer,) = stage.run().consumers
    assert consumer.report.counts["lost"] == len(stage.mirror.dropped) == 2
    assert Judge(stage).judge() == []


@pytest.mark.parametrize(
    ("finding", "numbers", "problem"),
    [
        ("lost", [0], "claimed lost, and stood in time"),
        ("delivered", [13], "delivered, and never stood"),
        ("duplicated", [1], "duplicated, and written once"),
        ("reordered", [1], "reordered, and written in order"),
        ("phantom", [1], "phantom"),
        ("misrouted", [1], "misrouted"),
    ],
)
def test_the_judge_finds_what_a_verdict_must_not_say(
    finding: str, numbers: list[int], problem: str
) -> None:
    stage = Stage(Plan(drop_every=7), "drops")
    (consumer,) = stage.run().consumers
    (verdict,) = consumer.report.verdicts.values()
    found = IntervalSet((n, n + 1) for n in numbers)
    if finding == "delivered":
        verdict.delivered = found
    else:
        verdict.found[Finding[finding.upper()]] = found
    assert any(problem in reported for reported in Judge(stage).judge())


def test_the_judge_finds_a_false_pass() -> None:
    stage = Stage(Plan(drop_every=7), "drops")
    (consumer,) = stage.run().consumers
    consumer.report.__dict__["thresholds"] = ()
    assert any("passed, though" in reported for reported in Judge(stage).judge())


def test_a_fence_is_right_only_where_another_consumer_has_taken_the_partition() -> None:
    """In the state topic that is created again, a second consumer claims the partition."""
    stage = Stage(Plan(), "plain")
    (consumer,) = stage.run().consumers
    consumer.error = FencedError("fenced")
    (problem,) = Judge(stage).judge()
    assert "nobody had taken" in problem
    taken, problems = play_scenario("state-topic-created-again")
    assert any(isinstance(session.error, FencedError) for session in taken.outcome.sessions)
    assert problems == []


def test_a_claim_of_loss_is_judged_though_its_consumer_is_killed_afterwards() -> None:
    stage = Stage(Plan(drop_every=7), "drops")
    (consumer,) = stage.run().consumers
    consumer.report = None
    assert Judge(stage).judge() == []
    claims = [row for log in stage.world.logs for _, row in log.stamped if row.kind == "claimed"]
    assert claims
    for log in stage.world.logs:
        log.stamped = [(at, row._replace(seq_lo=0)) for at, row in log.stamped]
    assert any("claimed lost at a time" in reported for reported in Judge(stage).judge())


@pytest.mark.parametrize(
    ("kind", "at", "took_effect"),
    [
        ("destination_down", 1.0, 1),
        ("log_slow", 1.0, 1),
        ("leaderless", 1.0, 1),
        ("consumer_paused", 1.0, 1),
        ("followers_stop", 1.0, 1),
        ("followers_stop", 3.5, 0),
        ("leaderless", 30.0, 0),
    ],
)
def test_a_fault_counts_as_one_that_took_effect_where_somebody_met_it(
    kind: str, at: float, took_effect: int
) -> None:
    stage = Stage(Plan(messages=40, strikes=(Strike(kind, at, 1.0),)), "effect")
    faults = stage.run().world.faults
    assert faults[kind] == (at < 10)
    assert faults[f"{kind} took effect"] == took_effect


def test_a_log_in_detail_messages_has_a_row_for_each() -> None:
    stage = Stage(Plan(detailed=True, drop_every=7), "detailed")
    (consumer,) = stage.run().consumers
    assert consumer.report.counts["lost"] == 2
    assert Judge(stage).judge() == []
    for kind in ("sent", "seen"):
        rows = [row for log in stage.world.logs for row in log.rows if row.kind == kind]
        assert len(rows) >= 18
        assert all(row.seq_hi == (row.seq_lo or 0) + 1 for row in rows)


def test_a_failing_history_is_shrunk_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults that the failure does not need are removed."""

    def wrong(judge: Judge) -> list[str]:
        struck = [strike for strike in judge.plan.strikes if strike.kind == "mirror_killed"]
        return ["c0: wrong"] if struck else []

    monkeypatch.setattr(Judge, "judge", wrong)
    kinds = ("foreign_records", "mirror_killed")
    tape = next(t for n in range(50) if play(t := tape_of("shrink", n), kinds)[1])
    plan = play(shrink(tape, kinds), kinds)[0].plan
    assert [strike.kind for strike in plan.strikes] == ["mirror_killed"]


def test_an_unclean_election_takes_records_away_and_the_world_counts_it() -> None:
    strikes = (Strike("unclean_election", 1.5, much=2),)
    stage = Stage(Plan(messages=40, strikes=strikes), "unclean")
    world = stage.run().world
    assert world.faults["unclean_election"] == 1
    assert world.faults["unclean_election took effect"] == 1


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_scripted_history_is_judged_rightly(name: str) -> None:
    """Each reproduces one bug that was once found; its script names the bug."""
    _, problems = play_scenario(name)
    assert problems == []


def test_histories_that_were_judged_wrongly_are_judged_rightly() -> None:
    """Random runs found them; `tests/simulation/found.py` says what each is about."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--found", "all"],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:]


def test_random_histories_are_judged_rightly() -> None:
    """Some histories as in `tests/simulation/test_histories.py`, the same in every process."""
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.simulation", "--histories", "12", "--seed", "unit",
            "--processes", "1",
        ],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:]


def test_an_answer_that_is_lost_was_served_all_the_same() -> None:
    world = _world()
    served: list[int] = []

    async def ask() -> Any:
        world.net.lose_answers = 1.0
        with pytest.raises(RequestError, match="REQUEST_TIMED_OUT"):
            await world.net.ask(world.source, "x", lambda: served.append(1), seconds=1)

    world.loop.run_until_complete(world.task(ask()))
    assert served == [1]
    world.loop.put_away()
