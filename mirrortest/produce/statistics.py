"""Counts and latencies of messages, in tallies that can be merged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.config.units import MIB, SECOND_NS
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.timing.histogram import Counted, Histogram, sparse_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from mirrortest.produce.produce_summary import SentFigures
    from mirrortest.timing.histogram import Sparse

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


_PORTION = 1 << 13


class _ValueBuffer(ABC):
    """Collects values and counts them in a few large portions, so small batches cost little."""

    __slots__ = ("_repeated", "_waiting", "_work")

    def __init__(self) -> None:
        self._waiting: list[NDArray[np.int64]] = []
        self._repeated: dict[int, int] = {}
        self._work = 0

    @abstractmethod
    def take(self, counted: Counted) -> None:
        """Add values that are counted already."""

    def add(self, values_ns: NDArray[np.int64] | int, count: int) -> None:
        """Add `count` values: an array, or one value that all have, at the cost of one.

        An array must not change afterwards.
        """
        if isinstance(values_ns, int):
            self._repeated[values_ns] = self._repeated.get(values_ns, 0) + count
            self._work += 1
        else:
            self._waiting.append(values_ns)
            self._work += count
        if self._work >= _PORTION:
            self.flush()

    def flush(self) -> None:
        """Count the collected values."""
        self._work = 0
        if waiting := self._waiting:
            self._waiting = []
            self.take(Counted.of(waiting[0] if len(waiting) == 1 else np.concatenate(waiting)))
        if repeated := self._repeated:
            self._repeated = {}
            self.take(Counted.repeated(repeated))


class BufferedHistogram(_ValueBuffer):
    """A histogram that is filled in portions; `also` is another one that gets the same values."""

    __slots__ = ("_all", "_histogram", "_parts")

    def __init__(self, also: Histogram | None = None) -> None:
        super().__init__()
        self._histogram = Histogram()
        self._all = (self._histogram,) if also is None else (self._histogram, also)
        self._parts: set[Part] = set()

    @property
    def histogram(self) -> Histogram:
        """The histogram of all values so far, those of open parts included."""
        self.flush()
        return self._histogram

    def take(self, counted: Counted) -> None:
        """Add values that are counted already."""
        for histogram in self._all:
            histogram.take(counted)

    def flush(self) -> None:
        """Count the collected values, here and in open parts."""
        super().flush()
        for part in self._parts:
            part.flush()

    def begin(self) -> Part:
        """Open a part: its values count here, and are also returned when it closes."""
        part = Part(self)
        self._parts.add(part)
        return part

    def end(self, part: Part) -> Sparse:
        """Close a part; return its values."""
        part.flush()
        self._parts.discard(part)
        return sparse_of(part.portions)


class Part(_ValueBuffer):
    """Values of a `BufferedHistogram` that are also needed alone; they are counted once."""

    __slots__ = ("_whole", "portions")

    def __init__(self, parent: BufferedHistogram) -> None:
        super().__init__()
        self._whole = parent
        self.portions: list[Counted] = []

    def take(self, counted: Counted) -> None:
        """Add values that are counted already."""
        self._whole.take(counted)
        self.portions.append(counted)

    def close(self) -> Sparse:
        """Close the part; return its filled buckets."""
        return self._whole.end(self)


@dataclass
class Tally:
    """Messages by outcome, with the bytes and latencies (ns) of the acknowledged ones.

    `schedule_lag` (ns) is of all messages. `failures` counts messages without an acknowledgement,
    by category. `first_ns` is the first intended time, `last_ns` when the last outcome came, both
    monotonic.
    """

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    failures: Counter[Failure] = field(default_factory=Counter)
    value_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    from_intended: BufferedHistogram = field(default_factory=BufferedHistogram)
    from_sent: BufferedHistogram = field(default_factory=BufferedHistogram)
    schedule_lag: BufferedHistogram = field(default_factory=BufferedHistogram)

    @property
    def records(self) -> int:
        """Messages that have an outcome."""
        return sum(self.outcomes.values())

    @property
    def seconds(self) -> float:
        """Seconds from the first intended time to the last outcome."""
        if self.first_ns is None or self.last_ns is None:
            return 0.0
        return max(0, self.last_ns - self.first_ns) / SECOND_NS

    @property
    def per_second(self) -> float:
        """Acknowledged messages per second."""
        return self.outcomes[Outcome.ACKED] / self.seconds if self.seconds else 0.0

    @property
    def mib_per_second(self) -> float:
        """MiB of acknowledged values per second."""
        return self.value_bytes / MIB / self.seconds if self.seconds else 0.0

    def span(self, first_ns: int, last_ns: int) -> None:
        """Extend the time that the tally covers."""
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count
        self.failures += other.failures
        self.value_bytes += other.value_bytes
        if other.first_ns is not None and other.last_ns is not None:
            self.span(other.first_ns, other.last_ns)
        self.from_intended.histogram.merge(other.from_intended.histogram)
        self.from_sent.histogram.merge(other.from_sent.histogram)
        self.schedule_lag.histogram.merge(other.schedule_lag.histogram)

    def to_json(self) -> SentFigures:
        """The figures for the summary; latencies are in seconds."""
        return {
            "records": self.records,
            "acked": self.outcomes[Outcome.ACKED],
            "failed": self.outcomes[Outcome.FAILED],
            "unknown": self.outcomes[Outcome.UNKNOWN],
            "not_acked": by_name(self.failures),
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.per_second, 3),
            "mib_per_second": round(self.mib_per_second, 6),
            "latency_seconds": {
                "from_intended": quantiles(self.from_intended.histogram),
                "from_sent": quantiles(self.from_sent.histogram),
            },
            "schedule_lag_seconds": quantiles(self.schedule_lag.histogram),
        }


def by_name(failures: Mapping[Failure, int]) -> dict[str, int]:
    """Category -> count, in the order of `Failure`, without zeros."""
    return {failure.value: failures[failure] for failure in Failure if failures.get(failure)}


def quantiles(histogram: Histogram) -> dict[str, float | int]:
    """Average, maximum and quantiles in seconds, and negative values; empty without values."""
    if not histogram.count:
        return {}
    return {
        "avg": histogram.mean / SECOND_NS,
        "max": histogram.maximum / SECOND_NS,
        **{name: histogram.quantile(q) / SECOND_NS for name, q in QUANTILES.items()},
        "negative": histogram.negative,
    }


def merged(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total
