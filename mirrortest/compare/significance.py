"""Whether two sets of repeats differ, from very few values each.

The interval is a bootstrap percentile interval of the relative difference of the means, seeded, at
expanded levels (Hesterberg, "What Teachers Should Know About the Bootstrap", 2014,
arXiv:1411.5279). Without expansion, a percentile interval is that of a normal distribution with the
biased variance, far too narrow for five values; the expanded levels are those of Student's t. BCa
is not used: it corrects bias and skewness, estimated from these same few values, not the width.

The chance of a difference comes from a t-test, on logarithms if all values are positive. Resampling
alone cannot show a chance below one in some hundred for five values, and a comparison of thirty
figures needs less. The null hypothesis is that the sides are equal, in spread, too, so the variance
is pooled over both (Student). Welch's test compares only means: if one side spreads more, three
repeats leave it two degrees of freedom, and it missed a tenfold latency. `adjusted` is the
procedure of Benjamini and Hochberg (1995): equal runs show no difference at all in 98 of 100
comparisons. With only three repeats it is 95, because real figures have farther outliers than the
t-test expects. Holm's procedure bounds the chance of even one wrong difference; it misses too much
with three repeats.
"""

from __future__ import annotations

from functools import lru_cache
from math import atan, exp, inf, isinf, lgamma, log, pi, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FEWEST = 3
"""The fewest repeats of each side that a comparison needs."""
LEVEL = 0.05
"""The chance that an interval does not contain the true difference."""
FALSE_ALARMS = 0.01
"""The accepted chance of any false difference among all figures of equal runs."""
RESOLUTION = 0.004
"""Percentiles of histograms are exact to this share: a smaller difference counts as none."""
_RESAMPLES = 5_000
_STEPS = 2_001


class Difference(NamedTuple):
    """The difference of the new mean from the base's, as a share of it, with its interval.

    `chance` is the chance of such a difference by accident, for a single figure.
    """

    low: float
    estimate: float
    high: float
    chance: float


def relative(base: Sequence[float], new: Sequence[float]) -> float:
    """The difference of the means as a share of the base's; if that is 0, infinite or 0."""
    before, after = float(np.mean(base)), float(np.mean(new))
    if not before:
        return inf if after > 0 else -inf if after < 0 else 0.0
    return (after - before) / abs(before)


def finite(share: float | None) -> float | None:
    """A difference for a document: None if it is infinite."""
    return None if share is None or isinf(share) else share


def difference(base: Sequence[float], new: Sequence[float]) -> Difference:
    """The difference with its interval; each side needs at least `FEWEST` values."""
    estimate, chance = relative(base, new), chance_of(base, new)
    if _within_resolution(base, new):
        # Too small to be measured: there may be none.
        return Difference(min(estimate, 0.0), estimate, max(estimate, 0.0), chance)
    low, high = _interval(np.array(base, float), np.array(new, float))
    return Difference(min(low, estimate), estimate, max(high, estimate), chance)


def adjusted(chances: Sequence[float]) -> list[float]:
    """The chances of single figures, adjusted for their number."""
    found, least = [1.0] * len(chances), 1.0
    ranked = sorted(range(len(chances)), key=chances.__getitem__)
    for rank, at in reversed([*enumerate(ranked, start=1)]):
        least = min(least, chances[at] * len(chances) / rank)
        found[at] = least
    return found


def two_sided(t: float, freedom: float) -> float:
    """The chance that Student's t with `freedom` degrees of freedom is at least as far from 0."""
    # With t = sqrt(f) tan(a), the density is that of cos(a)**(f - 1).
    angles = np.linspace(atan(abs(t) / sqrt(freedom)), pi / 2, _STEPS)
    tail = float(np.trapezoid(np.cos(angles).clip(0) ** (freedom - 1), angles))
    half = sqrt(pi) / 2 * exp(lgamma(freedom / 2) - lgamma((freedom + 1) / 2))
    return min(1.0, tail / half)


@lru_cache
def student(chance: float, freedom: float) -> float:
    """The t that has this two-sided chance in Student's distribution."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > chance else (low, middle)
    return high


def t_test(base: Sequence[float], new: Sequence[float], floor: float = 0.0) -> float:
    """The chance that means differ as much by accident; `floor` is the least standard error."""
    freedom = len(base) + len(new) - 2
    squares = sum(float(np.var(side)) * len(side) for side in (base, new))
    error = max(sqrt(squares / freedom * (1 / len(base) + 1 / len(new))), floor)
    distance = abs(float(np.mean(new)) - float(np.mean(base)))
    return two_sided(distance / error, freedom) if error else float(not distance)


def chance_of(base: Sequence[float], new: Sequence[float]) -> float:
    """The chance of such a difference by accident, for a single figure.

    It is 1 if all values are within the resolution of their measurement.
    """
    if _within_resolution(base, new):
        return 1.0
    if min(*base, *new) > 0:
        return t_test([log(each) for each in base], [log(each) for each in new], RESOLUTION / 2)
    return t_test(base, new, RESOLUTION / 2 * max(map(abs, [*base, *new])))


def _within_resolution(base: Sequence[float], new: Sequence[float]) -> bool:
    everything = [*base, *new]
    return max(everything) - min(everything) <= RESOLUTION * max(map(abs, everything))


@lru_cache(maxsize=8)
def _resamples(size: int, seed: int) -> NDArray[np.intp]:
    """The indices of each resample's values, in columns; the same for all figures of a run."""
    return np.random.default_rng(seed).integers(0, size, (_RESAMPLES, size)).T.copy()


def _interval(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[float, ...]:
    before, after = (
        side[_resamples(side.size, seed)].mean(axis=0) for seed, side in enumerate((base, new))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (after - before) / np.abs(before)
    found[np.isnan(found)] = 0.0  # 0 before and after
    fewest = min(base.size, new.size)
    reach = student(LEVEL, base.size + new.size - 2) * sqrt(fewest / (fewest - 1))
    level = NormalDist().cdf(-reach)
    # Without interpolation, since values may be infinite.
    ends = np.quantile(found, (level, 1 - level), method="inverted_cdf")
    return tuple(map(float, ends))
