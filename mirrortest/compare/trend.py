"""The figures of many runs in order of time, and where their levels changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from mirrortest import __version__
from mirrortest.compare.changepoints import changepoints
from mirrortest.compare.document import Change
from mirrortest.compare.figures import FIGURES, Figure, Worse
from mirrortest.compare.significance import finite, relative
from mirrortest.config.document import Document, DocumentPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.compare.repeat import Repeat, Side

MOST_RUNS = 2_000
"""Only the newest runs are shown: the search takes time in the square of their number."""


class Run(DocumentPart):
    """A run; `started_ns` is ns since the epoch, 0 if unknown."""

    run: str
    started_ns: int


class LevelChange(DocumentPart):
    """From run number `at` on (the first run is 0), a figure has another mean.

    `difference` is a share of the mean before, None if that was 0. `chance` is the chance of such a
    change by accident, adjusted for all runs and figures.
    """

    at: int
    before: float
    after: float
    difference: float | None
    chance: float
    change: Change


class FigureTrend(DocumentPart):
    """A figure of all runs; None if a run lacks it or belongs to another point of the scenario."""

    name: str
    point: str = ""
    unit: str
    worse: Worse
    values: list[float | None]
    changes: list[LevelChange] = Field(default_factory=list)

    @property
    def title(self) -> str:
        """The figure's name, with the point."""
        return f"{self.name}, {self.point}" if self.point else self.name


class Trend(Document):
    """The trend of all figures; `left_out` is how many older runs are not included."""

    version: Literal[1] = 1
    kind: Literal["trend"] = "trend"
    mirrortest: str = __version__
    place: str
    runs: list[Run]
    left_out: int = 0
    figures: list[FigureTrend]
    damage: list[str] = Field(default_factory=list)


def trend(side: Side) -> Trend:
    """The trend of all runs of a side."""
    ordered = sorted(side.repeats, key=lambda each: each.started_ns)
    repeats = ordered[-MOST_RUNS:]
    present = [
        (figure, point)
        for figure in FIGURES
        for point in side.points
        if any(run.point == point and figure.name in run.figures for run in repeats)
    ]
    return Trend(
        place=side.shown,
        runs=[Run(run=each.run, started_ns=each.started_ns) for each in repeats],
        left_out=len(ordered) - len(repeats),
        figures=[
            FigureTrend(
                name=figure.name,
                point=point,
                unit=figure.unit.value,
                worse=figure.worse,
                values=(values := [_value(each, figure, point) for each in repeats]),
                changes=list(_changes(figure, values, len(present))),
            )
            for figure, point in present
        ],
        damage=list(side.damage),
    )


def _value(run: Repeat, figure: Figure, point: str) -> float | None:
    return run.figures.get(figure.name) if run.point == point else None


def _changes(figure: Figure, values: Sequence[float | None], series: int) -> Iterator[LevelChange]:
    measured = [(at, value) for at, value in enumerate(values) if value is not None]
    numbers = [value for _, value in measured]
    splits = changepoints(numbers, series=series)
    ends = [0, *(each.at for each in splits), len(numbers)]
    for split, start, end in zip(splits, ends, ends[2:], strict=False):
        before, after = numbers[start : split.at], numbers[split.at : end]
        share = relative(before, after)
        yield LevelChange(
            at=measured[split.at][0],
            before=sum(before) / len(before),
            after=sum(after) / len(after),
            difference=finite(share),
            chance=split.chance,
            change=Change.of(figure.worse, higher=share > 0),
        )
