"""Plays and judges the history of a tape, and simplifies the tape."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.tape import Tape, shrunk

from .history import Outcome, Stage
from .judge import Judge
from .plan import LENGTH, make_plan

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection

    from .plan import Plan

_SAME = 32
"""How many characters of a problem's text identify its kind."""
_MOST_TRIES = 150


class Played(NamedTuple):
    """The report on one of many histories."""

    number: int
    kinds: str
    problems: list[str]
    faults: Counter[str]
    happened: Counter[str]
    checked: Counter[str]


def tape_of(seed: str, number: int) -> bytes:
    """The tape of a history."""
    return random.Random(f"{seed}/{number}").randbytes(LENGTH)


def plan_of(tape: bytes, kinds: Collection[str]) -> Plan:
    """The plan of one history, with faults of these kinds."""
    return make_plan(Tape(tape), kinds)


def staged(tape: bytes, kinds: Collection[str]) -> Stage:
    """The stage of one history, with faults of these kinds."""
    return Stage(plan_of(tape, kinds), tape.rstrip(b"\0").hex())


def play(tape: bytes, kinds: Collection[str]) -> tuple[Outcome, list[str]]:
    """Play one history with faults of these kinds; return its outcome and problems."""
    stage = staged(tape, kinds)
    outcome = stage.run()
    return outcome, Judge(stage).judge()


def played(number: int, tape: bytes, kinds: Collection[str]) -> Played:
    """Play one of many histories; return the report on it."""
    stage = staged(tape, kinds)
    world = stage.run().world
    judge = Judge(stage)
    problems = judge.judge()
    struck = ", ".join(sorted(stage.plan.faults))
    return Played(
        number, struck or "no fault", problems, world.faults, world.happened, judge.checked
    )


def shrink(tape: bytes, kinds: Collection[str]) -> bytes:
    """The simplest tape with a problem of the same kind that a limited search finds."""
    _, problems = play(tape, kinds)
    wanted = {_kind(problem) for problem in problems}
    tries = 0

    def fails(plainer: bytes) -> bool:
        nonlocal tries
        tries += 1
        return tries <= _MOST_TRIES and any(_kind(p) in wanted for p in play(plainer, kinds)[1])

    return shrunk(tape, fails)


def _kind(problem: str) -> str:
    *_, what = problem.split(": ", 2)
    return what.partition("(")[0][:_SAME]
