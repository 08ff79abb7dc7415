"""The status of a running consumer, and of several consumers of one command together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.threshold import Series, evaluate
from mirrortest.config.units import format_duration, number, span
from mirrortest.model.findings import Finding
from mirrortest.model.verdict import Verdict
from mirrortest.results.conditions import condition_result
from mirrortest.results.progress_view import (
    MOST_SLOWEST,
    ProgressView,
    Slowest,
    latency_text,
    rate_text,
    remaining,
    time_text,
)
from mirrortest.results.status_document import ConsumeDocument, latency_of
from mirrortest.results.summary import Threshold as EvaluatedThreshold
from mirrortest.results.windows import Totals
from mirrortest.results.words import FINDINGS, readable_name
from mirrortest.seqlog.options import Role
from mirrortest.timing.histogram import Histogram
from mirrortest.timing.recent import NO_LATENCIES, Latencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.config.threshold import Threshold, ThresholdResult

IN_SOURCE = {"delivered": "in the source", "lost": "lost by the source"}
"""How a source observer's counts are shown: they are not a verdict on the mirror."""

QUIET_SECONDS = 5.0
"""A silence from here on is reported. A running producer writes to the ledger each second."""
_LONG_SECONDS = 60.0
_MOST_NAMED = 4
"""How many failing conditions are named."""


class PartitionLag(NamedTuple):
    """A partition that is read: offsets left up to its end, and the newest judged message's age.

    `age_seconds` is the time since that message's intended time; None before the first.
    """

    name: str
    unread: int
    age_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class ConsumeStatus:
    """The status of a consumer, as of its last judging round.

    `counts` are those of `consume_report.counts_of`, `excused` those of `RunVerdict`. Rates and
    `latency` (from the intended time, ns) are of the messages that this consumer read. `slowest`
    are those of its `partitions` that lag most.
    """

    run: str
    name: str
    role: Role = Role.CONSUMER
    elapsed_seconds: float = 0.0
    duration_seconds: float | None = None
    """The consumer ends after this long; None: no such limit."""
    total: int | None = None
    """The consumer ends after this many messages; None: no such limit."""
    read: int = 0
    read_per_second: float = 0.0
    value_bytes: int = 0
    """Bytes of the values that were read."""
    rebalance_ns: int = 0
    """How long it had no partitions yet, or was in a rebalance."""
    acked_per_second: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    excused: Mapping[str, int] = field(default_factory=dict)
    partitions: int = 0
    unread: int = 0
    """Offsets left up to the ends of these partitions."""
    age_seconds: float | None = None
    """Seconds since the intended time of the newest judged message; None before the first."""
    slowest: Sequence[PartitionLag] = ()
    latency: Latencies = NO_LATENCIES
    sent_latency: Latencies = NO_LATENCIES
    """From the actual send."""
    thresholds: Sequence[Threshold] = ()
    complete: bool = False
    """Whether every acknowledged message has a verdict."""
    settled: bool = False
    """Whether, for the settle time, it was complete and no message of the run arrived."""
    ledger_silent: bool = False
    """Whether the ledger has no record of the run yet."""
    ledger_since: str = ""
    """Since when the ledger has been silent, UTC; empty if it is not, or the run is complete."""
    quiet_seconds: float = 0.0
    """For how long no message has arrived."""
    outage: str = ""
    ended: bool = False
    """Whether it has ended: then it has no rates and reads no partition."""

    @property
    def findings(self) -> dict[str, int]:
        """Numbers of messages by finding, the worst finding first, without those in flight."""
        in_flight = Finding.IN_FLIGHT.label
        return {
            name: self.counts[name]
            for name in FINDINGS
            if self.counts.get(name) and name != in_flight
        }

    @property
    def remaining_seconds(self) -> float | None:
        """Estimated seconds until it ends, at the present rate; None: unknown."""
        return remaining(
            self.elapsed_seconds,
            self.duration_seconds,
            None if self.total is None else self.total - self.read,
            self.read_per_second,
        )

    @property
    def failed(self) -> list[ThresholdResult]:
        """The thresholds that fail now."""
        results = evaluate(
            self.thresholds,
            self.counts,
            total=self.counts.get("acked", 0),
            latencies={
                series: Histogram.of(each.all, each.off_ns, each.unmeasured)
                for series, each in (
                    (Series.LATENCY, self.latency),
                    (Series.SENT_LATENCY, self.sent_latency),
                )
            },
            excused=self.excused,
            outstanding=0 if self.complete else None,
        )
        return [result for result in results if not result.passed]

    def __str__(self) -> str:
        return self.view().line()

    def document(self) -> ConsumeDocument:
        """The status as a document, for programs."""
        return ConsumeDocument(
            run=self.run,
            name=self.name,
            role=self.role.value,
            elapsed_seconds=self.elapsed_seconds,
            remaining_seconds=self.remaining_seconds,
            planned=self.total,
            read=self.read,
            read_per_second=self.read_per_second,
            acked_per_second=self.acked_per_second,
            counts=dict(self.counts),
            complete=self.complete,
            unread=self.unread,
            newest_age_seconds=self.age_seconds,
            quiet_seconds=self.quiet_seconds,
            latency_seconds=latency_of(self.latency.all, self.latency.off_ns),
            recent_latency_seconds=latency_of(self.latency.recent, self.latency.off_ns),
            outage=self.outage or None,
        )

    @property
    def totals(self) -> Totals:
        """The totals so far."""
        return Totals(self.elapsed_seconds, self.read, self.value_bytes, self.rebalance_ns)

    def view(self) -> ProgressView:
        """The status as a view, for people."""
        failed = [condition_result(EvaluatedThreshold.of(each)) for each in self.failed]
        if failed:
            verdict = Verdict.FAILED
            texts = [f"{row.expression} is {row.measured}" for row in failed[:_MOST_NAMED]]
            texts += [f"{len(failed) - len(texts):,} more"] if len(failed) > len(texts) else []
            state = f"failing: {', '.join(texts)}"
        elif self.ledger_silent:
            verdict = Verdict.INCONCLUSIVE
            state = "nothing is judged yet: the ledger has no record of this run"
        else:
            verdict = Verdict.INCONCLUSIVE if self._warnings() else Verdict.PASSED
            state = "no condition has failed so far"
        kind = "source observer" if self.role is Role.SOURCE else "consumer"
        return ProgressView(
            subject=f"run {self.run}, {kind} {self.name}",
            verdict=verdict,
            state=state,
            warnings=self._warnings(),
            figures=self._figures(),
            slowest=Slowest(
                "partitions",
                self.partitions,
                ("not read", "newest sent"),
                tuple(
                    (
                        lag.name,
                        f"{lag.unread:,}",
                        "-" if lag.age_seconds is None else f"{_age(lag.age_seconds)} ago",
                    )
                    for lag in self.slowest
                ),
            ),
        )

    def _warnings(self) -> tuple[str, ...]:
        found = [self.outage]
        if not self.complete:
            if self.quiet_seconds >= QUIET_SECONDS:
                found.append(f"nothing has arrived for {self.quiet_seconds:.0f} s")
            if self.ledger_since:
                found.append(f"no ledger record since {self.ledger_since}")
        return tuple(filter(None, found))

    def _figures(self) -> tuple[tuple[str, str], ...]:
        names = IN_SOURCE if self.role is Role.SOURCE else {}
        acked, delivered = self.counts.get("acked", 0), self.counts.get("delivered", 0)
        missing = number(self.counts.get(Finding.IN_FLIGHT.label, 0))
        lag = f"{missing} not arrived, {self.unread:,} not read"
        if self.age_seconds is not None and not self.complete:
            lag += f"; newest message read: sent {_age(self.age_seconds)} ago"
        found = (
            f"{names.get(name, readable_name(name))} {n:,}" for name, n in self.findings.items()
        )
        rates = f"{rate_text(self.acked_per_second)} acknowledged, "
        rates += f"{rate_text(self.read_per_second)} arrived"
        return (
            ("time", time_text(self.elapsed_seconds, self.remaining_seconds)),
            (
                "messages",
                f"{delivered:,} {names.get('delivered', 'delivered')} of {acked:,} acknowledged",
            ),
            ("rate", rates),
            ("read", f"{self.read:,} from {number(self.partitions, 'partition')}"),
            ("lag", lag),
            ("latency", latency_text(self.latency)),
            ("findings", ", ".join(found) or "none"),
        )


def merged(
    name: str,
    duration_seconds: float | None,
    total: int | None,
    each: Sequence[ConsumeStatus],
) -> ConsumeStatus:
    """Merge the statuses of one run's consumers: the verdict of the first, the reading of all.

    `duration_seconds` and `total` are the limits for all together.
    """
    first = each[0]
    running = [status for status in each if not status.ended] or each
    ages = [status.age_seconds for status in running if status.age_seconds is not None]
    return replace(
        first,
        name=name,
        duration_seconds=duration_seconds,
        total=total,
        elapsed_seconds=max(status.elapsed_seconds for status in each),
        read=sum(status.read for status in each),
        read_per_second=sum(status.read_per_second for status in running),
        value_bytes=sum(status.value_bytes for status in each),
        rebalance_ns=max(status.rebalance_ns for status in each),
        settled=all(status.settled for status in each),
        partitions=sum(status.partitions for status in running),
        unread=sum(status.unread for status in running),
        age_seconds=min(ages, default=None),
        slowest=slowest(lag for status in running for lag in status.slowest),
        latency=Latencies.merged(
            (status.latency for status in each), (status.latency for status in running)
        ),
        sent_latency=Latencies.merged(
            (status.sent_latency for status in each), (status.sent_latency for status in running)
        ),
        quiet_seconds=min(status.quiet_seconds for status in running),
        outage=next((status.outage for status in running if status.outage), ""),
    )


def slowest(lags: Iterable[PartitionLag]) -> tuple[PartitionLag, ...]:
    """The partitions that lag most: by offsets left, then by the newest judged message's age."""
    return tuple(nlargest(MOST_SLOWEST, lags, key=lambda lag: (lag.unread, lag.age_seconds or 0.0)))


def _age(seconds: float) -> str:
    nanoseconds = round(max(0.0, seconds) * 1e9)
    return span(nanoseconds) if seconds >= _LONG_SECONDS else format_duration(nanoseconds)
