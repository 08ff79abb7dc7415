"""One object that plays a consumer's admin, reader, store and log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirrortest.consume.consumer import Consumer
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.outage import Outage
from mirrortest.kafka.fetched import End, ReadPosition
from mirrortest.verify.ledger import Ledger
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.consume.assigned_partition import AssignedPartition, JudgedBatch
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.ledger_follower import LedgerFollower
    from mirrortest.consume.shared_state import SharedState
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.fetched import FetchedBatches, OutOfRange
    from mirrortest.kafka.reader import Reader
    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.verify.ledger_record import LaneRecord
    from mirrortest.wire.stream import StreamId


class Played:
    """Admin, reader, store and log; syncs wait while `hold` is clear, and raise `broken` if set."""

    sees_topic_ids = True
    sees_markers = True

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.assigned: list[TopicPartition] = []
        self.sought: list[tuple[str, int, int]] = []
        self.saved: list[tuple[TopicPartition, int, int]] = []
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.broken: Exception | None = None
        self.away: Exception | None = None
        self.synced = 0
        self.parted = 0
        self.asked = 0
        """How often partitions were counted."""
        self.pending_rows = 0
        self.lanes: dict[StreamId, LaneRecord] = {}
        self.fetched: list[FetchedBatches | OutOfRange] = []
        self.topic_ids: dict[str, str] = {}
        self.ended: dict[TopicPartition, End] = {}
        self.placed: dict[TopicPartition, ReadPosition] = {}
        self.paused: set[Any] = set()
        self.judged: list[JudgedBatch] = []
        self.doubted: set[str] = set()
        self.unread_ranges: list[tuple[str, int, int, int]] = []
        self.end = 0
        """The end offset of every partition."""
        self.state: dict[str, Any] | None = None
        """The state that the previous consumer saved for every partition."""

    async def next(self, _: float) -> list[FetchedBatches | OutOfRange]:
        fetched, self.fetched = self.fetched, []
        return fetched

    async def arrived(self) -> list[FetchedBatches | OutOfRange]:
        return await self.next(0)

    def seen(self, _: AssignedPartition, taken: JudgedBatch) -> None:
        self.judged.append(taken)

    async def partition_counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        self.asked += 1
        return {topic: n for topic, n in self.counts.items() if topic in topics}

    async def leaderless(self, _: Iterable[str]) -> set[TopicPartition]:
        return set()

    async def cleanup_policy(self, _: str) -> frozenset[str]:
        return frozenset({"delete"})

    async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, self.end)

    async def ends(self, read: dict[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        return {at: self.ended.get(at, End(99, 99, self.topic_ids.get(at[0]))) for at in read}

    async def topic_id(self, topic: str) -> str | None:
        return self.topic_ids.get(topic)

    def pause(self, partitions: Iterable[Any]) -> None:
        self.paused |= set(partitions)

    async def beginning_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 0)

    async def assign(self, share: list[TopicPartition]) -> None:
        self.assigned = sorted(share)

    def seek(
        self,
        at: TopicPartition,
        offset: int,
        *,
        topic_id: str | None = None,
        leader_epoch: int = -1,
    ) -> None:
        self.sought.append((*at, offset))
        self.placed[at] = ReadPosition(offset, leader_epoch, topic_id)

    async def claim(self, _: TopicPartition) -> tuple[int, dict[str, Any] | None]:
        return 1, self.state

    async def caught_up(self) -> None:
        """No topic is followed."""

    write = caught_up

    def fenced(self, *_: TopicPartition | int) -> bool:
        return False

    async def save(
        self, at: TopicPartition, generation: int, state: dict[str, Any], *, parting: bool = False
    ) -> None:
        if self.away is not None:
            raise self.away
        self.parted += parting
        self.saved.append((at, generation, state["checker"]["next"]))

    async def sync(self) -> None:
        await self.may_save.wait()
        if self.broken is not None:
            raise self.broken
        self.synced += 1

    def uncommitted(self, topic: str) -> None:
        self.doubted.add(topic)

    def read(self, assigned: AssignedPartition, found_ns: int | None = None) -> None:
        """Not checked."""

    found = left = backlog = read

    def record(self, interval: object) -> None:
        """Tests do not check the figures."""

    def unread(self, assigned: AssignedPartition, lo: int, hi: int, found_ns: int) -> None:
        self.unread_ranges.append((*assigned.at, lo, hi))


def consumer_of(
    played: Played, topics: tuple[str, ...] = ("a", "b"), **changed: Any
) -> tuple[Consumer, JudgedTopics]:
    options = consume_options(topics=topics, **changed)
    known = JudgedTopics(options, cast("Admin", played), Ledger())
    context = ConsumerContext(
        options=options,
        admin=cast("Admin", played),
        reader=cast("Reader", played),
        topics=known,
        ledger=cast("LedgerFollower", SimpleNamespace(ledger=None)),
        store=cast("StateStore", played),
        shared=cast("SharedState", played),
        log=cast("ConsumerLog", played),
        metrics=ConsumerMetrics(options),
        outage=Outage("destination"),
    )
    return Consumer(context), known


def saving_of(consumer: Consumer) -> asyncio.Task[None]:
    assert consumer.saves._saving is not None
    return consumer.saves._saving
