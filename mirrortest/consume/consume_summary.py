"""A consumer's summary as a versioned document: `consume --json`, `--report`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class ArrivalLatencies(TypedDict):
    """In seconds, by name (avg, max, p50, ...); empty without messages.

    `negative` counts those below zero. `off` is by how much latencies may be wrong because wall
    clocks were set during the run.
    """

    from_intended: dict[str, float]
    from_sent: dict[str, float]
    negative: int
    off: float


class JudgedThreshold(TypedDict):
    """A condition and the measured value; `value` is null where none was measured."""

    expression: str
    value: float | None
    passed: bool


class RestsOn(TypedDict):
    """On how many messages the verdict rests: read by this process, or taken over from states."""

    read: int
    taken_over: int


class VerdictRestsOn(RestsOn):
    """The same, in total and by partition."""

    partitions: dict[str, RestsOn]


class Reading(TypedDict):
    """How much was read, and in what time; `end` is when the last message arrived."""

    start: str
    end: str
    seconds: float
    records: int
    mib: float
    records_per_second: float
    mib_per_second: float
    average_size_bytes: float
    rebalance_seconds: float
    fetch_seconds: float
    fetch_records_per_second: float
    fetch_mib_per_second: float
    lag: int | None


class ConsumeSummary(TypedDict):
    """The verdict of one consumer, or of all `workers` of a command.

    An entry of `streams` has the stream's id, the counts `acked`, `delivered` and `unknown`, and
    for each finding the intervals [from, to) of seqs that have it.
    """

    version: Literal[1]
    kind: Literal["consume"]
    role: str
    run: str
    consumer: str
    verdict: str
    exit_code: int
    counts: dict[str, int]
    copies: int
    streams: list[dict[str, str | int | list[tuple[int, int]]]]
    latency_seconds: dict[str, ArrivalLatencies]
    backlog: dict[str, int]
    thresholds: list[JudgedThreshold]
    inconclusive: list[str]
    notes: list[str]
    rests_on: VerdictRestsOn
    messages_read: int
    reading: Reading
    partitions: list[str]
    log: str
    workers: NotRequired[list[dict[str, Any]]]
