"""Where the applications meet the simulated clusters: what they ask of aiokafka, served here.

This is the one module that knows both sides: `kafka.access` (Outlet, Inlet) and the public calls
of aiokafka's clients that `kafka.admin`, `kafka.reader`, `kafka.sender` and `kafka.compacted` use.
"""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors

from mirrortest.kafka.fetched import Diverged, End, OutOfRange, Place, Recreated, batches

from .cluster import READ_COMMITTED
from .group import Membership
from .loop import PROCESS
from .producing import SimulatedOutlet
from .virtual_time import VIRTUAL_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirrortest.kafka.fetched import Fetched

    from .cluster import Cluster, Slice, Topic
    from .loop import Process
    from .world import World

ASKING_MAKES_TOPICS = False
"""See `kafka.access`."""


def here(arguments: dict[str, Any]) -> tuple[World, Process, Cluster]:
    """The world and process that make a client, and the client's cluster."""
    process = PROCESS.get()
    assert process is not None
    return process.world, process, process.world.cluster_at(arguments["bootstrap_servers"][0])


def outlet(arguments: dict[str, Any], *, compression: str = "none") -> SimulatedOutlet:
    """See `kafka.access`."""
    world, process, cluster = here(arguments)
    return SimulatedOutlet(world, process, cluster, arguments)


def inlet(arguments: dict[str, Any]) -> SimulatedInlet:
    """See `kafka.access`."""
    return SimulatedInlet(SimulatedConsumer(**arguments))


async def try_connection(arguments: dict[str, Any]) -> None:
    """See `kafka.access`."""
    await SimulatedConsumer(**arguments).start()


class _Client:
    """What all clients share."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.world, self.process, self.cluster = here(arguments)
        self.seconds = arguments["request_timeout_ms"] / 1000
        self.backoff = arguments["retry_backoff_ms"] / 1000

    async def ask(self, what: str, serve: Callable[[], Any]) -> Any:
        return await self.world.net.ask(self.cluster, what, serve, seconds=self.seconds)

    async def start(self) -> None:
        """Reach a broker."""
        try:
            await self.ask("start", lambda: None)
        except errors.RequestTimedOutError as error:
            raise errors.KafkaConnectionError("Unable to bootstrap") from error

    async def close(self) -> None:
        """Nothing is to be closed."""


class SimulatedConsumer(_Client):
    """The public calls of an AIOKafkaConsumer."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(arguments)
        self.isolation = str(arguments.get("isolation_level", "read_uncommitted"))
        self.positions: dict[Any, int | None] = {}
        """Assigned partition -> where to fetch next; None: not known yet."""
        self.paused: set[Any] = set()
        self.membership: Membership | None = None
        self._arguments = arguments

    async def stop(self) -> None:
        """Leave the group."""
        if self.membership is not None:
            await self.membership.leave()

    def assign(self, partitions: Iterable[Any]) -> None:
        """Replace the assignment."""
        self.positions = dict.fromkeys(partitions)
        self.paused.clear()

    def subscribe(self, *, listener: Any, topics: Any = (), pattern: str | None = None) -> None:
        """Join the group, in a task of its own."""
        self.membership = Membership(self, self._arguments, listener, topics, pattern)
        self.membership.begin()

    def seek(self, at: Any, offset: int) -> None:
        """See aiokafka."""
        if at not in self.positions:
            raise errors.IllegalStateError(f"{at} is not assigned")
        self.positions[at] = offset

    def pause(self, *partitions: Any) -> None:
        """See aiokafka."""
        self.paused |= set(partitions)

    def resume(self, *partitions: Any) -> None:
        """See aiokafka."""
        self.paused -= set(partitions)

    async def topics(self) -> set[str]:
        """See aiokafka."""
        found: set[str] = await self.ask("topics", lambda: set(self._known()))
        return found

    async def commit(self, positions: Mapping[Any, int]) -> None:
        """See aiokafka."""
        assert self.membership is not None
        await self.membership.commit(positions)

    async def committed(self, at: Any) -> int | None:
        """See aiokafka."""
        return None

    async def beginning_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        """See aiokafka."""
        return await self._offsets(partitions, 0)

    async def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        """See aiokafka."""
        return await self._offsets(partitions, 1)

    async def _offsets(self, partitions: list[Any], which: int) -> dict[Any, int]:
        """Asked until all partitions answer, as aiokafka does."""
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
            except (
                errors.UnknownTopicOrPartitionError,
                errors.LeaderNotAvailableError,
                errors.RequestTimedOutError,
                errors.KafkaConnectionError,
            ) as error:
                if self.world.loop.time() >= deadline:
                    raise errors.KafkaTimeoutError("Failed to get offsets") from error
                await asyncio.sleep(self.backoff)
            else:
                self.world.note("offsets", self.process.name, which, *sorted(found.items()))
                return found

    def _known(self) -> list[str]:
        return [n for n in self.cluster.topics if self.cluster.known(n, self.world.now_ns)]

    def learn(self, topic_id: str | None) -> None:
        """Note that this process knows of a topic."""
        if topic_id is not None:
            topic = self.cluster.all_topics[int(topic_id) - 1]
            topic.told.setdefault(self.process, self.world.now_ns)

    # -- fetching ---------------------------------------------------------------------------------

    def gather(self, wanted: dict[Any, Place]) -> dict[Any, Slice | OutOfRange]:
        """At the brokers: what there is behind these places."""
        found: dict[Any, Slice | OutOfRange] = {}
        now = self.world.now_ns
        for at, (offset, epoch, topic_id) in wanted.items():
            topic = self.cluster.known(at.topic, now)
            try:
                partition = self.cluster.partition(at.topic, at.partition, now)
            except errors.KafkaError:
                continue  # metadata are asked for again, and the fetch repeated
            assert topic is not None
            if topic_id is not None and topic_id != id_of(topic):
                found[at] = Recreated(at.topic, at.partition, offset, id_of(topic))
                continue
            stale = partition.stale_for(self.process.name)
            parted = None if stale else partition.parted_from(offset, epoch)
            if parted is not None:
                found[at] = Diverged(at.topic, at.partition, offset, *parted)
                continue
            try:
                part = partition.read(self.process.name, offset, self.isolation)
                part.topic_id = id_of(topic)
                found[at] = part
            except errors.OffsetOutOfRangeError:
                found[at] = OutOfRange(at.topic, at.partition, offset)
        return found

    def tell_ends(self, read: Mapping[Any, Place]) -> dict[Any, End]:
        """At the brokers: where partitions end, by their newest leaders."""
        found = {}
        for at, (offset, epoch, _) in read.items():
            topic = self.cluster.known(at.topic, self.world.now_ns)
            partition = self.cluster.partition(at.topic, at.partition, self.world.now_ns)
            assert topic is not None
            stale = partition.stale_for(self.process.name)
            if stale is not None and stale.alone:
                raise errors.RequestTimedOutError
            found[at] = End(
                partition.high_watermark,
                partition.stable,
                id_of(topic),
                partition.parted_from(offset, epoch) is None,
            )
        return found


class SimulatedInlet:
    """See `kafka.access.Inlet`."""

    sees_topic_ids = True

    def __init__(self, client: SimulatedConsumer) -> None:
        self.client = client
        self._places: dict[Any, Place] = {}

    def place(self, partition: Any, place: Place) -> None:
        """See `kafka.access.Inlet`."""
        self._places[KafkaPartition(*partition)] = place

    async def topic_id(self, topic: str) -> str | None:
        """See `kafka.access.Inlet`."""
        client = self.client

        def serve() -> str | None:
            known = client.cluster.known(topic, client.world.now_ns)
            return None if known is None else id_of(known)

        found: str | None = await client.ask("topic id", serve)
        client.learn(found)
        return found

    async def ends(self, read: Mapping[Any, Place]) -> dict[Any, End]:
        """See `kafka.access.Inlet`."""
        client = self.client
        found: dict[Any, End] = await client.ask("ends", lambda: client.tell_ends(read))
        client.world.note("ends", client.process.name, *sorted(found.items()))
        for end in found.values():
            client.learn(end.topic_id)
        return found

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[Any, int]
    ) -> list[list[Fetched]]:
        """See `kafka.access.Inlet`."""
        client, loop = self.client, self.client.world.loop
        deadline = loop.time() + timeout_ms / 1000
        while True:
            wanted = {
                at: self._places.get(at, Place(position))._replace(offset=position)
                for at, position in client.positions.items()
                if position is not None and at not in client.paused
            }
            waiting = loop.create_future()
            for topic in {at.topic: None for at in wanted}:
                client.world.watch(client.cluster.name, topic, waiting)
            if wanted:
                try:
                    answer = await client.ask("fetch", partial(client.gather, wanted))
                except errors.KafkaError:
                    answer = {}  # aiokafka's fetcher tries again by itself
                    await asyncio.sleep(client.backoff)
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
        self, wanted: dict[Any, Place], answer: dict[Any, Slice | OutOfRange]
    ) -> list[list[Fetched]]:
        """What of an answer is still wanted, with positions moved on."""
        client = self.client
        found: list[list[Fetched]] = []
        outside: list[list[Fetched]] = []
        for at, part in answer.items():
            begin = wanted[at].offset
            if client.positions.get(at) != begin or at in client.paused:
                continue
            if isinstance(part, OutOfRange):
                client.learn(part.topic_id if isinstance(part, Recreated) else None)
                client.world.note(type(part).__name__, client.process.name, *at, begin)
                outside.append([part])
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
                    aborted=part.aborted if client.isolation == READ_COMMITTED else None,
                    topic_id=part.topic_id,
                )
            )
            if not items:
                continue
            last = items[-1]
            client.positions[at] = last.next_offset
            self._places[at] = Place(last.next_offset, last.leader_epoch, part.topic_id)
            client.world.note("fetched", client.process.name, *at, begin, last.next_offset)
            found.append(items)
        return found or outside

    def failure(self) -> BaseException | None:
        """See `kafka.access.Inlet`."""
        return None

    async def stop(self, seconds: float) -> None:
        """See `kafka.access.Inlet`."""
        stopping = asyncio.ensure_future(self.client.stop())
        await asyncio.wait({stopping}, timeout=seconds)
        stopping.cancel()


def id_of(topic: Topic) -> str:
    """A topic's id as clients are told it, which has 22 signs."""
    return f"{topic.id:022}"


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimulatedAdminClient(_Client):
    """The public calls of an AIOKafkaAdminClient."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(arguments)

    async def describe_cluster(self) -> dict[str, Any]:
        """See aiokafka."""
        found: dict[str, Any] = await self.ask(
            "cluster", lambda: {"cluster_id": self.cluster.name, "brokers": [1, 2, 3]}
        )
        return found

    async def describe_topics(self, topics: list[str] | None = None) -> list[dict[str, Any]]:
        """See aiokafka."""
        cluster, world = self.cluster, self.world

        def serve() -> list[dict[str, Any]]:
            found = []
            for name in sorted(cluster.topics) if topics is None else topics:
                topic = cluster.known(name, world.now_ns)
                missing = errors.UnknownTopicOrPartitionError.errno
                found.append(
                    {
                        "topic": name,
                        "error_code": 0 if topic else missing,
                        "is_internal": False,
                        "partitions": [
                            {
                                "partition": partition.number,
                                "leader": -1 if partition.leaderless else 1,
                                "error_code": 0,
                            }
                            for partition in (topic.partitions if topic else ())
                        ],
                    }
                )
            return found

        described: list[dict[str, Any]] = await self.ask("topics", serve)
        return described

    async def create_topics(self, wanted: list[Any]) -> Any:
        """See aiokafka."""
        cluster, world = self.cluster, self.world

        def serve() -> Any:
            told = []
            for topic in wanted:
                compacted = dict(topic.topic_configs).get("cleanup.policy") == "compact"
                try:
                    lag = int(world.random.random() * 5e8)
                    cluster.create(
                        topic.name,
                        topic.num_partitions,
                        compacted=compacted,
                        now_ns=world.now_ns,
                        lag_ns=lag,
                    )
                    told.append((topic.name, 0, ""))
                    world.note("topic created", self.process.name, cluster.name, topic.name)
                except errors.TopicAlreadyExistsError:
                    told.append((topic.name, errors.TopicAlreadyExistsError.errno, "exists"))
            return SimpleNamespace(topic_errors=told)

        return await self.ask("create", serve)

    async def describe_configs(self, resources: list[Any]) -> list[Any]:
        """See aiokafka."""
        cluster, world = self.cluster, self.world

        def serve() -> list[Any]:
            found = []
            for resource in resources:
                topic = cluster.known(resource.name, world.now_ns)
                entry: tuple[Any, ...]
                if topic is None:
                    entry = (errors.UnknownTopicOrPartitionError.errno, "missing", 2, "", [])
                else:
                    policy = "compact" if topic.compacted else "delete"
                    entry = (0, "", 2, resource.name, [("cleanup.policy", policy)])
                found.append(SimpleNamespace(resources=[entry]))
            return found

        described: list[Any] = await self.ask("configs", serve)
        return described


__all__ = [
    "ASKING_MAKES_TOPICS",
    "KafkaPartition",
    "SimulatedAdminClient",
    "SimulatedConsumer",
    "inlet",
    "outlet",
    "try_connection",
]
