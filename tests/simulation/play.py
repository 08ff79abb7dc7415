"""A history by its tape: played, judged, made plainer."""

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

_SAME = 32
"""So many letters of a problem's text say what kind of problem it is."""
_MOST_TRIES = 150


class Played(NamedTuple):
    """What is told of one history among many."""

    number: int
    kinds: str
    problems: list[str]
    faults: Counter[str]
    happened: Counter[str]
    checked: Counter[str]


def tape_of(seed: str, number: int) -> bytes:
    """The tape of a history."""
    return random.Random(f"{seed}/{number}").randbytes(LENGTH)


def staged(tape: bytes, kinds: Collection[str]) -> Stage:
    """The stage of one history, with faults of these kinds."""
    return Stage(make_plan(Tape(tape), kinds), tape.rstrip(b"\0").hex())


def play(tape: bytes, kinds: Collection[str]) -> tuple[Outcome, list[str]]:
    """Play one history with faults of these kinds; what came of it, and what is wrong with it."""
    stage = staged(tape, kinds)
    outcome = stage.run()
    return outcome, Judge(stage).judge()


def played(number: int, tape: bytes, kinds: Collection[str]) -> Played:
    """The same, as it is told of one among many."""
    stage = staged(tape, kinds)
    world = stage.run().world
    judge = Judge(stage)
    problems = judge.judge()
    struck = ", ".join(sorted({strike.kind for strike in stage.plan.strikes}))
    return Played(
        number, struck or "no fault", problems, world.faults, world.happened, judge.checked
    )


def shrink(tape: bytes, kinds: Collection[str]) -> bytes:
    """A plainer tape that has a problem of the same kind, as far as it is quickly found."""
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
