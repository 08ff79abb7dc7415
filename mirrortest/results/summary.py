"""The summary of a run as a versioned document, for `--json` and `summary.json`."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic reads it
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from mirrortest import __version__
from mirrortest.config.document import Document, DocumentPart
from mirrortest.model.verdict import Verdict  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.config.threshold import ThresholdResult
    from mirrortest.timing.histogram import Histogram

QUANTILES = (0.5, 0.9, 0.99, 0.999)
PERCENTILES = {
    "p50": Fraction(1, 2),
    "p90": Fraction(9, 10),
    "p99": Fraction(99, 100),
    "p99.9": Fraction(999, 1000),
    "max": Fraction(1),
}
ALL_TOPICS = "all"
"""The key of all topics together in the latencies by topic, if there are several topics."""
TOPIC_NAMED_ALL = "all (topic)"
"""The key of a topic called `all`, if there are several: no topic can have this name."""

MINUTE_COUNTS = (
    "sent", "acked", "delivered", "lost", "inconclusive", "in_flight", "duplicated", "late",
)  # fmt: skip
"""The counts of each minute; the table `by_minute` has every finding."""
MINUTE_LATENCIES = {
    "p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "p99.9": "p999_ns", "max": "max_ns",
}  # fmt: skip
"""A minute's latencies from the intended time, each with its column in the table `by_minute`."""


_MOST = 1e19
"""More messages, per cent or seconds than any run has; in nanoseconds it is still a float."""


def _possible(value: float) -> float:
    if not abs(value) <= _MOST:  # also for NaN
        raise ValueError(f"a run has no such number: {value:g}")
    return value


_Number = Annotated[float, AfterValidator(_possible)]


class Latency(DocumentPart):
    """A latency's distribution in seconds; `quantiles` are by name (p50), empty if `count` is 0.

    `negative` counts those below zero: clocks disagree, or were set. `off` is by how much latencies
    may be wrong because clocks were set during the run.
    """

    count: int
    negative: int
    off: _Number = 0.0
    mean: _Number | None = None
    quantiles: dict[str, _Number] = Field(default_factory=dict)

    @classmethod
    def of(cls, histogram: Histogram) -> Self:
        """Summarise a histogram of nanoseconds."""
        if not histogram.count:
            return cls(count=0, negative=0)
        return cls(
            count=histogram.count,
            negative=histogram.negative,
            off=histogram.off_ns / 1e9,
            mean=histogram.mean / 1e9,
            quantiles={f"p{q * 100:g}": histogram.quantile(q) / 1e9 for q in QUANTILES},
        )


class Threshold(DocumentPart):
    """A threshold and how it ended; `value` is None if it is undecided."""

    expression: str
    value: _Number | None
    passed: bool

    @classmethod
    def of(cls, result: ThresholdResult) -> Self:
        """From the evaluation's result."""
        return cls(expression=str(result.threshold), value=result.value, passed=result.passed)


class Missing(DocumentPart):
    """Consecutive seqs of a stream that were not delivered: [seq_lo, seq_hi)."""

    topic: str
    producer: str
    incarnation: int
    lane: int
    verdict: str
    attribution: str | None = None
    seq_lo: int
    seq_hi: int


class Attributed(DocumentPart):
    """How far undelivered messages came: their number, by verdict and attribution.

    `attribution` is one of `reconcile.attribution.Attribution`'s phrases.
    """

    verdict: str
    attribution: str
    messages: int


class Minute(DocumentPart):
    """The messages of a topic that were intended for one minute (UTC), and what became of them.

    `counts` are by the names of `MINUTE_COUNTS`; `latency_seconds` by those of `MINUTE_LATENCIES`,
    empty if nothing was seen. `minute` is None for messages whose intended time is unknown.
    """

    topic: str
    minute: datetime | None
    counts: dict[str, int]
    latency_seconds: dict[str, _Number] = Field(default_factory=dict)


class Partition(DocumentPart):
    """Counts of a destination partition; None: missing messages of streams seen nowhere."""

    topic: str
    partition: int | None
    counts: dict[str, int]


class Online(DocumentPart):
    """The comparison with the consumers' online findings; `disagreements` are sentences."""

    partitions: int
    disagreements: list[str]


class Workload(DocumentPart):
    """What some producers were asked to send, as `produce --workload` reads it.

    Defaults are left out.
    """

    producers: list[str]
    workload: dict[str, Any]


class RestsOn(DocumentPart):
    """What a reconciliation rests on: numbers of sessions' logs, and of the offsets they read."""

    producers: int
    consumers: int
    offsets_read: int


class Summary(Document):
    """The reconciliation of a run.

    `counts` are numbers of messages: outcomes of sends and findings, by their usual names.
    `surplus` are copies beyond the first, and `corrupted` includes messages whose id is unknown.
    `undelivered` has the first ranges; the table of that name has all. `attribution` is of all
    missing messages. `minutes` are the worst of `minutes_total`, worst first; the table `by_minute`
    has all. `backlog` are, by topic, messages whose latencies were not measured, because they were
    in their partition when a consumer took it.
    """

    version: Literal[1] = 1
    kind: Literal["reconcile"] = "reconcile"
    mirrortest: str = __version__
    run: str
    verdict: Verdict
    exit_code: int
    counts: dict[str, int]
    partitions: list[Partition] = Field(default_factory=list)
    latency_seconds: dict[str, Latency] = Field(default_factory=dict)
    backlog: dict[str, int] = Field(default_factory=dict)
    thresholds: list[Threshold] = Field(default_factory=list)
    inconclusive: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    online: Online | None = None
    rests_on: RestsOn | None = None
    undelivered: list[Missing] = Field(default_factory=list)
    undelivered_ranges: int = 0
    attribution: list[Attributed] = Field(default_factory=list)
    minutes: list[Minute] = Field(default_factory=list)
    minutes_total: int = 0
    workloads: list[Workload] = Field(default_factory=list)
    tables: str = ""

    @property
    def overall_latency(self) -> Latency | None:
        """The latency of all topics together; None if nothing was measured."""
        found = self.latency_seconds
        return found.get(ALL_TOPICS) or next(iter(found.values()), None)


def as_percentage(part: int, total: int) -> str:
    """`part` of `total` in per cent for a reader; a partial one never shows as 0 % or 100 %."""
    if not total:
        return "-"
    share = 100 * part / total
    if part < total and share > 99.9999:
        return "<100 %"
    if part and share < 0.0001:
        return "<0.0001 %"
    return f"{share:.4f}".rstrip("0").rstrip(".") + " %"


def shorten(lines: Sequence[str], most: int = 20) -> list[str]:
    """The first lines, and how many more there are."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], f"... and {len(lines) - most:,} more"]
