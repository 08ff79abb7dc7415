"""Brings encoded batches to their partitions' leaders, in order, and reports how each ended.

In place of aiokafka's accumulator and sender, where a batch passes a dozen coroutines, futures and
tasks. As there, a broker has one request at a time, with one batch of a partition at most, so that
a batch that is sent again is not overtaken. Partitions that a request has no room for come next.
Where sends are idempotent, a batch is sent again until it is stored.
"""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka.conn import CloseReason
from aiokafka.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    NoError,
    NotLeaderForPartitionError,
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
"""Codes; a duplicate was stored by a try whose answer was lost."""
_MAX_SEQUENCE = 2**31 - 1
_REQUEST_BYTES = 16 << 20
"""What a request has at most, unless one batch is larger: brokers end a connection on which more
than `socket.request.max.bytes` are announced, 100 MiB by default."""


class WithdrawnError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """A batch was to be handed over after it had been given up."""


class ReadyBatch:
    """An encoded batch that is being sent; see `ports.Batch`.

    `handed_over` counts the times the bytes were taken for transmission: whether the network took
    them, too, cannot be seen. Once `withdrawn` they are never given out again.
    """

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self.sealed = False
        """Whether it has its producer's state, which never changes."""
        self.handed_over = 0
        self.withdrawn = False
        self.queued = False
        self.on_delivery: OnDelivery | None = None
        self.expires = math.inf
        """When it has waited too long, in the event loop's seconds."""

    @property
    def count(self) -> int:
        """Number of records."""
        return self._encoded.count

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self._encoded.buffer)

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer's state and the CRC."""
        self._encoded.seal(producer_id, epoch, base_sequence)
        self.sealed = True

    def data(self) -> bytearray | memoryview:
        """What is sent, from now on handed over.

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
        """Report how it ended."""
        # It is forgotten by that: whoever waits for a batch refers to it, and megabytes of them
        # would wait for the garbage collector.
        on_delivery, self.on_delivery = self.on_delivery, None
        if on_delivery is not None:
            on_delivery(offset, error)

    def fail(self, error: BaseException) -> None:
        """Report that it was not delivered."""
        self.end(None, request_error(error))


class ProducerNumbers:
    """An idempotent producer's id and epoch, and the number of each partition's next record."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = -1
        self._next: dict[TopicPartition, int] = {}

    def take(self, at: TopicPartition, count: int) -> int:
        """The first of the next so many numbers; after 2^31 - 1 comes 0, as brokers expect."""
        first = self._next.get(at, 0)
        self._next[at] = (first + count) & _MAX_SEQUENCE
        return first


class Delivery:
    """Delivers batches by a client's connections; everything happens on the event loop.

    `numbers` is given where sends are idempotent. `seconds` is how long a broker may take, and how
    long a batch may wait for a leader, or, where sends are not idempotent, be sent again; `backoff`
    how long it waits in between.
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
        self._held: set[TopicPartition] = set()
        """Partitions with a batch in a request, or with one that waits for its next try."""
        self._busy: dict[int, asyncio.Future[Any]] = {}
        """Brokers with a request underway, or that are being connected to."""
        self._scheduled = False
        self._over: str | None = None
        self.stamped: set[str] = set()
        """Topics whose records a broker stamps, by its answers."""

    def queue(self, batch: ReadyBatch, at: TopicPartition, on_delivery: OnDelivery) -> None:
        """Send a batch once it is its turn.

        Raises:
            RequestError: nothing is delivered any more.
        """
        if self._over is not None:
            raise RequestError(Code.BROKE_OFF, self._over)
        batch.queued, batch.on_delivery = True, on_delivery
        batch.expires = self._loop.time() + self._seconds
        self._waiting.setdefault(at, deque()).append(batch)
        self._schedule()

    def abandon(self, why: str) -> None:
        """Fail what waits, and take up nothing any more; what is underway still gets its answer."""
        self._over = self._over or why
        waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for queued in queue:
                queued.fail(KafkaError(why))

    async def answered(self, seconds: float) -> None:
        """Wait until no request is underway, so many seconds at most."""
        deadline = self._loop.time() + seconds
        await asyncio.sleep(0)  # until what was queued just now is underway
        while self._busy and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._busy.values(), timeout=left)

    # -- to the broker ----------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Batches that come together go out together."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        leaders: dict[int, list[TopicPartition]] = {}
        leaderless = []
        for at in self._waiting:
            if at in self._held:
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
            self._waiting[at] = queue  # behind all others
        return queued

    def _connect(self, node: int, partitions: list[TopicPartition]) -> None:
        connecting = self._loop.create_task(self._client.ready(node))
        self._busy[node] = connecting

        def connected(future: asyncio.Future[bool]) -> None:
            del self._busy[node]
            if not future.cancelled() and future.exception() is None and future.result():
                self._schedule()
                return
            if self._numbers is None:
                self._fail_expired(partitions, NodeNotReadyError)
            # Others may have got a leader that is connected, and be underway.
            resting = [at for at in partitions if at not in self._held]
            self._held.update(resting)
            self._loop.call_later(self._backoff, self._release, resting)

        connecting.add_done_callback(connected)

    def _find_leaders(self, partitions: list[TopicPartition]) -> None:
        unknown = [at for at in partitions if self._client.cluster.leader_for_partition(at) is None]
        self._fail_expired(unknown, NotLeaderForPartitionError)
        self._fail_expired(set(partitions).difference(unknown), LeaderNotAvailableError)
        self._held.update(partitions)
        self._client.force_metadata_update().add_done_callback(
            lambda _: self._loop.call_later(self._backoff, self._release, partitions)
        )

    def _fail_expired(self, partitions: Iterable[TopicPartition], error: type[KafkaError]) -> None:
        for at in partitions:
            if at in self._waiting and self._waiting[at][0].expires < self._loop.time():
                self._next(at).fail(error())

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
        self._held.update(batches)
        milliseconds = int(self._seconds * 1000)
        request = ProduceRequest(None, self._acks, milliseconds, list(topics.items()))
        try:
            answer = asyncio.ensure_future(
                connection.send(request, expect_response=self._acks != 0)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the batches end with it
            self._failed(batches, error)
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

    # -- its answer -------------------------------------------------------------------------------

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
            # It is renewed by the next request.
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            error = RequestTimedOutError()
        if error is not None:
            self._failed(batches, error)
        elif self._acks == 0:
            self._held.difference_update(batches)
            for queued in batches.values():
                queued.end(None)
        else:
            self._stored(batches, answer.result())
        if self._waiting:
            self._schedule()

    def _stored(self, batches: dict[TopicPartition, ReadyBatch], response: Any) -> None:
        refused: dict[TopicPartition, ReadyBatch] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic, partitions in response.topics:
            for partition, code, offset, stamped_ms, *_ in partitions:
                at = TopicPartition(topic, partition)
                queued = batches.pop(at, None)
                if queued is None:
                    continue
                if code in _STORED:
                    # To a repeated batch a broker answers with the batch's own timestamp.
                    if stamped_ms >= 0 and queued.handed_over == 1:
                        self.stamped.add(topic)
                    self._held.discard(at)
                    queued.end(offset)
                    continue
                kind = for_code(code)
                if kind is InvalidProducerEpoch:
                    errors[at] = ProducerFenced()
                else:
                    errors[at] = kind(topic) if kind is TopicAuthorizationFailedError else kind()
                refused[at] = queued
        for at, queued in refused.items():
            self._failed({at: queued}, errors[at])
        if batches:
            self._failed(batches, KafkaError("the broker's answer lacks a partition"))

    def _failed(self, batches: dict[TopicPartition, ReadyBatch], error: BaseException) -> None:
        """Send batches again after a while, if that may help."""
        if getattr(error, "invalid_metadata", False):
            self._client.force_metadata_update()
        again = []
        for at, queued in batches.items():
            expired = self._numbers is None and queued.expires < self._loop.time()
            if self._over is not None or expired or not getattr(error, "retriable", False):
                self._held.discard(at)
                queued.fail(error)
                continue
            self._waiting.setdefault(at, deque()).appendleft(queued)
            again.append(at)
        if again:
            self._loop.call_later(self._backoff, self._try_again, again)

    def _try_again(self, partitions: list[TopicPartition]) -> None:
        """Send batches again, but not to a leader that may have changed."""
        update = self._client._md_update_fut
        if update is None:
            self._release(partitions)
        else:
            update.add_done_callback(lambda _: self._release(partitions))

    def _release(self, partitions: Iterable[TopicPartition]) -> None:
        self._held.difference_update(partitions)
        self._schedule()
