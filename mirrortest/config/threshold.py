"""Thresholds that decide whether a run passed: ``lost==0``, ``duplicated<0.1%``, ``p(99)<2s``.

A threshold is METRIC OPERATOR VALUE.

- METRIC is a count, by the name it has everywhere (`COUNTS`), or a statistic of a latency:
  ``p(PERCENTILE)``, ``min``, ``mean`` or ``max``, by itself of the latency from the intended time,
  or after a series' name and a dot: ``sent_latency.p(99)``, ``ack_latency.max``.
- OPERATOR is one of ``== != < <= > >=``.
- VALUE is a whole number or a percentage of the acknowledged messages for a count, and a duration
  with its unit for a latency.

Latencies are compared by their buckets of `timing.histogram`, as logs have only these. A latency in
the bound's bucket (at most 0.8 % from it) meets every condition. So the online and the offline
judgement agree.

An *undecided* threshold makes a run inconclusive, neither passed nor failed. A threshold is
undecided if

- its metric was not measured, or is a latency or percentage of no message;
- its latency is below zero, or it would end otherwise if all latencies were longer by as much as
  the lowest one is below zero: clocks disagree by at least that much;
- it would end otherwise if all latencies were longer or shorter by as much as clocks were set
  during the run;
- it would end otherwise if the messages that another consumer had read before it was killed, whose
  latencies this one does not know, had all arrived at once, or never;
- it depends on messages that a producer without idempotence may have sent twice, that may be of
  aborted transactions, or about whose producer nothing is known;
- its count fails now, but messages whose verdict is open may meet it: half of a run may still be
  to come.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import format_seconds, parse_duration, readable_number
from mirrortest.errors import UsageError
from mirrortest.model.findings import OPEN, Finding, Outcome, failing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirrortest.timing.histogram import Histogram

_BELOW_ZERO = "negative_latency"
COUNTS: tuple[str, ...] = (
    *(finding.label for finding in Finding),
    "delivered",
    *(outcome.label for outcome in Outcome),
    _BELOW_ZERO,
)
"""The metrics that are counts: findings, delivered, outcomes of sends, latencies below zero."""


class Series(StrEnum):
    """Latencies that thresholds may name."""

    LATENCY = "latency"
    """From the intended time to the arrival at the consumer."""
    SENT_LATENCY = "sent_latency"
    """From the actual send to the arrival at the consumer."""
    ACK_LATENCY = "ack_latency"
    """From the actual send to the broker's acknowledgement."""
    SCHEDULE_LAG = "schedule_lag"
    """From the intended time to the actual send."""


OPERATORS: Mapping[str, Callable[[float | Fraction, float | Fraction], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_EXPRESSION = re.compile(r"\s*(?P<metric>[^\s=!<>]+)\s*(?P<operator>[=!<>]=|[<>])\s*(?P<value>.+)")
_STATISTIC = re.compile(
    r"(?:(?P<series>[a-z_]+)\.)?(?P<name>min|mean|max|p\((?P<percentile>[0-9]+(?:\.[0-9]+)?)\))"
)
_PERCENTILE = re.compile(r"([a-z_]+\.)?[pP]\(?([0-9]+(?:\.[0-9]+)?)\)?")
"""A percentile as other tools write it."""
_OUTCOMES = frozenset(outcome.label for outcome in Outcome)
_OF_THE_END = frozenset(finding.label for finding in OPEN)
"""Counts of messages that are open when a run ends: later messages do not change them."""
_NEVER_NS = 2**62
"""More than any latency."""
_MOST = 2**63
"""More messages than any run has."""
_NONE: Mapping[str, int] = MappingProxyType({})
_VALUE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<percent>\s*%)?")


def split_threshold(text: str) -> tuple[str, str, str] | None:
    """Metric, operator and value as they are typed; None if the text has other parts."""
    match = _EXPRESSION.fullmatch(text)
    return None if match is None else (match["metric"], match["operator"], match["value"].strip())


@dataclass(frozen=True)
class Threshold:
    """One condition; `bound` is a number of messages, a share of them, or nanoseconds.

    `series` is None for a count; `statistic` is ``min``, ``mean``, ``max``, or the quantile as a
    fraction.
    """

    metric: str
    comparison: str
    bound: Fraction
    text: str
    relative: bool = False
    series: Series | None = None
    statistic: str | Fraction = ""

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Read a threshold; UsageError if it is wrong."""
        parts = split_threshold(text)
        if parts is None:
            raise _wrong(text, "write METRIC OPERATOR VALUE, for example lost==0 or 'p(99)<2s'")
        metric, comparison, value = parts
        shown = f"{metric}{comparison}{value}"
        if metric in COUNTS:
            number = _VALUE.fullmatch(value)
            if number is None or ("." in number["number"] and not number["percent"]):
                raise _wrong(text, f"{metric} counts messages: compare with a number or N%")
            bound = Fraction(number["number"])
            if number["percent"]:
                return cls(metric, comparison, bound / 100, shown, relative=True)
            return cls(metric, comparison, bound, shown)
        statistic = _STATISTIC.fullmatch(metric)
        if statistic is None:
            raise _wrong(text, f"there is no metric {metric!r}: {_meant(metric)}")
        series = statistic["series"] or Series.LATENCY.value
        if series not in set(Series):
            raise _wrong(text, f"there is no latency {series!r}: {did_you_mean(series, Series)}")
        nanoseconds = Fraction(parse_duration(value, option=f"--threshold {text!r}: value"))
        which: str | Fraction = statistic["name"]
        if statistic["percentile"] is not None:
            which = Fraction(statistic["percentile"]) / 100
            if which > 1:
                raise _wrong(text, "a percentile is at most 100")
        return cls(metric, comparison, nanoseconds, shown, series=Series(series), statistic=which)

    def __str__(self) -> str:
        return self.text

    def evaluate(
        self,
        counts: Mapping[str, int],
        *,
        total: int,
        latencies: Mapping[str, Histogram],
        excused: Mapping[str, int] = _NONE,
        outstanding: int | None = 0,
    ) -> ThresholdResult:
        """Compare the threshold with what was measured; see `evaluate`."""
        if self.series is not None:
            histogram = latencies.get(self.series)
            if histogram is None or not histogram.count:
                return self._undecided("nothing measured")
            return self._compare(histogram)
        count = counts.get(self.metric)
        if count is None or (self.relative and not total):
            return self._undecided("nothing measured")
        share = total if self.relative else 1
        measured = Fraction(count, share)
        if self.metric == _BELOW_ZERO and Series.LATENCY in latencies:
            more = latencies[Series.LATENCY].unmeasured
            if self._depends(self._is_met, measured, measured + Fraction(more, share)):
                return self._undecided(_read_by_others(more))
        passed, own = self._is_met(measured), excused.get(self.metric, 0)
        if self._depends(self._is_met, measured - Fraction(own, share), measured):
            why = f"the mirror may not have caused {own:,} of {count:,}: "
            if self.metric == Finding.ALTERED_TIMESTAMP.label:
                why += "their timestamps may be the source brokers': no acknowledgement shows which"
            else:
                why += (
                    "they may have been sent twice without idempotence (produce with "
                    "enable.idempotence=true, acks=all) or aborted (consume with "
                    "isolation.level=read_committed)"
                )
            return self._undecided(why)
        value = float(measured * 100) if self.relative else count
        if not passed and self._may_be_met(count, total, outstanding):
            percent = readable_number(value, 4, unlike=float(self.bound * 100))
            shown = f"{percent}%" if self.relative else f"{count:,}"
            left = (
                "messages not yet known"
                if outstanding is None
                else f"{outstanding:,} open messages"
            )
            return self._undecided(f"{shown} so far: {left} may meet it")
        return ThresholdResult(self, value, passed=passed)

    def _undecided(self, why: str) -> ThresholdResult:
        return ThresholdResult(self, None, passed=True, why=why)

    def _may_be_met(self, count: int, total: int, outstanding: int | None) -> bool:
        """Whether a failing count, or the total, may still grow so that the threshold is met."""
        settled = _OF_THE_END if outstanding is None else _OF_THE_END | _OUTCOMES
        if outstanding == 0 or self.metric in settled:
            return False
        share = total if self.relative else 1
        low = Fraction(count, _MOST if self.relative and outstanding is None else share)
        high = Fraction(_MOST, share)
        if self.metric == "delivered" and outstanding is not None:
            high = Fraction(count + outstanding, share)
        elif self.metric == "delivered" and self.relative:
            high = Fraction(1)
        within = min(max(low, self.bound), high)
        return any(OPERATORS[self.comparison](each, self.bound) for each in (low, within, high))

    def _compare(self, histogram: Histogram) -> ThresholdResult:
        # Imported here because it loads numpy, which parsing does not need.
        from mirrortest.timing.histogram import Histogram, bucket_of  # noqa: PLC0415

        def is_met(latency: int | Fraction) -> bool:
            return bucket_of(int(latency)) == bucket_of(int(self.bound)) or self._is_met(latency)

        in_log = Histogram.of(histogram.sparse(), unmeasured=histogram.unmeasured)
        of_logs = self._statistic_of(in_log)
        below, off = max(-histogram.minimum, 0), histogram.off_ns
        if of_logs < 0 or is_met(of_logs) is not is_met(of_logs + below):
            return self._undecided(_clocks_disagree(histogram))
        if self._depends(is_met, of_logs - off, of_logs + off):
            return self._undecided(_clocks_were_set(off))
        least, most = self._range_of(in_log)
        if self._depends(is_met, least - off, most + off):
            return self._undecided(_read_by_others(histogram.unmeasured))
        value = self._statistic_of(histogram) / 10**9
        return ThresholdResult(self, value, passed=is_met(of_logs))

    def _is_met(self, value: int | Fraction) -> bool:
        return OPERATORS[self.comparison](value, self.bound)

    def _depends(
        self, is_met: Callable[[int | Fraction], bool], low: int | Fraction, high: int | Fraction
    ) -> bool:
        """Whether the condition is met at some values from `low` to `high`, and not at others."""
        within = min(max(low, self.bound), high)
        return len({*map(is_met, (low, within, high))}) > 1

    def _range_of(self, histogram: Histogram) -> tuple[int, int]:
        """The statistic if what was not measured had arrived at once, and if it never had."""
        from mirrortest.timing.histogram import rank_of  # noqa: PLC0415  # as in `_compare`

        more, count = histogram.unmeasured, histogram.count
        if not more:
            return (self._statistic_of(histogram),) * 2
        match self.statistic:
            case Fraction() as q:
                rank = rank_of(q, count + more)
                return (
                    histogram.at_rank(rank - more) if rank > more else 0,
                    histogram.at_rank(rank) if rank <= count else _NEVER_NS,
                )
            case "min":
                return 0, histogram.minimum
            case "max":
                return histogram.maximum, _NEVER_NS
            case _:
                return histogram.total // (count + more), _NEVER_NS

    def _statistic_of(self, histogram: Histogram) -> int:
        match self.statistic:
            case Fraction() as q:
                return histogram.quantile(q)
            case "min":
                return histogram.minimum
            case "max":
                return histogram.maximum
            case _:
                return histogram.total // histogram.count


@dataclass(frozen=True)
class ThresholdResult:
    """How a threshold ended.

    `value` is what was measured, in the threshold's unit (messages, per cent or seconds); None if
    it is undecided, for the reason `why`. `passed` is False only for a proven failure.
    """

    threshold: Threshold
    value: float | None
    passed: bool
    why: str = ""

    @property
    def undecided(self) -> bool:
        """Whether nothing is proven."""
        return self.value is None


def thresholds(texts: Iterable[str], *, exactly_once: bool = False) -> tuple[Threshold, ...]:
    """The user's thresholds, after the defaults for metrics that the user does not name.

    By default each of the findings of `model.findings.failing` must be 0.
    """
    own = [Threshold.parse(text) for text in texts]
    named = {threshold.metric for threshold in own}
    never = [finding.label for finding in failing(exactly_once=exactly_once)]
    return (*(Threshold.parse(f"{name}==0") for name in never if name not in named), *own)


def evaluate(
    conditions: Iterable[Threshold],
    counts: Mapping[str, int],
    *,
    total: int,
    latencies: Mapping[str, Histogram],
    excused: Mapping[str, int] = _NONE,
    outstanding: int | None = 0,
) -> list[ThresholdResult]:
    """Compare thresholds with what was measured.

    `counts` are by the names of `COUNTS`, and a name that is absent was not measured; `total` is
    the number of acknowledged messages; `latencies` are by the names of `Series` and of messages
    that have arrived. `excused` is how many of a count the mirror may not have caused: a threshold
    that depends on these is undecided. `outstanding` is how many of the acknowledged messages may
    still get another verdict; None: unknown, as what was sent or arrived is not completely known.
    """
    return [
        condition.evaluate(
            counts, total=total, latencies=latencies, excused=excused, outstanding=outstanding
        )
        for condition in conditions
    ]


def undecided(results: Sequence[ThresholdResult]) -> list[str]:
    """One reason for each threshold that makes a run inconclusive."""
    return [f"threshold {each.threshold}: {each.why}" for each in results if each.undecided]


def _clocks_disagree(histogram: Histogram) -> str:
    by = f", by up to {format_seconds(-histogram.minimum / 1e9)}" if histogram.minimum < -1 else ""
    return (
        f"{histogram.negative:,} of {histogram.count:,} latencies are below zero{by}: the clocks "
        "of producers and consumers disagree. Synchronize them, then run a new test"
    )


def _clocks_were_set(off_ns: int) -> str:
    return (
        f"wall clocks were set by {format_seconds(off_ns / 1e9)} during the run, so that latencies "
        "may be off by as much. Synchronize them, then run a new test"
    )


def _read_by_others(messages: int) -> str:
    return (
        f"another consumer read up to {messages:,} of the messages before this one took over, and "
        "their latencies are unknown here: `mirrortest reconcile` measures all"
    )


def _meant(metric: str) -> str:
    """What a metric that does not exist was probably meant to be."""
    percentile = _PERCENTILE.fullmatch(metric)
    if percentile is not None:
        return f"did you mean {percentile[1] or ''}p({percentile[2]})?"
    return did_you_mean(metric, ("p(N)", "min", "mean", "max", *COUNTS))


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"--threshold {text!r}: {why}")
