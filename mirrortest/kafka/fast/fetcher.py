"""Fetch the partitions that are read, and keep the responses until the reader takes them.

This replaces aiokafka's fetcher, which spends a task and some hundred calls on a response. A broker
has one request in flight, for all partitions that are read from it. It gets the next one once the
reader has taken all that it sent. A seek creates a new `Place`, so that responses for the previous
one are dropped.
"""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from aiokafka import errors
from aiokafka.conn import CloseReason

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast.frames import Section
from mirrortest.kafka.fast.identity import OTHER_LEADER
from mirrortest.kafka.fast.places import Place, Places
from mirrortest.kafka.fast.requests import FetchPosition, FetchRequest
from mirrortest.kafka.fetched import Diverged, OutOfRange, Recreated
from mirrortest.kafka.public.connection import reason, request_error

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from mirrortest.kafka.fast.connection import Client, Connection
    from mirrortest.kafka.fast.identity import Identity
    from mirrortest.kafka.fast.requests import EpochEnd, FetchLimits
    from mirrortest.kafka.fetched import Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

_log = structlog.get_logger()

_NO_LEADER = (None, -1)
_WITH_REPLICA = 11
"""The first version of Fetch whose response names the replica to read from (KIP-392)."""
_OTHER_TOPIC = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
_LEADER_MOVED = frozenset(
    {Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION, *OTHER_LEADER}
)


class Fetcher:
    """The fetcher of one consumer; everything happens on the event loop.

    Args:
        client: of the consumer.
        subscriptions: aiokafka's SubscriptionState, which has the assignment.
        identity: of the consumer.
        limits: of each request.
    """

    def __init__(
        self, client: Client, subscriptions: Any, identity: Identity, limits: FetchLimits
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._identity = identity
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._places = Places(subscriptions)
        self._busy: set[int] = set()
        """Brokers with a request in flight, a connection attempt, or a backoff after a failure."""
        self._id_lookups: dict[tuple[str, str | None], list[Place]] = {}
        """(topic, id) -> its places, while brokers are asked whether the name has another id."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self._scheduled = False
        self._closed = False
        self._error: RequestError | None = None
        """The error that the next call of `fetched` raises."""
        self.failure: str | None = None
        """Why fetching has ended; None while it runs."""
        self._replica_seconds = client._metadata_max_age_ms / 1000
        self.by_id = True
        """Whether every fetch so far was by topic id."""

    def start(self) -> None:
        """Start fetching, once the client is connected."""
        # Fatal errors of the group end a wait.
        self._subscriptions.register_fetch_waiters(self._waiters)
        self._client.cluster.add_listener(self._schedule)

    def close(self) -> None:
        """Send no more requests; waiting calls of `fetched` return."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._wake()

    # -- what to read -----------------------------------------------------------------------------

    def seek(self, at: TopicPartition, place: ReadPosition) -> None:
        """Set the position of an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        self._renew()
        self._places.seek(at, place)
        self._schedule()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning these partitions."""
        self._renew()
        self._places.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._renew()
        self._places.resume(partitions)
        self._schedule()

    def _renew(self) -> None:
        if self._places.renew():
            self._error = None

    # -- fetched data -----------------------------------------------------------------------------

    async def fetched(self, seconds: float, portion: int) -> list[list[Fetched]]:
        """Wait up to `seconds` for data; return about `portion` bytes, one list per partition.

        Raises:
            RequestError: a broker refuses.
            KafkaError: the group's coordinator refuses.
        """
        if seconds > 0 and not self._is_ready():
            waiter = self._loop.create_future()
            self._waiters.add(waiter)
            timer = self._loop.call_later(seconds, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.discard(waiter)
        return self._take(portion) if self._is_ready() else []

    def _is_ready(self) -> bool:
        # Data requested before a rebalance may belong to another member now.
        return (self._places.arrived or self._error is not None) and not (
            self._subscriptions.reassignment_in_progress
        )

    def _take(self, portion: int) -> list[list[Fetched]]:
        self._renew()
        found = self._places.take(portion)
        self._schedule()
        if not found and self._error is not None:
            error, self._error = self._error, None
            raise error
        return found

    def _wake(self) -> None:
        for waiter in self._waiters:
            _wake(waiter)

    # -- requests ---------------------------------------------------------------------------------

    def _schedule(self, _: object = None) -> None:
        """Send in the next loop iteration, so that partitions of a broker share a request."""
        if not (self._scheduled or self._closed):
            self._scheduled = True
            self._loop.call_soon(self._guarded, self._ask)

    def _guarded(self, work: Any, *arguments: Any) -> None:
        """Run `work`; an unexpected error ends fetching and becomes `failure`."""
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  # it ends the reader
            self.failure = reason(error)
            self._closed = True
            self._wake()

    def _ask(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        self._renew()
        wanted, busy = self._places.wanted()
        busy |= self._busy
        by_node: dict[int, list[Place]] = {}
        leaderless = []
        for place in wanted:
            node = self._source(place)
            if node in _NO_LEADER:
                leaderless.append(place)
            elif node not in busy:
                by_node.setdefault(node, []).append(place)
        for node, places in by_node.items():
            connection = self._client.connected(node)
            if connection is None:
                self._busy.add(node)
                self._start(self._client.ready(node), self._connected, node)
            else:
                self._request(node, connection, places)
        if leaderless:
            self._refresh_leaders(leaderless)

    def _source(self, place: Place) -> Any:
        """The broker to read from; None or -1 if there is none."""
        if place.replica is not None:
            node, until = place.replica
            if self._loop.time() < until and self._client.cluster.broker_metadata(node):
                return node
            place.replica = None
        return self._client.cluster.leader_for_partition(place.at)

    def _start(self, work: Coroutine[Any, Any, Any], then: Any, *arguments: Any) -> None:
        """Run a coroutine that raises nothing, and call `then` with its result."""
        task = self._loop.create_task(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not self._closed and not task.cancelled():
                self._guarded(lambda: then(*arguments, task.result()))

        task.add_done_callback(ended)

    def _connected(self, node: int, connected: bool) -> None:
        if connected:
            self._free(node)
        else:
            self._unanswered(node, self._places)

    def _free(self, node: int) -> None:
        self._busy.discard(node)
        self._schedule()

    def _request(self, node: int, connection: Connection, places: list[Place]) -> None:
        request = FetchRequest(self._limits, [self._position(place) for place in places])
        for place in places:
            place.request, place.node = request, node
        self._busy.add(node)
        try:
            answer = asyncio.ensure_future(connection.send(request))
        except errors.KafkaConnectionError:
            self._unanswered(node, places)
            return
        self.by_id = self.by_id and request.by_id
        answer.add_done_callback(
            partial(self._guarded, self._answered, node, connection, request, places)
        )

    def _position(self, place: Place) -> FetchPosition:
        topic, partition = place.at
        if place.topic_id is None:
            place.topic_id = self._identity.cached_id(topic)
        epoch = self._identity.leader_epoch(place.topic_id, partition)
        return FetchPosition(
            topic, place.topic_id, partition, epoch, place.offset, place.leader_epoch
        )

    # -- responses --------------------------------------------------------------------------------

    def _answered(
        self,
        node: int,
        connection: Connection,
        request: FetchRequest,
        places: list[Place],
        answer: asyncio.Future[Any],
    ) -> None:
        error = errors.KafkaConnectionError() if answer.cancelled() else answer.exception()
        if self._closed:
            return
        if isinstance(error, TimeoutError):
            # The next request opens a new one.
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
        if isinstance(error, (errors.KafkaError, OSError)):
            self._unanswered(node, places)
            return
        if error is not None:
            raise error
        response = answer.result()
        refused = getattr(response, "error_code", Code.NONE)
        if not (response.topics or refused) and response.throttle_time_ms:
            # A quota is exceeded: the broker serves nothing to this connection for so long.
            self._loop.call_later(response.throttle_time_ms / 1000, self._free, node)
            return
        self._examine(node, request, places, response)
        self._free(node)

    def _unanswered(self, node: int, places: Iterable[Place]) -> None:
        for place in places:
            if place.replica is not None and place.replica[0] == node:
                place.replica = None
        self._client.force_metadata_update()
        self._loop.call_later(self._identity.backoff, self._free, node)

    def _examine(
        self, node: int, request: FetchRequest, places: list[Place], response: Any
    ) -> None:
        """Keep the data of places that were not sought, or requested elsewhere, meanwhile."""
        asked = {
            (place.topic_id if request.by_id else place.at.topic, place.at.partition): place
            for place in places
            if place.request is request and place in self._places
        }
        diverging = response.diverging if request.by_id else {}
        for topic, partitions in response.topics:
            for number, code, *rest in partitions:
                place = asked.pop((topic, number), None)
                if place is None:
                    continue
                end = diverging.get((topic, number))
                if code or end is not None:
                    self._refused(node, place, code, end)
                else:
                    self._keep(place, response.API_VERSION, rest)
        # If a broker refuses an entire request, its response has an error and no partitions.
        code = getattr(response, "error_code", Code.NONE) or Code.UNKNOWN
        for place in asked.values():
            self._refused(node, place, code, None)
        if self._places.arrived:
            self._wake()

    def _keep(self, place: Place, version: int, rest: list[Any]) -> None:
        place.refused = Code.NONE
        if self._limits.rack and version >= _WITH_REPLICA and rest[-2] >= 0:
            place.replica = rest[-2], self._loop.time() + self._replica_seconds
            if self._client.cluster.broker_metadata(rest[-2]) is None:
                self._refresh_leaders([place])  # the metadata does not list this broker yet
        records = rest[-1]
        if not isinstance(records, Section):
            records = Section(memoryview(records or b""), time.time_ns())
        place.reaches(rest[1 if self._limits.committed else 0], records.arrived_ns)
        if not records.data:
            return
        aborted = None
        if self._limits.committed:
            with_replica = version >= _WITH_REPLICA
            aborted = (rest[-3] if with_replica else rest[-2]) or ()
        self._places.add(place, place.readable(records, aborted))

    def _refused(self, node: int, place: Place, code: int, end: EpochEnd | None) -> None:
        topic, partition = place.at
        place.replica = None
        if end is not None or code == Code.OFFSET_OUT_OF_RANGE:
            leader = self._identity.leader(place.topic_id, partition)
            if leader is None:
                leader = self._client.cluster.leader_for_partition(place.at)
            if leader != node:
                # Perhaps this follower only lags behind: ask the leader.
                self._refresh_leaders([place])
            elif end is None:
                self._report_lost(place, OutOfRange(topic, partition, place.offset))
            else:
                self._report_lost(place, Diverged(topic, partition, place.offset, *end))
        elif code in _OTHER_TOPIC:
            place.waits += 1
            key = topic, place.topic_id
            self._id_lookups.setdefault(key, []).append(place)
            if len(self._id_lookups[key]) == 1:  # its partitions share one lookup
                self._start(self._identity.other_id(*key), self._end_lookup, key)
        else:
            # After a disk failure, its broker refuses even when there is another leader.
            self._refresh_leaders([place])
            if code not in _LEADER_MOVED:
                self._report(place, code)

    def _report(self, place: Place, code: int) -> None:
        """Raise a missing permission to read a topic; log other errors, each once."""
        kind = errors.for_code(code)
        if kind is errors.TopicAuthorizationFailedError:
            self._error = request_error(kind(place.at.topic))
            self._wake()
        elif place.refused != code:
            place.refused = code
            _log.warning(
                "partition fetch failed, retrying",
                partition=str(place.at),
                why=str(request_error(kind())),
            )

    def _end_lookup(self, key: tuple[str, str | None], now: str | None) -> None:
        places = self._id_lookups.pop(key)
        for place in places:
            place.waits -= 1
            if now is not None and place in self._places:
                self._report_lost(place, Recreated(*place.at, place.offset, now))
        if now is None:
            self._refresh_leaders(places)
        self._wake()

    def _report_lost(self, place: Place, why: OutOfRange) -> None:
        """Report that a position does not exist; fetch it again and again until it is sought."""
        self._back_off([place])
        self._places.add(place, iter((why,)))

    def _refresh_leaders(self, places: list[Place]) -> None:
        for place in places:
            place.waits += 1
        self._client.force_metadata_update().add_done_callback(
            lambda _: self._end_wait_later(places)
        )

    def _back_off(self, places: list[Place]) -> None:
        """Fetch these places again after the backoff."""
        for place in places:
            place.waits += 1
        self._end_wait_later(places)

    def _end_wait_later(self, places: list[Place]) -> None:
        self._loop.call_later(self._identity.backoff, self._end_wait, places)

    def _end_wait(self, places: list[Place]) -> None:
        for place in places:
            place.waits -= 1
        self._schedule()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
