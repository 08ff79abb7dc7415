"""Counts and latencies of a topic, of the whole run and of its steady state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mirrortest.check.verdict import Outcome
from mirrortest.timing.histogram import Counted, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MIB = 1 << 20
SECOND = 1_000_000_000
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


_GATHERED = 1 << 13


class Gathered:
    """A histogram that takes values in a few large portions: small batches cost next to nothing.

    `also` is another histogram that gets the same values.
    """

    def __init__(self, also: Histogram | None = None) -> None:
        self._histogram = Histogram()
        self._all = (self._histogram,) if also is None else (self._histogram, also)
        self._waiting: list[NDArray[np.int64]] = []
        self._count = 0

    def add(self, values_ns: NDArray[np.int64]) -> None:
        """Take values; the array must not change afterwards."""
        self._waiting.append(values_ns)
        self._count += len(values_ns)
        if self._count >= _GATHERED:
            self.flush()

    @property
    def histogram(self) -> Histogram:
        """All values taken so far."""
        self.flush()
        return self._histogram

    def flush(self) -> None:
        """Count what waits."""
        if not self._waiting:
            return
        counted = Counted.of(np.concatenate(self._waiting))
        for histogram in self._all:
            histogram.take(counted)
        self._waiting.clear()
        self._count = 0


@dataclass
class Tally:
    """Messages by outcome; of the acknowledged ones their bytes, times and latencies (ns).

    `first_ns` is when the first message was meant to be sent, `last_ns` when the last end was
    learnt, both monotonic.
    """

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    value_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    from_intended: Gathered = field(default_factory=Gathered)
    from_sent: Gathered = field(default_factory=Gathered)
    schedule_lag: Gathered = field(default_factory=Gathered)

    @property
    def records(self) -> int:
        """Messages that have an outcome."""
        return sum(self.outcomes.values())

    @property
    def seconds(self) -> float:
        """From the first intended time to the last end."""
        if self.first_ns is None or self.last_ns is None:
            return 0.0
        return max(0, self.last_ns - self.first_ns) / SECOND

    @property
    def per_second(self) -> float:
        """Acknowledged messages per second."""
        return self.outcomes[Outcome.ACKED] / self.seconds if self.seconds else 0.0

    @property
    def mib_per_second(self) -> float:
        """MiB of acknowledged values per second."""
        return self.value_bytes / MIB / self.seconds if self.seconds else 0.0

    def span(self, first_ns: int, last_ns: int) -> None:
        """Stretch the time that it is about."""
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def merge(self, other: Tally) -> None:
        """Add what another one counted."""
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.value_bytes += other.value_bytes
        if other.first_ns is not None and other.last_ns is not None:
            self.span(other.first_ns, other.last_ns)
        self.from_intended.histogram.merge(other.from_intended.histogram)
        self.from_sent.histogram.merge(other.from_sent.histogram)
        self.schedule_lag.histogram.merge(other.schedule_lag.histogram)

    def to_json(self) -> dict[str, Any]:
        """For the summary; latencies in seconds."""
        return {
            "records": self.records,
            **{outcome.name.lower(): count for outcome, count in self.outcomes.items()},
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.per_second, 3),
            "mib_per_second": round(self.mib_per_second, 6),
            "latency_seconds": {
                "from_intended": quantiles(self.from_intended.histogram),
                "from_sent": quantiles(self.from_sent.histogram),
            },
            "schedule_lag_seconds": quantiles(self.schedule_lag.histogram),
        }


def quantiles(histogram: Histogram) -> dict[str, float | int]:
    """Average, greatest and quantiles in seconds; empty where nothing was measured."""
    if not histogram.count:
        return {}
    return {
        "avg": histogram.mean / SECOND,
        "max": histogram.maximum / SECOND,
        **{name: histogram.quantile(q) / SECOND for name, q in QUANTILES.items()},
        "negative": histogram.negative,
    }


def merged(tallies: Iterable[Tally]) -> Tally:
    """All of them as one."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total
