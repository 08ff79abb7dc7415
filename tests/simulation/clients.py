"""The applications' clients of the simulated clusters: an implementation of `kafka.ports`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fetched import Diverged, End, OutOfRange, ReadPosition, Recreated, batches
from mirrortest.model.topic_partition import TopicPartition

from .administration import SimulatedAdmin
from .cluster import READ_COMMITTED
from .connection import SimulatedClient, here, id_of
from .group import Membership
from .producing import SimulatedProducer
from .virtual_time import VIRTUAL_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import Fetched
    from mirrortest.kafka.ports import RebalanceListener

    from .cluster import Slice

METADATA_CREATES_TOPICS = False
"""See `ports.Library`."""

_ASKED_AGAIN = {
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT,
    Code.NOT_CONNECTED,
}


def producer(
    config: ClientConfig, *, batch_bytes: int | None = None, after: object = None
) -> SimulatedProducer:
    """See `ports.Library`; `after` is ignored: an abandoned producer starts no new batch."""
    return SimulatedProducer(*here(config), config)


def consumer(config: ClientConfig, *, group: str | None = None) -> SimulatedConsumer:
    """See `ports.Library`."""
    return SimulatedConsumer(config, group)


def admin(config: ClientConfig) -> SimulatedAdmin:
    """See `ports.Library`."""
    return SimulatedAdmin(config)


async def try_connection(config: ClientConfig) -> None:
    """See `ports.Library`."""
    await SimulatedConsumer(config, None).start()


class SimulatedConsumer(SimulatedClient):
    """See `ports.ConsumerPort`."""

    sees_topic_ids = True
    sees_markers = True

    def __init__(self, config: ClientConfig, group: str | None) -> None:
        super().__init__(config)
        self.isolation = str(config.isolation_level)
        self.positions: dict[TopicPartition, int | None] = {}
        """Assigned partition -> where to fetch next; None: not known yet."""
        self.paused: set[TopicPartition] = set()
        self.membership: Membership | None = None
        self._config, self._group = config, group
        self._places: dict[TopicPartition, ReadPosition] = {}
        self._ids: dict[str, str] = {}
        """Topic -> its id, as this client last learned it."""

    async def stop(self, seconds: float) -> None:
        """Leave the group."""
        if self.membership is not None:
            stopping = asyncio.ensure_future(self.membership.leave())
            await asyncio.wait({stopping}, timeout=seconds)
            stopping.cancel()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment."""
        self.positions = dict.fromkeys(partitions)
        self.paused.clear()

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Join the group, in a task of its own."""
        self._join(listener, topics=topics)

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener) -> None:
        """Join the group, in a task of its own."""
        self._join(listener, pattern=pattern)

    def _join(self, listener: RebalanceListener, **what: Any) -> None:
        assert self._group is not None
        self.membership = Membership(self, self._config, self._group, listener, **what)
        self.membership.begin()

    def seek(self, partition: TopicPartition, place: ReadPosition) -> None:
        """See `ports.ConsumerPort`."""
        if partition not in self.positions:
            raise RequestError(Code.ILLEGAL_STATE, f"{partition} is not assigned")
        self.positions[partition] = place.offset
        self._places[partition] = place

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        self.paused -= set(partitions)

    async def topics(self) -> set[str]:
        """See `ports.ConsumerPort`."""
        found: set[str] = await self.ask("topics", lambda: set(self._known()))
        return found

    async def commit(self, positions: Mapping[Any, int]) -> None:
        """See `ports.ConsumerPort`."""
        assert self.membership is not None
        await self.membership.commit(positions)

    async def beginning_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        """See `ports.ConsumerPort`."""
        return await self._offsets(partitions, 0)

    async def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        """See `ports.ConsumerPort`."""
        return await self._offsets(partitions, 1)

    async def _offsets(self, partitions: list[Any], which: int) -> dict[Any, int]:
        """Asks until all partitions answer, as aiokafka does."""
        deadline = self.world.loop.time() + self.seconds

        def serve() -> dict[Any, int]:
            now = self.world.now_ns
            return {
                at: self.cluster.partition(at.topic, at.partition, now).bounds(
                    self.process.name, self.isolation
                )[which]
                for at in partitions
            }

        while True:
            try:
                found: dict[Any, int] = await self.ask("offsets", serve)
            except RequestError as error:
                if error.code not in _ASKED_AGAIN:
                    raise
                if self.world.loop.time() >= deadline:
                    raise RequestError(Code.GAVE_UP_WAITING, "Failed to get offsets") from error
                await asyncio.sleep(self.backoff)
            else:
                self.world.note("offsets", self.process.name, which, *sorted(found.items()))
                return found

    def _known(self) -> list[str]:
        return [n for n in self.cluster.topics if self.cluster.known(n, self.world.now_ns)]

    def learn(self, topic_id: str | None) -> None:
        """Record that this process knows this topic id."""
        if topic_id is not None:
            topic = self.cluster.all_topics[int(topic_id) - 1]
            self._ids[topic.name] = topic_id
            topic.learned_ns.setdefault(self.process, self.world.now_ns)

    # -- fetching ---------------------------------------------------------------------------------

    def gather(self, wanted: dict[Any, ReadPosition]) -> dict[Any, Slice | OutOfRange]:
        """At the brokers: the batches from these positions on, or why there are none."""
        found: dict[Any, Slice | OutOfRange] = {}
        now = self.world.now_ns
        for at, (offset, epoch, topic_id) in wanted.items():
            topic = self.cluster.known(at.topic, now)
            try:
                partition = self.cluster.partition(at.topic, at.partition, now)
            except RequestError:
                continue  # the client refreshes its metadata and fetches again
            assert topic is not None
            if topic_id is not None and topic_id != id_of(topic):
                found[at] = Recreated(at.topic, at.partition, offset, id_of(topic))
                continue
            try:
                if parted := partition.parted_from(offset, epoch, self.process.name):
                    found[at] = Diverged(at.topic, at.partition, offset, *parted)
                    continue
                part = partition.read(self.process.name, offset, self.isolation)
            except RequestError:
                found[at] = OutOfRange(at.topic, at.partition, offset)
            else:
                part.topic_id = id_of(topic)
                found[at] = part
        return found

    def _serve_ends(self, read: Mapping[Any, ReadPosition]) -> dict[Any, End]:
        """At the brokers: where partitions end, according to their newest leaders."""
        found = {}
        every = {
            TopicPartition(name, number): ReadPosition(0)
            for name in {at.topic for at in read}
            if (there := self.cluster.known(name, self.world.now_ns)) is not None
            for number in range(len(there.partitions))
        }
        for at, (offset, epoch, _) in {**every, **read}.items():
            topic = self.cluster.known(at.topic, self.world.now_ns)
            partition = self.cluster.partition(at.topic, at.partition, self.world.now_ns)
            assert topic is not None
            stale = partition.stale_for(self.process.name)
            if stale is not None and stale.alone:
                raise RequestError(Code.REQUEST_TIMED_OUT)
            found[at] = End(
                partition.high_watermark,
                partition.stable,
                id_of(topic),
                partition.parted_from(offset, epoch) is None,
            )
        return found

    async def topic_id(self, topic: str) -> str | None:
        """See `ports.ConsumerPort`."""

        def serve() -> str | None:
            known = self.cluster.known(topic, self.world.now_ns)
            if known is None and topic not in self._ids:
                raise RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION, topic)
            return self._ids[topic] if known is None else id_of(known)

        found: str | None = await self.ask("topic id", serve)
        self.learn(found)
        return found

    async def ends(self, read: Mapping[Any, ReadPosition]) -> dict[Any, End]:
        """See `ports.ConsumerPort`."""
        deadline = self.world.loop.time() + self.seconds
        while True:
            try:
                found: dict[Any, End] = await self.ask("ends", lambda: self._serve_ends(read))
                break
            except RequestError as error:
                missing = error.code == Code.UNKNOWN_TOPIC_OR_PARTITION
                if missing or not error.traits.retriable or self.world.loop.time() >= deadline:
                    raise
            await asyncio.sleep(self.backoff)
        self.world.note("ends", self.process.name, *sorted(found.items()))
        for end in found.values():
            self.learn(end.topic_id)
        return found

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[Any, int]
    ) -> list[list[Fetched]]:
        """See `ports.ConsumerPort`."""
        loop = self.world.loop
        deadline = loop.time() + timeout_ms / 1000
        while True:
            wanted = {
                at: self._places.get(at, ReadPosition(position))._replace(offset=position)
                for at, position in self.positions.items()
                if position is not None and at not in self.paused
            }
            waiting = loop.create_future()
            for topic in {at.topic: None for at in wanted}:
                self.world.watch(self.cluster.name, topic, waiting)
            if wanted:
                try:
                    answer = await self.ask("fetch", partial(self.gather, wanted))
                except RequestError:
                    answer = {}  # aiokafka's fetcher retries by itself
                    await asyncio.sleep(self.backoff)
                found = self._taken(wanted, answer)
                if found:
                    return found
            left = deadline - loop.time()
            if left <= 0:
                return []
            timer = loop.call_later(left, _wake, waiting)
            try:
                await waiting
            finally:
                timer.cancel()

    def _taken(
        self, wanted: dict[Any, ReadPosition], answer: dict[Any, Slice | OutOfRange]
    ) -> list[list[Fetched]]:
        """The part of an answer that is still wanted; advances the positions."""
        found: list[list[Fetched]] = []
        for at, part in answer.items():
            begin = wanted[at].offset
            if self.positions.get(at) != begin or at in self.paused:
                continue
            if isinstance(part, OutOfRange):
                self.learn(part.topic_id if isinstance(part, Recreated) else None)
                self.world.note(type(part).__name__, self.process.name, *at, begin)
                found.append([part])
                continue
            if part.next == begin:
                continue
            items: list[Any] = list(
                batches(
                    memoryview(part.raw),
                    topic=at.topic,
                    partition=at.partition,
                    fetch_offset=begin,
                    arrived_ns=VIRTUAL_TIME.time_ns(),
                    aborted=part.aborted if self.isolation == READ_COMMITTED else None,
                    topic_id=part.topic_id,
                )
            )
            if not items:
                continue
            last = items[-1]
            self.positions[at] = last.next_offset
            self._places[at] = ReadPosition(last.next_offset, last.leader_epoch, part.topic_id)
            self.world.note("fetched", self.process.name, *at, begin, last.next_offset)
            found.append(items)
        return found

    def failure(self) -> str | None:
        """See `ports.ConsumerPort`."""
        return None


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
