"""The result in words: how the run ended, and what failed first."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from mirrortest.config.threshold import Threshold as Condition
from mirrortest.config.units import format_duration, number, span
from mirrortest.errors import UsageError
from mirrortest.model.findings import DEFINITIONS, Weight
from mirrortest.model.verdict import Verdict
from mirrortest.report.words import FINDINGS, moment, readable_name, share, weight_of
from mirrortest.seqlog.events import UP_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.report.html.timeline import Timeline
    from mirrortest.results.summary import Summary, Threshold
    from mirrortest.seqlog.events import Event

_LONG_NS = 600 * 10**9
"""An event that is longer ago explains nothing."""
_PREDICATES = {each.finding.label: each.predicate for each in DEFINITIONS if each.predicate} | {
    "negative_latency": "had a latency below zero",
    "corrupted_unknown_id": "were corrupted beyond recognition",
    "unknown": "were sent without an answer",
}
_SIGNS: dict[str, Callable[[int, Fraction], bool]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
}


@dataclass(frozen=True)
class ConditionResult:
    """A threshold as a row: what was asked, what was measured, how it ended."""

    expression: str
    measured: str
    ended: str
    """``met``, ``failed`` or ``undecided``."""
    metric: str


@dataclass(frozen=True)
class First:
    """What came first: `what` in `topic`, in the slot of `step_ns` that begins at `at_ns`.

    Its cause came before `before_ns`: none of these messages was wrong until then. Where only the
    slot is known, that is where the slot begins.
    """

    what: str
    topic: str
    at_ns: int
    step_ns: int
    before_ns: int
    cause: Event | None = None
    """The last event before, or the last that took down what that event restored."""
    same: Event | None = None
    """Without one: the first event within the slot, which may be earlier or later."""

    def __str__(self) -> str:
        known = f"{moment(self.at_ns, self.step_ns)} UTC"
        when = f"at {known}" if self.step_ns <= 10**9 else f"within {span(self.step_ns)} of {known}"
        what = f"{self.what} in topic {self.topic}, among those meant to be sent {when}"
        if self.cause is not None:
            if self.before_ns >= self.at_ns + self.step_ns:
                what += f"; this showed at {moment(self.before_ns)} UTC at the earliest"
            at = moment(self.cause.time_ns)
            return f"{what}; the last event before: “{self.cause}” at {at} UTC"
        if self.same is not None:
            return (
                f"{what}; the event “{self.same}” is within the same {span(self.step_ns)}, before "
                "or after the first of these messages"
            )
        return what


def condition_result(threshold: Threshold) -> ConditionResult:
    """A threshold in its own units."""
    try:
        condition = Condition.parse(threshold.expression)
    except UsageError:  # written by a version that knows more metrics
        condition = None
    if threshold.value is None:
        measured = "not measured"
    elif condition is not None and condition.series is not None:
        measured = format_duration(round(threshold.value * 1e9))
    elif condition is not None and condition.relative:
        measured = f"{threshold.value:.6g} %"
    else:
        measured = f"{threshold.value:,g}" if threshold.value % 1 else f"{threshold.value:,.0f}"
    undecided = threshold.value is None
    ended = "undecided" if undecided else "met" if threshold.passed else "failed"
    return ConditionResult(
        threshold.expression, measured, ended, "" if condition is None else condition.metric
    )


def headline(summary: Summary) -> str:
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
    texts = [_failure(each, counts, acked) for each in failed]
    return _sentence(_listed(texts) if texts else "A condition failed")


def details(summary: Summary) -> list[str]:
    """What else is worth a sentence: what was found and allowed, and what was not judged."""
    counts = summary.counts
    spoken = {condition_result(each).metric for each in summary.thresholds if not each.passed}
    acked = counts.get("acked", 0)
    allowed, doubtful = list[str](), list[str]()
    for name in FINDINGS:
        count = counts.get(name, 0)
        if not count or name in spoken or name == "corrupted_unknown_id":
            continue
        part = share(count, acked)
        found = f"{count:,} {readable_name(name)}" + (f" ({part})" if part else "")
        (doubtful if weight_of(name) is Weight.DOUBT else allowed).append(found)
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


def failures(summary: Summary, timeline: Timeline, events: Sequence[Event]) -> list[First]:
    """When each failed condition was broken first, in the order of time, as far as it is known."""
    found = []
    for threshold in summary.thresholds:
        if threshold.passed:
            continue
        try:
            condition = Condition.parse(threshold.expression)
        except UsageError:
            continue
        if condition.series is None:
            found.append(_earliest(_first_count(condition.metric, timeline), events))
        else:
            found.append(_earliest(_first_slow(condition, timeline), events))
    return sorted((each for each in found if each is not None), key=lambda each: each.at_ns)


def first_finding(timeline: Timeline, events: Sequence[Event]) -> First | None:
    """What was found first; None where nothing was, or no time is known."""
    return _earliest([each for name in FINDINGS for each in _first_count(name, timeline)], events)


def _first_count(name: str, timeline: Timeline) -> list[First]:
    counts = timeline.counts.get(name)
    if counts is None:
        return []
    slots = timeline.slots
    firsts = []
    for place, (topic, row) in enumerate(zip(timeline.topics, counts, strict=True)):
        if row.any():
            at = int((row > 0).argmax())
            what = f"{number(int(row[at]))} {_were(name, int(row[at]))}"
            start = slots.start_ns + at * slots.step_ns
            before = timeline.cause_before.get((name, place), start)
            firsts.append(First(what, topic, start, slots.step_ns, before))
    return firsts


def _first_slow(condition: Condition, timeline: Timeline) -> list[First]:
    holds = _SIGNS.get(condition.comparison)
    share = Fraction(1) if condition.statistic == "max" else condition.statistic
    if timeline.latencies is None or holds is None or not isinstance(share, Fraction):
        return []
    slots = timeline.slots
    firsts = []
    for place, topic in enumerate(timeline.topics):
        (values,) = timeline.latencies.of_topics([place]).quantiles([share])
        for slot, value in enumerate(values):
            if value is not None and not holds(value, condition.bound):
                what = f"{condition.metric} was {format_duration(value)}"
                start = slots.start_ns + slot * slots.step_ns
                # Whatever is slower than the bound had not arrived until then.
                before = start + int(condition.bound)
                firsts.append(First(what, topic, start, slots.step_ns, before))
                break
    return firsts


def _earliest(found: Sequence[First], events: Sequence[Event]) -> First | None:
    if not found:
        return None
    first = min(found, key=lambda each: each.at_ns)
    before = [event for event in events if 0 <= first.before_ns - event.time_ns < _LONG_NS]
    if before:
        last = before[-1]
        faults = [each for each in before if each.part == last.part and each.what in UP_AFTER]
        return replace(first, cause=[last, *faults][-1])
    until = first.at_ns + first.step_ns
    within = (event for event in events if first.before_ns < event.time_ns < until)
    return replace(first, same=next(within, None))


def _failure(row: ConditionResult, counts: dict[str, int], acked: int) -> str:
    count = counts.get(row.metric)
    if count is None:
        return f"{row.metric} was {row.measured}, which {row.expression} forbids"
    of = f" of {acked:,} acknowledged" if row.metric == "lost" else ""
    subject = f"{count:,}{of} {'message' if count == 1 and not of else 'messages'}"
    bound = "" if row.expression == f"{row.metric}==0" else f", which {row.expression} forbids"
    return f"{subject} {_were(row.metric, count)}{bound}"


def _were(name: str, count: int) -> str:
    """What befell so many messages: were lost, was lost, had an altered key."""
    predicate = _PREDICATES.get(name, f"were {readable_name(name)}")
    return re.sub("^were ", "was ", predicate) if count == 1 else predicate


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{'; '.join(texts[:-1])}; and {texts[-1]}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
