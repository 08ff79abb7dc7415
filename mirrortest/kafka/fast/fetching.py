"""A consumer of complete batches, out of aiokafka's fetcher."""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.consumer import fetcher

from mirrortest.config.client_config import IsolationLevel
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.ends import Ends
from mirrortest.kafka.fast.frames import Section
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.fetched import FetchedBatches, Unreadable, batches, has_complete_batch
from mirrortest.kafka.public.connection import (
    reason,
    request_error,
    request_errors,
    stopped_in_order,
)
from mirrortest.kafka.public.fetching import PublicConsumer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import End, Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

_READ_COMMITTED = 1
_TORN_READS = 3

_BATCH_BYTES = 1 << 20
"""What comes as one is taken to have, before any was seen."""


class ReadState:
    """A consumer's own: aiokafka passes it on to `WholeBatches` as the `key_deserializer`."""

    def __init__(self, identity: Identity | None = None) -> None:
        self.identity = identity
        """Where the epochs of what was read are kept."""
        self.torn: dict[Any, tuple[int, int]] = {}
        """partition -> (offset, how often it was read torn in a row)"""


class RawRecords:
    """Used as aiokafka's MemoryRecords: keeps the response's bytes."""

    def __init__(self, data: bytes | Section) -> None:
        section = data if isinstance(data, Section) else Section(memoryview(data), time.time_ns())
        self.data, self.arrived_ns = section

    def size_in_bytes(self) -> int:
        """Bytes of the response for this partition."""
        return len(self.data)

    def has_next(self) -> bool:
        """Whether there is a complete batch."""
        return has_complete_batch(self.data)


class WholeBatches:
    """Used as aiokafka's PartitionRecords: iterates over batches, and moves the position."""

    def __init__(
        self,
        tp: Any,
        records: RawRecords,
        aborted_transactions: Any,
        fetch_offset: int,
        key_deserializer: ReadState,
        value_deserializer: Any,  # noqa: ARG002  # as aiokafka calls it
        check_crcs: bool,  # noqa: ARG002  # as aiokafka calls it
        isolation_level: int,
    ) -> None:
        self.next_fetch_offset = fetch_offset
        self._state = key_deserializer
        self._tp = tp
        identity = self._state.identity
        self._epochs = identity.epochs if identity else {}
        found = batches(
            records.data,
            topic=tp.topic,
            partition=tp.partition,
            fetch_offset=fetch_offset,
            arrived_ns=records.arrived_ns,
            aborted=(aborted_transactions or ()) if isolation_level == _READ_COMMITTED else None,
            topic_id=identity.pins.get(tp) if identity else None,
        )
        self._items = self._readable(found)

    def __iter__(self) -> Iterator[Fetched]:
        return self

    def __next__(self) -> Fetched:
        return next(self._items)

    def _readable(
        self, found: Iterator[FetchedBatches | Unreadable]
    ) -> Iterator[FetchedBatches | Unreadable]:
        """Pass batches on; a torn one ends the response, so that it is fetched again."""
        for item in found:
            if not isinstance(item, Unreadable):
                self.next_fetch_offset = item.next_offset
                self._epochs[self._tp] = item.next_offset, item.leader_epoch
                yield item
                continue
            offset, times = self._state.torn.get(self._tp, (item.offset, 0))
            times = times + 1 if offset == item.offset else 1
            self._state.torn[self._tp] = (item.offset, times)
            if not item.torn or times >= _TORN_READS:
                yield item
            return
        self._state.torn.pop(self._tp, None)


class _Waiting:
    """What `Fetcher.fetched_records` uses of asyncio, without the set-up for many futures."""

    @staticmethod
    async def wait(waiters: list[asyncio.Future[None]], *, timeout: float) -> tuple[Any, Any]:  # noqa: ASYNC109  # asyncio's name for it
        """Wait for one future, or until the time is over: then there is nothing, as it is found."""
        (waiter,) = waiters
        timer = waiter.get_loop().call_later(timeout, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        return waiters, []


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Fetcher(fetcher.Fetcher):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's fetcher of batches in place of records, and with less work for each answer."""

    _proc_fetch_request = rebound(
        fetcher.Fetcher._proc_fetch_request,
        MemoryRecords=RawRecords,
        PartitionRecords=WholeBatches,
    )
    fetched_records = rebound(fetcher.Fetcher.fetched_records, asyncio=_Waiting)

    async def _fetch_requests_routine(self) -> None:
        """Ask each broker that is not being asked, whenever something has changed.

        In place of aiokafka's, which waits for each task and event by itself, and is woken by an
        answer before what it brought can have been taken.
        """
        try:
            while True:
                assignment = await self._assigned()
                while assignment.active:
                    await self._ask(assignment)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            raise errors.KafkaError(f"unexpected: {error!r}") from error

    async def _assigned(self) -> Any:
        """The next assignment; what was asked for the one before is of no use any more."""
        for task in self._pending_tasks:
            task.cancel()
        if self._pending_tasks:
            await asyncio.wait(self._pending_tasks)
        self._pending_tasks.clear()
        self._records.clear()
        while True:
            subscription = self._subscriptions.subscription
            assignment = None if subscription is None else subscription.assignment
            if assignment is not None and assignment.active:
                return assignment
            # Its errors are the consumer's: this one goes on.
            with contextlib.suppress(errors.KafkaError):
                await self._subscriptions.wait_for_assignment()

    async def _ask(self, assignment: Any) -> None:
        """Start what can be started, and wait until there may be more."""
        self._raise_failures()
        self._wait_consume_future = woken = self._loop.create_future()
        fetches, resets, seconds, no_leader, changes = self._get_actions_per_node(assignment)
        for node, request in fetches:
            self._start(node, self._proc_fetch_request(assignment, node, request))
        for node, partitions in resets.items():
            self._start(node, self._update_fetch_positions(assignment, node, partitions))
        changes.append(assignment.unassign_future)
        if no_leader:
            changes.append(self._client.force_metadata_update())
        for change in changes:
            change.add_done_callback(self._changed)
        timer = self._loop.call_later(seconds, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
            for change in changes:
                change.remove_done_callback(self._changed)

    def _start(self, node: int, work: Coroutine[Any, Any, bool]) -> None:
        task = self._loop.create_task(work)
        self._pending_tasks.add(task)
        self._in_flight.add(node)
        task.add_done_callback(partial(self._ended, node))

    def _ended(self, node: int, task: asyncio.Task[bool]) -> None:
        self._in_flight.discard(node)
        if not task.cancelled() and task.exception() is None and task.result():
            waiters = [waiter for waiter in self._fetch_waiters if not waiter.done()]
            if waiters:
                # Whoever takes what has come lets more be asked for.
                for waiter in waiters:
                    waiter.set_result(None)
                return
        self._changed()

    def _changed(self, _: object = None) -> None:
        _wake(self._wait_consume_future)

    def _raise_failures(self) -> None:
        """Forget tasks that have ended; raises what ended one."""
        for task in [task for task in self._pending_tasks if task.done()]:
            self._pending_tasks.remove(task)
            task.result()


class _Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaConsumer.__init__, AIOKafkaClient=Client)
    start = rebound(AIOKafkaConsumer.start, Fetcher=Fetcher)


class FastConsumer(PublicConsumer):
    """See `ports.ConsumerPort`."""

    client_type = _Consumer

    def __init__(self, config: ClientConfig, group: str | None = None) -> None:
        super().__init__(config, group)
        committed = config.isolation_level is IsolationLevel.READ_COMMITTED
        self._identity = Identity(self.client._client)
        self._ends = Ends(self._identity, committed=committed)
        self.client._key_deserializer = ReadState(self._identity)
        self._largest = _BATCH_BYTES
        """Bytes, uncompressed, of the largest batches that came as one; forgotten by halves."""

    @property
    def sees_topic_ids(self) -> bool:
        """See `ports.ConsumerPort`."""
        return self._identity.by_id

    def seek(self, partition: TopicPartition, place: ReadPosition) -> None:
        """See `ports.ConsumerPort`."""
        super().seek(partition, place)
        self._identity.place(partition, place)

    async def topic_id(self, topic: str) -> str | None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return await self._identity.topic_id(topic)

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return await self._ends.of(read)

    async def fetch(
        self,
        *,
        timeout_ms: int,
        portion: int,
        reached: Mapping[TopicPartition, int],  # noqa: ARG002  # each batch has its offsets
    ) -> list[list[Fetched]]:
        """See `ports.ConsumerPort`."""
        try:
            fetched = await self.client.getmany(
                timeout_ms=timeout_ms, max_records=max(1, portion // self._largest)
            )
        except errors.OffsetOutOfRangeError as error:
            return [[broken] for broken in self._identity.broken_off(error.args[0])]
        except (errors.KafkaError, OSError) as error:
            raise request_error(error) from error
        found: list[list[Fetched]] = list(fetched.values())
        sizes = [
            len(item.buffer)
            for items in found
            for item in items
            if isinstance(item, FetchedBatches) and item.buffer is not None
        ]
        if sizes:
            self._largest = max(*sizes, self._largest // 2)
        return found

    def failure(self) -> str | None:
        """See `ports.ConsumerPort`."""
        task = self.client._fetcher._fetch_task
        if not task.done() or task.cancelled():
            return None
        failure = task.exception()
        return reason(failure) if failure else "fetching has ended"

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        if not await stopped_in_order(self.client.stop, seconds):
            await self.client._client.close()
