"""What a producer does once a second: progress, lag, the clock's steps, and its metrics."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.metrics.server_process import serve_apart
from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import ProduceProgress
from mirrortest.timing.shaped_rate import ShapedRate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirrortest.metrics.endpoint import Serve
    from mirrortest.produce.context import ProducerContext
    from mirrortest.produce.incarnation import Incarnation

_log = structlog.get_logger()

_TICK_SECONDS = 0.5
BEHIND_NS = 250_000_000
"""A schedule that is later than this, lingering apart, is not held."""
_PATIENCE = 60.0
"""Seconds, on top of what the longest request may take."""


class ProducerMetrics:
    """Takes the numbers over, from time to time; a scrape sees them as of then."""

    def __init__(
        self,
        context: ProducerContext,
        serve: Serve = serve_apart,
    ) -> None:
        self._context = context
        self._options = context.options
        self._serve = serve
        self._metrics = Metrics()
        # What waits for an answer has one, or is given up, within the delivery timeout.
        self.health = Health(context.options.client.delivery_timeout_ms / 1000 + _PATIENCE)
        self._introduced: set[str] = set()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the metrics where that is asked for; UsageError where the port is refused."""
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
        self, incarnation: Incarnation, lags: Mapping[str, int], bound_ns: int, now_ns: int
    ) -> None:
        """Take over what is known now; `lags` are by topic, above `bound_ns` one is behind."""
        self.health.started = self.health.ready = True
        metrics, watch = self._metrics, self._context.clock.watch
        metrics.counter(names.CLOCK_STEPS).raise_to(watch.steps)
        metrics.counter(names.CLOCK_STEPPED).raise_to(watch.stepped_ns / 1e9)
        metrics.counter(names.LOG_ROWS).raise_to(incarnation.ledger_writer.log_rows)
        metrics.gauge(names.LEDGER_AGE).set((now_ns - incarnation.ledger_writer.written_ns) / 1e9)
        metrics.gauge(names.PRODUCER_INCARNATION).set(incarnation.ledger_writer.incarnation)
        for topic, backlog in incarnation.backlogs(now_ns).items():
            self._introduce(topic)
            numbers = self._context.numbers[topic]
            for outcome, count in numbers.outcomes.items():
                name = outcome.name.lower()
                metrics.counter(names.PRODUCER_MESSAGES, topic=topic, outcome=name).raise_to(count)
            metrics.counter(names.PRODUCER_BYTES, topic=topic).raise_to(numbers.wire_bytes)
            numbers.flush()
            target = self._target(topic, now_ns)
            if target is not None:
                metrics.gauge(names.PRODUCER_TARGET, topic=topic).set(target)
            lag_ns = lags.get(topic, 0)
            for gauge, value in (
                (names.PRODUCER_IN_FLIGHT, backlog.in_flight),
                (names.PRODUCER_DEBT_MESSAGES, backlog.due),
                (names.PRODUCER_DEBT_SECONDS, lag_ns / 1e9),
                (names.PRODUCER_BEHIND, int(lag_ns > bound_ns)),
            ):
                metrics.gauge(gauge, topic=topic).set(value)

    def _target(self, topic: str, now_ns: int) -> float | None:
        """The rate that is asked of this producer now; None: unlimited."""
        rate = self._context.rates[topic]
        if isinstance(rate, ShapedRate):
            rate = rate.rate(now_ns - self._context.began_ns)
        return None if rate is None else rate / self._options.share.of

    def _introduce(self, topic: str) -> None:
        if topic in self._introduced:
            return
        self._introduced.add(topic)
        numbers, metrics = self._context.numbers[topic], self._metrics
        metrics.histogram(names.PRODUCER_ACK_LATENCY, numbers.ack_latency, topic=topic)
        metrics.histogram(names.PRODUCER_SCHEDULE_LAG, numbers.schedule_lag, topic=topic)


class Housekeeping:
    """Watches a producer; `incarnation` is the incarnation that works now."""

    def __init__(
        self,
        context: ProducerContext,
        metrics: ProducerMetrics,
        on_progress: Callable[[ProduceProgress], None],
        progress_seconds: float,
    ) -> None:
        self._context = context
        self._metrics = metrics
        self._on_progress = on_progress
        self._progress_ns = int(progress_seconds * 1e9)
        self._reported_ns = context.clock.now()
        self._ticked_ns = context.clock.now()
        self._bound_ns = BEHIND_NS + 2 * context.options.client.linger_ms * 1_000_000
        self._lags: dict[str, int] = {}
        self.incarnation: Incarnation | None = None
        self._steps = 0
        self.behind_ns: dict[str, int] = {}
        """topic -> for how long its schedule was not held"""
        self.notes: list[str] = []
        self._grown: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """Look at everything once."""
        now = self._context.clock.now()
        step = self._context.clock.refresh()
        if step is not None:
            note = f"the wall clock was set by {step.by_ns / 1e9:+.3f} s during the run"
            _log.warning(note)
            self.notes.append(note)
        if self.incarnation is None or self._goes_on(self.incarnation, now):
            self._metrics.health.beat()
        if self.incarnation is not None:
            self._watch_lag(self.incarnation, now)
            self._watch_growth(self.incarnation)
            self._metrics.publish(self.incarnation, self._lags, self._bound_ns, now)
            if now - self._reported_ns >= self._progress_ns:
                self._report(self.incarnation, now)
        self._ticked_ns = now

    def _goes_on(self, incarnation: Incarnation, now_ns: int) -> bool:
        """Whether anything was done since the last look, or there is nothing to do."""
        before, self._steps = self._steps, incarnation.steps
        return self._steps != before or incarnation.idle(now_ns)

    def _watch_lag(self, incarnation: Incarnation, now_ns: int) -> None:
        failing, recovered = [], []
        for topic, lag_ns in incarnation.lags(now_ns).items():
            before, self._lags[topic] = self._lags.get(topic, 0), lag_ns
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
                "the throughput cannot be held", topics=",".join(failing), behind_seconds=seconds
            )
        if recovered:
            _log.info("the throughput is held again", topics=",".join(recovered))

    def _watch_growth(self, incarnation: Incarnation) -> None:
        grown = incarnation.grown()
        for topic, (begun, now) in grown.items():
            if self._grown.get(topic) != (begun, now):
                note = (
                    f"{topic} grew from {begun} to {now} partitions during the run: every lane "
                    "stays where it was, the new partitions get nothing from this producer"
                )
                _log.warning(note)
                self.notes.append(note)
        self._grown |= grown

    def _report(self, incarnation: Incarnation, now_ns: int) -> None:
        window = self._context.window
        totals = dict.fromkeys(Outcome, 0)
        for numbers in self._context.numbers.values():
            for outcome, count in numbers.outcomes.items():
                totals[outcome] += count
        progress = ProduceProgress(
            acked=window.acked,
            value_bytes=window.value_bytes,
            seconds=(now_ns - self._reported_ns) / 1e9,
            latency_mean=window.latency_sum / window.acked if window.acked else 0.0,
            latency_max=window.latency_max,
            in_flight=incarnation.in_flight,
            behind_ns=max((lag for lag in self._lags.values() if lag > self._bound_ns), default=0),
            outcomes=totals,
        )
        self._reported_ns = now_ns
        window.clear()
        self._on_progress(progress)
