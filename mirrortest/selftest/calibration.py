"""The figures of a calibration as a versioned document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from mirrortest import __version__
from mirrortest.report.summary import Verdict  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    from mirrortest.selftest.score import Tally


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Figures(_Model):
    """How one way of finding fared with one kind; `recall` and `precision` are shares.

    They are None where nothing was seeded, or nothing found.
    """

    found: int
    missed: int
    false: int
    recall: float | None
    precision: float | None

    @classmethod
    def of(cls, tally: Tally) -> Self:
        """The figures of a tally."""
        return cls(
            found=tally.found,
            missed=tally.missed,
            false=tally.false,
            recall=tally.recall,
            precision=tally.precision,
        )


class KindFigures(_Model):
    """One kind of anomaly in one form; "none": findings that no kind explains."""

    kind: str
    form: str
    seeded: int
    online: Figures
    offline: Figures


class Calibration(_Model):
    """What `mirrortest calibrate --json` prints, and `calibration.json` holds.

    Attributes:
        messages: how many were sent in all.
        rates: of the acts that fall on single messages.
        differences: counts that are not as they must be.
        examples: the first findings that are missed or false.
        inconclusive: why nothing is proven.
    """

    version: Literal[1] = 1
    kind: Literal["calibrate"] = "calibrate"
    mirrortest: str = __version__
    run: str
    verdict: Verdict
    exit_code: int
    messages: int
    seeded: int
    seed: int
    rates: list[float]
    forms: list[str]
    consumers: int
    kinds: list[KindFigures]
    differences: list[str] = Field(default_factory=list)
    examples: list[str] = Field(default_factory=list)
    inconclusive: list[str] = Field(default_factory=list)
    directory: str

    def encode(self) -> str:
        """The document."""
        return self.model_dump_json(indent=2) + "\n"
