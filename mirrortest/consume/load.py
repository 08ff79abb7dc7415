"""A consumer's load in each reporting interval, for the interval log."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.interval_log import Intervals, TopicLoad
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from mirrortest.consume.context import ConsumerContext


class ConsumerLoad:
    """Records a consumer's reporting intervals; the first one begins now."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        seconds = context.options.reporting_interval
        clock = context.metrics.read_clock
        self._intervals = Intervals(context.log.record, seconds, time.monotonic_ns(), clock.wall)

    def end_if_due(self) -> None:
        """End the interval if it is over. Raises SequenceLogError."""
        now_ns = time.monotonic_ns()
        if self._intervals.due(now_ns):
            self._intervals.end(now_ns, self._topics())

    def end(self) -> None:
        """End the last interval; it is dropped if the log has failed, whose close will raise."""
        with contextlib.suppress(SequenceLogError):
            self._intervals.end(time.monotonic_ns(), self._topics())

    def _topics(self) -> dict[str, TopicLoad]:
        metrics = self._context.metrics
        return {
            topic: TopicLoad(
                {
                    "arrived": metrics.arrived[topic],
                    "backlog": metrics.backlog[topic],
                    "value_bytes": metrics.value_bytes[topic],
                },
                metrics.latency[topic][0] if topic in metrics.latency else Histogram(),
                {"lag": metrics.lags.get(topic)},
            )
            for topic in {*metrics.arrived, *metrics.lags}
        }
