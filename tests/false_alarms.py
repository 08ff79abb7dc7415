"""How often comparisons and trends of equal runs report a change.

``python -m tests.false_alarms`` prints the tables of docs/reference/comparison.md, in some minutes.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.compare.changepoints import changepoints
from mirrortest.compare.comparison import compare
from mirrortest.compare.repeat import Repeat, Side
from mirrortest.config.units import number
from mirrortest.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
    Count = Callable[[np.random.Generator], int]

FIGURES = 38
"""Figures of a directory: as many as a run with logs has."""


def _slow(share: float, times: float, spread: float) -> Draw:
    return lambda draws, shape: (
        np.where(draws.random(shape) < share, times, 1.0) * draws.lognormal(0, spread, shape)
    )


DISTRIBUTIONS: Mapping[str, Draw] = {
    "10 % spread": lambda draws, shape: draws.normal(10, 1, shape),
    "30 % spread, lognormal": lambda draws, shape: draws.lognormal(0, 0.3, shape),
    "one run in four takes twice as long": _slow(0.25, 2, 0.05),
    "one run in ten takes five times as long": _slow(0.1, 5, 0.02),
    "four runs in five are 0": lambda draws, shape: np.where(
        draws.random(shape) < 0.8, 0.0, draws.exponential(1, shape)
    ),
}


def changed_histories(draw: Draw, nights: int, *, directories: int, seed: int) -> int:
    """How many of `directories` histories without a change have a figure with one."""
    draws = np.random.default_rng(seed)
    return sum(
        any(
            changepoints(figure.tolist(), series=FIGURES)
            for figure in draw(draws, (FIGURES, nights))
        )
        for _ in range(directories)
    )


def failed_comparisons(
    repeats: int, *, comparisons: int, seed: int, counts: Mapping[str, Count], failing: float = 0.0
) -> int:
    """How many of `comparisons` comparisons of equal runs exit with 99.

    `failing` is the share of runs whose verdict fails.
    """
    draws = np.random.default_rng(seed)

    def run() -> Repeat:
        return Repeat(
            run="r",
            started_ns=0,
            figures={"p(99)": float(draws.lognormal(0, 0.1))},
            counts={name: int(count(draws)) for name, count in counts.items()},
            verdicts={
                "consume": Verdict.FAILED if draws.random() < failing else Verdict.PASSED,
            },
        )

    sides = (
        [Side("", [run() for _ in range(repeats)]) for _ in range(2)] for _ in range(comparisons)
    )
    return sum(compare(base, [new]).verdict is Verdict.FAILED for base, new in sides)


COUNTS: Mapping[str, tuple[Mapping[str, Count], float]] = {
    "about 100 duplicated, reordered and late each": (
        dict.fromkeys(("duplicated", "reordered", "late"), lambda draws: draws.poisson(100)), 0.0,
    ),
    "about 1 duplicated": ({"duplicated": lambda draws: draws.poisson(1)}, 0.0),
    "three runs in ten have about 200 duplicated": (
        {"duplicated": lambda draws: draws.poisson(200) * (draws.random() < 0.3)}, 0.0,
    ),
    "the verdict of one run in five fails": ({}, 0.2),
}  # fmt: skip


def comparisons_table(comparisons: int) -> Iterator[str]:
    """The lines of the table of comparisons."""
    sizes = (1, 3, 5, 10)
    yield f"| runs | {' | '.join(number(size, 'repeat') for size in sizes)} |"
    yield "|---|" + "---|" * len(sizes)
    for name, (counts, failing) in COUNTS.items():
        found = [
            failed_comparisons(
                size, comparisons=comparisons, seed=1, counts=counts, failing=failing
            )
            for size in sizes
        ]
        yield f"| {name} | {_shares(found, comparisons)} |"


def histories_table(directories: int) -> Iterator[str]:
    """The lines of the table of histories."""
    lengths = (20, 40, 100)
    yield f"| values | {' | '.join(f'{nights} nights' for nights in lengths)} |"
    yield "|---|" + "---|" * len(lengths)
    for name, draw in DISTRIBUTIONS.items():
        found = [
            changed_histories(draw, nights, directories=directories, seed=1) for nights in lengths
        ]
        yield f"| {name} | {_shares(found, directories)} |"


def _shares(found: Sequence[int], of: int) -> str:
    return " | ".join(f"{100 * each / of:.1f} %" for each in found)


if __name__ == "__main__":
    for line in chain(comparisons_table(1000), [""], histories_table(500)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
