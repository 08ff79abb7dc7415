"""A comparison on a terminal of 80 columns: what changed comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.console import Group
from rich.text import Text

from mirrortest.compare.document import Change, Comparison, Pair, interval, percent
from mirrortest.compare.figures import Unit
from mirrortest.compare.thresholds import DifferenceThreshold
from mirrortest.config.units import number
from mirrortest.config.visible import visible
from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import shorten
from mirrortest.results.tables import escape, lines, verdict_line
from mirrortest.results.view import compact_table
from mirrortest.results.words import moment, readable_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from mirrortest.compare.document import FigureChange
    from mirrortest.compare.trend import Trend

_COLOURS = {
    Change.WORSE: "red",
    Change.BETTER: "green",
    Change.DIFFERS: "cyan",
    Change.NONE: None,
    Change.UNKNOWN: "yellow",
}
_MARKS = {Change.NONE: "", Change.UNKNOWN: "?"}
"""The marks of changes whose words are too long for a table."""
_MOST_VALUES = 3
"""The most values of a setting that are shown; the JSON document has all."""
_ALONE = (
    " Only thresholds decide: a finding or a verdict without a threshold got worse, or a verdict "
    "is inconclusive or missing."
)
_ENDED = {True: ("met", None), False: ("failed", "red"), None: ("undecided", "yellow")}


def view(comparison: Comparison, *, details: bool = False) -> RenderableType:
    """The complete comparison; `details` includes figures without a difference in the table."""
    parts: list[RenderableType] = []
    for pair in comparison.pairs:
        parts += [*_pair(comparison, pair, details=details), Text("")]
    parts += lines(shorten(comparison.inconclusive), "inconclusive: ", "yellow")
    parts.append(
        Text.assemble(verdict_line("comparison", comparison.verdict), f". {why(comparison)}")
    )
    return Group(*parts)


def why(comparison: Comparison) -> str:
    """One sentence on what the verdict rests on."""
    by = "threshold" if any(pair.thresholds for pair in comparison.pairs) else "finding or verdict"
    match comparison.verdict:
        case Verdict.FAILED:
            return f"A {by} {'failed' if by == 'threshold' else 'got worse'}."
        case Verdict.INCONCLUSIVE:
            return f"{number(len(comparison.inconclusive), 'reason')} above."
    if by == "threshold":
        alone = any(map(_got_worse, comparison.pairs))
        return f"Every threshold is met.{_ALONE if alone else ''}"
    return "No finding and no verdict got worse; --threshold bounds figures."


def _got_worse(pair: Pair) -> bool:
    """Whether a finding without a threshold, or a verdict, got worse.

    A verdict that is newly inconclusive or missing counts as worse, too.
    """
    bounded = {DifferenceThreshold.parse(each.expression).metric for each in pair.thresholds}
    found = [each for each in pair.counts if each.name not in bounded]
    return any(each.change is Change.WORSE for each in (*found, *pair.verdicts)) or any(
        len(each.new) < len(pair.runs) or {*each.new} - {Verdict.PASSED, *each.base}
        for each in pair.verdicts
    )


def trend_view(trend: Trend) -> RenderableType:
    """The figures that changed, the newest change first; then those that did not."""
    runs = number(len(trend.runs), "run")
    left_out = f"; {trend.left_out:,} older ones are left out" if trend.left_out else ""
    parts: list[RenderableType] = [Text(visible(f"{trend.place}: {runs}{left_out}"))]
    changes = [(change, each) for each in trend.figures for change in each.changes]
    if changes:
        table = compact_table(
            ("", "figure", "since run", "before", "after", "%"), numbers=(3, 4, 5)
        )
        for change, figure in sorted(changes, key=lambda pair: -pair[0].at):
            unit, run = Unit(figure.unit), trend.runs[change.at]
            since = f"{run.run}, {moment(run.started_ns)}" if run.started_ns else run.run
            table.add_row(
                change.change.value,
                escape(figure.title),
                escape(since),
                *(escape(unit.show(mean)) for mean in (change.before, change.after)),
                percent(change.difference),
                style=_COLOURS[change.change],
            )
        parts.append(table)
    steady = [each.title for each in trend.figures if not each.changes]
    if steady:
        text = f"no change: {number(len(steady), 'figure')}: {', '.join(steady)}"
        parts.append(Text(visible(text)))
    parts += lines(shorten(trend.damage), "not read: ", "yellow")
    return Group(*parts)


def _pair(comparison: Comparison, pair: Pair, *, details: bool) -> Iterator[RenderableType]:
    at = f", {pair.point}" if pair.point else ""
    yield Text.assemble(
        visible(f"{comparison.base} ({number(len(pair.base_runs), 'run')}) and {pair.place} "),
        visible(f"({number(len(pair.runs), 'run')}){at}: "),
        (pair.change.value, f"bold {_COLOURS[pair.change] or ''}"),
    )
    if pair.thresholds:
        yield _thresholds(pair)
    both = [each for each in pair.figures if each.base and each.new]
    # With a base of 0 there is no interval in per cent.
    changed = [
        each
        for each in both
        if each.change is not Change.NONE
        and (each.change is not Change.UNKNOWN or each.low is not None)
    ]
    if shown := both if details else changed:
        yield _figures(shown)
    if not details:
        yield from _unchanged(pair.figures)
    yield from _unknown(pair.figures)
    for each in exact_changes(pair):
        if each.change is not Change.NONE or details:
            yield _line(each.change, each.text)
    yield from lines(
        shorten(
            [f"{each.name}: {_some(each.base)} -> {_some(each.new)}" for each in pair.settings]
        ),
        "setting differs: ",
        "cyan",
    )


class ExactChange(NamedTuple):
    """A verdict or a finding on both sides, as text."""

    change: Change
    text: str


def exact_changes(pair: Pair) -> list[ExactChange]:
    """The verdicts, then the findings."""
    of_verdicts = [
        ExactChange(
            each.change,
            f"verdict of {each.command}: "
            + " -> ".join(", ".join(dict.fromkeys(of)) or "none" for of in (each.base, each.new)),
        )
        for each in pair.verdicts
    ]
    of_counts = [
        ExactChange(
            each.change,
            f"{readable_name(each.name)}: {_range(each.base)} -> {_range(each.new)} messages",
        )
        for each in pair.counts
    ]
    return [*of_verdicts, *of_counts]


def _line(change: Change, text: str) -> Text:
    return Text.assemble((f"{change.value}: ", _COLOURS[change] or ""), visible(text))


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "not counted"
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _some(values: Sequence[str]) -> str:
    more = len(values) - _MOST_VALUES
    return ", ".join([*values[:_MOST_VALUES], *([f"{more} more"] if more > 0 else [])]) or "none"


def _thresholds(pair: Pair) -> RenderableType:
    table = compact_table(("", "condition", "measured"), numbers=(2,))
    for each in pair.thresholds:
        word, style = _ENDED[each.passed]
        table.add_row(word, escape(each.expression), escape(each.measured), style=style)
    return table


def _figures(figures: Sequence[FigureChange]) -> RenderableType:
    table = compact_table(("", "figure", "base", "new", "%", "95 % interval"), numbers=range(2, 6))
    table.columns[1].no_wrap = True
    for each in figures:
        unit = Unit(each.unit)
        table.add_row(
            _MARKS.get(each.change, each.change.value),
            escape(each.name),
            *(escape(unit.show(float(np.mean(side)))) for side in (each.base, each.new)),
            percent(each.difference),
            interval(each),
            style=_COLOURS[each.change],
        )
    return table


def _unchanged(figures: Sequence[FigureChange]) -> Iterator[Text]:
    names = [each.name for each in figures if each.change is Change.NONE]
    if names:
        yield _line(Change.NONE, f"{number(len(names), 'figure')}: {', '.join(names)}")


def _unknown(figures: Sequence[FigureChange]) -> Iterator[Text]:
    """The figures whose change is unknown, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in figures:
        if each.change is Change.UNKNOWN:
            reasons.setdefault(each.why, []).append(each.name)
    for why, names in reasons.items():
        yield _line(Change.UNKNOWN, f"{', '.join(names)} ({why})")
