"""The report of a consumer at its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.units import format_duration
from mirrortest.consume.consume_status import IN_SOURCE
from mirrortest.model.findings import BY_LEDGER, OF_STREAM, Finding
from mirrortest.model.verdict import Verdict
from mirrortest.results.conditions import headline
from mirrortest.results.latency_table import latency_table
from mirrortest.results.summary import QUANTILES, Latency, Threshold
from mirrortest.results.tables import escape
from mirrortest.results.view import RunResult, compact_table
from mirrortest.seqlog.options import Role
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.config.threshold import ThresholdResult
    from mirrortest.consume.consume_summary import ConsumeSummary, RestsOn
    from mirrortest.consume.statistics import ReadFigures
    from mirrortest.verify.judge import RunVerdict, StreamVerdict
    from mirrortest.wire.stream import StreamId


OUTCOMES = ("acked", "delivered", "failed", "unknown")
"""Counts that are not findings."""


class Basis(NamedTuple):
    """How many messages a verdict rests on, copies included.

    This process `read` some itself. Others were `taken_over`: saved states count them as judged, by
    other consumers or by earlier owners of the same partitions.
    """

    read: int = 0
    taken_over: int = 0

    def to_json(self) -> RestsOn:
        """The counts for the summary."""
        return {"read": self.read, "taken_over": self.taken_over}


@dataclass(frozen=True)
class ConsumeReport:
    """The online verdict on the run by one consumer: over all partitions, with others' states.

    A source observer's verdict is on the source: a `lost` message was acknowledged, and the
    source's brokers do not have it; a `delivered` one is in the source.

    Attributes:
        counts: numbers of messages by finding, and those of `OUTCOMES`.
        copies: messages beyond the first copy of each.
        latency: by topic, latencies from the intended and from the actual send, of the messages
            that this consumer read itself, without the backlog.
        inconclusive: the reasons why the verdict is not final.
        reading: how much this consumer read, and in what time.
        backlog: by topic, messages whose latencies were not measured (`JudgedBatch.backlog`).
        rests_on: by partition's name, on how many messages the verdict rests.
        excused: by count, how many of its messages have another possible cause than the mirror.
        outstanding: how many messages may still get another verdict; None: unknown (see
            `threshold.evaluate`).
        own_doubts: those of `inconclusive` that other consumers of the run cannot see.
    """

    run: str
    name: str
    counts: Mapping[str, int]
    copies: int
    verdicts: Mapping[StreamId, StreamVerdict]
    latency: Mapping[str, tuple[Histogram, Histogram]]
    thresholds: Sequence[ThresholdResult]
    inconclusive: Sequence[str]
    notes: Sequence[str]
    reading: ReadFigures
    log: str
    partitions: Sequence[str] = ()
    role: Role = Role.CONSUMER
    backlog: Mapping[str, int] = field(default_factory=dict)
    rests_on: Mapping[str, Basis] = field(default_factory=dict)
    excused: Mapping[str, int] = field(default_factory=dict)
    outstanding: int | None = 0
    own_doubts: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict."""
        return self.verdict.exit_code

    @property
    def verdict(self) -> Verdict:
        """How the run ended."""
        return Verdict.of(
            failed=any(not result.passed for result in self.thresholds),
            inconclusive=bool(self.inconclusive),
        )

    @property
    def basis(self) -> Basis:
        """How many messages the verdict rests on, over all partitions."""
        each = self.rests_on.values()
        return Basis(sum(basis.read for basis in each), sum(basis.taken_over for basis in each))

    def to_json(self) -> ConsumeSummary:
        """The versioned summary."""
        return {
            "version": 1,
            "kind": "consume",
            "role": self.role.value,
            "run": self.run,
            "consumer": self.name,
            "verdict": self.verdict.value,
            "exit_code": self.exit_code,
            "counts": dict(self.counts),
            "copies": self.copies,
            "streams": [
                {
                    **stream._asdict(),
                    "acked": verdict.acked.count,
                    "delivered": verdict.delivered.count,
                    "unknown": verdict.unknown.count,
                    **{
                        finding.label: list(numbers.intervals())
                        for finding in OF_STREAM
                        if (numbers := verdict.having(finding))
                    },
                }
                for stream, verdict in self.verdicts.items()
            ],
            "latency_seconds": {
                topic: {
                    "from_intended": _quantiles(intended),
                    "from_sent": _quantiles(sent),
                    "negative": intended.negative,
                    "off": intended.off_ns / 1e9,
                }
                for topic, (intended, sent) in self.latency.items()
            },
            "backlog": {topic: count for topic, count in self.backlog.items() if count},
            "thresholds": [
                {"expression": str(r.threshold), "value": r.value, "passed": r.passed}
                for r in self.thresholds
            ],
            "inconclusive": list(self.inconclusive),
            "notes": list(self.notes),
            "rests_on": {
                **self.basis.to_json(),
                "partitions": {name: basis.to_json() for name, basis in self.rests_on.items()},
            },
            "messages_read": self.reading.messages,
            "reading": self.reading.to_json(),
            "partitions": list(self.partitions),
            "log": self.log,
        }

    def result(self) -> RunResult:
        """The verdict for a terminal."""
        source = self.role is Role.SOURCE
        topics = compact_table(
            ("latency", "since", *(f"p{q * 100:g}" for q in QUANTILES)),
            numbers=range(2, 2 + len(QUANTILES)),
        )
        for topic, pair in self.latency.items():
            for since, histogram in zip(("intended time", "actual send"), pair, strict=True):
                if histogram.count:
                    values = (histogram.quantile(q) for q in QUANTILES)
                    topics.add_row(escape(topic), since, *map(format_duration, values))
        remarks = [self.reading.line()] if self.reading.messages else []
        if source and self.counts.get(Finding.LOST.label):
            remarks.append(
                "lost by the source: its brokers acknowledged these messages and do not have them; "
                "no mirror can copy them"
            )
        remarks += [
            f"{topic}: {count:,} messages were in the backlog: their latencies are not measured"
            for topic, count in self.backlog.items()
            if count
        ]
        if self.basis.taken_over:
            remarks.append(
                f"the verdict rests on {self.basis.read:,} messages that were read here, and on "
                f"{self.basis.taken_over:,} taken over from saved states: of other consumers, or "
                "from before a restart or a rebalance"
            )
        every = Histogram()
        for intended, _ in self.latency.values():
            every.merge(intended)
        judged = RunResult(
            subject=f"run {self.run}, {'source observer' if source else 'consumer'} {self.name}",
            verdict=self.verdict,
            why="",
            counts=self.counts,
            thresholds=[Threshold.of(each) for each in self.thresholds],
            inconclusive=self.inconclusive,
            latency=Latency.of(every),
            remarks=[*remarks, *self.notes],
            details=[topics, latency_table(every)] if topics.row_count else [],
            names=_names(self.role),
        )
        return replace(judged, why=headline(judged))


def _names(role: Role) -> Mapping[str, str]:
    return IN_SOURCE if role is Role.SOURCE else {}


def counts_of(total: RunVerdict, *, with_ledger: bool) -> dict[str, int]:
    """Numbers of messages by the names that thresholds and metrics use.

    Without ledger records of the run (`with_ledger`), counts that need them are left out.
    """
    counts = {finding.label: total.counts[finding] for finding in Finding}
    by_ledger = {name: getattr(total, name) for name in OUTCOMES}
    if with_ledger:
        return counts | by_ledger
    for finding in BY_LEDGER:
        del counts[finding.label]
    return counts


def _quantiles(histogram: Histogram) -> dict[str, float]:
    if not histogram.count:
        return {}
    return {
        "avg": histogram.mean / 1e9,
        "max": histogram.maximum / 1e9,
        **{f"p{q * 100:g}": histogram.quantile(q) / 1e9 for q in QUANTILES},
    }
