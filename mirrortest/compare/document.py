"""A comparison as a versioned document: what `--json` prints."""

from __future__ import annotations

from enum import StrEnum
from math import inf, isinf
from typing import Literal

from pydantic import Field

from mirrortest import __version__
from mirrortest.compare.figures import Worse
from mirrortest.config.document import Document, DocumentPart
from mirrortest.model.verdict import Verdict  # noqa: TC001  # pydantic reads it


class Change(StrEnum):
    """How a value of a run differs from the base's."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERS = "differs"
    """Neither direction is better."""
    NONE = "no difference"
    UNKNOWN = "cannot be told"

    @classmethod
    def of(cls, worse: Worse, *, higher: bool) -> Change:
        """The change of a figure that got higher, or else lower."""
        if worse is Worse.NEITHER:
            return cls.DIFFERS
        return cls.WORSE if higher is (worse is Worse.HIGHER) else cls.BETTER


class _Changed(DocumentPart):
    change: Change


class FigureChange(_Changed):
    """A figure on both sides, with a value for each repeat.

    `difference` is that of the means as a share of the base's, from `low` to `high` with 95 %
    confidence; None if it has no size, for example for a base of 0. `chance` is the chance of such
    a difference by accident, adjusted for the number of figures. `why` is why it is unknown.
    """

    name: str
    unit: str
    worse: Worse
    base: list[float]
    new: list[float]
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    why: str = ""


class CountChange(_Changed):
    """A finding on both sides: the number of messages in each repeat."""

    name: str
    base: list[int]
    new: list[int]


class VerdictChange(_Changed):
    """The verdicts of a command, one for each repeat that has one."""

    command: str
    base: list[Verdict]
    new: list[Verdict]


class SettingChange(DocumentPart):
    """A setting that differs, with its values on each side; empty: it was not set."""

    name: str
    base: list[str]
    new: list[str]


class ThresholdChange(DocumentPart):
    """A threshold on a difference; `passed` is None if it is undecided, for the reason `why`."""

    expression: str
    passed: bool | None
    measured: str
    why: str = ""


class Pair(DocumentPart):
    """The base and one other side; `change` sums up their figures, findings and verdicts.

    `point` is a point of a scenario that has several: both sides' runs are those of this point. It
    starts with the scenario's name if a side has several scenarios.
    """

    place: str
    point: str = ""
    base_runs: list[str] = Field(default_factory=list)
    runs: list[str]
    change: Change
    figures: list[FigureChange] = Field(default_factory=list)
    counts: list[CountChange] = Field(default_factory=list)
    verdicts: list[VerdictChange] = Field(default_factory=list)
    settings: list[SettingChange] = Field(default_factory=list)
    thresholds: list[ThresholdChange] = Field(default_factory=list)


class Comparison(Document):
    """A comparison. It fails by a threshold; without thresholds, by a finding or a verdict.

    `inconclusive` has the reasons why a part of it could not be decided.
    """

    version: Literal[1] = 1
    kind: Literal["compare"] = "compare"
    mirrortest: str = __version__
    verdict: Verdict
    exit_code: int
    base: str
    runs: list[str]
    pairs: list[Pair]
    inconclusive: list[str] = Field(default_factory=list)


def percent(share: float | None) -> str:
    """A difference in per cent with its sign; empty without one, for example for a base of 0."""
    if share is None:
        return ""
    if isinf(share):
        return f"{'+' if share > 0 else '-'}\N{INFINITY}"
    return f"{100 * share:+,.{1 if abs(share) < 1 else 0}f}"


def by(share: float | None) -> str:
    """``by +12.3 %``; if the mean before was 0, the difference has no size: ``from 0``."""
    return "from 0" if share is None else f"by {percent(share)} %"


def interval(figure: FigureChange) -> str:
    """``+8.1 to +16.0``, in per cent; empty without an interval."""
    if figure.low is None and figure.high is None:
        return ""
    low = -inf if figure.low is None else figure.low
    return f"{percent(low)} to {percent(inf if figure.high is None else figure.high)}"
