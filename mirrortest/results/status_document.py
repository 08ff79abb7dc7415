"""How a process stands, as a versioned document: for `--status-file`, and `/status` on its port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from mirrortest.results.summary import Latency
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from mirrortest.timing.histogram import Sparse


class StatusDocument(BaseModel):
    """Of any process; `planned` is how many messages there will be, where a number is given.

    `remaining_seconds` is an estimate; None: nothing ends the run but its end or a signal.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    run: str
    name: str
    elapsed_seconds: float
    remaining_seconds: float | None
    planned: int | None


class ProduceDocument(StatusDocument):
    """A producer's. Latencies are from the actual send to the acknowledgement; `recent`: of 10 s.

    `sent` are the messages whose send has ended: acked, failed and unknown. `due` wait for their
    send, `behind_seconds` is by how much the schedule is not held. `not_acked` are failed and
    unknown messages by category. `fault` is why nothing can be sent now.
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
    """A consumer's. Latencies are from the intended time to the arrival; `recent`: of 10 s.

    `counts` are of findings, `acked` and `delivered` as of the last judging round. `unread` are
    offsets up to the partitions' ends. `newest_age_seconds` is the time since the newest message
    that was judged was meant to be sent. `outage` is why nothing can be read now.
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
    """A distribution in ns as one in seconds, with the 95th percentile besides the usual ones."""
    histogram = Histogram.of(values, off_ns)
    found = Latency.of(histogram)
    if not histogram.count:
        return found
    return found.model_copy(
        update={"quantiles": {**found.quantiles, "p95": histogram.quantile(0.95) / 1e9}}
    )
