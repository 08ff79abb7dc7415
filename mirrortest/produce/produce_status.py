"""The status of a running producer, and of several producers of one command together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.units import MIB, format_duration
from mirrortest.model.findings import Outcome
from mirrortest.model.verdict import Verdict
from mirrortest.produce.statistics import by_name
from mirrortest.results.progress_view import (
    MOST_SLOWEST,
    ProgressView,
    Slowest,
    latency_text,
    rate_text,
    remaining,
    time_text,
)
from mirrortest.results.status_document import ProduceDocument, latency_of
from mirrortest.results.windows import Totals
from mirrortest.timing.recent import NO_LATENCIES, Latencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.model.failure import Failure

QUIET_SECONDS = 5.0
"""From this long without an acknowledgement on, a warning is shown."""
_MOST_REASONS = 3


class PartitionBacklog(NamedTuple):
    """A partition's messages in flight, and its messages that are due and not sent."""

    name: str
    in_flight: int
    due: int
    behind_ns: int
    """How far it is behind its schedule."""


@dataclass(frozen=True, kw_only=True)
class ProduceStatus:
    """The status of a producer; rates are messages/s of all topics together."""

    run: str
    name: str
    elapsed_seconds: float = 0.0
    """Since the schedule began."""
    late_seconds: float = 0.0
    """How much of it was over when the producer was ready."""
    duration_seconds: float | None = None
    """No message is due after this time; None: the schedule has no such end."""
    total: int | None = None
    """How many messages there will be; None: unlimited."""
    asked_per_second: float | None = None
    """The schedule's rate; None: unlimited."""
    acked_per_second: float = 0.0
    bytes_per_second: float = 0.0
    """Bytes/s of acknowledged values."""
    value_bytes: int = 0
    """Bytes of all acknowledged values so far."""
    outcomes: Mapping[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Messages that were not acknowledged, by reason."""
    failures: Mapping[Failure, int] = field(default_factory=dict)
    """The same by category."""
    in_flight: int = 0
    due: int = 0
    behind_ns: int = 0
    """How far it is behind the schedule; 0 while it is not."""
    latency: Latencies = NO_LATENCIES
    """From the actual send to the acknowledgement, ns."""
    quiet_seconds: float = 0.0
    """For how long messages have been in flight without any acknowledgement."""
    fault: str = ""
    """Why nothing can be sent now; empty if sending is possible."""
    backlogs: Sequence[PartitionBacklog] = ()
    """One for each partition; several producers of a command write to the same partitions."""
    ended: bool = False
    """Whether it has ended; then its rates and backlogs do not count."""

    @property
    def done(self) -> int:
        """Messages that have an outcome."""
        return sum(self.outcomes.values())

    @property
    def remaining_seconds(self) -> float | None:
        """Time until all messages are acknowledged, at the present rate; None: unknown."""
        return remaining(
            self.elapsed_seconds,
            self.duration_seconds,
            None if self.total is None else self.total - self.done,
            self.acked_per_second,
            waiting=self.due + self.in_flight,
        )

    def __str__(self) -> str:
        return self.view().line()

    def document(self) -> ProduceDocument:
        """The status as a document, for programs."""
        return ProduceDocument(
            run=self.run,
            name=self.name,
            elapsed_seconds=self.elapsed_seconds,
            remaining_seconds=self.remaining_seconds,
            planned=self.total,
            sent=self.done,
            acked=self.outcomes[Outcome.ACKED],
            failed=self.outcomes[Outcome.FAILED],
            unknown=self.outcomes[Outcome.UNKNOWN],
            in_flight=self.in_flight,
            due=self.due,
            behind_seconds=self.behind_ns / 1e9,
            asked_per_second=self.asked_per_second,
            acked_per_second=self.acked_per_second,
            value_bytes_per_second=self.bytes_per_second,
            latency_seconds=latency_of(self.latency.all),
            recent_latency_seconds=latency_of(self.latency.recent),
            not_acked=by_name(self.failures),
            not_acked_because=dict(self.reasons),
            fault=self.fault or None,
        )

    @property
    def totals(self) -> Totals:
        """Totals of the messages acknowledged so far, since the producer was ready."""
        seconds, acked = self.elapsed_seconds - self.late_seconds, self.outcomes[Outcome.ACKED]
        return Totals(seconds, acked, self.value_bytes, latency=self.latency.all)

    def view(self) -> ProgressView:
        """The status as text, for people."""
        failed, unknown = self.outcomes[Outcome.FAILED], self.outcomes[Outcome.UNKNOWN]
        warnings = self._warnings()
        verdict = Verdict.of(failed=bool(failed), inconclusive=bool(unknown or warnings))
        ended = [f"{failed:,} failed"] if failed else []
        ended += [f"{unknown:,} unknown"] if unknown else []
        return ProgressView(
            subject=f"run {self.run}, producer {self.name}",
            verdict=verdict,
            state=" and ".join(ended) or "no message has failed so far",
            warnings=warnings,
            figures=self._figures(),
            slowest=Slowest(
                "partitions",
                len(self.backlogs),
                ("in flight", "due", "behind"),
                tuple(
                    (
                        each.name,
                        f"{each.in_flight:,}",
                        f"{each.due:,}",
                        format_duration(each.behind_ns) if each.behind_ns else "-",
                    )
                    for each in nlargest(MOST_SLOWEST, self.backlogs, key=_slowness)
                ),
            ),
        )

    def _warnings(self) -> tuple[str, ...]:
        found = [self.fault]
        if self.quiet_seconds >= QUIET_SECONDS:
            found.append(
                f"nothing was acknowledged for {self.quiet_seconds:.0f} s: "
                f"{self.in_flight:,} wait for an acknowledgement"
            )
        if self.behind_ns:
            found.append(f"{format_duration(self.behind_ns)} behind schedule")
        return tuple(filter(None, found))

    def _figures(self) -> tuple[tuple[str, str], ...]:
        of = "" if self.total is None else f" of {self.total:,}"
        asked = "unlimited" if self.asked_per_second is None else rate_text(self.asked_per_second)
        reasons = [
            f"{count:,} {why}" for why, count in Counter(self.reasons).most_common(_MOST_REASONS)
        ]
        if more := len(self.reasons) - len(reasons):
            reasons.append(f"and {more:,} more reasons")
        rates = f"{rate_text(self.acked_per_second)} acknowledged "
        rates += f"({self.bytes_per_second / MIB:.2f} MiB/s), {asked} asked"
        return (
            ("time", time_text(self.elapsed_seconds, self.remaining_seconds)),
            ("messages", f"{self.outcomes[Outcome.ACKED]:,}{of} acknowledged"),
            ("rate", rates),
            ("waiting", f"{self.in_flight:,} in flight, {self.due:,} due and not sent"),
            ("latency", f"of acknowledgements: {latency_text(self.latency)}"),
            ("not acked", "; ".join(reasons) or "none"),
        )


def merged(name: str, each: Sequence[ProduceStatus]) -> ProduceStatus:
    """The statuses of several producers as one; each has a share of rate and messages."""
    running = [status for status in each if not status.ended] or each
    totals = [status.total for status in each if status.total is not None]
    rates = [s.asked_per_second for s in running if s.asked_per_second is not None]
    reasons: Counter[str] = Counter()
    failures: Counter[Failure] = Counter()
    for status in each:
        reasons.update(status.reasons)
        failures.update(status.failures)
    return replace(
        each[0],
        name=name,
        elapsed_seconds=max(status.elapsed_seconds for status in each),
        late_seconds=min(status.late_seconds for status in each),
        total=sum(totals) if totals else None,
        asked_per_second=sum(rates) if rates else None,
        acked_per_second=sum(status.acked_per_second for status in running),
        bytes_per_second=sum(status.bytes_per_second for status in running),
        value_bytes=sum(status.value_bytes for status in each),
        outcomes={kind: sum(status.outcomes[kind] for status in each) for kind in Outcome},
        reasons=reasons,
        failures=failures,
        in_flight=sum(status.in_flight for status in running),
        due=sum(status.due for status in running),
        behind_ns=max(status.behind_ns for status in running),
        latency=Latencies.merged(
            (status.latency for status in each), (status.latency for status in running)
        ),
        quiet_seconds=max(status.quiet_seconds for status in running),
        fault=next((status.fault for status in running if status.fault), ""),
        backlogs=_by_partition(running),
    )


def _slowness(backlog: PartitionBacklog) -> tuple[int, int, int]:
    """Sort key: how far it is behind, then messages due, then messages in flight."""
    return backlog.behind_ns, backlog.due, backlog.in_flight


def _by_partition(each: Iterable[ProduceStatus]) -> Sequence[PartitionBacklog]:
    """The backlog of each partition, all producers together."""
    found: dict[str, PartitionBacklog] = {}
    for status in each:
        for one in status.backlogs:
            name, in_flight, due, behind_ns = found.get(
                one.name, PartitionBacklog(one.name, 0, 0, 0)
            )
            found[name] = PartitionBacklog(
                name, in_flight + one.in_flight, due + one.due, max(behind_ns, one.behind_ns)
            )
    return tuple(found.values())
