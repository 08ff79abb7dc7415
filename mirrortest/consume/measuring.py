"""What a consumer counts, and publishes for Prometheus."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from mirrortest.check.verdict import Outcome
from mirrortest.consume.outcome import counts_of
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.endpoint import serve_metrics
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirrortest.check.judge import RunVerdict
    from mirrortest.consume.assigned import Taken
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.state import Partition


class Measures:
    """Counts per fetched response; the judging rounds publish what they find."""

    def __init__(self, options: ConsumeOptions) -> None:
        self._options = options
        self._metrics = Metrics()
        self._saved = time.monotonic()
        self._lags: set[tuple[str, str]] = set()
        self.messages = 0
        self.value_bytes = 0
        self.last_message = time.monotonic()
        """Monotonic seconds."""
        self.latency: dict[str, tuple[Histogram, Histogram]] = {}
        """source topic -> latencies from the intended and from the actual send"""
        self.assigned = False

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve metrics where that is asked for. Raises UsageError for a port that is taken."""
        options, metrics = self._options, self._metrics
        metrics.gauge(names.RUN_INFO, run=options.run, role="consumer", name=options.name).set(1)
        age = metrics.gauge(names.CONSUMER_STATE_AGE)
        age.read_by(lambda: time.monotonic() - self._saved)
        endpoint = serve_metrics(
            metrics,
            address=options.metrics_address,
            port=options.metrics_port,
            ready=lambda: self.assigned,
        )
        with endpoint or contextlib.nullcontext():
            yield

    def count(self, topic: str, taken: Taken) -> None:
        """Add what a response brought of one source topic."""
        if topic not in self.latency:
            self.latency[topic] = tuple(  # type: ignore[assignment]  # of two
                self._metrics.histogram(names.CONSUMER_LATENCY, topic=topic, since=since)
                for since in ("intended", "sent")
            )
        for histogram, since, values in zip(
            self.latency[topic],
            ("intended", "sent"),
            (taken.latency_intended, taken.latency_sent),
            strict=True,
        ):
            histogram.add(values)
            counter = self._metrics.counter(names.CONSUMER_NEGATIVE, topic=topic, since=since)
            counter.raise_to(histogram.negative)
        self.messages += taken.messages
        self.value_bytes += taken.value_bytes
        self._metrics.counter(names.CONSUMER_MESSAGES, topic=topic).add(taken.messages)
        self._metrics.counter(names.CONSUMER_BYTES, topic=topic).add(taken.value_bytes)
        if taken.messages:
            self.last_message = time.monotonic()

    def saved(self) -> None:
        """The state was written."""
        self._saved = time.monotonic()

    def claimed(self, topic: str, lost: int) -> None:
        """Messages of a source topic were claimed lost."""
        self._metrics.counter(names.CONSUMER_LOST_CLAIMED, topic=topic).add(lost)

    def judged(self, topic: str, total: RunVerdict, *, late: int, vouched: bool) -> None:
        """Publish the state of one source topic's judgement."""
        metrics = self._metrics
        counts = counts_of(total, vouched=vouched)
        for outcome in (Outcome.ACKED, Outcome.UNKNOWN):
            label = outcome.name.lower()
            gauge = metrics.gauge(names.CONSUMER_ACKED, topic=topic, outcome=label)
            gauge.set(counts.pop(label, 0))
        metrics.gauge(names.CONSUMER_DELIVERED, topic=topic).set(counts.pop("delivered", 0))
        for finding, count in counts.items():
            metrics.gauge(names.CONSUMER_FINDINGS, topic=topic, finding=finding).set(count)
        metrics.counter(names.CONSUMER_LOST_REPAID, topic=topic).raise_to(late)

    def progressed(
        self,
        lags: Mapping[Partition, int],
        unread: Mapping[str, int],
        *,
        complete: bool,
    ) -> None:
        """Publish how far the reading is; partitions that went away are published no longer."""
        metrics = self._metrics
        now = {(at.topic, str(at.partition)) for at in lags}
        for topic, partition in self._lags - now:
            metrics.remove(names.CONSUMER_LAG, topic=topic, partition=partition)
        self._lags = now
        for at, lag in lags.items():
            gauge = metrics.gauge(names.CONSUMER_LAG, topic=at.topic, partition=str(at.partition))
            gauge.set(lag)
        for topic, count in _tally(at.topic for at in lags).items():
            metrics.gauge(names.CONSUMER_PARTITIONS, topic=topic).set(count)
        for topic, offsets in unread.items():
            metrics.gauge(names.CONSUMER_UNREAD, topic=topic).set(offsets)
        metrics.gauge(names.CONSUMER_COMPLETE).set(complete)
        self.assigned = self.assigned or bool(lags)

    def follow_ledger(self, last_record_ns: int | None) -> None:
        """Publish how long the ledger has been silent."""
        if last_record_ns is not None:
            age = (time.monotonic_ns() - last_record_ns) / 1e9
            self._metrics.gauge(names.LEDGER_AGE).set(age)

    def merged_latency(self) -> tuple[Histogram, Histogram]:
        """Over all topics: from the intended and from the actual send."""
        merged = (Histogram(), Histogram())
        for pair in self.latency.values():
            for into, histogram in zip(merged, pair, strict=True):
                into.merge(histogram)
        return merged


def _tally(topics: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic in topics:
        found[topic] = found.get(topic, 0) + 1
    return found
