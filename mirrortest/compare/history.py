"""The results of a scenario over many nights: what got worse in the last one.

Each night is a directory named by its start. The last night is compared with the one before, and
with all earlier ones: a change that is too small for two nights shows in the trend of many.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.compare.comparison import compare
from mirrortest.compare.document import Change, by
from mirrortest.compare.page import render, render_trend
from mirrortest.compare.reading import read_side
from mirrortest.compare.repeat import Side
from mirrortest.compare.significance import FEWEST
from mirrortest.compare.terminal import exact_changes
from mirrortest.compare.trend import trend
from mirrortest.config.visible import visible
from mirrortest.errors import MirrortestError, SequenceLogError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.report.result import write_text
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
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


class Unjudged:
    """The nights of one command until all of them are judged, in a file of the history.

    An interrupted command continues these nights, also those whose points have all ended: what
    failed in them must still decide its exit code. `names` are those of its scenarios.
    """

    def __init__(self, history: Path, names: Sequence[str]) -> None:
        digest = hashlib.blake2b(visible("\n".join(names)).encode(), digest_size=8)
        self.history = history
        self._file = history / f"unjudged-{digest.hexdigest()}"

    def of(self, history: Path) -> list[Path]:
        """Those of a scenario's nights that the file lists."""
        try:
            listed = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        return [night for night in nights(history) if _line(night) in listed]

    def keep(self, those: Iterable[Path]) -> None:
        """Write the file; raises MirrortestError if that fails."""
        with contextlib.suppress(OSError):  # writing the file then shows the reason
            self._file.parent.mkdir(parents=True, exist_ok=True)
        write_text(Location.parse(self._file), "".join(f"{_line(each)}\n" for each in those))

    def clear(self) -> None:
        """Remove the file; raises MirrortestError if that fails."""
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            why = reason_of(error)
            raise MirrortestError(f"{self._file}: cannot be removed: {why}: remove it") from error


def _line(night: Path) -> str:
    return visible(f"{night.parent.name}/{night.name}")


def prune(tonight: Path, keep: int) -> None:
    """Keep a night and the newest others, `keep` in all; remove the rest.

    Raises:
        MirrortestError: a night cannot be removed.
    """
    others = [night for night in nights(tonight.parent) if night != tonight]
    for night in others[: max(len(others) + 1 - keep, 0)]:
        try:
            shutil.rmtree(night)
        except OSError as error:
            why = f"{error.filename or night}: {reason_of(error)}"
            raise MirrortestError(f"{night}: cannot be removed: {why}") from error


def judge(night: Path) -> NightResult:
    """Compare a night with the one before and with all earlier ones; write a page for each.

    Earlier nights without usable summaries are skipped, for example if nothing could be started.
    So is one with a file that cannot be read; the result's text names it.

    Raises:
        MirrortestError: this night has no usable summaries, or a file that cannot be read; or a
            page cannot be written.
    """
    history = night.parent
    tonight = read_side(str(night), with_logs=True)
    read: dict[Path, Side] = {}
    notes: list[str] = []
    for each in reversed([other for other in nights(history) if other < night]):
        # The page draws the intervals of the two nights that it compares.
        try:
            read[each] = read_side(str(each), with_logs=not read)
        except UsageError:
            continue
        except SequenceLogError as error:
            notes.append(f"passed over: {error}")
    earlier = [*read.values()][::-1]
    before = _together(history, earlier)
    now = trend(_together(history, [*earlier, tonight]))
    write_text(Location.parse(history / TREND_PAGE), render_trend(now))
    if not earlier:
        return NightResult([], "; ".join(["the first of its history", *notes]))
    found = compare(earlier[-1], [tonight])
    write_text(Location.parse(night / COMPARISON_PAGE), render(found, [earlier[-1], tonight]))
    last = next(iter(read)).name
    worse = [
        *(text for pair in found.pairs for text in _worse(pair)),
        *(f"{text} (trend)" for text in _new_levels(trend(before), now)),
    ]
    if worse:
        return NightResult(worse, "; ".join([f"worse than {last}", *notes]))
    undecided = found.inconclusive or [
        each.change for each in found.pairs if each.change is Change.UNKNOWN
    ]
    text = f"comparison with {last} is inconclusive" if undecided else f"not worse than {last}"
    return NightResult([], "; ".join([text, *notes]))


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
            yield f"{at}{figure.name} {by(figure.difference)}"


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
                yield f"{figure.title} {by(change.difference)}"


def _near(of: Trend, figure: FigureTrend, change: LevelChange) -> list[Run]:
    """The runs that have the figure and are fewer than `FEWEST` runs from a change."""
    runs = [at for at, value in enumerate(figure.values) if value is not None]
    middle = runs.index(change.at)  # a level has at least `FEWEST` runs
    return [of.runs[at] for at in runs[middle - FEWEST + 1 : middle + FEWEST]]
