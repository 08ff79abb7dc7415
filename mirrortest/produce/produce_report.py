"""A producer's final report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.config.units import MIB, SECOND_NS
from mirrortest.model.findings import Outcome
from mirrortest.model.verdict import ExitCode, Verdict
from mirrortest.produce.statistics import QUANTILES, Tally, by_name, merged
from mirrortest.results.view import RunResult
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.errors import MirrortestError
    from mirrortest.produce.produce_summary import ProduceSummary
    from mirrortest.produce.recording import TopicNumbers
    from mirrortest.results.windows import Totals
    from mirrortest.verify.ledger_record import LaneRecord


@dataclass(frozen=True)
class ProduceReport:
    """How a run went.

    `reasons` counts messages that were not acknowledged, by reason. `behind_ns` is how long each
    topic was behind its schedule. `settings` are the options (`ProduceOptions.settings`),
    `workload` the load as in a workload file. `error` ended the run early. `due`: a message had to
    be sent. It is False after a signal, and for one of several workers, which may have none. The
    producer was ready `late_ns` after `--start-at`, and `skipped` messages were due before.
    """

    run: str
    name: str
    session: str
    log: str
    numbers: Mapping[str, TopicNumbers]
    lanes: Sequence[tuple[LaneRecord, int]]
    """The lanes of all incarnations as in the ledger, and their source partitions."""
    reasons: Mapping[str, int]
    behind_ns: Mapping[str, int]
    warmup_records: int
    notes: Sequence[str] = ()
    error: MirrortestError | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    due: bool = True
    late_ns: int = 0
    skipped: int = 0

    @property
    def overall(self) -> Tally:
        """All topics, warm-ups included."""
        return merged(numbers.overall for numbers in self.numbers.values())

    @property
    def steady(self) -> Tally:
        """All topics, without their warm-ups."""
        return merged(numbers.steady for numbers in self.numbers.values())

    @property
    def exit_code(self) -> int:
        """The error's if one ended the run, 1 if a message failed, else the verdict's."""
        outcomes = self.overall.outcomes
        if self.error is not None:
            return self.error.exit_code
        if outcomes[Outcome.FAILED]:
            return ExitCode.ERROR.value
        return self.verdict.exit_code

    @property
    def verdict(self) -> Verdict:
        """Failed if an error ended the run, or a message was certainly not written.

        Inconclusive if it is unknown whether a message was written, or if no message was sent.
        """
        outcomes = self.overall.outcomes
        failed = self.error is not None or bool(outcomes[Outcome.FAILED])
        doubt = bool(outcomes[Outcome.UNKNOWN]) or self._nothing_sent
        return Verdict.of(failed=failed, inconclusive=doubt)

    @property
    def _nothing_sent(self) -> bool:
        """Whether no message was sent, though one was due.

        False for a restarted process: the one before it may have sent everything.
        """
        first = min((record.stream.incarnation for record, _ in self.lanes), default=1)
        return self.due and first == 1 and not any(self.overall.outcomes.values())

    @property
    def all_notes(self) -> list[str]:
        """The notes, with others on a late start and on a run that ended within its warm-up."""
        notes = [late_start(self.late_ns, self.skipped)] if self.late_ns else []
        notes += self.notes
        warm = [
            topic
            for topic, numbers in self.numbers.items()
            if self.warmup_records and not sum(numbers.steady.outcomes.values())
        ]
        if not warm:
            return notes
        note = (
            f"the run ended within the warm-up of {self.warmup_records:,} messages of "
            f"{', '.join(warm)}: there are no steady-state figures; run longer, or lower "
            "--warmup-records"
        )
        return [*notes, note]

    def to_json(self) -> ProduceSummary:
        """The versioned summary."""
        return {
            "version": 1,
            "kind": "produce",
            "run": self.run,
            "producer": self.name,
            "session": self.session,
            "verdict": self.verdict.value,
            "exit_code": self.exit_code,
            "error": None if self.error is None else str(self.error),
            "incarnations": sorted({record.stream.incarnation for record, _ in self.lanes}),
            "settings": dict(self.settings),
            "workload": dict(self.workload),
            "warmup_records": self.warmup_records,
            "whole": self.overall.to_json(),
            "steady_state": self.steady.to_json() if self.warmup_records else None,
            "topics": {
                topic: {
                    "whole": numbers.overall.to_json(),
                    "steady_state": numbers.steady.to_json() if self.warmup_records else None,
                    "behind_seconds": round(self.behind_ns.get(topic, 0) / SECOND_NS, 3),
                }
                for topic, numbers in self.numbers.items()
            },
            "streams": [
                {
                    "topic": record.stream.topic,
                    "run": record.stream.run,
                    "producer": record.stream.producer,
                    "incarnation": record.stream.incarnation,
                    "lane": record.stream.lane,
                    "source_partition": partition,
                    "source_partitions": record.source_partitions,
                    "destination_partitions": record.destination_partitions,
                    "reserved": record.reserved,
                    "end": record.end,
                    "acked": list(record.acked.intervals()),
                    "failed": list(record.failed.intervals()),
                    "unknown": list(record.unknown.intervals()),
                }
                for record, partition in self.lanes
            ],
            "not_acked_because": dict(self.reasons),
            "notes": self.all_notes,
            "log": self.log,
        }

    def result(self) -> RunResult:
        """How the sends ended, for a terminal; the figures are as in kafka-producer-perf-test."""
        return RunResult(
            subject=f"run {self.run}, producer {self.name}",
            verdict=self.verdict,
            why=self._why(),
            remarks=self._lines(),
        )

    def _why(self) -> str:
        outcomes = self.overall.outcomes
        sent = sum(outcomes.values())
        if self.error is not None:
            return f"An error ended it after {sent:,} messages."
        if self._nothing_sent:
            return "No message was acknowledged, so nothing is proven."
        if self.verdict is Verdict.PASSED:
            return f"All {sent:,} messages were acknowledged."
        parts = [
            f"{outcomes[Outcome.FAILED]:,} were certainly not written"
            if outcomes[Outcome.FAILED]
            else "",
            f"the outcome of {outcomes[Outcome.UNKNOWN]:,} is unknown"
            if outcomes[Outcome.UNKNOWN]
            else "",
        ]
        return f"Of {sent:,} messages {', '.join(filter(None, parts))}."

    def perf_test_lines(self) -> list[str]:
        """The lines that kafka-producer-perf-test prints last; latencies from the intended time."""
        return self._summaries(rate_digits=6, quantile_digits=0)

    def _summaries(self, *, rate_digits: int = 2, quantile_digits: int = 2) -> list[str]:
        digits = (rate_digits, quantile_digits)
        lines = [_summary(self.overall, "records sent", *digits)]
        if self.warmup_records:
            lines.append(_summary(self.steady, "steady state records sent", *digits))
        return lines

    def _lines(self) -> list[str]:
        """The figures; the first lines are in the format of kafka-producer-perf-test."""
        lines = self._summaries()
        outcomes = self.overall.outcomes
        ended = ", ".join(f"{count} {outcome.name.lower()}" for outcome, count in outcomes.items())
        lines.append(f"outcomes: {ended}; log: {self.log}")
        if failures := by_name(self.overall.failures):
            named = ", ".join(f"{count} {name}" for name, count in failures.items())
            lines.append(f"not acknowledged: {named}")
        lines += [f"{count} not acknowledged: {why}" for why, count in self.reasons.items()]
        lines += [
            f"topic {topic} was behind its schedule for {behind / SECOND_NS:.1f} s"
            for topic, behind in self.behind_ns.items()
            if behind
        ]
        return [*lines, *self.all_notes]


def late_start(late_ns: int, skipped: int) -> str:
    """The note on a producer that was ready after `--start-at`."""
    return (
        f"ready {late_ns / SECOND_NS:.1f} s after --start-at: {skipped:,} messages that were due "
        "before are left out"
    )


def window_line(window: Totals) -> str:
    """The line of kafka-producer-perf-test for an interval; latencies are from the actual send."""
    latency = Histogram.of(window.latency)
    return (
        f"{window.messages} records sent, {window.messages / window.seconds:.1f} records/sec "
        f"({window.value_bytes / MIB / window.seconds:.2f} MB/sec), "
        f"{latency.mean / 1e6:.1f} ms avg latency, {latency.maximum / 1e6:.1f} ms max latency."
    )


def _summary(tally: Tally, what: str, rate_digits: int, quantile_digits: int) -> str:
    acked = tally.outcomes[Outcome.ACKED]
    line = (
        f"{acked} {what}, {tally.per_second:.{rate_digits}f} records/sec "
        f"({tally.mib_per_second:.2f} MB/sec)"
    )
    latency = tally.from_intended.histogram
    if not latency.count:
        return f"{line}."
    names = ("50th", "95th", "99th", "99.9th")
    shown = ", ".join(
        f"{latency.quantile(q) / 1e6:.{quantile_digits}f} ms {name}"
        for name, q in zip(names, QUANTILES.values(), strict=True)
    )
    return (
        f"{line}, {latency.mean / 1e6:.2f} ms avg latency, "
        f"{latency.maximum / 1e6:.2f} ms max latency, {shown}."
    )
