"""How conditions ended, and the run in one sentence: the same online and offline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirrortest.config.threshold import Threshold as Condition
from mirrortest.config.units import (
    SECOND_NS,
    format_duration,
    format_seconds,
    number,
    readable_number,
)
from mirrortest.errors import UsageError
from mirrortest.model.findings import Weight
from mirrortest.model.verdict import Verdict
from mirrortest.results.words import FINDINGS, predicate_of, readable_name, share, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.results.summary import Threshold


_MOST_NAMED = 4
"""The most failed conditions in a sentence; a list of all follows it."""


class Judged(Protocol):
    """A run that was judged, online or offline."""

    @property
    def verdict(self) -> Verdict:
        """How it ended."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of messages by name."""

    @property
    def thresholds(self) -> Sequence[Threshold]:
        """The conditions, and what was measured."""

    @property
    def inconclusive(self) -> Sequence[str]:
        """Why a part of the run could not be judged."""


@dataclass(frozen=True)
class ConditionResult:
    """A threshold as a row: the condition, what was measured, how it ended."""

    expression: str
    measured: str
    ended: str
    """``met``, ``failed`` or ``undecided``."""
    metric: str
    limit: str
    """Operator and bound; empty if this version lacks the metric."""


def condition_result(threshold: Threshold) -> ConditionResult:
    """A threshold in its own units."""
    try:
        condition = Condition.parse(threshold.expression)
    except UsageError:  # written by a version that has more metrics
        condition = None
    if threshold.value is None:
        measured = "not measured"
    elif condition is not None and condition.series is not None:
        measured = format_seconds(threshold.value)
        if not threshold.passed and measured == format_duration(int(condition.bound)):
            seconds = readable_number(threshold.value, 6, unlike=float(condition.bound / SECOND_NS))
            measured = f"{seconds} s"
    elif condition is not None and condition.relative:
        per_cent = readable_number(threshold.value, 6, unlike=float(condition.bound * 100))
        measured = f"{per_cent} %"
    else:
        measured = f"{threshold.value:,g}" if threshold.value % 1 else f"{threshold.value:,.0f}"
    ended = "undecided" if threshold.value is None else "met" if threshold.passed else "failed"
    if condition is None:
        return ConditionResult(threshold.expression, measured, ended, "", "")
    bound = condition.text.removeprefix(condition.metric + condition.comparison)
    limit = f"{condition.comparison} {bound}"
    return ConditionResult(threshold.expression, measured, ended, condition.metric, limit)


def headline(summary: Judged) -> str:
    """One sentence on how the run ended."""
    counts = summary.counts
    acked = counts.get("acked", 0)
    match summary.verdict:
        case Verdict.PASSED:
            return (
                f"All {number(acked, 'acknowledged message')} arrived, and every condition is met."
                if counts.get("delivered") == acked
                else "Every condition is met."
            )
        case Verdict.INCONCLUSIVE:
            return (
                "No condition failed, but the run could not be judged completely: "
                f"{number(len(summary.inconclusive), 'reason')} below."
            )
    failed = [condition_result(each) for each in summary.thresholds if not each.passed]
    texts = [_failure(each, counts, acked) for each in failed[:_MOST_NAMED]]
    if (more := len(failed) - _MOST_NAMED) > 0:
        texts.append(f"{number(more, 'more condition')} failed")
    return _sentence(_listed(texts) if texts else "A condition failed")


def details(summary: Judged) -> list[str]:
    """More sentences: findings that the conditions allow, and what could not be judged."""
    counts = summary.counts
    mentioned = {condition_result(each).metric for each in summary.thresholds if not each.passed}
    undecided = {condition_result(each).metric for each in summary.thresholds if each.value is None}
    acked = counts.get("acked", 0)
    allowed, doubtful = list[str](), list[str]()
    for name in FINDINGS:
        count = counts.get(name, 0)
        if not count or name in mentioned or name == "corrupted_unknown_id":
            continue
        part = share(count, acked)
        found = f"{count:,} {readable_name(name)}" + (f" ({part})" if part else "")
        in_doubt = weight_of(name) is Weight.DOUBT or name in undecided
        (doubtful if in_doubt else allowed).append(found)
    texts = []
    if allowed:
        texts.append(f"Other findings, which the conditions allow: {', '.join(allowed)}.")
    if doubtful:
        texts.append(f"Could not be judged: {', '.join(doubtful)}.")
    if counts.get("unknown"):
        texts.append(
            f"{number(counts['unknown'], 'send')} ended without an answer: not counted as lost."
        )
    if summary.verdict is Verdict.FAILED and summary.inconclusive:
        reasons = number(len(summary.inconclusive), "reason")
        texts.append(f"Besides this failure, a part of the run could not be judged: {reasons}.")
    return texts


def _failure(row: ConditionResult, counts: Mapping[str, int], acked: int) -> str:
    count = counts.get(row.metric)
    if count is None:
        return f"the {row.metric} was {row.measured}, which {row.expression} forbids"
    of = f" of {acked:,} acknowledged" if row.metric == "lost" else ""
    subject = f"{count:,}{of} {'message' if count == 1 and not of else 'messages'}"
    bound = "" if row.expression == f"{row.metric}==0" else f", which {row.expression} forbids"
    return f"{subject} {predicate_of(row.metric, count)}{bound}"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{'; '.join(texts[:-1])}; and {texts[-1]}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
