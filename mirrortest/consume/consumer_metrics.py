"""A consumer's counts, its Prometheus metrics, and the clocks that its latencies depend on.

A clock that is set changes no verdict, because verdicts use the monotonic clock only. It changes
latencies, which are flagged by a note and by the count of negative ones.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from mirrortest.consume.consume_report import counts_of
from mirrortest.consume.statistics import ReadClock
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.metrics.server_process import serve_in_child
from mirrortest.model.findings import WRONG, Finding, Outcome
from mirrortest.results.words import below_zero, clock_set
from mirrortest.timing.clock_watch import STEP_BOUND_NS, ClockWatch
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from mirrortest.consume.assigned_partition import JudgedBatch
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outage import Outage
    from mirrortest.consume.statistics import ReadFigures
    from mirrortest.metrics.endpoint import Serve
    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.verify.judge import RunVerdict
    from mirrortest.verify.row import SeenRow
    from mirrortest.wire.stream import StreamId

_log = structlog.get_logger()


_BY_TOPIC = (
    names.CONSUMER_MESSAGES,
    names.CONSUMER_BYTES,
    names.CONSUMER_BACKLOG,
    names.CONSUMER_LOST_CLAIMED,
    names.CONSUMER_LOST_REPAID,
)
"""The counters of a source topic."""
_PATIENCE = 90.0
"""Seconds. By default a request can take 30; a judging round takes a fraction of a second."""


_MOST_LANES = 100
"""How many lanes of a topic are published one by one: faults in every lane need no list."""


class Clocks:
    """Watches this host's wall clock, and the producers' clocks by the times in their messages.

    Within a stream, a later seq never has an earlier intended time, unless the producer's clock was
    set back. A clock that was set forwards shows in negative latencies.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.watch = ClockWatch.of(monotonic_ns, wall_ns)
        self.notes: list[str] = []
        self._last: dict[StreamId, tuple[int, int]] = {}
        """Stream -> (the seq after its latest message, that message's intended time)."""
        self._set_back: set[tuple[str, int]] = set()
        self.producers_ns = 0
        """By how much a producer's clock was set, by its messages and by the ledger."""

    def poll(self) -> None:
        """Compare this host's wall clock with its monotonic clock."""
        step = self.watch.measure(self._monotonic_ns, self._wall_ns)
        if step is not None:
            self._warn(clock_set("the wall clock here", step.by_ns, "+"))

    def earliest_ns(self) -> int:
        """The earliest wall time that it may be now, ns since the epoch.

        If the clock was set, it is unknown which setting was right. The earliest time makes no
        message overdue too early.
        """
        self.poll()
        return self._monotonic_ns() + self.watch.least_ns

    def latest_ns(self) -> int:
        """The latest wall time that it may be now: no message was sent after it."""
        self.poll()
        return self._monotonic_ns() + self.watch.most_ns

    @property
    def off_ns(self) -> int:
        """By how much latencies may be off because clocks were set, ns."""
        return self.watch.set_by_ns + self.producers_ns

    def note_producer_clock(self, set_ns: int) -> None:
        """Record by how much a producer's clock was set, as it wrote to the ledger."""
        if set_ns and not self.producers_ns:
            self._warn(clock_set("the wall clock of a producer", set_ns))
        self.producers_ns = max(self.producers_ns, set_ns)

    def follow(self, rows: Iterable[SeenRow]) -> None:
        """Check the times of messages without findings, in the order of one partition."""
        for row in rows:
            if row.stream is None or row.findings:
                continue
            seq, intended_ns = self._last.get(row.stream, (0, row.intended_first))
            if row.seq_lo < seq:
                continue  # a copy, or out of order
            self._last[row.stream] = (row.seq_hi, row.intended_last)
            back_ns = intended_ns - row.intended_first
            if back_ns <= STEP_BOUND_NS:
                continue
            self.producers_ns = max(self.producers_ns, back_ns)
            producer = (row.stream.producer, row.stream.incarnation)
            if producer not in self._set_back:
                self._set_back.add(producer)
                self._warn(
                    f"the wall clock of producer {producer[0]} (incarnation {producer[1]}) was "
                    f"set back by {back_ns / 1e9:.3f} s between two messages: their latencies are "
                    "off by as much, verdicts are not touched"
                )

    def _warn(self, note: str) -> None:
        _log.warning(note)
        self.notes.append(note)


class ConsumerMetrics:
    """Counts messages batch by batch, and publishes the results of judging rounds."""

    def __init__(self, options: ConsumeOptions, serve: Serve = serve_in_child) -> None:
        self._options = options
        self._serve = serve
        self._metrics = Metrics(role=options.role.value)
        self._saved = time.monotonic()
        self._lags: set[tuple[str, str]] = set()
        self._lanes: dict[str, set[tuple[str, str, str]]] = {}
        """Source topic -> the published (lane, partition, finding)."""
        self.clocks = Clocks()
        self.arrived: Counter[str] = Counter()
        """Source topic -> messages that were read and judged, also those that are not the run's."""
        self.value_bytes: Counter[str] = Counter()
        """Source topic -> bytes of their values."""
        self.lags: Mapping[str, int] = {}
        """Source topic -> offsets left to judge, as of the last judging round."""
        self.read_clock = ReadClock()
        self.last_message = time.monotonic()
        """When the last message arrived, monotonic seconds."""
        self.last_of_run = self.last_message
        """The same for messages of the run: others may write to its topics for ever."""
        self.latency: dict[str, tuple[Histogram, Histogram]] = {}
        """Source topic -> latencies from the intended and from the actual send."""
        self.backlog: Counter[str] = Counter()
        """Source topic -> messages whose latencies were not measured: see `JudgedBatch.backlog`."""
        self.health = Health(_PATIENCE)
        self._outage: Outage | None = None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve metrics if the options ask for it. Raises UsageError if the port is taken."""
        options, metrics = self._options, self._metrics
        metrics.gauge(names.RUN_INFO, run=options.run, name=options.name).set(1)
        age = metrics.gauge(names.CONSUMER_STATE_AGE)
        age.read_by(lambda: time.monotonic() - self._saved)
        endpoint = self._serve(
            metrics,
            address=options.metrics_address,
            port=options.metrics_port,
            health=self.health,
        )
        with endpoint or contextlib.nullcontext():
            yield

    def count(self, topic: str, batch: JudgedBatch, *, of_run: bool = True) -> None:
        """Count a judged batch of one source topic.

        `of_run`: whether the topic is the run's, so that a corrupted message may be the run's, too.
        """
        self.clocks.follow(batch.rows)
        for histogram, since, values in zip(
            self._latencies(topic),
            ("intended", "sent"),
            (batch.latency_intended, batch.latency_sent),
            strict=True,
        ):
            histogram.add(values)
            counter = self._metrics.counter(names.CONSUMER_NEGATIVE, topic=topic, since=since)
            counter.raise_to(histogram.negative)
            if histogram.count:
                least = self._metrics.gauge(names.CONSUMER_LEAST_LATENCY, topic=topic, since=since)
                least.set(histogram.minimum / 1e9)
        self.backlog[topic] += batch.backlog
        self._metrics.counter(names.CONSUMER_BACKLOG, topic=topic).add(batch.backlog)
        self.arrived[topic] += batch.messages
        self.value_bytes[topic] += batch.value_bytes
        self._metrics.counter(names.CONSUMER_MESSAGES, topic=topic).add(batch.messages)
        self._metrics.counter(names.CONSUMER_BYTES, topic=topic).add(batch.value_bytes)
        if batch.messages:
            self.last_message = time.monotonic()
            self.read_clock.arrived()
        if of_run and any(
            row.stream is not None or row.findings & Finding.CORRUPTED for row in batch.rows
        ):
            self.last_of_run = time.monotonic()

    def took_over(self, topic: str, unmeasured: int) -> None:
        """Count messages of a source topic whose latencies may be in no consumer's report."""
        for histogram in self._latencies(topic) if unmeasured else ():
            histogram.unmeasured += unmeasured

    def saved(self) -> None:
        """Record that the states were saved just now."""
        self._saved = time.monotonic()

    def claimed(self, topic: str, lost: int) -> None:
        """Count messages of a source topic that were claimed lost."""
        self._metrics.counter(names.CONSUMER_LOST_CLAIMED, topic=topic).add(lost)

    def judged(self, topic: str, total: RunVerdict, *, late: int, with_ledger: bool) -> None:
        """Publish the verdict on one source topic; `late` messages had been claimed lost."""
        metrics = self._metrics
        counts = counts_of(total, with_ledger=with_ledger)
        for outcome in Outcome:
            label = outcome.name.lower()
            gauge = metrics.gauge(names.CONSUMER_ACKED, topic=topic, outcome=label)
            gauge.set(counts.pop(label, 0))
        metrics.gauge(names.CONSUMER_DELIVERED, topic=topic).set(counts.pop("delivered", 0))
        for finding, count in counts.items():
            metrics.gauge(names.CONSUMER_FINDINGS, topic=topic, finding=finding).set(count)
        metrics.counter(names.CONSUMER_LOST_REPAID, topic=topic).raise_to(late)

    def lanes_judged(
        self,
        topic: str,
        counts: Mapping[tuple[str, Finding], int],
        partitions: Mapping[str, Collection[int]],
    ) -> None:
        """Publish the lanes of a source topic that have the most bad findings, and only those.

        A lane is a record key here: it counts the messages of all producers with this key.
        `partitions` has where each lane belongs; the label is empty unless that is one partition.
        """
        found = {
            (lane, finding.label): count
            for (lane, finding), count in counts.items()
            if finding in WRONG and count
        }
        by_lane: Counter[str] = Counter()
        for (lane, _), count in found.items():
            by_lane[lane] += count
        worst = {lane for lane, _ in by_lane.most_common(_MOST_LANES)}
        where = {lane: _only(partitions.get(lane, ())) for lane in worst}
        now = {
            (lane, where[lane], label): count
            for (lane, label), count in found.items()
            if lane in worst
        }
        metric = names.CONSUMER_LANE_FINDINGS
        for lane, partition, label in self._lanes.get(topic, set()) - now.keys():
            self._metrics.remove(metric, topic=topic, lane=lane, partition=partition, finding=label)
        self._lanes[topic] = set(now)
        for (lane, partition, label), count in now.items():
            self._metrics.gauge(
                metric, topic=topic, lane=lane, partition=partition, finding=label
            ).set(count)

    def filled(self, topic: str, fullness: float) -> None:
        """Publish how much of its memory bound the fullest checker of a source topic uses."""
        self._metrics.gauge(names.CONSUMER_FULLNESS, topic=topic).set(fullness)

    def follow_outage(self, outage: Outage) -> None:
        """Publish whether the cluster that is read is unreachable."""
        self._outage = outage
        gauge = self._metrics.gauge(names.CONSUMER_UNREACHABLE)
        gauge.read_by(lambda: float(bool(outage.why)))

    def progressed(
        self,
        lags: Mapping[TopicPartition, int],
        unread: Mapping[str, int],
        *,
        complete: bool,
    ) -> None:
        """Publish how far the copies of source topics were read.

        Partitions that this consumer no longer owns are removed.
        """
        metrics = self._metrics
        now = {(at.topic, str(at.partition)) for at in lags}
        for topic, partition in self._lags - now:
            metrics.remove(names.CONSUMER_LAG, topic=topic, partition=partition)
        partitions = Counter(at.topic for at in lags)
        for topic in {topic for topic, _ in self._lags | now}:
            metrics.gauge(names.CONSUMER_PARTITIONS, topic=topic).set(partitions[topic])
            # Begin at 0: Prometheus' rate() ignores the value with which a counter begins.
            for counter in _BY_TOPIC:
                metrics.counter(counter, topic=topic)
            for since in ("intended", "sent"):
                metrics.counter(names.CONSUMER_NEGATIVE, topic=topic, since=since)
                metrics.histogram(names.CONSUMER_LATENCY, topic=topic, since=since)
        self._lags = now
        left: Counter[str] = Counter()
        for at, lag in lags.items():
            left[at.topic] += lag
        self.lags = left
        for at, lag in lags.items():
            gauge = metrics.gauge(names.CONSUMER_LAG, topic=at.topic, partition=str(at.partition))
            gauge.set(lag)
        for topic, offsets in unread.items():
            metrics.gauge(names.CONSUMER_UNREAD, topic=topic).set(offsets)
        metrics.gauge(names.CONSUMER_COMPLETE).set(complete)

    def follow_ledger(self, last_record_ns: int | None, malformed: int, *, ended: bool) -> None:
        """Publish the ledger's silence, its malformed records, and whether it has ended."""
        self._metrics.gauge(names.CONSUMER_LEDGER_ENDED).set(ended)
        if last_record_ns is not None:
            age = (time.monotonic_ns() - last_record_ns) / 1e9
            self._metrics.gauge(names.LEDGER_AGE).set(age)
        self._metrics.counter(names.CONSUMER_LEDGER_MALFORMED).raise_to(malformed)

    def observe_process(self, log_rows: int) -> None:
        """Check the clock, and publish its steps and the number of logged rows."""
        self.clocks.poll()
        metrics, watch = self._metrics, self.clocks.watch
        metrics.counter(names.CLOCK_STEPS).raise_to(watch.steps)
        metrics.counter(names.CLOCK_STEPPED).raise_to(watch.stepped_ns / 1e9)
        metrics.counter(names.LOG_ROWS).raise_to(log_rows)

    def notes(self) -> list[str]:
        """The notes that flag latencies."""
        found = [*self.clocks.notes, *(self._outage.notes if self._outage else ())]
        for topic, (intended, _) in self.latency.items():
            if intended.negative:
                found.append(below_zero(topic, intended))
        return found

    @property
    def messages(self) -> int:
        """Messages that were read and judged, also those that are not the run's."""
        return self.arrived.total()

    def reading(self, lag: int | None) -> ReadFigures:
        """How much was read so far, and in what time; `lag` is what is left, None: unknown."""
        return self.read_clock.figures(
            messages=self.messages, value_bytes=self.value_bytes.total(), lag=lag
        )

    def merged_latency(self) -> tuple[Histogram, Histogram]:
        """Latencies over all topics: from the intended and from the actual send."""
        merged = (Histogram(), Histogram())
        for pair in self.latency.values():
            for into, histogram in zip(merged, pair, strict=True):
                histogram.off_ns = self.clocks.off_ns
                into.merge(histogram)
        return merged

    def _latencies(self, topic: str) -> tuple[Histogram, Histogram]:
        if topic not in self.latency:
            self.latency[topic] = tuple(  # type: ignore[assignment]  # of two
                self._metrics.histogram(names.CONSUMER_LATENCY, topic=topic, since=since)
                for since in ("intended", "sent")
            )
        return self.latency[topic]


def _only(partitions: Collection[int]) -> str:
    """The one partition as a label; empty for none and for several."""
    return str(next(iter(partitions))) if len(partitions) == 1 else ""
