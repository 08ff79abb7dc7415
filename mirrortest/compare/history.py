"""The results of a scenario over many nights: what got worse in the last one.

Each night is a directory named by its start. The last night is compared with the one before, and
with all earlier ones: a change that is too small for two nights shows in the trend of many.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.compare.comparison import Side, compare, percent
from mirrortest.compare.document import Change
from mirrortest.compare.page import render, render_trend
from mirrortest.compare.reading import read_side
from mirrortest.compare.statistics import FEWEST
from mirrortest.compare.terminal import exact_changes
from mirrortest.compare.trend import trend
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.report.result import write_text
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.compare.document import Pair
    from mirrortest.compare.trend import FigureTrend, LevelChange, Run, Trend

TIME = "%Y%m%dT%H%M%SZ"
"""The format of a night's name: when it began."""
COMPARISON_PAGE, TREND_PAGE = "comparison.html", "trend.html"
_NAME = re.compile(r"\d{8}T\d{6}Z")


class NightResult(NamedTuple):
    """What got worse, in words; `text` sums it up."""

    worse: list[str]
    text: str


def nights(history: Path) -> list[Path]:
    """The nights of a scenario, the oldest first."""
    found = history.iterdir() if history.is_dir() else ()
    return sorted(each for each in found if each.is_dir() and _NAME.fullmatch(each.name))


def prune(history: Path, keep: int) -> None:
    """Remove all but the newest `keep` nights; raises MirrortestError if one cannot be removed."""
    for night in nights(history)[:-keep]:
        try:
            shutil.rmtree(night)
        except OSError as error:
            why = f"{error.filename or night}: {reason_of(error)}"
            raise MirrortestError(f"{night}: cannot be removed: {why}") from error


def judge(night: Path) -> NightResult:
    """Compare a night with the one before and with all earlier ones; write a page for each.

    Earlier nights without usable summaries are skipped, for example if nothing could be started.

    Raises:
        MirrortestError: this night has no usable summaries; a file of any night cannot be read; or
            a page cannot be written.
    """
    history = night.parent
    tonight = read_side(str(night), with_logs=True)
    read: dict[Path, Side] = {}
    for each in reversed([other for other in nights(history) if other < night]):
        # The page draws the intervals of the two nights that it compares.
        side = _read(each, with_logs=not read)
        if side is not None:
            read[each] = side
    earlier = [*read.values()][::-1]
    before = _together(history, earlier)
    now = trend(_together(history, [*earlier, tonight]))
    write_text(Location.parse(history / TREND_PAGE), render_trend(now))
    if not earlier:
        return NightResult([], "the first of its history")
    found = compare(earlier[-1], [tonight])
    write_text(Location.parse(night / COMPARISON_PAGE), render(found, [earlier[-1], tonight]))
    last = next(iter(read)).name
    worse = [
        *(text for pair in found.pairs for text in _worse(pair)),
        *(f"{text} (trend)" for text in _new_levels(trend(before), now)),
    ]
    if worse:
        return NightResult(worse, f"worse than {last}")
    undecided = found.inconclusive or [
        each.change for each in found.pairs if each.change is Change.UNKNOWN
    ]
    text = f"comparison with {last} is inconclusive" if undecided else f"not worse than {last}"
    return NightResult([], text)


def _read(night: Path, *, with_logs: bool) -> Side | None:
    try:
        return read_side(str(night), with_logs=with_logs)
    except UsageError:
        return None


def _together(history: Path, sides: list[Side]) -> Side:
    repeats = [repeat for side in sides for repeat in side.repeats]
    return Side(str(history), repeats, [text for side in sides for text in side.damage])


def _worse(pair: Pair) -> Iterator[str]:
    at = f"{pair.point}: " if pair.point else ""
    for each in exact_changes(pair):
        if each.change is Change.WORSE:
            yield f"{at}{each.text}"
    for figure in pair.figures:
        if figure.change is Change.WORSE:
            yield f"{at}{figure.name} {percent(figure.difference)} %"


def _new_levels(before: Trend, now: Trend) -> Iterator[str]:
    """New changes for the worse; the start of a known one may move by up to `FEWEST` - 1 runs."""
    reported = {
        (figure.title, run)
        for figure in before.figures
        for change in figure.changes
        for run in _near(before, figure, change)
    }
    for figure in now.figures:
        for change in figure.changes:
            known = (figure.title, now.runs[change.at]) in reported
            if change.change is Change.WORSE and not known:
                yield f"{figure.title} {percent(change.difference)} %"


def _near(of: Trend, figure: FigureTrend, change: LevelChange) -> list[Run]:
    """The runs that have the figure and are fewer than `FEWEST` runs from a change."""
    runs = [at for at, value in enumerate(figure.values) if value is not None]
    middle = runs.index(change.at)  # a level has at least `FEWEST` runs
    return [of.runs[at] for at in runs[middle - FEWEST + 1 : middle + FEWEST]]
