"""The producer of `kafka.ports`, which behaves like aiokafka's.

Batches of a partition are sent one after the other. Retriable errors are retried until the batch is
too old. An idempotent producer numbers its batches, so that brokers recognize a repeated one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast.delivery import ReadyBatch, WithdrawnError

from .batch import NO_PRODUCER, Record, encoded, rows_of_raw
from .cluster import message_id
from .virtual_time import VIRTUAL_TIME

if TYPE_CHECKING:
    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Encoded, OnDelivery

    from .cluster import Cluster
    from .loop import Process
    from .world import World

_Row: TypeAlias = "tuple[int, bytes | None, bytes | None, tuple[()]]"
_ENDLESS = 1 << 62
_MOST_RECORDS = 50


@dataclass(eq=False)
class _Item:
    """Something queued: a ready batch, or one record."""

    future: asyncio.Future[Any]
    since: float
    batch: ReadyBatch | None = None
    record: _Row | None = None
    begun: bool = False


class SimulatedProducer:
    """See `ports.ProducerPort`."""

    def __init__(
        self, world: World, process: Process, cluster: Cluster, config: ClientConfig
    ) -> None:
        self.world, self.process, self.cluster = world, process, cluster
        self.seconds = config.request_timeout_ms / 1000
        self.backoff = config.retry_backoff_ms / 1000
        self.idempotent = bool(config.enable_idempotence)
        self.producer = NO_PRODUCER
        self.broken: BaseException | None = None
        self._numbers: dict[tuple[str, int], int] = {}
        self._queues: dict[tuple[str, int], list[_Item]] = {}
        self._sending: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._workers: dict[tuple[str, int], asyncio.Task[None]] = {}
        self.abandoned: str | None = None
        self._stamped: set[str] = set()
        """Topics for which a response had the broker's timestamp."""

    async def start(self) -> None:
        """Reach a broker, and get a producer id."""
        ask, cluster = self.world.net.ask, self.cluster
        try:
            self.producer = await ask(
                cluster,
                "producer id",
                cluster.new_producer if self.idempotent else lambda: NO_PRODUCER,
                seconds=self.seconds,
            )
        except RequestError as error:
            raise RequestError(Code.NOT_CONNECTED, "Unable to bootstrap") from error

    async def stop(self, seconds: float) -> None:
        """Send what is queued, for at most `seconds`, then end."""
        workers = [task for task in self._workers.values() if not task.done()]
        if workers:
            await asyncio.wait(workers, timeout=seconds)
        self.abandon("the producer was stopped")

    def batch(self, encoded: Encoded) -> ReadyBatch:
        """See `ports.ProducerPort`."""
        return ReadyBatch(encoded)

    def send(self, batch: Any, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """See `ports.ProducerPort`."""
        at = (topic, partition)
        before = self._sending.get(at)
        self._sending[at] = asyncio.create_task(self._send(before, batch, at, on_delivery))

    async def _send(
        self,
        before: asyncio.Task[None] | None,
        batch: ReadyBatch,
        at: tuple[str, int],
        on_delivery: OnDelivery,
    ) -> None:
        def report(future: asyncio.Future[int]) -> None:
            error = future.exception()
            assert error is None or isinstance(error, RequestError)
            on_delivery(future.result() if error is None else None, error)

        if before is not None:
            await asyncio.wait({before})
        if batch.withdrawn:
            return
        try:
            queued = await self._queue(*at, batch=batch)
        except RequestError as error:
            on_delivery(None, error)
        else:
            batch.queued = True
            queued.add_done_callback(report)

    async def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> int:
        """See `ports.ProducerPort`."""
        stamp = VIRTUAL_TIME.time_ns() // 1_000_000
        future = await self._queue(topic, partition, record=(stamp, key, value, ()))
        return await future

    def partition_count(self, topic: str) -> int:
        """See `ports.ProducerPort`."""
        return len(self.partitions_for_topic(topic) or ())

    def stamps(self, topic: str) -> bool:
        """See `ports.ProducerPort`."""
        return topic in self._stamped

    def numbers_left(self, topic: str, partition: int) -> int:
        """See `ports.ProducerPort`."""
        return _ENDLESS

    def failure(self) -> str | None:
        """See `ports.ProducerPort`."""
        return None if self.broken is None else str(self.broken)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions in the metadata."""
        known = self.cluster.known(topic, self.world.now_ns)
        return set(range(len(known.partitions))) if known else None

    async def _queue(self, topic: str, partition: int, **what: Any) -> asyncio.Future[int]:
        """Queue a record or batch; return the future of its offset.

        Raises:
            RequestError: within a request timeout the topic did not appear or its cluster was
                down; or the producer has ended.
        """
        loop = self.world.loop
        since = loop.time()
        while not (numbers := self.partitions_for_topic(topic)) or self.cluster.down:
            if loop.time() - since > self.seconds:
                raise RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION, str(topic))
            await asyncio.sleep(self.backoff)
        assert partition in numbers
        if self.abandoned is not None or self.broken is not None:
            raise RequestError(Code.BROKE_OFF, self.abandoned or str(self.broken))
        at = (topic, partition)
        item = _Item(loop.create_future(), loop.time(), **what)
        queue = self._queues.setdefault(at, [])
        queue.append(item)
        worker = self._workers.get(at)
        if worker is None or worker.done():
            self._workers[at] = asyncio.create_task(self._deliver(at, queue))
        return item.future

    def abandon(self, why: str) -> None:
        """Start no new batch; batches in flight still get their answer."""
        self.abandoned = self.abandoned or why
        for queue in self._queues.values():
            for item in queue:
                if not (item.future.done() or item.begun):
                    item.future.set_exception(RequestError(Code.BROKE_OFF, why))
                    item.future.exception()
            queue[:] = [item for item in queue if not item.future.done()]

    # -- one partition's queue --------------------------------------------------------------------

    async def _deliver(self, at: tuple[str, int], queue: list[_Item]) -> None:
        while queue:
            items = self._next(queue)
            for item in items:
                item.begun = True
            try:
                base = await self._transmit(at, items)
            except (RequestError, WithdrawnError) as error:
                met = (
                    error
                    if isinstance(error, RequestError)
                    else RequestError(Code.UNKNOWN, str(error))
                )
                for item in items:
                    if not item.future.done():
                        item.future.set_exception(met)
                        item.future.exception()
                if isinstance(error, WithdrawnError):
                    # This error ends aiokafka's sender.
                    self.broken = error
                    self.abandon(str(error))
            else:
                for number, item in enumerate(items):
                    if not item.future.done():
                        offset = base + (0 if item.batch is not None else number)
                        item.future.set_result(offset)
            for item in items:
                if item in queue:
                    queue.remove(item)

    @staticmethod
    def _next(queue: list[_Item]) -> list[_Item]:
        """What goes into the next request: a ready batch, or some records."""
        if queue[0].batch is not None:
            return queue[:1]
        some = []
        for item in queue[:_MOST_RECORDS]:
            if item.batch is not None:
                break
            some.append(item)
        return some

    async def _transmit(self, at: tuple[str, int], items: list[_Item]) -> int:
        loop = self.world.loop
        first = items[0]
        sequence = -1
        count = first.batch.count if first.batch is not None else len(items)
        if self.idempotent:
            sequence = self._numbers.get(at, 0)
            self._numbers[at] = (sequence + count) & 0x7FFFFFFF
        raw: Any = None
        rows = [item.record for item in items if item.record is not None]
        numbered = False
        while True:
            if first.batch is not None:
                if self.idempotent and not numbered:
                    first.batch.seal(self.producer, 0, sequence)
                    numbered = True
                raw = first.batch.data()
            elif raw is None:
                raw = encoded(rows, producer=self.producer, sequence=sequence)
            try:
                base, stamped = await self.world.net.ask(
                    self.cluster,
                    "produce",
                    partial(self._append, at, raw, rows, sequence),
                    seconds=self.seconds,
                )
            except RequestError as error:
                if not error.traits.retriable:
                    raise
                if loop.time() - first.since > self.seconds or self.abandoned is not None:
                    raise
            else:
                self._stamped.update([at[0]] if stamped else [])
                return base
            await asyncio.sleep(self.backoff)

    def _append(
        self, at: tuple[str, int], raw: Any, rows: list[_Row], sequence: int
    ) -> tuple[int, bool]:
        """At the broker: append; return the base offset, and whether it stamps the records.

        If `rows` is empty, `raw` is decoded.
        """
        world, cluster = self.world, self.cluster
        partition = cluster.partition(*at, world.now_ns)
        before = partition.repeated(self.producer, sequence)
        if before is not None:
            world.happened["repeated batch known"] += 1
            return before, False
        taken_apart = [row[-4:] for row in rows or rows_of_raw(raw)]
        records = [Record(0, row[1], message_id(at[0], *row[1:3])) for row in taken_apart]
        base = partition.append(raw, records, world.now_ns)
        if not partition.stamps:
            partition.log[-1].rows = [(base + n, *row) for n, row in enumerate(taken_apart)]
        world.note(
            "append", self.process.name, cluster.name, *at, base, len(records), records[0].key
        )
        world.news(cluster.name, at[0])
        return base, partition.stamps
