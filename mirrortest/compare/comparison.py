"""Compares the repeats of runs.

A figure differs only if two tests agree: its own interval, and its chance, adjusted for all figures
of all pairs (`significance.adjusted`). The same holds for counts of findings, and for how often a
verdict failed. Only a finding that is never right in a mirror, or throttling, needs no repeats if
the base has none of it. Repeats without a result prevent a pass: they may be the worse ones of NEW.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.compare.document import (
    Change,
    Comparison,
    CountChange,
    FigureChange,
    Pair,
    ThresholdChange,
    VerdictChange,
    percent,
)
from mirrortest.compare.figures import BY_NAME, FIGURES, STATISTICS, Figure, Unit, Worse, statistic
from mirrortest.compare.settings import differing
from mirrortest.compare.significance import (
    FALSE_ALARMS,
    FEWEST,
    Difference,
    adjusted,
    difference,
    finite,
    relative,
)
from mirrortest.config.threshold import Series
from mirrortest.config.units import number
from mirrortest.model.findings import DEFINITIONS, WRONG, Weight
from mirrortest.model.verdict import Verdict
from mirrortest.results.words import rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.compare.repeat import Side
    from mirrortest.compare.thresholds import DifferenceThreshold

_FINDINGS = frozenset(finding.label for finding in WRONG)
_NEVER_RIGHT = frozenset(each.finding.label for each in DEFINITIONS if each.weight is Weight.BAD)
_DOUBTS = frozenset(each.finding.label for each in DEFINITIONS if each.weight is Weight.DOUBT)
_ARRIVALS = frozenset(
    statistic(series, name)
    for series in (Series.LATENCY, Series.SENT_LATENCY)
    for name in STATISTICS
)
"""Figures that a message has only once it has arrived."""
_MOST_RUNS = 3
"""The most runs that a reason names."""
_FEW = f"at least {FEWEST} repeats on each side are needed"
_MAY_BE_CHANCE = "may be chance, among so many figures"


@dataclass
class _Measured:
    """A figure on both sides, or a finding's count, or how often a verdict failed.

    `difference` is None if there are too few repeats. `chance` is adjusted for the number of such
    comparisons.
    """

    figure: Figure
    base: Sequence[float]
    new: Sequence[float]
    chance: float = 1.0

    def __post_init__(self) -> None:
        enough = min(len(self.base), len(self.new)) >= FEWEST
        self.difference = difference(self.base, self.new) if enough else None

    @property
    def _certain(self) -> Change | None:
        """The change of a figure that is never by chance, if it needs no statistics."""
        if not (self.figure.never_by_chance and self.base and self.new):
            return None
        if min(self.new) > max(self.base) == 0:
            return Change.WORSE
        return Change.BETTER if min(self.base) > max(self.new) == 0 else None

    @property
    def why(self) -> str:
        """Why there is no difference with an interval; empty: there is one."""
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
            # Of many figures, some intervals exclude 0 by chance.
            return Change.UNKNOWN if apart else Change.NONE
        return Change.of(self.figure.worse, higher=found.low > 0)

    def document(self) -> FigureChange:
        found = self.difference
        estimate = relative(self.base, self.new) if self.base and self.new else None
        return FigureChange(
            name=self.figure.name,
            unit=self.figure.unit.value,
            worse=self.figure.worse,
            base=[*self.base],
            new=[*self.new],
            difference=finite(estimate),
            low=None if found is None else finite(found.low),
            high=None if found is None else finite(found.high),
            chance=None if found is None else self.chance,
            change=self.change,
            why=(self.why or _MAY_BE_CHANCE) if self.change is Change.UNKNOWN else "",
        )


def compare(
    base: Side, sides: Sequence[Side], thresholds: Sequence[DifferenceThreshold] = ()
) -> Comparison:
    """Compare each side with the base; if they have several points of a scenario, by point."""
    reasons = [f"{each.shown}: {text}" for each in (base, *sides) for text in each.damage]
    couples: list[tuple[str, Side, Side]] = []
    for side in sides:
        if len(base.points) == len(side.points) == 1:
            couples.append(("", base, side))  # even if their points differ
            continue
        common = [point for point in base.points if point in side.points]
        couples += [(point, base.at(point), side.at(point)) for point in common]
        missing = {*base.points, *side.points}.difference(common)
        reasons += [
            f"{side.shown}: only one side has {f'the point {each}' if each else 'unnamed points'}"
            for each in sorted(missing)
        ]
    measured = [_measured(before, after) for _, before, after in couples]
    every = [each for of in measured for group in of for each in group]
    found = [(each, each.difference.chance) for each in every if each.difference is not None]
    for (each, _), chance in zip(found, adjusted([chance for _, chance in found]), strict=True):
        each.chance = chance
    pairs = [_pair(*couple, of, thresholds) for couple, of in zip(couples, measured, strict=True)]
    for pair, (_, _, side) in zip(pairs, couples, strict=True):
        reasons += _reasons(pair, side, bool(thresholds))
    verdict = Verdict.of(failed=any(map(_failed, pairs)), inconclusive=bool(reasons))
    return Comparison(
        verdict=verdict,
        exit_code=verdict.exit_code,
        base=base.shown,
        runs=base.runs,
        pairs=pairs,
        inconclusive=reasons,
    )


class _PairMeasured(NamedTuple):
    """Everything that is compared in a pair."""

    figures: list[_Measured]
    counts: list[_Measured]
    verdicts: list[_Measured]


def _measured(base: Side, side: Side) -> _PairMeasured:
    """Measure a pair: of findings, those that no healthy lane has and at least one side has."""
    repeats = [*base.repeats, *side.repeats]
    figures = [_Measured(each, base.figure(each.name), side.figure(each.name)) for each in FIGURES]
    counted = {name for each in repeats for name, count in each.counts.items() if count}
    commands = dict.fromkeys(name for each in repeats for name in each.verdicts)
    return _PairMeasured(
        [each for each in figures if each.base or each.new],
        [
            _as_figure(name, base.count(name), side.count(name))
            for name in sorted(counted & _FINDINGS, key=rank)
        ],
        [_as_figure(name, _failures(base, name), _failures(side, name)) for name in commands],
    )


def _pair(
    point: str,
    base: Side,
    side: Side,
    measured: _PairMeasured,
    thresholds: Sequence[DifferenceThreshold],
) -> Pair:
    figures = [each.document() for each in measured.figures]
    counts = [_count(each) for each in measured.counts]
    verdicts = [_verdict(each, base, side) for each in measured.verdicts]
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
        thresholds=[_evaluate(each, measured.figures, base, side) for each in thresholds],
    )


def _sum_up(figures: Sequence[Change], exact: Sequence[Change]) -> Change:
    """The gravest change; unknown if a count or verdict is, or if no figure could be compared."""
    for change in (Change.WORSE, Change.BETTER, Change.DIFFERS):
        if change in (*figures, *exact):
            return change
    undecided = Change.UNKNOWN in exact or Change.NONE not in (figures or exact)
    return Change.UNKNOWN if undecided else Change.NONE


def _as_figure(name: str, base: Sequence[float], new: Sequence[float]) -> _Measured:
    """Measure a finding, or a command's verdict, as a figure."""
    return _Measured(Figure(name, Unit.MESSAGES, Worse.HIGHER, ""), base, new)


def _failures(of: Side, command: str) -> list[float]:
    """A verdict in numbers: 1 if it failed, 0 if it passed; inconclusive ones are left out."""
    decided = [each for each in of.verdict(command) if each is not Verdict.INCONCLUSIVE]
    return [float(each is Verdict.FAILED) for each in decided]


def _count(of: _Measured) -> CountChange:
    """The change of a count; that of messages that could not be judged is always unknown."""
    name, base, new = of.figure.name, [*map(int, of.base)], [*map(int, of.new)]
    change = of.change
    if name in _DOUBTS or not base or not new:
        change = Change.UNKNOWN
    elif name in _NEVER_RIGHT and max(new) > max(base) == 0:
        change = Change.WORSE
    elif len({*base, *new}) == 1:
        change = Change.NONE
    return CountChange(name=name, base=base, new=new, change=change)


def _verdict(of: _Measured, base: Side, side: Side) -> VerdictChange:
    """The change of a verdict; if it failed only in NEW, chance alone does not make it equal."""
    command, change = of.figure.name, of.change
    before, after = base.verdict(command), side.verdict(command)
    if change in {Change.NONE, Change.UNKNOWN}:
        failed = Verdict.FAILED in after and Verdict.FAILED not in before
        equal = len({*before, *after}) == 1 or (change is Change.NONE and not failed)
        certain = before and len(after) == len(side.repeats)
        certain = certain and Verdict.INCONCLUSIVE not in {*before, *after}
        change = Change.NONE if certain and equal else Change.UNKNOWN
    return VerdictChange(command=command, base=before, new=after, change=change)


def _evaluate(
    threshold: DifferenceThreshold, measured: Sequence[_Measured], base: Side, side: Side
) -> ThresholdChange:
    if threshold.metric not in BY_NAME:
        return _evaluate_count(threshold, base, side)
    found = next((each for each in measured if each.figure.name == threshold.metric), None)
    if found is None or found.difference is None:
        why = found.why if found is not None else "not measured on either side"
        why = _left_out(base, threshold.metric) or _left_out(side, threshold.metric) or why
        return ThresholdChange(expression=threshold.text, passed=None, measured="", why=why)
    passed = threshold.of_interval(found.difference)
    if passed is None:
        why = "a part of the interval meets it: more repeats narrow it"
    else:
        why = _doubt(base, threshold.metric) or (_doubt(side, threshold.metric) if passed else "")
    return ThresholdChange(
        expression=threshold.text,
        passed=None if why else passed,
        measured=_show_difference(found.difference),
        why=why,
    )


def _evaluate_count(threshold: DifferenceThreshold, base: Side, side: Side) -> ThresholdChange:
    """Evaluate a threshold on a count by the highest count of each side."""
    before, after = base.count(threshold.metric), side.count(threshold.metric)
    if not before or not after:
        return ThresholdChange(
            expression=threshold.text, passed=None, measured="", why="not counted on both sides"
        )
    more = max(after) - max(before)
    passed = threshold.of_count(more)
    # Missing or undecided repeats can only raise these maxima.
    may_be_more, may_be_less = (_doubt(of, threshold.metric) for of in (side, base))
    match threshold.comparison:
        case "<" | "<=":
            why = may_be_more if passed else may_be_less
        case ">" | ">=":
            why = may_be_less if passed else may_be_more
        case _:
            why = may_be_more or may_be_less
    return ThresholdChange(
        expression=threshold.text,
        passed=None if why else passed,
        measured=f"{more:+,}",
        why=why,
    )


def _doubt(side: Side, metric: str) -> str:
    """Why the known repeats of a figure or count may not represent all; empty: they do."""
    figure = metric in BY_NAME
    if figure and (why := _left_out(side, metric)):
        return why
    lacking = [
        each.run for each in side.repeats if metric not in (each.figures if figure else each.counts)
    ]
    if lacking:
        return f"not {'measured' if figure else 'counted'} in {_named(lacking)}"
    unsure = [each.run for each in side.repeats if each.undecided(each.judge)]
    if unsure and (not figure or metric in _ARRIVALS):
        return f"not everything could be decided in {_named(unsure)}"
    return ""


def _left_out(side: Side, metric: str) -> str:
    """Why a figure of some repeats was left out; empty: none was."""
    lacking = [each for each in side.repeats if metric not in each.figures]
    if metric in _ARRIVALS and (off := [each.run for each in lacking if each.clocks_off]):
        return f"wall clocks were set in {_named(off)}, or disagree"
    if partial := [each.run for each in lacking if each.incomplete]:
        why = "and no summary has all that it counted"
        return f"a process was restarted or killed in {_named(partial)}, {why}"
    return ""


def _named(runs: Sequence[str]) -> str:
    more = len(runs) - _MOST_RUNS
    shown = ", ".join(runs[:_MOST_RUNS]) + (f" and {more:,} more" if more > 0 else "")
    return f"run{'s' if len(runs) > 1 else ''} {shown}"


def _failed(pair: Pair) -> bool:
    if pair.thresholds:
        return any(each.passed is False for each in pair.thresholds)
    return any(each.change is Change.WORSE for each in (*pair.counts, *pair.verdicts))


def _reasons(pair: Pair, side: Side, by_thresholds: bool) -> list[str]:
    """Why a pair is inconclusive."""
    at = f"{pair.point}: " if pair.point else ""
    if by_thresholds:
        return [
            f"{at}threshold {each.expression}: {each.why}"
            for each in pair.thresholds
            if each.passed is None
        ]
    if not (pair.figures or pair.verdicts):
        return [f"{at}neither side has a result"]
    reasons = [f"{at}{each}" for each in _unknown_verdicts(pair, side)]
    reasons += [
        f"{at}{each.name}: {'messages could not be judged' if each.name in _DOUBTS else _FEW}"
        for each in pair.counts
        if any(each.new)
        and (
            each.name in _DOUBTS
            or (each.change is Change.UNKNOWN and min(len(each.base), len(each.new)) < FEWEST)
        )
    ]
    if all(each.change is Change.UNKNOWN for each in pair.figures):
        whys = dict.fromkeys(each.why for each in pair.figures)
        reasons += [f"{at}no figure can be compared: {why}" for why in whys]
    return reasons


def _unknown_verdicts(pair: Pair, side: Side) -> Iterator[str]:
    """Verdicts that NEW lacks, or that cannot be compared with the base's."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for repeat in side.repeats:
        absent = [each.command for each in pair.verdicts if each.command not in repeat.verdicts]
        if absent:
            lacking[", ".join(absent)].append(repeat.run)
    for commands, runs in lacking.items():
        yield f"no verdict of {commands} in {_named(runs)}"
    for each in pair.verdicts:
        subject = f"the verdict of {each.command}"
        unsure = [repeat.run for repeat in side.repeats if repeat.undecided(each.command)]
        if unsure:
            yield f"{each.command} could not decide everything in {_named(unsure)}"
        elif each.new and not each.base:
            yield f"{subject} is missing in the base"
        elif each.change is Change.UNKNOWN and Verdict.FAILED in each.new:
            in_base = Verdict.INCONCLUSIVE in each.base
            chance = "failed, possibly by chance: run more repeats"
            yield f"{subject} {'is inconclusive in the base' if in_base else chance}"


def _show_difference(found: Difference) -> str:
    """``+12.3 % (+8.1 to +16.0)``."""
    low, estimate, high = map(percent, found[:3])
    return f"{estimate} % ({low} to {high})"
