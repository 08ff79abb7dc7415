"""Send batches and report for each batch the outcome that is proven, never more.

The outcomes:

- **acked**: the broker acknowledged the batch.
- **failed**: its bytes were never handed over to a connection and never will be; or they were
  handed over once, and the broker refused that request with an error that precedes the append.
- **unknown**: all other cases. If a request was repeated, an earlier try may have been appended
  although its response was lost. Some errors (not leader, timed out, too few replicas after the
  append) come from brokers that may have appended already. With acks=0 no broker answers.

If the client does not report when bytes are handed over (`--portable`), every batch that was queued
and not acknowledged is unknown.

An idempotent producer cannot continue after a batch that was not acknowledged: the broker refuses
the batches after the gap. So the first such batch ends the sender. Batches that wait behind it
fail. Batches that are in flight, or may be, still get their response. The application creates a
new sender, as a new incarnation.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

import structlog

from mirrortest.errors import ClusterError, UsageError
from mirrortest.host.allocator import keep_large_buffers
from mirrortest.kafka.connecting import start
from mirrortest.kafka.error_table import RequestError, addresses
from mirrortest.kafka.library import library
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Batch, Encoded, ProducerPort

_log = structlog.get_logger()

_STOP_SECONDS = 2.0


class SenderDeadError(ClusterError):
    """The sender has ended and sends nothing more: a new incarnation is needed."""


class Sent(NamedTuple):
    """The outcome of a batch.

    `base_offset` is the offset of its first record, or -1 if unknown; `error` and `failure` are
    the reason if it was not acknowledged.
    """

    outcome: Outcome
    base_offset: int
    error: str | None = None
    failure: Failure | None = None


@dataclass(slots=True, eq=False)
class _Pending:
    batch: Batch
    ended: asyncio.Future[Sent]
    topic: str
    partition: int
    deadline: float

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"


class Sender:
    """A sender of encoded batches to one cluster, an async context manager.

    Batches of one partition are sent in the order of the `send` calls. The caller must not change
    a batch's buffer before its future is done.
    """

    def __init__(self, config: ClientConfig) -> None:
        if config.transactional_id is not None:
            raise UsageError("transactional.id: mirrortest's producers write no transactions")
        self._config = config
        self._producer: ProducerPort | None = None
        self._pending: dict[_Pending, None] = {}
        """Batches without an outcome, in the order of their deadlines."""
        self._timer: asyncio.TimerHandle | None = None
        """Fires at the first deadline of the batches that were pending when it was set."""
        self._dead: str | None = None
        self._closed = False

    @property
    def dead(self) -> str | None:
        """Why the sender has ended and a new one is needed; None while it works."""
        return self._dead

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect, and get a producer id if sends are idempotent.

        Raises:
            UnreachableError: no broker answers within `request.timeout.ms`.
            ClusterError: the cluster refuses.
        """
        config = self._config
        keep_large_buffers()
        producer = library(config).producer(config)
        seconds = config.request_timeout_ms / 1000
        await start(config, producer, "starting a producer", seconds=seconds)
        self._producer = producer

    def send(self, topic: str, partition: int, encoded: Encoded) -> asyncio.Future[Sent]:
        """Queue a batch for sending; the future gets its outcome, never an exception.

        Raises:
            SenderDeadError: the sender has ended; the batch was not sent.
        """
        producer = self._started
        if producer.numbers_left(topic, partition) < encoded.count:
            self._end(f"{topic}-{partition}: the producer's sequence numbers are used up")
        if self._dead is not None:
            raise SenderDeadError(self._dead)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.delivery_timeout_ms / 1000
        pending = _Pending(
            producer.batch(encoded), loop.create_future(), topic, partition, deadline
        )
        self._pending[pending] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)
        producer.send(pending.batch, topic, partition, partial(self._delivered, pending))
        return pending.ended

    def partition_count(self, topic: str) -> int:
        """A topic's partition count in the latest metadata (`metadata.max.age.ms`)."""
        return self._started.partition_count(topic)

    def stamps(self, topic: str) -> bool:
        """Whether a response showed that brokers set a topic's timestamps (LogAppendTime)."""
        return self._started.stamps(topic)

    async def flush(self, timeout: float) -> bool:  # noqa: ASYNC109  # what is left stays pending
        """Wait up to `timeout` seconds for all outcomes; return whether every batch has its own."""
        waiting = [pending.ended for pending in self._pending]
        if waiting:
            await asyncio.wait(waiting, timeout=max(timeout, 0))
        return not self._pending

    async def stop(self, timeout: float = 0) -> None:  # noqa: ASYNC109  # as for flush
        """Flush for up to `timeout` seconds, give up what is left, disconnect."""
        if self._producer is None or self._closed:
            return
        self._closed = True
        if self._dead is None:
            await self.flush(timeout)
        self._end("the sender was stopped")
        if self._timer is not None:
            self._timer.cancel()
        await self._producer.stop(_STOP_SECONDS)
        left = list(self._pending)
        for pending in left:
            self._give_up(pending, self._dead or "")
        if left:
            await asyncio.wait([pending.ended for pending in left])

    @property
    def _started(self) -> ProducerPort:
        if self._producer is None:
            raise RuntimeError("the sender was not started")
        return self._producer

    # -- one batch ------------------------------------------------------------------------------

    def _settle(
        self,
        pending: _Pending,
        outcome: Outcome,
        error: str | None = None,
        failure: Failure | None = None,
        base_offset: int = -1,
    ) -> None:
        pending.batch.withdrawn = True
        del self._pending[pending]
        if not pending.ended.cancelled():  # cancelled with the task that awaited it
            pending.ended.set_result(Sent(outcome, base_offset, error, failure))

    def _give_up(self, pending: _Pending, why: str, failure: Failure = Failure.WITHDRAWN) -> None:
        """Settle without a response; if not handed over yet, the withdrawn batch never will be."""
        outcome = Outcome.UNKNOWN if pending.batch.handed_over else Outcome.FAILED
        self._settle(pending, outcome, why, failure)

    def _delivered(self, pending: _Pending, offset: int | None, error: RequestError | None) -> None:
        if pending not in self._pending:
            return
        if error is None:
            if offset is None:
                why = "acknowledgements are switched off (acks=0)"
                self._settle(pending, Outcome.UNKNOWN, why, Failure.NO_ACKS)
            else:
                self._settle(pending, Outcome.ACKED, base_offset=offset)
            return
        why = f"{pending.where}: {error}"
        tries = pending.batch.handed_over
        refused = tries == 1 and error.traits.unwritten
        outcome = Outcome.FAILED if refused or not tries else Outcome.UNKNOWN
        self._settle(pending, outcome, why, error.traits.failure)
        if self._config.enable_idempotence and pending.batch.queued:
            self._end(f"sending to {addresses(self._config)} broke off: {why}")
        else:
            self._check_failure()

    def _expire(self) -> None:
        """Give up overdue batches, and set the timer for the next deadline."""
        loop, self._timer = asyncio.get_running_loop(), None
        for pending in list(self._pending):
            if pending.deadline > loop.time():
                self._timer = loop.call_at(pending.deadline, self._expire)
                break
            if pending in self._pending:
                self._overdue(pending)

    def _overdue(self, pending: _Pending) -> None:
        """Give up a batch after `delivery.timeout.ms`, and end the sender."""
        seconds = self._config.delivery_timeout_ms / 1000
        why = f"{pending.where}: no acknowledgement within {seconds:g} s"
        self._give_up(pending, why, Failure.TIMEOUT)
        # Other batches wait behind it in the queue, so the sender ends with it.
        self._end(f"sending to {addresses(self._config)} broke off: {why}")

    # -- the end --------------------------------------------------------------------------------

    def _check_failure(self) -> None:
        failure = self._started.failure()
        if failure is not None:
            self._end(f"sending to {addresses(self._config)} broke off: {failure}")

    def _end(self, why: str) -> None:
        """Send nothing more. Batches that were handed over can still get their response."""
        if self._dead is not None:
            return
        self._dead = why
        if not self._closed:
            _log.warning("sender ended", reason=why)
        for pending in list(self._pending):
            pending.batch.withdrawn = True
            if not pending.batch.handed_over:
                self._give_up(pending, why)
        self._started.abandon(why)
