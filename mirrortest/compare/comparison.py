"""Compares the repeats of runs.

A figure differs only if two things say so: its own interval, and its chance as one of all figures
of all pairs (`statistics.adjusted`). Findings and verdicts are exact, and need no statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf
from typing import TYPE_CHECKING

from mirrortest.compare.document import (
    Change,
    Comparison,
    CountChange,
    FigureChange,
    Pair,
    ThresholdChange,
    VerdictChange,
)
from mirrortest.compare.figures import BY_NAME, FIGURES, Figure
from mirrortest.compare.settings import differing
from mirrortest.compare.statistics import (
    FALSE_ALARMS,
    FEWEST,
    Difference,
    adjusted,
    difference,
    finite,
    relative,
)
from mirrortest.config.units import number
from mirrortest.model.findings import WRONG
from mirrortest.model.verdict import Verdict
from mirrortest.results.words import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrortest.compare.repeat import Repeat
    from mirrortest.compare.thresholds import DifferenceThreshold

_FINDINGS = frozenset(finding.label for finding in WRONG)
_BADNESS = list(Verdict)
_MAY_BE_CHANCE = "may be chance, among so many figures"


@dataclass(frozen=True)
class Side:
    """All repeats that an argument names; `damage` is what could not be read of their logs."""

    shown: str
    repeats: Sequence[Repeat]
    damage: Sequence[str] = ()

    @property
    def runs(self) -> list[str]:
        """Their run ids."""
        return [each.run for each in self.repeats]

    @property
    def points(self) -> list[str]:
        """The points of a scenario that they are of, each once."""
        return [*dict.fromkeys(each.point for each in self.repeats)]

    def at(self, point: str) -> Side:
        """The repeats of one point."""
        return replace(self, repeats=[each for each in self.repeats if each.point == point])

    def figure(self, name: str) -> list[float]:
        """The values of those repeats that have the figure."""
        return [each.figures[name] for each in self.repeats if name in each.figures]


@dataclass(frozen=True)
class _Measured:
    """A figure on both sides; `difference` is None where there are too few repeats."""

    figure: Figure
    base: list[float]
    new: list[float]
    difference: Difference | None
    chance: float = 1.0

    @property
    def _certain(self) -> Change | None:
        """What needs no statistics, of a figure that is never by chance."""
        if not (self.figure.never_by_chance and self.base and self.new):
            return None
        if min(self.new) > max(self.base) == 0:
            return Change.WORSE
        return Change.BETTER if min(self.base) > max(self.new) == 0 else None

    @property
    def why(self) -> str:
        if self._certain is not None:
            return ""
        if not self.base or not self.new:
            return f"not measured in {'the base' if self.new else 'the new runs'}"
        few = f"{number(len(self.base), 'run')} against {len(self.new)}"
        return "" if self.difference else f"{few}: at least {FEWEST} on each side are needed"

    @property
    def change(self) -> Change:
        if self._certain is not None:
            return self._certain
        found = self.difference
        if found is None:
            return Change.UNKNOWN
        apart = found.low > 0 or found.high < 0
        if not apart or self.chance > FALSE_ALARMS:
            # A figure's interval says nothing sure of one out of many.
            return Change.UNKNOWN if apart else Change.NONE
        return Change.of(self.figure.worse, higher=found.low > 0)

    def document(self) -> FigureChange:
        found = self.difference
        estimate = relative(self.base, self.new) if self.base and self.new else None
        return FigureChange(
            name=self.figure.name,
            unit=self.figure.unit.value,
            worse=self.figure.worse,
            base=self.base,
            new=self.new,
            difference=finite(estimate),
            low=None if found is None else finite(found.low),
            high=None if found is None else finite(found.high),
            chance=None if found is None else self.chance,
            change=self.change,
            why=self.why or (_MAY_BE_CHANCE if self.change is Change.UNKNOWN else ""),
        )


def compare(
    base: Side, sides: Sequence[Side], thresholds: Sequence[DifferenceThreshold] = ()
) -> Comparison:
    """Compare each side with the base, point by point where they are of a scenario's points."""
    reasons = [f"{each.shown}: {text}" for each in (base, *sides) for text in each.damage]
    couples: list[tuple[str, Side, Side]] = []
    for side in sides:
        if len(base.points) == len(side.points) == 1:
            couples.append(("", base, side))  # also where what varies has another value
            continue
        common = [point for point in base.points if point in side.points]
        couples += [(point, base.at(point), side.at(point)) for point in common]
        missing = {*base.points, *side.points}.difference(common)
        reasons += [f"{side.shown}: only one side has the point {each}" for each in sorted(missing)]
    measured = [[*_figures(before, after)] for _, before, after in couples]
    differences = [each.difference for row in measured for each in row]
    chances = iter(adjusted([each.chance for each in differences if each is not None]))
    measured = [
        [replace(m, chance=next(chances)) if m.difference is not None else m for m in row]
        for row in measured
    ]
    pairs = [_pair(*couple, row, thresholds) for couple, row in zip(couples, measured, strict=True)]
    for pair in pairs:
        reasons += _reasons(pair, bool(thresholds))
    verdict = Verdict.of(failed=any(map(_failed, pairs)), inconclusive=bool(reasons))
    return Comparison(
        verdict=verdict,
        exit_code=verdict.exit_code,
        base=base.shown,
        runs=base.runs,
        pairs=pairs,
        inconclusive=reasons,
    )


def _figures(base: Side, side: Side) -> Iterable[_Measured]:
    for figure in FIGURES:
        before, after = base.figure(figure.name), side.figure(figure.name)
        if before or after:
            enough = min(len(before), len(after)) >= FEWEST
            yield _Measured(figure, before, after, difference(before, after) if enough else None)


def _pair(
    point: str,
    base: Side,
    side: Side,
    measured: Sequence[_Measured],
    thresholds: Sequence[DifferenceThreshold],
) -> Pair:
    figures = [each.document() for each in measured]
    counts = _counts(base, side)
    verdicts = _verdicts(base, side)
    return Pair(
        place=side.shown,
        point=point,
        base_runs=base.runs,
        runs=side.runs,
        change=_sum_up(
            [each.change for each in figures], [each.change for each in (*counts, *verdicts)]
        ),
        figures=figures,
        counts=counts,
        verdicts=verdicts,
        settings=differing(
            [each.settings for each in base.repeats], [each.settings for each in side.repeats]
        ),
        thresholds=[_evaluate(each, measured, base, side) for each in thresholds],
    )


def _sum_up(figures: Sequence[Change], exact: Sequence[Change]) -> Change:
    """The first of these that there is; what could not be compared is never no difference."""
    for change in (Change.WORSE, Change.BETTER, Change.DIFFERS):
        if change in (*figures, *exact):
            return change
    untold = Change.UNKNOWN in exact or (bool(figures) and Change.NONE not in figures)
    return Change.UNKNOWN if untold else Change.NONE


def _counts(base: Side, side: Side) -> list[CountChange]:
    """Findings that a lane in order does not have, where either side has some."""
    sides = (base, side)
    names = {
        name for of in sides for each in of.repeats for name, count in each.counts.items() if count
    }
    found = []
    for name in sorted(names & _FINDINGS, key=rank):
        before, after = (
            [each.counts[name] for each in of.repeats if name in each.counts] for of in sides
        )
        found.append(
            CountChange(name=name, base=before, new=after, change=_count_change(before, after))
        )
    return found


def _count_change(base: Sequence[int], new: Sequence[int]) -> Change:
    """Exact where a side has none at all, or all repeats of one have more than any of the other."""
    if not base or not new:
        return Change.UNKNOWN
    if sorted(base) == sorted(new):
        return Change.NONE
    if max(new) > max(base) == 0 or min(new) > max(base):
        return Change.WORSE
    if max(base) > max(new) == 0 or min(base) > max(new):
        return Change.BETTER
    return Change.UNKNOWN


def _verdicts(base: Side, side: Side) -> list[VerdictChange]:
    commands = {name: None for of in (base, side) for each in of.repeats for name in each.verdicts}
    found = []
    for command in commands:
        before, after = (
            [each.verdicts[command] for each in of.repeats if command in each.verdicts]
            for of in (base, side)
        )
        found.append(
            VerdictChange(
                command=command, base=before, new=after, change=_verdict_change(before, after)
            )
        )
    return found


def _verdict_change(base: Sequence[Verdict], new: Sequence[Verdict]) -> Change:
    """By the worst verdict of each side; of an inconclusive one nothing is known to be equal."""
    if not base or not new:
        return Change.UNKNOWN
    before, after = (max(side, key=_BADNESS.index) for side in (base, new))
    if before is not after:
        worse = _BADNESS.index(after) > _BADNESS.index(before)
        return Change.WORSE if worse else Change.BETTER
    return Change.UNKNOWN if Verdict.INCONCLUSIVE in {*base, *new} else Change.NONE


def _evaluate(
    threshold: DifferenceThreshold, measured: Sequence[_Measured], base: Side, side: Side
) -> ThresholdChange:
    if threshold.metric not in BY_NAME:
        return _evaluate_count(threshold, base, side)
    found = next((each for each in measured if each.figure.name == threshold.metric), None)
    if found is None or found.difference is None:
        why = found.why if found is not None else "not measured on either side"
        return ThresholdChange(expression=threshold.text, passed=None, measured="", why=why)
    passed = threshold.of_interval(found.difference)
    return ThresholdChange(
        expression=threshold.text,
        passed=passed,
        measured=show_difference(found.difference),
        why="a part of the interval meets it: more repeats narrow it" if passed is None else "",
    )


def _evaluate_count(threshold: DifferenceThreshold, base: Side, side: Side) -> ThresholdChange:
    """By the greatest count of each side."""
    before, after = (
        [each.counts[threshold.metric] for each in of.repeats if threshold.metric in each.counts]
        for of in (base, side)
    )
    if not before or not after:
        return ThresholdChange(
            expression=threshold.text, passed=None, measured="", why="not counted on both sides"
        )
    more = max(after) - max(before)
    return ThresholdChange(
        expression=threshold.text, passed=threshold.of_count(more), measured=f"{more:+,}"
    )


def _failed(pair: Pair) -> bool:
    if pair.thresholds:
        return any(each.passed is False for each in pair.thresholds)
    return any(each.change is Change.WORSE for each in (*pair.counts, *pair.verdicts))


def _reasons(pair: Pair, by_thresholds: bool) -> list[str]:
    """Why a pair can neither pass nor fail."""
    at = f"{pair.point}: " if pair.point else ""
    if by_thresholds:
        return [
            f"{at}threshold {each.expression}: {each.why}"
            for each in pair.thresholds
            if each.passed is None
        ]
    reasons = [
        f"{at}the verdict of {each.command} is inconclusive, or missing, on one of the sides"
        for each in pair.verdicts
        if each.change is Change.UNKNOWN
    ]
    whys = {each.why: None for each in pair.figures if each.change is Change.UNKNOWN}
    if all(each.change is Change.UNKNOWN for each in pair.figures):
        reasons += [f"{at}no figure can be compared: {why}" for why in whys]
    return reasons


def show_difference(found: Difference) -> str:
    """``+12.3 % (+8.1 to +16.0)``."""
    low, estimate, high = map(percent, found[:3])
    return f"{estimate} % ({low} to {high})"


def percent(share: float | None) -> str:
    """A difference in per cent with its sign; empty for none, as of a base of 0."""
    if share is None:
        return ""
    if isinf(share):
        return f"{'+' if share > 0 else '-'}\N{INFINITY}"
    return f"{100 * share:+,.{1 if abs(share) < 1 else 0}f}"


def interval(figure: FigureChange) -> str:
    """``+8.1 to +16.0``, in per cent; empty without an interval."""
    if figure.low is None and figure.high is None:
        return ""
    return f"{percent(figure.low)} to {percent(figure.high)}"
