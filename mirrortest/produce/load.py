"""What a producer did in each reporting interval, for the file of intervals."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from mirrortest.errors import SequenceLogError
from mirrortest.produce.incarnation import Backlog
from mirrortest.seqlog.interval_log import Intervals, TopicLoad

if TYPE_CHECKING:
    from mirrortest.produce.context import ProducerContext
    from mirrortest.produce.incarnation import Incarnation
    from mirrortest.seqlog.writer import SequenceLog


class ProducerLoad:
    """Records a producer's intervals from `begin` on, across its incarnations."""

    def __init__(self, context: ProducerContext) -> None:
        self._context = context
        self._intervals: Intervals | None = None
        self._asked: dict[str, int] = {}

    def begin(self, log: SequenceLog) -> None:
        """Begin the first interval."""
        clock = self._context.clock
        seconds = self._context.options.reporting_interval
        self._intervals = Intervals(log.record, seconds, clock.now(), clock.wall)

    def end_if_due(self, incarnation: Incarnation) -> None:
        """End the interval if it is over."""
        if self._intervals is not None and self._intervals.due(self._context.clock.now()):
            self.end(incarnation)

    def end(self, incarnation: Incarnation | None) -> None:
        """End the interval; a broken log takes none, and raises when the next rows are written."""
        if self._intervals is None:
            return
        with contextlib.suppress(SequenceLogError):
            if incarnation is not None:
                # Even if the process is killed, the log must have what the interval counts.
                incarnation.ledger_writer.close_rows()
            now_ns = self._context.clock.now()
            self._intervals.end(now_ns, self._topics(incarnation, now_ns))

    def _topics(self, incarnation: Incarnation | None, now_ns: int) -> dict[str, TopicLoad]:
        context = self._context
        sent: Counter[str] = Counter()
        for (topic, _), pace in context.paces.items():
            sent[topic] += pace.position - pace.skipped
        backlogs = {topic: Backlog() for topic in context.numbers}
        waiting = {} if incarnation is None else incarnation.backlogs(now_ns)
        for at, each in waiting.items():
            backlogs[at.topic].add(each)
        found = {}
        for topic, numbers in context.numbers.items():
            numbers.flush()
            backlog = backlogs[topic]
            asked = max(sent[topic] + backlog.due, self._asked.get(topic, 0))
            self._asked[topic] = asked
            outcomes = {outcome.name.lower(): n for outcome, n in numbers.outcomes.items()}
            found[topic] = TopicLoad(
                {
                    "asked": asked,
                    "sent": sent[topic],
                    **outcomes,
                    "value_bytes": numbers.value_bytes,
                    "batches": numbers.batches,
                    "batch_messages": sum(outcomes.values()),
                    "batch_bytes": numbers.wire_bytes,
                },
                numbers.ack_latency,
                {
                    "in_flight": backlog.in_flight,
                    "debt_messages": backlog.due,
                    "debt_ns": backlog.lag_ns,
                },
            )
        return found
