"""A simulated Kafka cluster: its brokers' data, and what can happen to it.

There is no I/O and no waiting: each call is what a broker does at one moment. `net` delivers
requests.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from mirrortest.kafka.error_table import Code, RequestError

from .batch import NO_PRODUCER, Batch, MessageId, Record, marker, placed, stamped, thinned
from .loop import START_NS
from .virtual_time import EPOCH_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .loop import Process

READ_COMMITTED = "read_committed"
NEVER_NS = 1 << 62
"""`born_ns` of a record that is not committed, because followers do not fetch."""
_REMEMBERED = 12
"""How many of the newest batches are searched for a repeated one."""
_AHEAD_MS = 1_000
"""How far the brokers' clocks are ahead of the producers'."""
_next = attrgetter("next")


@dataclass
class Stale:
    """A leader that was cut off: it answers `clients` from its old log, in its old epoch."""

    log: list[Batch]
    start: int
    end: int
    high_watermark: int
    """It commits nothing more."""
    epoch: int
    ends: list[tuple[int, int]]
    """(epoch, first offset under it)"""
    clients: frozenset[str]
    alone: bool = False
    """Whether these clients reach no other broker."""


@dataclass
class Slice:
    """What a fetch returns: bytes of complete batches, high watermark, last stable offset."""

    raw: bytes
    next: int
    aborted: list[tuple[int, int]]
    epoch: int
    high_watermark: int
    stable: int
    topic_id: str = ""


class Partition:
    """One partition: its log, leader epoch, log start, high watermark and last stable offset.

    `frozen_at` is the high watermark while followers do not fetch; otherwise each append is
    committed at once. `leaderless` partitions answer no request.
    """

    def __init__(self, number: int, *, stamps: bool = False) -> None:
        self.number = number
        self.stamps = stamps
        """Whether records get the broker's timestamps (LogAppendTime)."""
        self.log: list[Batch] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.frozen_at: int | None = None
        self.leaderless = False
        self.deleted = False
        self.missed = 0
        """How often its leader was needed while it had none."""
        self.stale: Stale | None = None
        self.history: list[Record] = []
        """Every record that was ever appended, without transaction markers."""
        self.fetched_to = 0
        """The highest next offset that any fetch returned."""
        self._open: dict[int, int] = {}
        """producer id -> first offset of its open transaction"""
        self._aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker) of aborted transactions"""
        self.ends: list[tuple[int, int]] = [(0, 0)]
        """(epoch, first offset under it)"""

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record."""
        return self.end if self.frozen_at is None else min(self.frozen_at, self.end)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min([self.high_watermark, *self._open.values()])

    def append(
        self, raw: bytes | bytearray | memoryview, records: list[Record], now_ns: int
    ) -> int:
        """Append a batch of records at consecutive offsets; return its base offset."""
        base = self.end
        for delta, record in enumerate(records):
            record.offset = base + delta
            record.born_ns = now_ns if self.frozen_at is None else NEVER_NS
        if self.stamps:
            raw = stamped(raw, (EPOCH_NS + now_ns - START_NS) // 1_000_000 + _AHEAD_MS)
        batch = placed(raw, base, self.epoch, records, next_offset=base + len(records))
        if batch.transactional and not batch.control:
            self._open.setdefault(batch.producer, base)
            for record in records:
                record.aborted = None
        self.log.append(batch)
        self.history += records
        self.end = batch.next
        return base

    def repeated(self, producer: int, sequence: int) -> int | None:
        """The base offset of the batch if this idempotent producer has sent it before.

        Raises:
            RequestError: sequence numbers are missing in between.
        """
        if producer == NO_PRODUCER:
            return None
        newest: Batch | None = None
        for batch in self.log[: -_REMEMBERED - 1 : -1]:
            if batch.producer != producer or batch.control:
                continue
            if batch.sequence == sequence:
                return batch.base
            newest = newest or batch
        if newest is not None and newest.sequence + newest.next - newest.base != sequence:
            raise RequestError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return None

    def finish(self, producer: int, *, commit: bool, now_ns: int) -> None:
        """Write the marker that ends a producer's transaction."""
        first = self._open.pop(producer, None)
        if first is None:
            return
        raw = marker(producer, commit=commit, timestamp_ms=0)
        at = self.append(raw, [Record(0, None, None)], now_ns)
        self.log[-1].records.clear()
        self.history.pop()
        if not commit:
            self._aborted.append((producer, first, at))
        for batch in self.log:
            if batch.producer == producer and batch.transactional and batch.base >= first:
                for record in batch.records:
                    record.aborted = not commit

    def read(self, client: str, position: int, isolation: str, most: int = 64) -> Slice:
        """What a fetch from a position returns.

        Raises:
            RequestError: the position is outside of the log.
        """
        stale = self.stale_for(client)
        log, start, end, epoch = (
            (self.log, self.start, self.end, self.epoch)
            if stale is None
            else (stale.log, stale.start, stale.end, stale.epoch)
        )
        high = self.high_watermark if stale is None else stale.high_watermark
        stable = self.stable if stale is None else high
        if not start <= position <= end:
            raise RequestError(Code.OFFSET_OUT_OF_RANGE)
        bound = stable if isolation == READ_COMMITTED else high
        at = bisect_right(log, position, key=_next)
        found = [b for b in log[at : at + most] if b.next <= bound]
        following = found[-1].next if found else position
        # Offsets after the last batch that compaction emptied are skipped, too.
        if not log or log[-1].next <= following:
            following = max(following, min(bound, end))
        aborted = [
            (producer, first)
            for producer, first, at in self._aborted
            if first < following and at >= position
        ]
        self.fetched_to = max(self.fetched_to, following)
        return Slice(
            b"".join([batch.raw for batch in found]), following, aborted, epoch, high, stable
        )

    def bounds(self, client: str, isolation: str) -> tuple[int, int]:
        """The beginning and the end offset that a client sees."""
        stale = self.stale_for(client)
        if stale is not None:
            return stale.start, stale.high_watermark
        return self.start, self.stable if isolation == READ_COMMITTED else self.high_watermark

    def parted_from(self, offset: int, epoch: int, client: str = "") -> tuple[int, int] | None:
        """Where the log diverges from what a reader read up to an offset, last in this epoch.

        It is the log of the leader that answers `client`; by default, of the newest leader.
        (epoch, end offset) as in a fetch response; None if it does not diverge.

        Raises:
            RequestError: a client fetches what it read from a newer leader than the one that
                answers: no broker can tell where an epoch ends that it has never seen.
        """
        if epoch < 0:
            return None
        stale = self.stale_for(client)
        ends, log_end = (self.ends, self.end) if stale is None else (stale.ends, stale.end)
        if stale is not None and epoch > ends[-1][0]:
            raise RequestError(Code.OFFSET_OUT_OF_RANGE)
        number, end = _end_of_epoch(ends, log_end, epoch)
        return (number, end) if number < epoch or end < offset else None

    def stale_for(self, client: str) -> Stale | None:
        stale = self.stale
        return stale if stale is not None and client in stale.clients else None

    def thaw(self, now_ns: int) -> None:
        """Followers fetch again: readers now see what was not committed."""
        if self.frozen_at is not None:
            for batch in self.log:
                for record in batch.records:
                    if record.offset >= self.frozen_at:
                        record.born_ns = now_ns
            self.frozen_at = None

    # -- what happens to it -----------------------------------------------------------------------

    def elect(self) -> None:
        """Elect a new leader that has all records."""
        self.epoch += 1
        self.ends.append((self.epoch, self.end))

    def elect_unclean(self, end: int, now_ns: int) -> list[Record]:
        """Elect a leader that lacks all records from an offset on; return the removed ones."""
        # A batch is never cut in two: a replica has all of it or nothing.
        end = self.batch_boundary(end)
        removed = self._remove(lambda record: record.offset >= end, "truncation", now_ns)
        self.log = [batch for batch in self.log if batch.next <= end]
        for record in self.history:
            # The records that superseded these are removed, too: the log no longer shows these.
            if record.offset >= end and record.removed_by == "compaction":
                record.removed_by = "truncation"
        self.end = end
        self.epoch += 1
        self.ends = [(epoch, at) for epoch, at in self.ends if at < self.end or epoch == 0]
        self.ends.append((self.epoch, self.end))
        self._open = {producer: at for producer, at in self._open.items() if at < self.end}
        self._aborted = [entry for entry in self._aborted if entry[2] < self.end]
        if self.frozen_at is not None:
            self.frozen_at = min(self.frozen_at, self.end)
        return removed

    def cut_off(self, clients: Iterable[str], *, alone: bool) -> None:
        """Cut the present leader off from the others; it continues to answer these clients."""
        self.stale = Stale(
            list(self.log), self.start, self.end, self.high_watermark, self.epoch,
            list(self.ends), frozenset(clients), alone,
        )  # fmt: skip
        self.elect()

    def batch_boundary(self, end: int) -> int:
        """The largest batch end that is not above an offset."""
        return max([b.next for b in self.log if b.next <= end], default=self.start)

    def retain_from(self, start: int, now_ns: int) -> list[Record]:
        """Retention: let the log begin here; return the removed records."""
        start = max(self.start, min(start, self.high_watermark))
        removed = self._remove(lambda record: record.offset < start, "retention", now_ns)
        self.start = start
        self.log = [batch for batch in self.log if batch.next > start]
        return removed

    def compact(self, before: int, now_ns: int) -> list[Record]:
        """Below an offset keep only each key's newest record; return the removed ones."""
        newest: dict[bytes, int] = {}
        for batch in self.log:
            for record in batch.records:
                if record.key is not None and record.aborted is False:
                    newest[record.key] = record.offset
        before = min(before, self.stable)

        def goes(record: Record) -> bool:
            return (
                record.offset < before
                and record.key is not None
                and (bool(record.aborted) or newest.get(record.key, -1) > record.offset)
            )

        removed = self._remove(goes, "compaction", now_ns)
        if removed:
            log = []
            for batch in self.log:
                if batch.control or batch.base >= before:
                    log.append(batch)
                elif (rest := thinned(batch, lambda record: record.removed_ns is None)) is not None:
                    log.append(rest)
            self.log = log
        return removed

    def drop_all(self, now_ns: int) -> list[Record]:
        """Remove all records, because the topic is deleted; return them."""
        self.deleted = True
        removed = self._remove(lambda _: True, "deletion", now_ns)
        self.log = []
        return removed

    def _remove(self, goes: Callable[[Record], bool], by: str, now_ns: int) -> list[Record]:
        removed = [
            r for batch in self.log for r in batch.records if r.removed_ns is None and goes(r)
        ]
        for record in removed:
            record.removed_ns, record.removed_by = now_ns, by
        return removed


@dataclass
class Topic:
    """One incarnation of a topic, with its own id."""

    name: str
    id: int
    partitions: list[Partition]
    compacted: bool = False
    known_from_ns: int = 0
    """Before this time brokers answer that they do not know the topic."""
    deleted_ns: int | None = None
    created_ns: int = 0
    learned_ns: dict[Process, int] = field(default_factory=dict)
    """When each process first learned its id, in virtual ns."""

    @property
    def stamps(self) -> bool:
        """Whether records get the broker's timestamps."""
        return self.partitions[0].stamps


@dataclass
class Cluster:
    """Topics by name, and every incarnation that ever existed.

    `down` is whether no broker answers; `unreachable_for` are processes that reach no broker.
    """

    name: str
    topics: dict[str, Topic] = field(default_factory=dict)
    all_topics: list[Topic] = field(default_factory=list)
    down: bool = False
    unreachable_for: set[str] = field(default_factory=set)
    next_producer: int = 1000

    @property
    def address(self) -> str:
        """Its bootstrap server."""
        return f"{self.name}:9092"

    def create(
        self,
        name: str,
        partitions: int,
        *,
        compacted: bool = False,
        stamps: bool = False,
        now_ns: int = 0,
        lag_ns: int = 0,
    ) -> Topic:
        """Create a topic.

        Raises:
            RequestError: a topic of that name exists.
        """
        if name in self.topics:
            raise RequestError(Code.TOPIC_ALREADY_EXISTS, str(name))
        topic = Topic(
            name,
            len(self.all_topics) + 1,
            [Partition(number, stamps=stamps) for number in range(partitions)],
            compacted,
            now_ns + lag_ns,
            created_ns=now_ns,
        )
        self.topics[name] = topic
        self.all_topics.append(topic)
        return topic

    def delete(self, name: str, now_ns: int) -> Topic | None:
        """Delete a topic, if there is one."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            topic.deleted_ns = now_ns
            for partition in topic.partitions:
                partition.drop_all(now_ns)
        return topic

    def known(self, name: str, now_ns: int) -> Topic | None:
        """The topic, if the brokers' metadata has it yet."""
        topic = self.topics.get(name)
        return None if topic is None or topic.known_from_ns > now_ns else topic

    def partition(self, name: str, number: int, now_ns: int) -> Partition:
        """A partition with a leader.

        Raises:
            RequestError: it does not exist, or has no leader now.
        """
        topic = self.known(name, now_ns)
        if topic is None or number >= len(topic.partitions):
            raise RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION, str(name))
        found = topic.partitions[number]
        if found.leaderless:
            found.missed += 1
            raise RequestError(Code.LEADER_NOT_AVAILABLE, str(name))
        return found

    def new_producer(self) -> int:
        """An id for an idempotent producer."""
        self.next_producer += 1
        return self.next_producer


def message_id(topic: str, key: bytes | None, value: bytes | None) -> MessageId | None:
    """The message in a record, parsed from the format's text alone."""
    if key is None or value is None or not key.isdigit():
        return None
    sender, _, rest = value.partition(b";")
    seq, mark, _ = rest.partition(b";")
    if not mark or not seq.isdigit() or b"@" not in sender:
        return None
    return MessageId(topic, sender.decode("ascii", "replace"), int(key), int(seq))


def _end_of_epoch(ends: list[tuple[int, int]], log_end: int, epoch: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the log's largest epoch that is not above it, and its end."""
    known = (0, 0)
    for index, (number, _) in enumerate(ends):
        if number <= epoch:
            known = (number, ends[index + 1][1] if index + 1 < len(ends) else log_end)
    return known
