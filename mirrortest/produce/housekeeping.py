"""What goes on beside the work, once a second: progress, lag, metrics, the clock's steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import ProduceProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirrortest.produce.clock import Clock
    from mirrortest.produce.incarnation import Incarnation
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.producer_metrics import ProducerMetrics
    from mirrortest.produce.recording import TopicNumbers, Window

_log = structlog.get_logger()

_TICK_SECONDS = 0.5
BEHIND_NS = 250_000_000
"""A schedule that is later than this, lingering apart, is not held."""


class Housekeeping:
    """Watches a producer; `incarnation` is the incarnation that works now."""

    def __init__(
        self,
        options: ProduceOptions,
        clock: Clock,
        window: Window,
        numbers: Mapping[str, TopicNumbers],
        metrics: ProducerMetrics,
        on_progress: Callable[[ProduceProgress], None],
        progress_seconds: float,
    ) -> None:
        self._clock = clock
        self._window = window
        self._numbers = numbers
        self._metrics = metrics
        self._on_progress = on_progress
        self._progress_ns = int(progress_seconds * 1e9)
        self._told_ns = clock.now()
        self._ticked_ns = clock.now()
        self._bound_ns = BEHIND_NS + 2 * options.client.linger_ms * 1_000_000
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
        now = self._clock.now()
        step = self._clock.refresh()
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
            if now - self._told_ns >= self._progress_ns:
                self._tell(self.incarnation, now)
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

    def _tell(self, incarnation: Incarnation, now_ns: int) -> None:
        window = self._window
        totals = dict.fromkeys(Outcome, 0)
        for numbers in self._numbers.values():
            for outcome, count in numbers.outcomes.items():
                totals[outcome] += count
        progress = ProduceProgress(
            acked=window.acked,
            value_bytes=window.value_bytes,
            seconds=(now_ns - self._told_ns) / 1e9,
            latency_mean=window.latency_sum / window.acked if window.acked else 0.0,
            latency_max=window.latency_max,
            in_flight=incarnation.in_flight,
            behind_ns=max((lag for lag in self._lags.values() if lag > self._bound_ns), default=0),
            outcomes=totals,
        )
        self._told_ns = now_ns
        window.clear()
        self._on_progress(progress)
