"""The meanings of colours: only what failed a condition is red."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.model.findings import Weight
from mirrortest.model.verdict import Verdict
from mirrortest.results.conditions import condition_result
from mirrortest.results.words import FINDINGS, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.results.summary import Summary

VERDICT_TONES = {Verdict.PASSED: "good", Verdict.INCONCLUSIVE: "doubt", Verdict.FAILED: "bad"}
ORDER = (Weight.BAD.value, Weight.DOUBT.value, Weight.NOTE.value, Weight.PLAIN.value)
_COUNTED_WITH = {"corrupted_unknown_id": "corrupted"}


class Tones:
    """The tone of each count of a run, as one of `ORDER`."""

    def __init__(self, summary: Summary) -> None:
        rows = [condition_result(each) for each in summary.thresholds]
        self._failed = {row.metric for row in rows if row.ended == "failed"}

    def failed(self, metric: str) -> bool:
        """Whether a condition on it failed."""
        return _COUNTED_WITH.get(metric, metric) in self._failed

    def of(self, name: str) -> str:
        """A count's tone: bad if a condition on it failed; a finding that is allowed is a note."""
        if self.failed(name):
            return Weight.BAD.value
        weight = weight_of(name)
        return (Weight.NOTE if weight is Weight.BAD else weight).value

    def worst(self, counts: Mapping[str, int]) -> str | None:
        """The finding that matters most among those that occurred; None without any."""
        found = [name for name in FINDINGS if counts.get(name)]
        return min(found, key=lambda name: ORDER.index(self.of(name)), default=None)
