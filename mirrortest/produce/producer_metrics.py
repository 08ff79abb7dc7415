"""What a producer publishes as metrics while it runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.metrics.server_process import serve_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrortest.metrics.endpoint import Serve
    from mirrortest.produce.clock import Clock
    from mirrortest.produce.incarnation import Incarnation
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.recording import TopicNumbers


_PATIENCE = 60.0
"""Seconds, on top of what the longest request may take."""


class ProducerMetrics:
    """Takes the numbers over, from time to time; a scrape sees them as of then."""

    def __init__(
        self,
        options: ProduceOptions,
        clock: Clock,
        numbers: Mapping[str, TopicNumbers],
        serve: Serve = serve_apart,
    ) -> None:
        self._options = options
        self._clock = clock
        self._numbers = numbers
        self._serve = serve
        self._metrics = Metrics()
        # What waits for an answer has one, or is given up, within the delivery timeout.
        self.health = Health(options.client.delivery_timeout_ms / 1000 + _PATIENCE)
        self._log_failure: set[str] = set()

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
        metrics, watch = self._metrics, self._clock.watch
        metrics.counter(names.CLOCK_STEPS).raise_to(watch.steps)
        metrics.counter(names.CLOCK_STEPPED).raise_to(watch.stepped_ns / 1e9)
        metrics.counter(names.LOG_ROWS).raise_to(incarnation.ledger_writer.log_rows)
        metrics.gauge(names.LEDGER_AGE).set((now_ns - incarnation.ledger_writer.written_ns) / 1e9)
        metrics.gauge(names.PRODUCER_INCARNATION).set(incarnation.ledger_writer.incarnation)
        for topic, backlog in incarnation.backlogs(now_ns).items():
            self._introduce(topic)
            numbers = self._numbers[topic]
            for outcome, count in numbers.outcomes.items():
                name = outcome.name.lower()
                metrics.counter(names.PRODUCER_MESSAGES, topic=topic, outcome=name).raise_to(count)
            metrics.counter(names.PRODUCER_BYTES, topic=topic).raise_to(numbers.wire_bytes)
            numbers.flush()
            lag_ns = lags.get(topic, 0)
            for gauge, value in (
                (names.PRODUCER_IN_FLIGHT, backlog.in_flight),
                (names.PRODUCER_DEBT_MESSAGES, backlog.due),
                (names.PRODUCER_DEBT_SECONDS, lag_ns / 1e9),
                (names.PRODUCER_BEHIND, int(lag_ns > bound_ns)),
            ):
                metrics.gauge(gauge, topic=topic).set(value)

    def _introduce(self, topic: str) -> None:
        if topic in self._log_failure:
            return
        self._log_failure.add(topic)
        numbers, metrics = self._numbers[topic], self._metrics
        metrics.histogram(names.PRODUCER_ACK_LATENCY, numbers.ack_latency, topic=topic)
        metrics.histogram(names.PRODUCER_SCHEDULE_LAG, numbers.schedule_lag, topic=topic)
        if self._options.throughput is not None:
            metrics.gauge(names.PRODUCER_TARGET, topic=topic).set(self._options.throughput)
