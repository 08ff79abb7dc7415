"""Consumers with fixed shares of one topic: real rounds, assignments, states and shared state.

The cluster, which returns offsets, and the log are played.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self, cast

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.consumer import Consumer
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.consume.options import Shard
from mirrortest.consume.outage import Outage
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.takeover import Takeover
from mirrortest.kafka.fetched import End, ReadPosition
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger_record import LaneRecord, Registration
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.unit.consuming import consume_options
from tests.unit.judged_world import never_asked
from tests.unit.memory_topic import MemoryTopic, following
from tests.unit.played_cluster import Played

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.consume.assigned_partition import JudgedUpTo
    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.follower import FollowedTopic
    from mirrortest.kafka.reader import Reader

TOPIC = "A.t"


class Destination:
    """One topic's partitions, each a list of records: a seq of the run, or None for others."""

    def __init__(self, *partitions: Iterable[int | None]) -> None:
        self.records = [list(partition) for partition in partitions]
        self.states = MemoryTopic()
        self.ledger = LedgerFollower(
            cast("FollowedTopic", None), never_asked, where="'ledger'", now_ns=lambda: 0
        )
        self.ledger.present = True
        self.vouch()

    def vouch(self, incarnation: int = 1, *, end: bool = True) -> None:
        """Record all seqs as acknowledged for an incarnation; lane N goes to partition N."""
        ledger = self.ledger.ledger
        lanes = tuple(range(len(self.records)))
        ledger.add_registration(Registration("r1", "p", incarnation, "s", {"t": lanes}))
        for lane, records in enumerate(self.records):
            seqs = IntervalSet((seq, seq + 1) for seq in records if seq is not None)
            stream = stream_of(lane, incarnation)
            ledger.merge(LaneRecord(stream, seqs.end, seqs, end=seqs.end if end else None))

    def others_write(self, *partitions: int) -> None:
        """Append another run's message to each of these partitions, by default to all."""
        for number in partitions or range(len(self.records)):
            self.records[number].append(None)


def stream_of(lane: int, incarnation: int = 1) -> StreamId:
    return StreamId("t", "r1", "p", incarnation, lane)


class Cluster(Played):
    """The cluster as one consumer sees it, and its log."""

    where = "nowhere"
    durable_rows = 0

    def __init__(self, destination: Destination) -> None:
        super().__init__({TOPIC: len(destination.records)})
        self._destination = destination
        self.tails: dict[int, int] = {}
        self.looked_ns = 0

    async def ends(self, read: dict[Any, ReadPosition]) -> dict[Any, End]:
        ends = {at: len(self._destination.records[at[1]]) for at in read}
        return {at: End(end, end) for at, end in ends.items()}

    def resume(self, partitions: Iterable[Any]) -> None:
        self.paused -= set(partitions)

    def record(self, interval: object) -> None:
        """Tests do not check the figures."""

    async def update_topics(self, topics: object) -> None:
        """Not checked."""

    def ends_asked(self, at_ns: int) -> None:
        self.looked_ns = at_ns

    def tail(self, reached: JudgedUpTo, end: int) -> None:
        self.tails[reached.partition] = end

    def clocks_set(self, by_ns: int) -> None:
        """Not checked."""

    def claimed(self, *_: object) -> None:
        """Not checked."""

    verdict = vouched = claimed


class Peer:
    """A consumer; `now` is its monotonic clock in seconds, which times takeovers."""

    def __init__(self, destination: Destination, store: StateStore, shard: str) -> None:
        self.now = 0.0
        self.store = store
        self.cluster = Cluster(destination)
        self._destination = destination
        options = consume_options(
            topics=(TOPIC,), mapping=TopicMapping.parse(source_alias="A"), shard=Shard.parse(shard)
        )
        self.topics = JudgedTopics(options, cast("Admin", self.cluster), destination.ledger.ledger)
        log = cast("ConsumerLog", self.cluster)
        self.context = ConsumerContext(
            options=options,
            admin=cast("Admin", self.cluster),
            reader=cast("Reader", self.cluster),
            topics=self.topics,
            ledger=destination.ledger,
            store=store,
            shared=SharedState(self.topics, store),
            log=log,
            metrics=ConsumerMetrics(options),
            outage=Outage("destination"),
        )
        self.consumer = Consumer(self.context)
        self.rounds = self.consumer.rounds
        self.takeover = Takeover(self.context, self.consumer.assignment, lambda: self.now)

    async def begin(self) -> Self:
        await self.topics.discover()
        await self.consumer.assignment.begin()
        return self

    @property
    def reads(self) -> list[int]:
        """The partitions that it reads now."""
        return sorted(at.partition for at in self.context.partitions)

    def read(self, most: int = 1 << 30) -> None:
        """Read the records that are there, at most this many of each partition."""
        for at, assigned in self.context.partitions.items():
            lo = assigned.checker.next_offset
            for offset, seq in enumerate(
                self._destination.records[at.partition][lo : lo + most], lo
            ):
                ours = seq is not None
                assigned.checker.apply(
                    SeenRow(
                        stream_of(at.partition) if ours else None,
                        seq or 0,
                        (seq or 0) + ours,
                        offset,
                        offset + 1,
                        0 if ours else Finding.OTHER_RUN.value,
                        *(1, 1, 1, 1, 2, 2),
                    )
                )

    async def save(self) -> None:
        """Save as `save_if_due` does when a save is due."""
        self.consumer.saves.request()
        self.consumer.saves.save_if_due()
        assert self.consumer.saves._saving is not None
        await self.consumer.saves._saving

    async def round(self, seconds: float = 1.0) -> bool:
        """Run a round this much later; return whether the consumer would end."""
        self.now += seconds
        await self.store.caught_up()  # others' records are applied
        self.consumer.assignment.drop_fenced()
        await self.consumer.assignment.take_share()
        complete, _ = await self.rounds.judge()
        await self.takeover.take_abandoned(self.rounds.unread)
        return complete

    async def end(self) -> ConsumeReport:
        """Run the last round and the last save."""
        return await self.consumer.conclude()


class Peers(contextlib.AsyncExitStack):
    """Consumers of one destination; `await peers.add("1/2")` starts one."""

    def __init__(self, destination: Destination) -> None:
        super().__init__()
        self.destination = destination
        self._count = 0

    async def add(self, shard: str) -> Peer:
        self._count += 1
        store = await self.enter_async_context(
            following(self.destination.states, f"session-{self._count}")
        )
        return await Peer(self.destination, store, shard).begin()


def at(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)
