"""A process's status as a versioned document: for `--status-file`, and `/status` on its port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mirrortest.config.document import DocumentPart
from mirrortest.results.summary import Latency
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from mirrortest.timing.histogram import Sparse


class StatusDocument(DocumentPart):
    """What all statuses have. `planned` is the number of messages, if one is given.

    `remaining_seconds` is an estimate; None: no given duration or number of messages allows one.
    """

    version: Literal[1] = 1
    run: str
    name: str
    elapsed_seconds: float
    remaining_seconds: float | None
    planned: int | None


class ProduceDocument(StatusDocument):
    """A producer's status. Latencies are from the actual send to the acknowledgement.

    `recent_latency_seconds` is of the last 10 s. `sent` are messages whose send has ended: acked,
    failed and unknown. `due` messages wait for their send; `behind_seconds` is how far the producer
    is behind its schedule. `not_acked` are failed and unknown messages by category,
    `not_acked_because` by reason. `fault` is why nothing can be sent now.
    """

    kind: Literal["produce_status"] = "produce_status"
    sent: int
    acked: int
    failed: int
    unknown: int
    in_flight: int
    due: int
    behind_seconds: float
    asked_per_second: float | None
    acked_per_second: float
    value_bytes_per_second: float
    latency_seconds: Latency
    recent_latency_seconds: Latency
    not_acked: dict[str, int]
    not_acked_because: dict[str, int]
    fault: str | None


class ConsumeDocument(StatusDocument):
    """A consumer's status. Latencies are from the intended time to the arrival.

    `recent_latency_seconds` is of the last 10 s. `counts` are of findings, `acked` and `delivered`
    as of the last judging round. `unread` is the number of offsets left to the partitions' ends.
    `newest_age_seconds` is the time since the intended time of the newest judged message. `outage`
    is why nothing can be read now.
    """

    kind: Literal["consume_status"] = "consume_status"
    role: str
    read: int
    read_per_second: float
    acked_per_second: float
    counts: dict[str, int]
    complete: bool
    unread: int
    newest_age_seconds: float | None
    quiet_seconds: float
    latency_seconds: Latency
    recent_latency_seconds: Latency
    outage: str | None


def latency_of(values: Sparse, off_ns: int = 0) -> Latency:
    """Convert a distribution in ns to seconds, and add the 95th percentile to the usual ones."""
    histogram = Histogram.of(values, off_ns)
    found = Latency.of(histogram)
    if not histogram.count:
        return found
    return found.model_copy(
        update={"quantiles": {**found.quantiles, "p95": histogram.quantile(0.95) / 1e9}}
    )
