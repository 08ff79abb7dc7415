"""`python -m tests.simulation --histories 200000`: random histories, until one is judged wrongly.

Each history has its own tape, generated from `SEED/NUMBER`. A history that fails is simplified,
then printed with all its events and the command that replays it.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .faults import KINDS
from .found import FOUND, play_found
from .history import simulating
from .plan import FEATURES
from .play import Played, plan_of, play, played, shrink, tape_of
from .scenarios import SCENARIOS, play_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .history import Outcome, Stage

_OUT = Console(soft_wrap=True, markup=False, highlight=False)
_PROGRESS = Console(soft_wrap=True, markup=False, highlight=False, stderr=True)
_for_life = ExitStack()
"""Keeps the simulated parts installed as long as a worker process lives."""
_PER_JOB = 300
"""Histories per reconciliation: its start costs more than judging them."""
_LARGE = 5_000
"""In this many histories every kind of fault must have taken effect."""


def main() -> int:
    """Run the command; return 99 if a history is judged wrongly or a fault had no effect."""
    options = _options()
    known = KINDS | FEATURES
    kinds = frozenset(known if options.only is None else filter(None, options.only.split(",")))
    kinds -= set(options.without.split(","))
    having = set(filter(None, options.having.split(",")))
    if unknown := (kinds - known) | (having - KINDS):
        _OUT.print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
        return 2
    if options.scenario is not None:
        return _each(options.scenario, SCENARIOS, play_scenario, trace=options.trace)
    if options.found is not None:
        return _each(options.found, FOUND, play_found, trace=options.trace)
    if options.replay is not None:
        return _one(bytes.fromhex(options.replay), kinds)
    numbers: Sequence[int] = range(options.first, options.first + options.histories)
    if having:
        numbers = [n for n in numbers if having & plan_of(tape_of(options.seed, n), kinds).faults]
    _PROGRESS.print(f"{len(numbers):,} histories of seed {options.seed}")
    return (_offline if options.spark else _many)(options, numbers, kinds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=200_000, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with this number")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--spark", action="store_true", help="reconcile the logs of histories")
    parser.add_argument("--replay", metavar="TAPE", help="one history by its tape, in hexadecimal")
    parser.add_argument("--scenario", metavar="NAME", help="a scripted history, or all")
    parser.add_argument("--found", metavar="NAME", help="a history once judged wrongly, or all")
    parser.add_argument("--only", metavar="FAULTS", help="only these kinds, with commas between")
    parser.add_argument("--without", metavar="FAULTS", default="", help="none of these kinds")
    parser.add_argument("--having", metavar="FAULTS", default="", help="at least one of these")
    parser.add_argument("--keep-going", action="store_true", help="list all that fail")
    parser.add_argument("--trace", action="store_true", help="print what happened in it")
    return parser.parse_args()


def _many(options: argparse.Namespace, numbers: Sequence[int], kinds: frozenset[str]) -> int:
    began, failed = time.monotonic(), 0
    faults, happened, checked = Counter[str](), Counter[str](), Counter[str]()
    work = partial(_in_worker, options.seed, kinds)
    with multiprocessing.get_context("fork").Pool(options.processes, _begin) as pool:
        for done, one in enumerate(pool.imap(work, numbers, chunksize=8), 1):
            faults.update(one.faults)
            happened.update(one.happened)
            checked.update(one.checked)
            if one.problems:
                failed += 1
                _OUT.print(f"history {options.seed}/{one.number}: {one.kinds}")
                _OUT.print("\n".join(problem[:300] for problem in one.problems))
                if not options.keep_going:
                    pool.terminate()
                    with simulating():
                        plainer = shrink(tape_of(options.seed, one.number), kinds)
                    return _one(plainer, kinds)
            if not done % 1_000:
                passed = time.monotonic() - began
                left = passed / done * (len(numbers) - done)
                _PROGRESS.print(f"{done:,} of {len(numbers):,}, {passed:.0f} s, {left:.0f} s left")
    _table(faults, happened, checked)
    idle = [kind for kind in sorted(kinds - FEATURES) if not faults[f"{kind} took effect"]]
    if idle and len(numbers) >= _LARGE:
        _OUT.print(f"these faults never took effect: {', '.join(idle)}")
        return 99
    _OUT.print(
        f"{len(numbers):,} histories, {failed:,} judged wrongly; {time.monotonic() - began:.0f} s"
    )
    return 99 if failed else 0


def _offline(options: argparse.Namespace, numbers: Sequence[int], kinds: frozenset[str]) -> int:
    """Reconcile the logs of histories, hundreds in each job."""
    # Only this function needs Spark.
    from mirrortest.reconcile.spark_session import spark_session  # noqa: PLC0415

    from .offline import offline_problems, play_together  # noqa: PLC0415

    judged = failed = 0
    with spark_session("local[2]", "1g") as spark:
        for start in range(0, len(numbers), _PER_JOB):
            some = numbers[start : start + _PER_JOB]
            tapes = {number: tape_of(options.seed, number) for number in some}
            stages = play_together(tapes, kinds)
            with tempfile.TemporaryDirectory() as folder:
                by_history = offline_problems(spark, Path(folder), stages)
            for number, problems in sorted(by_history.items()):
                _OUT.print(f"history {options.seed}/{number}: {' | '.join(problems)[:600]}")
            judged, failed = judged + len(stages), failed + len(by_history)
            if by_history and not options.keep_going:
                break
            _PROGRESS.print(f"{start + len(some):,} of {len(numbers):,}")
    _OUT.print(f"{judged:,} histories reconciled, {failed:,} with problems")
    return 99 if failed else 0


def _begin() -> None:
    _for_life.enter_context(simulating())
    # The garbage collector need not search imported objects again and again.
    gc.freeze()


def _in_worker(seed: str, kinds: frozenset[str], number: int) -> Played:
    try:
        return played(number, tape_of(seed, number), kinds)
    except Exception as error:
        error.add_note(f"history {seed}/{number}")
        raise


def _table(faults: Counter[str], happened: Counter[str], checked: Counter[str]) -> None:
    """Print how often each fault was injected and took effect, and how much was checked."""
    effect = " took effect"
    for name in sorted({name.removesuffix(effect) for name in faults}):
        _OUT.print(f"{name:32} {faults[name]:9,}  took effect {faults[name + effect]:9,}")
    for name in sorted(happened):
        _OUT.print(f"{name:64} {happened[name]:9,}")
    _OUT.print(
        f"held always: {checked['sessions']:,} sessions, {checked['claims']:,} claims of loss and "
        f"{checked['verdicts']:,} verdicts, of them {checked['passes']:,} passes"
    )
    _OUT.print(
        f"held in the end: {checked['histories']:,} histories ended, with "
        f"{checked['conclusive']:,} verdicts that had to be conclusive"
    )


def _one(tape: bytes, kinds: Collection[str]) -> int:
    with simulating():
        outcome, problems = play(tape, kinds)
    _show(outcome, problems)
    if not problems:
        return 0
    only = f" --only {','.join(sorted(kinds))}" if set(kinds) != KINDS | FEATURES else ""
    replay = tape.rstrip(b"\0").hex() or "00"
    _OUT.print(f"again: python -m tests.simulation --replay {replay}{only}")
    return 99


def _each(
    name: str,
    known: Iterable[str],
    play_one: Callable[[str], tuple[Stage, list[str]]],
    *,
    trace: bool,
) -> int:
    failed = 0
    with simulating():
        for each in known if name == "all" else [name]:
            stage, problems = play_one(each)
            if trace:
                _show(stage.outcome, problems)
            failed += bool(problems)
            _OUT.print(f"{each}: {' | '.join(problems) or 'as it should be'}")
    return 99 if failed else 0


def _show(outcome: Outcome, problems: list[str]) -> None:
    _OUT.print(outcome.world.trace())
    _OUT.print(str(outcome.plan))
    for session in outcome.sessions:
        _OUT.print(f"{session.name}: {session}")
    _OUT.print("\n".join([*problems, f"digest {outcome.world.digest()}"]))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings then have the same order in every process.
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
