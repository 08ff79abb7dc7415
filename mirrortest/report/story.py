"""The first failure or finding in words, with the last event before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from mirrortest.config.threshold import OPERATORS
from mirrortest.config.threshold import Threshold as Condition
from mirrortest.config.units import format_duration, number, span
from mirrortest.errors import UsageError
from mirrortest.model.findings import Weight
from mirrortest.results.words import FINDINGS, moment, predicate_of, weight_of
from mirrortest.seqlog.events import UP_AFTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.html.latencies import Latencies
    from mirrortest.report.html.timeline import Timeline
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.events import Event

_LONG_NS = 600 * 10**9
"""An event that is longer ago than this explains nothing."""


@dataclass(frozen=True)
class First:
    """What came first: `what` in `topic`, in the slot of `step_ns` that begins at `at_ns`.

    Its cause came before `before_ns`, when one was seen to be wrong at the earliest. If only the
    slot is known, that is the slot's start.
    """

    what: str
    topic: str
    at_ns: int
    step_ns: int
    before_ns: int
    cause: Event | None = None
    """The last event before it; if that restored a part, the last fault of the part."""
    same: Event | None = None
    """If there is no cause: the first event within the slot, before or after these messages."""

    def __str__(self) -> str:
        known = f"{moment(self.at_ns, self.step_ns)} UTC"
        when = (
            f"at {known}" if self.step_ns <= 10**9 else f"in the {span(self.step_ns)} from {known}"
        )
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


def failures(summary: Summary, timeline: Timeline, events: Sequence[Event]) -> list[First]:
    """When each failed condition was first broken, in order of time, as far as that is known."""
    found = []
    for threshold in summary.thresholds:
        if threshold.passed:
            continue
        try:
            condition = Condition.parse(threshold.expression)
        except UsageError:
            continue
        if condition.series is not None:
            found.append(_earliest(_first_slow(condition, timeline), events))
        elif _is_broken_by_messages(condition):
            found.append(_earliest(_first_count(condition.metric, timeline), events))
    return sorted((each for each in found if each is not None), key=lambda each: each.at_ns)


def first_finding(timeline: Timeline, events: Sequence[Event]) -> First | None:
    """The first finding; None if there is none, or if no time is known."""
    return _earliest([each for name in FINDINGS for each in _first_count(name, timeline)], events)


def _is_broken_by_messages(condition: Condition) -> bool:
    """Whether the counted messages broke it: not if too few were delivered, or duplicated."""
    is_none = condition.comparison == "==" and not condition.bound
    return (is_none or condition.comparison in {"<", "<="}) and weight_of(
        condition.metric
    ) is not Weight.PLAIN


def _first_count(name: str, timeline: Timeline) -> list[First]:
    counts = timeline.counts.get(name)
    if counts is None:
        return []
    slots = timeline.slots
    firsts = []
    for place, (topic, row) in enumerate(zip(timeline.topics, counts, strict=True)):
        if row.any():
            at = int((row > 0).argmax())
            what = f"{number(int(row[at]))} {predicate_of(name, int(row[at]))}"
            start = slots.begin(at)
            before = timeline.cause_before.get((name, place), start)
            firsts.append(First(what, topic, start, slots.step_ns, before))
    return firsts


def broken_slots(condition: Condition, latencies: Latencies) -> list[bool]:
    """Whether each slot of one topic breaks an upper bound of a percentile or the maximum.

    Empty for any other condition.
    """
    return [value is not None for value in _too_slow(condition, latencies)]


def _too_slow(condition: Condition, latencies: Latencies) -> list[int | None]:
    """The value of each slot that breaks the condition, ns; None: it is met, or has no value."""
    is_met = OPERATORS[condition.comparison]
    share = Fraction(1) if condition.statistic == "max" else condition.statistic
    if condition.comparison not in {"<", "<="} or not isinstance(share, Fraction):
        return []
    (values,) = latencies.quantiles([share])
    return [None if each is None or is_met(each, condition.bound) else each for each in values]


def _first_slow(condition: Condition, timeline: Timeline) -> list[First]:
    if timeline.latencies is None:
        return []
    slots = timeline.slots
    firsts = []
    for place, topic in enumerate(timeline.topics):
        for slot, value in enumerate(_too_slow(condition, timeline.latencies.of_topics([place]))):
            if value is not None:
                what = f"{condition.metric} was {format_duration(value)}"
                start = slots.begin(slot)
                # A message slower than the bound had not arrived by then.
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
