"""The simulated mirror: copies topics from source to destination, and fails in known ways."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrortest.wire.lanes import partition_of

from .batch import Batch, MessageId, Record, encoded, rows_of
from .cluster import Partition
from .plan import LEDGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cluster import Topic
    from .world import World

_TURN_SECONDS = 0.1
_COMMIT_SECONDS = 1.0
_MOST_BATCHES = 8


@dataclass
class Habits:
    """How the mirror works.

    `lag` is the most seconds added to a turn. `rehash`: records with a key go where Kafka's default
    partitioner puts them. `partitions` is a copy's partition count; None: the source's.
    `transactional`: each batch of messages is a transaction. `drops` are never copied.
    """

    lag: float = 0.0
    rehash: bool = False
    partitions: int | None = None
    transactional: bool = False
    drops: frozenset[MessageId] = frozenset()
    remembers: bool = False
    """Whether it keeps what it writes, so that it can send it again."""
    stamps: bool = False
    """Whether brokers stamp the records of the copies that it creates."""
    drop_every: int = 0
    """It loses every n-th message; 0: none."""
    compacts: bool = False
    """Whether copies are compacted even if their sources are not."""


class Mirror:
    """Copies `topics` (source name -> name of the copy) until the history ends."""

    def __init__(self, world: World, topics: Mapping[str, str], habits: Habits) -> None:
        self._world = world
        self._topics = topics
        self.habits = habits
        self.running = True
        self.abort_next = False
        """Whether the next transaction is aborted, and written again."""
        self._reached: dict[tuple[int, int], int] = {}
        """(topic id, partition) -> next offset to copy"""
        self._committed: dict[tuple[int, int], int] = {}
        self._committed_ns = 0
        self._copied = 0
        self.drops_incarnations_from = 1 << 30
        """It copies nothing of a producer's incarnations from this one on."""
        self.dropped: set[MessageId] = set()
        self._producer = 0
        self._paused_until_ns = 0
        self._delay_next = (0.0, 0)
        self._origins: dict[Any, Any] = {}
        """message -> its row: (timestamp in ms, key, value, headers)"""

    async def run(self) -> None:
        """Work until the history ends."""
        random = self._world.random
        while True:
            await asyncio.sleep(_TURN_SECONDS * random.random() + self.habits.lag * random.random())
            if self.running:
                self._turn()

    def kill(self) -> bool:
        """Stop, and forget uncommitted positions; return whether there were any."""
        self.running = False
        lost = sum(at - self._committed.get(key, 0) for key, at in self._reached.items())
        self._reached = dict(self._committed)
        return bool(lost)

    def pause_for(self, seconds: float) -> None:
        """Copy nothing for this time."""
        self._paused_until_ns = self._world.now_ns + int(seconds * 1e9)

    def delay_next(self, seconds: float, count: int) -> None:
        """Write the next `count` messages `seconds` later than others."""
        self._delay_next = (seconds, count)

    def cut_back(self, topic: Topic, end: int) -> None:
        """Continue where the log of the only partition diverges from what it has read."""
        for positions in (self._reached, self._committed):
            if (key := (topic.id, 0)) in positions:
                positions[key] = min(positions[key], end)

    def start_over(self, source: str) -> None:
        """Copy a topic from its beginning again."""
        ids = {topic.id for topic in self._world.source.all_topics if topic.name == source}
        for positions in (self._reached, self._committed):
            for key in [key for key in positions if key[0] in ids]:
                del positions[key]

    def send_again(self, topic: Topic, number: int, records: list[Record]) -> None:
        """Write these records, which it wrote before and the copy lost, or which it held back."""
        world = self._world
        for record in records:
            origin = self._origins.get(record.message)
            place = self._place(topic, number, record.key)
            if origin is None or place.leaderless or place.deleted:
                continue
            raw = encoded([origin])
            place.append(raw, [Record(0, record.key, record.message)], world.now_ns)
            world.note("sent again", place.number, place.end - 1, record.message)
        for name in self._topics.values():
            world.news("destination", name)

    def _turn(self) -> None:
        world = self._world
        if world.now_ns < self._paused_until_ns:
            return
        if world.source.down or world.destination.down:
            return
        for source, copy in self._topics.items():
            topic = world.source.known(source, world.now_ns)
            if topic is None:
                continue
            target = self._target(topic, copy)
            for partition in topic.partitions:
                if not partition.leaderless:
                    self._copy(topic, partition, target)
        if world.now_ns - self._committed_ns > _COMMIT_SECONDS * 1e9:
            self._committed_ns = world.now_ns
            self._committed = dict(self._reached)

    def _target(self, topic: Topic, copy: str) -> Topic:
        """The copy, created or extended if needed."""
        world, habits = self._world, self.habits
        count = len(topic.partitions)
        if habits.partitions and copy != LEDGER:
            count = habits.partitions
        target = world.destination.topics.get(copy)
        if target is None:
            world.note("mirror creates", copy, count)
            target = world.destination.create(
                copy,
                count,
                compacted=topic.compacted or habits.compacts,
                stamps=habits.stamps and copy != LEDGER,
                now_ns=world.now_ns,
            )
        elif len(target.partitions) < count:
            grow(target, count)
        return target

    def _copy(self, topic: Topic, partition: Partition, target: Topic) -> None:
        world, key = self._world, (topic.id, partition.number)
        at = self._reached.get(key, partition.start)
        if at > partition.end:
            # Like a consumer that resets to the earliest offset.
            at = partition.start
        found = [b for b in partition.log if b.next > at and b.next <= partition.stable]
        for batch in found[:_MOST_BATCHES]:
            if not self._write(batch, at, partition.number, target):
                break
            at = batch.next
            if world.random.random() < 0.1:
                break
        self._reached[key] = at

    def _write(self, batch: Batch, begin: int, number: int, target: Topic) -> bool:
        """Copy a batch's records from an offset on; False if that cannot be done now."""
        world = self._world
        kept = [r for r in batch.records if r.offset >= begin and self._copies(r)]
        kept = self._without_delayed(batch, kept, number, target)
        if batch.control or (batch.records and batch.records[0].aborted) or not kept:
            return True
        place = self._place(target, number, kept[0].key)
        if place.leaderless:
            place.missed += 1
            return False
        transactional = self.habits.transactional and kept[0].message is not None
        unchanged = len(kept) == len(batch.records) and not transactional and batch.producer < 0
        if unchanged and not batch.stamped:
            raw: bytes | bytearray = batch.raw
        else:
            offsets = {r.offset for r in kept}
            if transactional:
                self._producer += 1
            raw = encoded(
                [row[1:] for row in rows_of(batch) if row[0] in offsets],
                producer=self._producer if transactional else -1,
                transactional=transactional,
            )
        if self.habits.remembers:
            rows = {row[0]: row[1:] for row in rows_of(batch)}
            self._origins |= {r.message: rows[r.offset] for r in kept if r.message is not None}
        aborting = transactional and self.abort_next
        for _ in range(2 if aborting else 1):
            records = [Record(0, r.key, r.message) for r in kept]
            base = place.append(raw, records, world.now_ns)
            world.note("mirrored", target.name, number, base, len(kept), kept[0].message)
            if transactional:
                place.finish(self._producer, commit=not aborting, now_ns=world.now_ns)
            if aborting:
                self.abort_next = aborting = False
                world.count("transaction_aborted took effect")
        world.news("destination", target.name)
        return True

    def _without_delayed(
        self, batch: Batch, kept: list[Record], number: int, target: Topic
    ) -> list[Record]:
        seconds, count = self._delay_next
        delayed = [r for r in kept if r.message is not None][:count]
        if not delayed:
            return kept
        self._delay_next = (0.0, 0)
        rows = {row[0]: row[1:] for row in rows_of(batch)}
        self._origins |= {r.message: rows[r.offset] for r in delayed}
        self._world.later(seconds, self.send_again, target, number, delayed)
        self._world.count("held_back took effect")
        return [r for r in kept if r not in delayed]

    def _place(self, topic: Topic, number: int, key: bytes | None) -> Partition:
        """Where a record of a source partition is written; a copy may have fewer partitions."""
        count = len(topic.partitions)
        if self.habits.rehash and key is not None:
            number = partition_of(key, count)
        return topic.partitions[number % count]

    def _copies(self, record: Record) -> bool:
        message = record.message
        if message is None:
            return True
        if message in self.dropped or message in self.habits.drops:
            return False
        if int(message.sender.rpartition(".")[2]) >= self.drops_incarnations_from:
            self.dropped.add(message)
            return False
        self._copied += 1
        every = self.habits.drop_every
        if every and not self._copied % every:
            self.dropped.add(message)
            self._world.happened["message dropped"] += 1
            return False
        return True


def grow(topic: Topic, count: int) -> None:
    """Add partitions."""
    numbers = range(len(topic.partitions), count)
    topic.partitions += [Partition(number, stamps=topic.stamps) for number in numbers]
