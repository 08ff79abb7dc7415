"""Twice a second a producer checks its lag and its clock, and publishes progress and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from mirrortest.config.units import MILLISECOND_NS
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.metrics.server_process import serve_in_child
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.produce.incarnation import Backlog
from mirrortest.produce.load import ProducerLoad
from mirrortest.produce.pace import lane_share
from mirrortest.produce.produce_status import PartitionBacklog, ProduceStatus
from mirrortest.timing.histogram import Histogram
from mirrortest.timing.recent import Recent
from mirrortest.timing.shaped_rate import ShapedRate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirrortest.metrics.endpoint import Serve
    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.produce.context import ProducerContext
    from mirrortest.produce.incarnation import Incarnation

_log = structlog.get_logger()

_TICK_SECONDS = 0.5
BEHIND_NS = 250_000_000
"""A producer with more lag than this, not counting `linger.ms`, is behind its schedule."""
_EXTRA_SECONDS = 60.0
"""Seconds without progress, on top of the delivery timeout, until probes report a hang."""


class ProducerMetrics:
    """Publishes a producer's numbers; a scrape sees them as of the last `publish`."""

    def __init__(
        self,
        context: ProducerContext,
        serve: Serve = serve_in_child,
    ) -> None:
        self._context = context
        self._options = context.options
        self._serve = serve
        self._metrics = Metrics()
        # A batch is answered, or given up, within the delivery timeout.
        self.health = Health(context.options.client.delivery_timeout_ms / 1000 + _EXTRA_SECONDS)
        self._registered: set[str] = set()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the metrics if a port is given; raises UsageError if it cannot be used."""
        options = self._options
        endpoint = self._serve(
            self._metrics,
            address=options.metrics_address,
            port=options.metrics_port,
            health=self.health,
        )
        info = {"run": options.run, "role": "producer", "name": options.name}
        self._metrics.gauge(names.RUN_INFO, **info).set(1)
        with endpoint or contextlib.nullcontext():
            yield

    def publish(
        self, incarnation: Incarnation, backlogs: Mapping[str, Backlog], bound_ns: int, now_ns: int
    ) -> None:
        """Publish the current numbers; `backlogs` are by topic, a lag over `bound_ns` is behind."""
        self.health.started = self.health.ready = True
        metrics, watch = self._metrics, self._context.clock.watch
        metrics.counter(names.CLOCK_STEPS).raise_to(watch.steps)
        metrics.counter(names.CLOCK_STEPPED).raise_to(watch.stepped_ns / 1e9)
        metrics.counter(names.LOG_ROWS).raise_to(incarnation.ledger_writer.durable_rows)
        metrics.gauge(names.LEDGER_AGE).set((now_ns - incarnation.ledger_writer.written_ns) / 1e9)
        number = incarnation.ledger_writer.registration.incarnation
        metrics.gauge(names.PRODUCER_INCARNATION).set(number)
        for topic, backlog in backlogs.items():
            self._register_histograms(topic)
            numbers = self._context.numbers[topic]
            for outcome, count in numbers.outcomes.items():
                name = outcome.name.lower()
                metrics.counter(names.PRODUCER_MESSAGES, topic=topic, outcome=name).raise_to(count)
            failures = numbers.failures
            for failure in Failure:  # all of them: rate() misses a series' first value
                metrics.counter(
                    names.PRODUCER_NOT_ACKED, topic=topic, reason=failure.value
                ).raise_to(failures[failure])
            metrics.counter(names.PRODUCER_BYTES, topic=topic).raise_to(numbers.wire_bytes)
            numbers.flush()
            target = _target(self._context, topic, now_ns)
            if target is not None:
                metrics.gauge(names.PRODUCER_TARGET, topic=topic).set(target)
            for gauge, value in (
                (names.PRODUCER_IN_FLIGHT, backlog.in_flight),
                (names.PRODUCER_DEBT_MESSAGES, backlog.due),
                (names.PRODUCER_DEBT_SECONDS, backlog.lag_ns / 1e9),
                (names.PRODUCER_BEHIND, int(backlog.lag_ns > bound_ns)),
            ):
                metrics.gauge(gauge, topic=topic).set(value)

    def _register_histograms(self, topic: str) -> None:
        if topic in self._registered:
            return
        self._registered.add(topic)
        numbers, metrics = self._context.numbers[topic], self._metrics
        metrics.histogram(names.PRODUCER_ACK_LATENCY, numbers.ack_latency, topic=topic)
        metrics.histogram(names.PRODUCER_SCHEDULE_LAG, numbers.schedule_lag, topic=topic)


class Housekeeping:
    """Watches a producer; `incarnation` is the current one."""

    def __init__(
        self,
        context: ProducerContext,
        metrics: ProducerMetrics,
        on_progress: Callable[[ProduceStatus], None],
    ) -> None:
        self._context = context
        self._metrics = metrics
        self._on_progress = on_progress
        self._recent = Recent()
        self._acked = (0, context.clock.now())
        """Messages acknowledged, and when their number last changed or none were in flight."""
        self.fault = ""
        """Why nothing can be sent now, for the user; empty if sending is possible."""
        self._ticked_ns = context.clock.now()
        self._bound_ns = BEHIND_NS + 2 * context.options.client.linger_ms * MILLISECOND_NS
        self._lags: dict[str, int] = {}
        self.incarnation: Incarnation | None = None
        self.load = ProducerLoad(context)
        self._steps = 0
        self.behind_ns: dict[str, int] = {}
        """topic -> how long it was behind its schedule"""
        self.notes: list[str] = []
        self._grown: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Tick until cancelled, and then once more: the last status is the run's end.

        A failed tick is tried again, and only the first in a row is logged.
        """
        failing = False
        try:
            while True:
                await asyncio.sleep(_TICK_SECONDS)
                try:
                    self.tick()
                except Exception:  # noqa: BLE001  # whatever it is, metrics and probes must go on
                    if not failing:
                        _log.exception("progress cannot be published, trying again")
                    failing = True
                else:
                    failing = False
        finally:
            self.tick()

    def tick(self) -> None:
        """Check and publish everything once."""
        now = self._context.clock.now()
        step = self._context.clock.refresh()
        if step is not None:
            note = f"the wall clock was set by {step.by_ns / 1e9:+.3f} s during the run"
            _log.warning(note)
            self.notes.append(note)
        incarnation = self.incarnation
        if incarnation is None or self._makes_progress(incarnation, now):
            self._metrics.health.beat()
        if incarnation is not None:
            self._note_clock(incarnation)
            backlogs = incarnation.backlogs(now)
            by_topic: dict[str, Backlog] = {}
            for at, backlog in backlogs.items():
                by_topic.setdefault(at.topic, Backlog()).add(backlog)
            if not incarnation.stopped:
                self._watch_lag(by_topic, now)
            self._watch_growth(incarnation)
            self._metrics.publish(incarnation, by_topic, self._bound_ns, now)
            self.load.end_if_due(incarnation)
            status = self._status(backlogs, now)
            self._metrics.health.status = status
            self._on_progress(status)
        self._ticked_ns = now

    def _makes_progress(self, incarnation: Incarnation, now_ns: int) -> bool:
        """Whether the incarnation did something since the last tick, or has nothing to do."""
        before, self._steps = self._steps, incarnation.steps
        return self._steps != before or incarnation.idle(now_ns)

    def _note_clock(self, incarnation: Incarnation) -> None:
        """Record in the ledger that the wall clock was set: latencies depend on it."""
        for lane in incarnation.lanes if self._context.clock.watch.steps else ():
            lane.clock_was_set(self._context.clock.watch.set_by_ns)

    def _watch_lag(self, backlogs: Mapping[str, Backlog], now_ns: int) -> None:
        failing, recovered = [], []
        for topic, backlog in backlogs.items():
            before, lag_ns = self._lags.get(topic, 0), backlog.lag_ns
            self._lags[topic] = lag_ns
            if lag_ns > self._bound_ns:
                elapsed = now_ns - self._ticked_ns
                self.behind_ns[topic] = self.behind_ns.get(topic, 0) + elapsed
                if before <= self._bound_ns:
                    failing.append(topic)
            elif before > self._bound_ns:
                recovered.append(topic)
        if failing:
            seconds = round(max(self._lags[topic] for topic in failing) / 1e9, 3)
            _log.warning(
                "the producer is behind its schedule",
                topics=",".join(failing),
                behind_seconds=seconds,
            )
        if recovered:
            _log.info("the producer has caught up with its schedule", topics=",".join(recovered))

    def _watch_growth(self, incarnation: Incarnation) -> None:
        grown = incarnation.grown()
        for topic, (begun, now) in grown.items():
            if self._grown.get(topic) != (begun, now):
                note = (
                    f"{topic} grew from {begun} to {now} partitions during the run: lanes keep "
                    "their partitions; this producer sends nothing to the new ones"
                )
                _log.warning(note)
                self.notes.append(note)
        self._grown |= grown

    def _status(self, backlogs: Mapping[TopicPartition, Backlog], now_ns: int) -> ProduceStatus:
        options, latency = self._context.options, Histogram()
        total = lane_share(options.num_records, options.share.index, options.share.of)
        skipped = self._context.skipped
        targets = [_target(self._context, topic, now_ns) for topic in self._context.numbers]
        outcomes, value_bytes = dict.fromkeys(Outcome, 0), 0
        failures: Counter[Failure] = Counter()
        for numbers in self._context.numbers.values():
            numbers.flush()
            latency.merge(numbers.ack_latency)
            failures += numbers.failures
            value_bytes += numbers.value_bytes
            for outcome, count in numbers.outcomes.items():
                outcomes[outcome] += count
        acked = outcomes[Outcome.ACKED]
        grown = self._recent.sample(now_ns, (acked, value_bytes), latency)
        waits = [
            PartitionBacklog(str(at), each.in_flight, each.due, self._behind(each))
            for at, each in backlogs.items()
        ]
        in_flight = sum(each.in_flight for each in waits)
        if acked != self._acked[0] or not in_flight:
            self._acked = acked, now_ns
        return ProduceStatus(
            run=options.run,
            name=options.name,
            elapsed_seconds=max(0, now_ns - self._context.began_ns) / 1e9,
            late_seconds=self._context.late_ns / 1e9,
            duration_seconds=None if options.duration_ns is None else options.duration_ns / 1e9,
            total=None if total is None else total * len(targets) - skipped,
            asked_per_second=None if None in targets else sum(filter(None, targets)),
            acked_per_second=grown.per_second[0],
            bytes_per_second=grown.per_second[1],
            value_bytes=value_bytes,
            outcomes=outcomes,
            reasons=dict(self._context.reasons),
            failures=failures,
            in_flight=in_flight,
            due=sum(each.due for each in waits),
            behind_ns=max((each.behind_ns for each in waits), default=0),
            latency=grown.latencies,
            quiet_seconds=(now_ns - self._acked[1]) / 1e9,
            fault=self.fault,
            backlogs=waits,
        )

    def _behind(self, backlog: Backlog) -> int:
        """How far a backlog is behind its schedule; 0 up to the bound."""
        return backlog.lag_ns if backlog.lag_ns > self._bound_ns else 0


def _target(context: ProducerContext, topic: str, now_ns: int) -> float | None:
    """This producer's target rate now, messages/s; None: unlimited."""
    rate, since_ns = context.rates[topic], now_ns - context.began_ns
    if isinstance(rate, ShapedRate):
        rate = rate.rate(since_ns)
    elif rate is not None and since_ns < 0:
        rate = 0.0
    return None if rate is None else rate / context.options.share.of
