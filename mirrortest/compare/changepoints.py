"""Where the level of a series changes: E-divisive means, with Welch's test.

A segment is split where the energy distance between its two parts is greatest (Matteson and James,
"A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data", 2014; for
performance tests: Daly et al., "The Use of Change Point Detection to Identify Software Performance
Regressions in a Continuous Integration System", 2020). Each part is split again as long as a split
is significant. Significance is Welch's test, as in Apache Otava (Fleming et al., "Hunter: Using
Change Point Detection to Hunt for Performance Regressions", 2023), in place of permutations: it
needs no random numbers. Its chance counts once for each place where a split could have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.compare.statistics import FEWEST, chance_of, welch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_FALSE_ALARMS = 0.02
"""The chance that is accepted of any false change in a directory without one."""


class Split(NamedTuple):
    """A new level begins at `at`; `chance` is that of such a difference by accident."""

    at: int
    chance: float


def changepoints(values: Sequence[float], *, series: int = 1) -> list[Split]:
    """The splits in their order, if this is one of so many series."""
    found: list[Split] = []
    data = np.asarray(values, float)
    waiting = [(0, data.size)]
    while waiting:
        start, end = waiting.pop()
        if end - start < 2 * FEWEST:
            continue
        at = start + _best(data[start:end])
        chance = chance_of(data[start:at].tolist(), data[at:end].tolist(), welch)
        chance = min(1.0, chance * data.size * series)
        if chance <= _FALSE_ALARMS:
            found.append(Split(at, chance))
            waiting += [(start, at), (at, end)]
    return sorted(found)


def _best(values: NDArray[np.float64]) -> int:
    """Where to split so that the parts are farthest from each other, each of some values."""
    distances = np.abs(values[:, None] - values[None, :])
    sums = distances.cumsum(axis=0).cumsum(axis=1)
    left = np.arange(FEWEST, values.size - FEWEST + 1)
    right = values.size - left
    within_left = sums[left - 1, left - 1]
    between = sums[left - 1, -1] - within_left
    within_right = sums[-1, -1] - 2 * between - within_left
    energy = (
        2 * between / (left * right)
        - within_left / (left * (left - 1))
        - within_right / (right * (right - 1))
    )
    return int(left[np.argmax(energy * left * right / values.size)])
