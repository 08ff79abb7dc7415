"""The partitions in this consumer's care: taken, read, handed over."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from mirrortest.config.client import IsolationLevel
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.fetch_buffer import FetchBuffer
from mirrortest.consume.next_incarnation import after_break, before_position, recreated
from mirrortest.consume.saves import Saves
from mirrortest.consume.source_names import SourceNameCheck
from mirrortest.consume.state_store import Partition
from mirrortest.consume.transactions import in_transactions
from mirrortest.errors import FencedError
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.kafka.reader import Diverged, OutOfRange, Reader, Recreated, TopicPartition
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.record_batch import decode_batches

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.consumer_metrics import ConsumerMetrics
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.next_incarnation import NextIncarnation
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outage import Outage
    from mirrortest.consume.shared_state import SharedState
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.fetched import FetchedBatches

_log = structlog.get_logger()

_MOST_PENDING = 1 << 19
"""Rows that may wait for the disk; half a kilobyte each."""
_MOST_NOTES = 20
"""Ranges of a partition that are named among its notes, and so in its state; the log has all."""
_IDLE_SECONDS = 30.0
"""How long nothing comes of a partition until its last record is looked at again, where the cluster
does not tell of topics that were created again."""


class Assignment:
    """What this consumer reads; `partitions` are those that it owns right now."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        admin: Admin,
        topics: JudgedTopics,
        store: StateStore,
        reader: Reader,
        log: ConsumerLog,
        measures: ConsumerMetrics,
        outage: Outage,
        common: SharedState,
    ) -> None:
        self._options = options
        self._outage = outage
        self._admin = admin
        self._topics = topics
        self._store = store
        self._reader = reader
        self._log_rows = log
        self._measures = measures
        self.partitions: dict[Partition, AssignedPartition] = {}
        self._fetch_buffer = FetchBuffer()
        self._saves = Saves(
            options,
            store=store,
            reader=reader,
            log=log,
            measures=measures,
            outage=outage,
            common=common,
        )
        self._source_names = SourceNameCheck(options.mapping)
        self._uncommitted = options.client.isolation_level is IsolationLevel.READ_UNCOMMITTED
        self._last_offsets: dict[Partition, int] = {}
        """Where each partition stood when idle ones were last looked for."""
        self._idle_due = 0.0
        self.rebalancing = False
        """Whether a rebalance is under way: what is ours will be told."""
        self.released: list[AssignedPartition] = []
        """What the rebalance that is under way took from us: nobody else need have it yet."""

    @property
    def sees_topic_ids(self) -> bool:
        """Whether the brokers say which incarnation of a topic is read."""
        return self._reader.sees_topic_ids

    # -- taking -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Join the group, or take the fixed share."""
        await self._outage.until_answered(self._store.caught_up)
        options = self._options
        if options.group is None:
            await self.take_share()
            return
        await self._reader.subscribe(
            topics=options.topics or None,
            pattern=self._topics.pattern if options.topic_pattern else None,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    async def take_share(self) -> None:
        """Without a group: take our share of all partitions that are known now."""
        if self._options.group is not None:
            return
        everything = [
            Partition(topic, number)
            for topic, count in sorted(self._topics.counts.items())
            for number in range(count)
        ]
        new = [at for at in everything if self._is_ours(at) and at not in self.partitions]
        if new:
            # With those of a topic that is gone for now: it may be made again.
            await self._reader.assign([*self.partitions, *new])
            await self._on_assigned(list(new))

    def drop_fenced(self) -> None:
        """Let go of what another consumer has claimed.

        Raises:
            FencedError: without a group nobody else should have.
        """
        fenced = [
            held
            for held in self.partitions.values()
            if self._store.fenced(held.at, held.generation)
        ]
        for held in fenced:
            del self.partitions[held.at]
            _log.warning("partition taken by another consumer", partition=str(held.at))
        if self._options.group is not None or not fenced:
            return
        self._reader.pause(held.at for held in fenced)
        # What was taken over for its owner goes back to it.
        if ours := [held.at for held in fenced if self._is_ours(held.at)]:
            named = ", ".join(f"{at.topic}-{at.partition}" for at in ours)
            raise FencedError(
                f"another consumer of run {self._options.run!r} has taken {named}: were two "
                "consumers given the same --shard, or did this one stand still for a minute?"
            )

    def _is_ours(self, at: Partition) -> bool:
        """Whether a partition is of the fixed share that we were given."""
        shard = self._options.shard
        return shard is None or at.partition in shard

    async def take_over(self, at: Partition) -> bool:
        """Without a group: read a partition whose owner does not; False if another was quicker.

        Raises ClusterError.
        """
        won = await self._store.take_over(at)
        if won is None:
            return False
        await self._reader.assign([*self.partitions, at])
        self._reader.resume([at])
        held = self.partitions[at] = await self._outage.until_answered(self._begun, at, *won)
        await self._outage.until_answered(self._seek, held)
        return True

    async def _on_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self.rebalancing = True
        taken: list[AssignedPartition] = []
        # Of all before the first is claimed: what is created again until the last one is, is told.
        for topic in {topic for topic, _ in partitions} & self._topics.judges.keys():
            await self._outage.until_answered(self._topic_ids, topic)
        for at in map(Partition._make, partitions):
            if at.partition >= self._topics.counts.get(at.topic, 0):
                await self._outage.until_answered(self._topics.discover)
            if at.topic not in self._topics.judges:
                # A group's pattern brings it, and the topics left it out: nobody judges it.
                self._reader.seek(at, 0)
                self._reader.pause([at])
                continue
            held = self.partitions[at] = await self._outage.until_answered(self._claim, at)
            await self._outage.until_answered(self._seek, held)
            taken.append(held)
        await self._outage.until_answered(self._set_backlog, taken)
        self.rebalancing, self.released = False, []
        self._measures.health.ready = True

    async def _claim(self, at: Partition) -> AssignedPartition:
        return await self._begun(at, *await self._store.claim(at))

    async def _begun(
        self, at: Partition, generation: int, state: dict[str, Any] | None
    ) -> AssignedPartition:
        """A partition that was claimed, as its last judge left it."""
        options = self._options
        about: dict[str, Any] = {
            "source": options.mapping.source_of(at.topic),
            "run": options.run,
            "policy": options.expect_partition,
            "counts": self._topics.in_force(at.topic),
        }
        first_id, topic_id = await self._outage.until_answered(self._topic_ids, at.topic)
        try:
            held = (
                AssignedPartition.restored(at, generation, state, **about)
                if state is not None
                else None
            )
        except RecordError as error:
            held = AssignedPartition.unreadable(
                at, generation, state or {}, str(error), topic_id=topic_id, **about
            )
            _log.warning(held.notes[-1])
            await self._store.save(at, generation, held.to_state())
            return held
        if held is not None and held.checker.topic != held.source:
            _log.warning(
                "partition is judged anew: it was judged as the copy of another topic",
                partition=f"{at.topic}-{at.partition}",
                before=held.checker.topic,
            )
            held = None
        if held is None or state is None:
            held = AssignedPartition.fresh(at, generation, topic_id=first_id, **about)
            if first_id is not None:
                await self._store.save(at, generation, held.to_state())
            return held
        self._topics.judges[at.topic].losses.merge(held.claimed)
        # At once, so that the state does not hang on what a zombie may still overwrite.
        await self._store.save(at, generation, state)
        if held.topic_id is None:
            held.topic_id = topic_id  # the last record proves it
        elif self.sees_topic_ids:
            held.resumed = False  # each fetch proves it, of a topic that is gone for now, too
        return held

    async def _seek(self, held: AssignedPartition) -> None:
        """Go to the next offset; what the destination no longer holds was not read."""
        at = TopicPartition(*held.at)
        self._fetch_buffer.drop(held.at)
        begin = (await self._admin.beginning_offsets([at]))[at]
        if held.checker.next_offset < begin:
            found_ns = self._measures.clocks.latest_ns()
            self._log_rows.unread(held, held.checker.next_offset, begin, found_ns)
            held.checker.unread(held.checker.next_offset, begin, found_ns)
            held.resumed = False
            held.epochs.clear()  # nobody knows who wrote what is gone
        if held.read_from is None:
            held.read_from = held.checker.next_offset
        offset, epoch, topic_id = held.place
        start = max(held.start_offset, begin)
        if start > held.start_offset:
            held.resumed = False  # the last judged record is gone: nothing is to be compared
        self._reader.seek(
            at, start, topic_id=topic_id, leader_epoch=epoch if start == offset else -1
        )

    async def _set_backlog(self, taken: Collection[AssignedPartition]) -> None:
        """Measure no latencies of what is in these partitions already, unless that is asked for.

        Nobody of us read them until now, so that it says nothing of the mirror how late it is read.
        After an outage, however, partitions are still ours: what comes late then is late for all.
        """
        if not taken:
            return
        ends = await self._admin.end_offsets([TopicPartition(*held.at) for held in taken])
        for held in taken:
            held.watched_from = ends[TopicPartition(*held.at)]
            if not self._options.include_backlog:
                held.backlog_to = held.watched_from
                self._log_rows.backlog(held)

    async def recheck(self, topics: Collection[str] | None = None) -> None:
        """Compare what was judged last with what stands there now: was the topic created again?

        Of these topics, which were gone, or after an outage of all that are there; now and then of
        those in which nothing comes. What grew beyond what was read of the topic before it would go
        unnoticed otherwise. Where the cluster tells topic ids, each fetch compares them, and there
        is nothing to do. Raises ClusterError.
        """
        idle = self._idle()
        for held in list(self.partitions.values()):
            if held.topic_id is not None and self._reader.sees_topic_ids:
                continue
            at = held.at
            if at in idle or at.topic in (self._topics.counts if topics is None else topics):
                held.resumed = held.last_record is not None
                await self._seek(held)

    def _idle(self) -> set[Partition]:
        """The partitions in which nothing came since this was last due."""
        now = time.monotonic()
        if now < self._idle_due:
            return set()
        self._idle_due = now + _IDLE_SECONDS
        before = self._last_offsets
        self._last_offsets = {at: held.checker.next_offset for at, held in self.partitions.items()}
        return {at for at, offset in self._last_offsets.items() if before.get(at) == offset}

    # -- reading ----------------------------------------------------------------------------------

    async def read(self, timeout: float) -> None:  # noqa: ASYNC109  # how long to wait for data
        """Judge and log what arrives within `timeout` seconds; little of it waits for more."""
        left = min(timeout, self._fetch_buffer.due_in(time.monotonic()))
        for item in await self._reader.next(left):
            at = Partition(item.topic, item.partition)
            if at not in self.partitions:
                continue
            if isinstance(item, OutOfRange):
                await self._position_lost(self.partitions[at], item)
            else:
                self._fetch_buffer.add(at, item, time.monotonic())
        if not self._fetch_buffer.due_in(time.monotonic()):
            await self._settle_next()
        while self._fetch_buffer.is_full:
            await self._settle_next()
        if self._log_rows.pending_rows >= _MOST_PENDING:
            # The disk does not keep up: memory is not to wait for it.
            await self._log_rows.sync()

    async def buffer_arrived(self) -> None:
        """Let what has arrived wait to be judged, unless much waits: so that more is fetched."""
        if self._fetch_buffer.is_full:
            return
        for item in await self._reader.arrived():
            at = Partition(item.topic, item.partition)
            if at in self.partitions:
                self._fetch_buffer.add(at, item, time.monotonic())

    async def settle(self) -> None:
        """Judge all that was fetched."""
        while await self._settle_next():
            pass

    async def _settle_next(self) -> bool:
        """Judge a portion of what waits; whether there was anything."""
        waiting = self._fetch_buffer.take()
        if waiting is None:
            return False
        at, batches = waiting
        if at in self.partitions:
            await self._judge(self.partitions[at], batches)
        # What comes in meanwhile is stamped as it arrives.
        await asyncio.sleep(0)
        return True

    async def _judge(self, held: AssignedPartition, batches: list[FetchedBatches]) -> None:
        """Judge what was fetched of a partition, all at once: mirrors write small."""
        if batches[0].unread is not None:
            self._pass_over(held, batches[0], batches[0].unread)
            held.passed(batches[:1])
            return
        full = [(batch.buffer, batch) for batch in batches if batch.buffer is not None]
        if full:
            records = decode_batches([buffer for buffer, _ in full])
            if held.was_recreated(records):
                topic_id = await self._outage.until_answered(self._reader.topic_id, held.at.topic)
                await self._begin_incarnation(held, recreated(held, topic_id))
                return
            decoded = held.decode(records, _arrivals([batch for _, batch in full]))
            if held.strays(decoded):
                # They may be the first that were mirrored since partitions were added.
                arrived_ns = max(batch.arrived_ns for _, batch in full)
                await self._outage.until_answered(self._topics.recount, held.at.topic, arrived_ns)
            taken = held.judge(decoded)
            self._source_names.check(held.at.topic, held.source, records, taken.rows)
            if self._uncommitted and (note := in_transactions(held.at.topic, taken.rows, batches)):
                self._log_rows.uncommitted(held.at.topic)
                if note not in held.notes:
                    held.notes.append(note)
            self._log_rows.seen(held, taken)
            self._measures.count(held.source, taken)
        held.passed(batches)
        held.checker.advance(batches[-1].next_offset)

    def _pass_over(self, held: AssignedPartition, batch: FetchedBatches, why: str) -> None:
        """Go on behind records that cannot be read: whatever stands there was not read."""
        lo, hi = max(batch.fetched_from, held.checker.next_offset), batch.next_offset
        if lo >= hi:
            return
        found_ns = self._measures.clocks.latest_ns()
        self._log_rows.unread(held, lo, hi, found_ns)
        held.checker.unread(lo, hi, found_ns)
        note = f"{held.at.topic}-{held.at.partition}: offsets {lo} to {hi - 1} not read: {why}"
        if note not in held.notes and len(held.notes) < _MOST_NOTES:
            held.notes.append(note)

    async def _position_lost(self, held: AssignedPartition, why: OutOfRange) -> None:
        """Go on where a position does not exist any more."""
        identity = held.identity
        await self.settle()
        if held.identity != identity:
            return  # it was found out meanwhile
        if isinstance(why, (Recreated, Diverged)):
            following = after_break(held, why)
        else:
            at = TopicPartition(*held.at)
            end = (await self._reader.ends({at: held.place}))[at]
            if None not in {end.topic_id, held.topic_id} and end.topic_id != held.topic_id:
                return  # the next fetch tells
            following = before_position(held, end)
            if following is None:
                await self._outage.until_answered(self._seek, held)
        if following is not None:
            await self._begin_incarnation(held, following)

    async def _topic_ids(self, topic: str) -> tuple[str | None, str | None]:
        """The topic's id as this consumer first saw it, and as it is now."""
        now = await self._reader.topic_id(topic)
        return self._topics.judges[topic].first_topic_id(now), now

    async def _begin_incarnation(self, held: AssignedPartition, following: NextIncarnation) -> None:
        """Go on with a log's next incarnation, once a durable state names it."""
        _log.warning(following.note)
        held.notes.append(following.note)
        self._fetch_buffer.drop(held.at)
        await self._saves.begin(held, self._measures.clocks.latest_ns(), following)
        if self._store.fenced(held.at, held.generation):
            # Its new judge finds the same out by itself, and under the same number.
            self._reader.pause([held.at])
            return
        # What was fetched counts as read: it must not go on from there if this fails.
        await self._outage.until_answered(self._seek, held)

    # -- saving -----------------------------------------------------------------------------------

    def save_soon(self) -> None:
        """Do not wait for the interval: what is known now should not be forgotten."""
        self._saves.soon()

    def save_if_due(self) -> None:
        """Start a save when it is time for one; see `Saves.beside`."""
        self._saves.beside(list(self.partitions.values()))

    async def hand_over(self) -> str | None:
        """The last save of all that is held; see `Saves.last`."""
        return await self._saves.last(list(self.partitions.values()))

    async def close(self) -> None:
        """End a save that still runs."""
        await self._saves.close()

    async def _on_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self.rebalancing = True
        self._measures.health.ready = False
        # Taken out first: nothing may be judged beyond the state that is written now.
        for at in map(Partition._make, partitions):
            self._fetch_buffer.drop(at)
        gone = [self.partitions.pop(Partition(*at), None) for at in partitions]
        released = [held for held in gone if held is not None]
        self.released += released  # a rebalance may begin anew before it is over
        try:
            await self._saves.part(released)
        except TRANSIENT_ERRORS as error:
            _log.warning("a state could not be handed over: it is read again", why=str(error))


def _arrivals(batches: list[FetchedBatches]) -> int | NDArray[np.int64]:
    """When the records of these batches arrived: one time for all, or one each."""
    times = [batch.arrived_ns for batch in batches]
    if all(time_ns == times[0] for time_ns in times):
        return times[0]
    return np.repeat(np.array(times, np.int64), [batch.count for batch in batches])
