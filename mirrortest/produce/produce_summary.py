"""A producer's summary as a versioned document: `produce --json`, `--report`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Intervals = list[tuple[int, int]]
"""Half-open: [from, to)."""


class SendLatencies(TypedDict):
    """Seconds by name (avg, max, p50, ...), and how many are negative; empty without values."""

    from_intended: dict[str, float | int]
    from_sent: dict[str, float | int]


class SentFigures(TypedDict):
    """Messages whose send has ended; `not_acked` counts failed and unknown ones, by category."""

    records: int
    acked: int
    failed: int
    unknown: int
    not_acked: dict[str, int]
    seconds: float
    records_per_second: float
    mib_per_second: float
    latency_seconds: SendLatencies
    schedule_lag_seconds: dict[str, float | int]


class TopicSent(TypedDict):
    """A topic's figures; `steady_state` is null without a warm-up."""

    whole: SentFigures
    steady_state: SentFigures | None
    behind_seconds: float


class SentStream(TypedDict):
    """One stream: what was reserved, and how its sends ended."""

    topic: str
    run: str
    producer: str
    incarnation: int
    lane: int
    source_partition: int
    source_partitions: int
    destination_partitions: int
    reserved: int
    end: int | None
    acked: Intervals
    failed: Intervals
    unknown: Intervals


class ProduceSummary(TypedDict):
    """How a run went, for one producer or for all `workers` of a command."""

    version: Literal[1]
    kind: Literal["produce"]
    run: str
    producer: str
    session: str
    verdict: str
    exit_code: int
    error: str | None
    incarnations: list[int]
    settings: dict[str, str]
    workload: dict[str, Any]
    warmup_records: int
    whole: SentFigures
    steady_state: SentFigures | None
    topics: dict[str, TopicSent]
    streams: list[SentStream]
    not_acked_because: dict[str, int]
    notes: list[str]
    log: str
    workers: NotRequired[list[dict[str, Any]]]
