"""Where the level of a series changes: binary segmentation, with a permutation test.

A segment is split where the means of its two parts are farthest apart, and so is each part, as long
as a split is significant (Scott and Knott, "A Cluster Analysis Method for Grouping Means", 1974;
for performance tests: Daly et al., "The Use of Change Point Detection to Identify Software
Performance Regressions in a Continuous Integration System", 2020). A split is significant if
shuffled values hardly ever have one as great, at any place. That is right for any distribution,
because equal runs are equally likely in any order. A t-test at the best place is wrong: with one
run in ten slow, it found changes in a third of the histories that had none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.compare.significance import FEWEST, RESOLUTION, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_FALSE_ALARMS = 0.02
"""The accepted chance of any false change in a directory without changes."""
_MOST_GREATER = 5
"""A split is significant if fewer shuffles have one as great. More would leave less to luck."""
_AT_ONCE = 1 << 20
"""How many values are shuffled at once."""


class Split(NamedTuple):
    """A new level begins at index `at`; `chance` is that of such a difference by accident."""

    at: int
    chance: float


def changepoints(values: Sequence[float], *, series: int = 1) -> list[Split]:
    """The splits in order; `series` is how many series are searched in all."""
    found: list[Split] = []
    data = np.asarray(values, float)
    if data.size and data.min() > 0:
        data = np.log(data)
    waiting = [(0, data.size)]
    while waiting:
        start, end = waiting.pop()
        if end - start < 2 * FEWEST:
            continue
        segment = data[start:end] - data[start:end].mean()
        distances = _distances(segment[None])[0]
        at = start + FEWEST + int(distances.argmax())
        if abs(relative(values[start:at], values[at:end])) <= RESOLUTION:
            continue
        # A false split in any of the parts is no likelier than one of all values.
        chance = _chance(segment, float(distances.max()), series * data.size / segment.size)
        if chance <= _FALSE_ALARMS:
            found.append(Split(at, chance))
            waiting += [(start, at), (at, end)]
    return sorted(found)


def _distances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each split of each row, the distance of the parts' means in units of its error.

    It is 0 where a neighbouring split is better: one run or two next to the end are no level, but
    with their neighbours they would look like one.
    """
    size = rows.shape[1]
    left = np.arange(1, size)
    found = np.abs(rows.cumsum(axis=1)[:, :-1]) / np.sqrt(left * (size - left))
    before, at, after = (
        found[:, FEWEST - 1 + shift : size - FEWEST + shift] for shift in (-1, 0, 1)
    )
    return np.where(at >= np.maximum(before, after), at, 0.0)


def _chance(segment: NDArray[np.float64], distance: float, tests: float) -> float:
    """How often shuffled values have a split as great, adjusted for the number of tests.

    It is 1 as soon as that is too often: only changes take all the shuffles.
    """
    # Seeded by the values: otherwise all series of one length would share their shuffles.
    draws = np.random.default_rng(np.frombuffer(segment.tobytes(), np.uint32))
    least = distance * (1 - 1e-9)  # sums in another order differ by rounding
    enough = int(_MOST_GREATER * tests / _FALSE_ALARMS)
    shuffled = greater = 0
    size = 100
    while shuffled < enough:
        rows = np.tile(segment, (min(size, enough - shuffled), 1))
        greater += int((_distances(draws.permuted(rows, axis=1)).max(axis=1) >= least).sum())
        if greater >= _MOST_GREATER:
            return 1.0
        shuffled += len(rows)
        size = max(100, _AT_ONCE // segment.size)
    return (greater + 1) / (shuffled + 1) * tests
