"""Deliver encoded batches to their partitions' leaders, in order, and report each outcome.

This replaces aiokafka's accumulator and sender, where a batch passes a dozen coroutines, futures
and tasks. As in aiokafka, a broker has one request in flight, with at most one batch per partition,
so no batch overtakes one that is sent again. Partitions for which a request has no room come first
in the next. A batch that meets retriable errors, or no leader, is sent again until delivery is
abandoned: that is for its sender to do, after `delivery.timeout.ms`.
"""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka.conn import CloseReason
from aiokafka.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    NoError,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.produce import ProduceRequest

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.public.connection import request_error
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.kafka.fast.connection import Client, Connection
    from mirrortest.kafka.ports import Encoded, OnDelivery

_NO_LEADER = (None, -1)
_STORED = (NoError.errno, DuplicateSequenceNumber.errno)
"""Codes; a duplicate was stored by an earlier try whose response was lost."""
_MAX_SEQUENCE = 2**31 - 1
_MAX_EPOCH = 2**15 - 1
_REQUEST_BYTES = 16 << 20
"""Maximum size of a request, unless one batch is larger. Brokers close a connection that announces
more than `socket.request.max.bytes`, 100 MiB by default."""


class WithdrawnError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """A batch was to be handed over after it was given up."""


class ReadyBatch:
    """An encoded batch that is being sent; see `ports.Batch`.

    `handed_over` counts how often the bytes were taken for transmission; whether they reached the
    network is unknown. Once `withdrawn`, they are never taken again.
    """

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self.sealed = False
        """Whether it has its producer id, epoch and sequence number, which then never change."""
        self.handed_over = 0
        self.withdrawn = False
        self.queued = False
        self.on_delivery: OnDelivery | None = None

    @property
    def count(self) -> int:
        """Number of records."""
        return self._encoded.count

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self._encoded.buffer)

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer id, epoch, base sequence and the CRC."""
        self._encoded.seal(producer_id, epoch, base_sequence)
        self.sealed = True

    def data(self) -> bytearray | memoryview:
        """The bytes to send, which count as handed over from now on.

        Raises:
            WithdrawnError: the batch was given up.
        """
        if self.withdrawn:
            raise WithdrawnError("the batch was given up")
        if not self.sealed:
            self.seal(-1, -1, -1)
        self.handed_over += 1
        return self._encoded.buffer

    def end(self, offset: int | None, error: RequestError | None = None) -> None:
        """Report the outcome."""
        # Drop the callback: it refers to the batch, and megabytes of such cycles would wait for
        # the garbage collector.
        on_delivery, self.on_delivery = self.on_delivery, None
        if on_delivery is not None:
            on_delivery(offset, error)

    def fail(self, error: BaseException) -> None:
        """Report that it was not delivered."""
        self.end(None, request_error(error))


class ProducerNumbers:
    """An idempotent producer's id and epoch, and each partition's next sequence number."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = -1
        self._next: dict[TopicPartition, int] = {}

    def next_epoch(self) -> ProducerNumbers:
        """Numbers for a producer that replaces this one, which failed.

        Once a leader has a batch with them, it refuses any batch of this producer. So one that is
        still in flight, perhaps on a closed connection, cannot be appended behind it. After the
        last epoch they are empty: the producer requests another id, which fences nothing.
        """
        numbers = ProducerNumbers()
        if 0 <= self.epoch < _MAX_EPOCH:
            numbers.producer_id, numbers.epoch = self.producer_id, self.epoch + 1
        return numbers

    def take(self, at: TopicPartition, count: int) -> int:
        """Take `count` numbers and return the first; after 2^31 - 1 comes 0, as brokers expect."""
        first = self._next.get(at, 0)
        self._next[at] = (first + count) & _MAX_SEQUENCE
        return first


class Delivery:
    """The delivery of batches over a client's connections; everything happens on the event loop.

    `numbers` is None unless sends are idempotent. `seconds` limits how long a broker may take for a
    request. `backoff` is the time between two tries.
    """

    def __init__(
        self,
        client: Client,
        numbers: ProducerNumbers | None,
        *,
        acks: int,
        seconds: float,
        backoff: float,
    ) -> None:
        self._client = client
        self._numbers = numbers
        self._acks = acks
        self._seconds = seconds
        self._backoff = backoff
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[TopicPartition, deque[ReadyBatch]] = {}
        self._muted: set[TopicPartition] = set()
        """Partitions with a batch in flight or a backoff: nothing more is sent for them."""
        self._busy: dict[int, asyncio.Future[Any]] = {}
        """Brokers with a request in flight or a connection attempt."""
        self._scheduled = False
        self._abandoned: str | None = None
        self.stamped: set[str] = set()
        """Topics whose timestamps brokers set (LogAppendTime), as responses show."""

    def queue(self, batch: ReadyBatch, at: TopicPartition, on_delivery: OnDelivery) -> None:
        """Queue a batch behind earlier batches of its partition.

        Raises:
            RequestError: delivery was abandoned.
        """
        if self._abandoned is not None:
            raise RequestError(Code.BROKE_OFF, self._abandoned)
        batch.queued, batch.on_delivery = True, on_delivery
        self._waiting.setdefault(at, deque()).append(batch)
        self._schedule()

    def abandon(self, why: str) -> None:
        """Fail waiting batches and accept no more; those in flight still get their response."""
        self._abandoned = self._abandoned or why
        waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for queued in queue:
                queued.fail(KafkaError(why))

    async def wait_idle(self, seconds: float) -> None:
        """Wait until no request is in flight, for at most `seconds`."""
        deadline = self._loop.time() + seconds
        await asyncio.sleep(0)  # so that batches queued just now are sent
        while self._busy and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._busy.values(), timeout=left)

    # -- requests ---------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Send in the next loop iteration, so that batches queued together go out together."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        leaders: dict[int, list[TopicPartition]] = {}
        leaderless = []
        for at in self._waiting:
            if at in self._muted:
                continue
            leader = self._client.cluster.leader_for_partition(at)
            if leader in _NO_LEADER:
                leaderless.append(at)
            elif leader not in self._busy:
                leaders.setdefault(leader, []).append(at)
        for leader, partitions in leaders.items():
            connection = self._client.connected(leader)
            if connection is None:
                self._connect(leader, partitions)
            else:
                self._request(leader, connection, partitions)
        if leaderless:
            self._find_leaders(leaderless)

    def _next(self, at: TopicPartition) -> ReadyBatch:
        queue = self._waiting.pop(at)
        queued = queue.popleft()
        if queue:
            self._waiting[at] = queue  # behind all other partitions
        return queued

    def _connect(self, node: int, partitions: list[TopicPartition]) -> None:
        connecting = self._loop.create_task(self._client.ready(node))
        self._busy[node] = connecting

        def connected(future: asyncio.Future[bool]) -> None:
            del self._busy[node]
            if not future.cancelled() and future.exception() is None and future.result():
                self._schedule()
                return
            # Some may have moved to a connected leader, and be in flight.
            idle = [at for at in partitions if at not in self._muted]
            self._muted.update(idle)
            self._loop.call_later(self._backoff, self._unmute, idle)

        connecting.add_done_callback(connected)

    def _find_leaders(self, partitions: list[TopicPartition]) -> None:
        self._muted.update(partitions)
        self._client.force_metadata_update().add_done_callback(
            lambda _: self._loop.call_later(self._backoff, self._unmute, partitions)
        )

    def _request(self, node: int, connection: Connection, partitions: list[TopicPartition]) -> None:
        batches: dict[TopicPartition, ReadyBatch] = {}
        topics: dict[str, list[tuple[int, Any]]] = {}
        room = _REQUEST_BYTES
        for at in partitions:
            room -= self._waiting[at][0].size
            if room < 0 and batches:
                break
            queued = self._next(at)
            try:
                topics.setdefault(at.topic, []).append((at.partition, self._data(at, queued)))
            except WithdrawnError as error:
                queued.fail(error)
                self._schedule()
            else:
                batches[at] = queued
        if not batches:
            return
        self._muted.update(batches)
        milliseconds = int(self._seconds * 1000)
        request = ProduceRequest(None, self._acks, milliseconds, list(topics.items()))
        try:
            answer = asyncio.ensure_future(
                connection.send(request, expect_response=self._acks != 0)
            )
        except Exception as error:  # noqa: BLE001  # any error ends these batches
            self._on_error(batches, error)
            if self._waiting:
                self._schedule()
            return
        self._busy[node] = answer
        answer.add_done_callback(lambda _: self._answered(node, connection, batches, answer))

    def _data(self, at: TopicPartition, batch: ReadyBatch) -> bytearray | memoryview:
        numbers = self._numbers
        if numbers is not None and not batch.sealed and not batch.withdrawn:
            batch.seal(numbers.producer_id, numbers.epoch, numbers.take(at, batch.count))
        return batch.data()

    # -- responses --------------------------------------------------------------------------------

    def _answered(
        self,
        node: int,
        connection: Connection,
        batches: dict[TopicPartition, ReadyBatch],
        answer: asyncio.Future[Any],
    ) -> None:
        del self._busy[node]
        error = KafkaConnectionError() if answer.cancelled() else answer.exception()
        if isinstance(error, TimeoutError):
            # The next request opens a new one.
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            error = RequestTimedOutError()
        if error is not None:
            self._on_error(batches, error)
        elif self._acks == 0:
            self._muted.difference_update(batches)
            for queued in batches.values():
                queued.end(None)
        else:
            self._take_answer(batches, answer.result())
        if self._waiting:
            self._schedule()

    def _take_answer(self, batches: dict[TopicPartition, ReadyBatch], response: Any) -> None:
        refused: dict[TopicPartition, ReadyBatch] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic, partitions in response.topics:
            for partition, code, offset, stamped_ms, *_ in partitions:
                at = TopicPartition(topic, partition)
                queued = batches.pop(at, None)
                if queued is None:
                    continue
                if code in _STORED:
                    # The response to a duplicate has the batch's own timestamp.
                    if stamped_ms >= 0 and queued.handed_over == 1:
                        self.stamped.add(topic)
                    self._muted.discard(at)
                    queued.end(offset)
                    continue
                kind = for_code(code)
                if kind is InvalidProducerEpoch:
                    errors[at] = ProducerFenced()
                else:
                    errors[at] = kind(topic) if kind is TopicAuthorizationFailedError else kind()
                refused[at] = queued
        for at, queued in refused.items():
            self._on_error({at: queued}, errors[at])
        if batches:
            self._on_error(batches, KafkaError("the broker's answer lacks a partition"))

    def _on_error(self, batches: dict[TopicPartition, ReadyBatch], error: BaseException) -> None:
        """Send batches again after the backoff if that may help, else fail them."""
        if getattr(error, "invalid_metadata", False):
            self._client.force_metadata_update()
        again = []
        for at, queued in batches.items():
            if self._abandoned is not None or not getattr(error, "retriable", False):
                self._muted.discard(at)
                queued.fail(error)
                continue
            self._waiting.setdefault(at, deque()).appendleft(queued)
            again.append(at)
        if again:
            self._loop.call_later(self._backoff, self._try_again, again)

    def _try_again(self, partitions: list[TopicPartition]) -> None:
        """Send batches again, after a running metadata update: the leader may have changed."""
        update = self._client._md_update_fut
        if update is None:
            self._unmute(partitions)
        else:
            update.add_done_callback(lambda _: self._unmute(partitions))

    def _unmute(self, partitions: Iterable[TopicPartition]) -> None:
        self._muted.difference_update(partitions)
        self._schedule()
