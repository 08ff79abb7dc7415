"""`python -m tests.oracle --examples 200000`: random histories, until one is judged differently.

Each example has its own seed, `SEED/NUMBER`. One that fails online, by whatever error, is
shrunk, and printed with the command that repeats it. With `--spark` the reconciliation and a full
outer join of messages in SQL are compared with the reference, too: hundreds of histories in each
job.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rich.console import Console

from mirrortest.reconcile.spark_session import spark_session

from .offline import Job, differences
from .play import DiffersError, play
from .script import make_history
from .tape import LENGTH, Tape, shrunk
from .truth import POLICIES

_OUT = Console(soft_wrap=True, markup=False, highlight=False)
_PROGRESS = Console(soft_wrap=True, markup=False, highlight=False, stderr=True)
PER_JOB = 500
"""Histories in one reconciliation."""


def tape_of(seed: str, number: int) -> bytes:
    """The tape of an example."""
    return random.Random(f"{seed}/{number}").randbytes(LENGTH)


def main() -> int:
    """Run the command; returns 99 if judges differ or one of them raises an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--examples", type=int, default=200_000, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this number")
    parser.add_argument("--spark", action="store_true", help="judge the logs, too")
    parser.add_argument("--tape", help="one example by its tape, in hexadecimal")
    options = parser.parse_args()
    if options.tape is not None:
        return _one(bytes.fromhex(options.tape))
    numbers = range(options.first, options.first + options.examples)
    _PROGRESS.print(f"{len(numbers):,} histories of seed {options.seed}")
    return (_offline if options.spark else _online)(options.seed, numbers)


def _online(seed: str, numbers: range) -> int:
    began, events = time.monotonic(), 0
    for done, number in enumerate(numbers, 1):
        tape = tape_of(seed, number)
        try:
            history = make_history(Tape(tape))
            events += len(history.events)
            play(history)
        except Exception as error:  # noqa: BLE001  # any failure is printed with its example
            again = _again(f"--seed {seed} --first {number} --examples 1")
            _OUT.print(f"example {seed}/{number} fails ({type(error).__name__}); {again}")
            _OUT.print("made plainer:")
            _one(shrunk(tape, _fails))
            return 99
        if not done % 10_000 or done == len(numbers):
            _progress(done, len(numbers), began)
    _OUT.print(
        f"{len(numbers):,} histories ({events:,} events): the consumer's judgement and the "
        f"reference agree by stream, finding and id; {time.monotonic() - began:.0f} s"
    )
    return 0


def _offline(seed: str, numbers: range) -> int:
    began = time.monotonic()
    with spark_session("local[2]", "1g") as spark:
        for start in range(numbers.start, numbers.stop, PER_JOB * len(POLICIES)):
            stop = min(start + PER_JOB * len(POLICIES), numbers.stop)
            mine = {
                policy: range(start + at, stop, len(POLICIES)) for at, policy in enumerate(POLICIES)
            }
            jobs = [Job([tape_of(seed, n) for n in some], p) for p, some in mine.items() if some]
            try:
                with tempfile.TemporaryDirectory() as folder:
                    found = differences(spark, Path(folder), jobs)
            except Exception as error:  # noqa: BLE001  # any failure is printed with its examples
                again = _again(f"--spark --seed {seed} --first {start} --examples {stop - start}")
                _OUT.print(traceback.format_exc().rstrip())
                examples = f"examples {seed}/{start} to {seed}/{stop - 1}"
                _OUT.print(f"{examples} fail ({type(error).__name__}); {again}")
                return 99
            for (job, at), difference in found.items():
                policy = jobs[job].policy
                _OUT.print(f"example {seed}/{mine[policy][at]} under {policy.value}:\n{difference}")
            if found:
                return 99
            _progress(stop - numbers.start, len(numbers), began)
    _OUT.print(
        f"{len(numbers):,} histories: reconciliation, SQL and reference agree by stream, finding "
        f"and id; {time.monotonic() - began:.0f} s"
    )
    return 0


def _fails(tape: bytes) -> bool:
    try:
        play(make_history(Tape(tape)))
    except Exception:  # noqa: BLE001  # any failure will do
        return True
    return False


def _one(tape: bytes) -> int:
    try:
        play(make_history(Tape(tape)))
    except Exception as error:  # noqa: BLE001  # any failure is printed with its tape
        # The text of a difference has the history; other errors say nothing without their place.
        what = str(error) if isinstance(error, DiffersError) else traceback.format_exc().rstrip()
        digits = tape.rstrip(bytes(1)).hex() or "00"
        _OUT.print(f"{what}\n{_again(f'--tape {digits}')}")
        return 99
    _OUT.print("no difference")
    return 0


def _again(options: str) -> str:
    return f"again: python -m tests.oracle {options}"


def _progress(done: int, total: int, began: float) -> None:
    passed = time.monotonic() - began
    left = passed / done * (total - done)
    _PROGRESS.print(f"{done:,} of {total:,}, {passed:.0f} s, {left:.0f} s left")


if __name__ == "__main__":
    sys.exit(main())
