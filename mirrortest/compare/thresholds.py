"""Thresholds of a comparison: by how much a figure or a count may differ from the base's.

The grammar is that of `config.threshold`, but the value has a sign, because it is a difference:
``p(99)<+10%``, ``produce_rate>-5%``, ``lost<=+0``. The bound of a figure is a share of the base's
mean, that of a count a number of messages.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.compare.figures import BY_NAME
from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.threshold import COUNTS, OPERATORS, split_threshold
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from mirrortest.compare.significance import Difference

_SIGNED = re.compile(r"(?P<number>[+-][0-9]+(?:\.[0-9]+)?)(?P<percent>\s*%)?")


class DifferenceThreshold(NamedTuple):
    """One condition; `bound` is a share of the base's mean, or a number of messages for a count."""

    metric: str
    comparison: str
    bound: Fraction
    text: str

    @classmethod
    def parse(cls, text: str) -> DifferenceThreshold:
        """Parse a threshold; raises UsageError that names the mistake."""
        parts = split_threshold(text)
        if parts is None:
            raise _wrong(text, "write METRIC OPERATOR DIFFERENCE, for example 'p(99)<+10%'")
        metric, comparison, value = parts
        if metric not in BY_NAME and metric not in COUNTS:
            suggestion = did_you_mean(metric, (*BY_NAME, *COUNTS))
            raise _wrong(text, f"there is no figure {metric!r}: {suggestion}")
        signed = _SIGNED.fullmatch(value)
        if signed is None:
            raise _wrong(text, f"a difference has a sign: {metric}{comparison}{_example(metric)}")
        number = Fraction(signed["number"])
        if metric in BY_NAME:
            if not signed["percent"]:
                raise _wrong(text, f"compare in per cent: {metric}{comparison}{_example(metric)}")
            if comparison in {"==", "!="}:
                raise _wrong(text, f"no two runs are equal: use < or >, not {comparison}")
            return cls(metric, comparison, number / 100, f"{metric}{comparison}{value}")
        if signed["percent"] or number.denominator != 1:
            raise _wrong(text, f"{metric} counts messages: {metric}{comparison}{_example(metric)}")
        return cls(metric, comparison, number, f"{metric}{comparison}{value}")

    def of_interval(self, measured: Difference) -> bool | None:
        """Whether the entire interval meets it; None (undecided): only a part does."""
        ends = {OPERATORS[self.comparison](each, self.bound) for each in measured[:3]}
        return ends.pop() if len(ends) == 1 else None

    def of_count(self, more: int) -> bool:
        """Whether this many additional messages meet it."""
        return OPERATORS[self.comparison](more, self.bound)


def _example(metric: str) -> str:
    return "+10%" if metric in BY_NAME else "+0"


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"--threshold {text!r}: {why}")
