"""Which partitions this consumer owns: by its group, by its fixed share, or taken over.

A group rebalances; fixed shares do not. If nothing read the partitions of a consumer that has ended
or was killed, the others could neither claim a loss nor end. So one of them takes over these
partitions (`takeover`). Generations (`state_store`) make that safe: the owner can restart at any
time and claim its share again, and an owner that was only paused is fenced.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.errors import FencedError, TopicMissingError, UsageError
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.saves import Saves

_log = structlog.get_logger()

_IDLE_SECONDS = 30.0
"""After this long without messages in a partition, its last record is compared again. Only where
the cluster has no topic ids, which would show that a topic was recreated."""


class Assignment:
    """Takes partitions and gives them up."""

    def __init__(self, context: ConsumerContext, saves: Saves) -> None:
        self._context = context
        self._saves = saves
        self._last_offsets: dict[TopicPartition, int] = {}
        """Each partition's next offset at the last check for idle partitions."""
        self._idle_due = 0.0
        self._skipped: dict[str, int] = {}
        """Topic -> how many of its partitions existed when this consumer started. With
        --from-latest these are read from their end, unless a saved state has a position."""
        self._postponed: dict[TopicPartition, bool] = {}
        """Owned partitions that cannot be read yet, because their topic is missing or they have no
        leader -> whether to read them from their end."""
        self._unclaimed: set[TopicPartition] = set()
        """Assigned partitions, not claimed yet: their topic is missing, or has no judge here."""
        self.rebalancing = False
        """Whether a rebalance is in progress and has not brought the new assignment yet."""
        self.released: list[AssignedPartition] = []
        """Partitions revoked by the rebalance in progress; they might not have a new owner yet."""

    # -- by group or share ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Join the group, or take the fixed share."""
        context, options = self._context, self._context.options
        context.metrics.read_clock.rebalance_begins()
        if options.from_latest:
            self._skipped = dict(context.topics.counts)
        await context.outage.until_answered(context.store.caught_up)
        if options.group is None:
            await self.take_share()
            return
        await context.reader.subscribe(
            topics=options.topics or None,
            pattern=context.topics.pattern if options.topic_pattern else None,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    async def take_share(self) -> None:
        """Without a group: take this consumer's share of all partitions that exist now."""
        context = self._context
        if context.options.group is not None:
            return
        everything = [
            TopicPartition(topic, number)
            for topic, count in sorted(context.topics.counts.items())
            for number in range(count)
        ]
        mine = {*context.partitions, *self._unclaimed}
        new = [at for at in everything if self._is_ours(at) and at not in mine]
        if new:
            # Includes partitions of a topic that is missing now: it may be recreated.
            await context.reader.assign([*context.partitions, *self._unclaimed, *new])
            await self._on_assigned(list(new))

    def drop_fenced(self) -> None:
        """Give up partitions that another consumer has claimed.

        Raises:
            FencedError: without a group, another consumer claimed a partition of our fixed share.
        """
        context = self._context
        fenced = [
            assigned
            for assigned in context.partitions.values()
            if context.store.fenced(assigned.at, assigned.generation)
        ]
        for assigned in fenced:
            del context.partitions[assigned.at]
            _log.warning("partition taken by another consumer", partition=str(assigned.at))
        if context.options.group is not None or not fenced:
            return
        context.reader.pause(assigned.at for assigned in fenced)
        # A partition that was taken over goes back to its owner: that is no error.
        if ours := [assigned.at for assigned in fenced if self._is_ours(assigned.at)]:
            named = ", ".join(map(str, ours))
            raise FencedError(
                f"another consumer of run {context.options.run!r} has taken {named}: were two "
                "consumers given the same --shard, or was this one paused for a minute?"
            )

    def _is_ours(self, at: TopicPartition) -> bool:
        """Whether a partition is in this consumer's fixed share."""
        shard = self._context.options.shard
        return shard is None or at.partition in shard

    async def take_over(self, at: TopicPartition) -> bool:
        """Take over a partition that its owner no longer reads; False if another did so first.

        In a group the partition must be assigned to this consumer. Raises ClusterError.
        """
        context = self._context
        won = await context.store.take_over(at)
        if won is None:
            return False
        if context.options.group is None:
            await context.reader.assign([*context.partitions, *self._unclaimed, at])
        context.reader.resume([at])
        self._unclaimed.discard(at)
        until_answered = context.outage.until_answered
        assigned = context.partitions[at] = await until_answered(self._restored, at, *won)
        if await until_answered(self.begin_reading, assigned):
            await until_answered(self.set_backlogs, [assigned])
        return True

    async def _on_assigned(self, partitions: list[tuple[str, int]]) -> None:
        context = self._context
        self._begin_rebalance()
        await self._take([TopicPartition(*at) for at in partitions])
        self.rebalancing, self.released = False, []
        context.metrics.read_clock.rebalance_ends()
        context.metrics.health.ready = True

    async def _take(self, partitions: Collection[TopicPartition]) -> None:
        """Claim assigned partitions, and continue from their saved states."""
        context, until_answered = self._context, self._context.outage.until_answered
        taken: list[AssignedPartition] = []
        if any(at.partition >= context.topics.counts.get(at.topic, 0) for at in partitions):
            await until_answered(context.topics.discover)
        # Get all topic ids before the first claim, so that a topic recreated during the claims is
        # noticed.
        topics = {at.topic for at in partitions} & context.topics.judges.keys()
        missing = {topic for topic in topics if not await until_answered(self._exists, topic)}
        if topics - missing:
            # Other groups must learn of every topic id that a state names.
            await until_answered(context.shared.write)
        for at in partitions:
            if at.topic in missing or at.topic not in context.topics.judges:
                # The group's pattern matched the topic, but `JudgedTopics` left it out, or the
                # broker that listed the topics does not have it yet.
                context.reader.seek(at, 0)
                context.reader.pause([at])
                self._unclaimed.add(at)
                continue
            assigned = context.partitions[at] = await until_answered(self._claim, at)
            unread = not assigned.checker.next_offset
            from_end = unread and at.partition < self._skipped.get(at.topic, 0)
            if await until_answered(partial(self.begin_reading, assigned, from_end=from_end)):
                taken.append(assigned)
        await until_answered(self.set_backlogs, taken)

    def _begin_rebalance(self) -> None:
        self.rebalancing = True
        self._context.metrics.read_clock.rebalance_begins()

    async def _on_revoked(self, partitions: list[tuple[str, int]]) -> None:
        context = self._context
        self._begin_rebalance()
        context.metrics.health.ready = False
        # Removed first, so that nothing is judged beyond the state that is written now.
        released = []
        for at in map(TopicPartition._make, partitions):
            context.buffer.drop(at)
            self._unclaimed.discard(at)
            if (assigned := context.partitions.pop(at, None)) is not None:
                released.append(assigned)
        self.released += released  # another rebalance may begin before this one is over
        try:
            await self._saves.hand_over(released)
        except TRANSIENT_ERRORS as error:
            _log.warning(
                "could not save the state of revoked partitions: their new owners read some "
                "messages again",
                why=str(error),
            )

    # -- one partition ----------------------------------------------------------------------------

    async def _claim(self, at: TopicPartition) -> AssignedPartition:
        return await self._restored(at, *await self._context.store.claim(at))

    async def _restored(
        self, at: TopicPartition, generation: int, state: dict[str, Any] | None
    ) -> AssignedPartition:
        """A claimed partition, continued from its saved state."""
        context, options = self._context, self._context.options
        fields: dict[str, Any] = {
            "source": options.mapping.source_of(at.topic),
            "run": options.run,
            "policy": options.expect_partition,
            "counts": context.topics.in_force(at.topic),
        }
        first_id, topic_id = await context.outage.until_answered(self._topic_ids, at.topic)
        try:
            assigned = (
                AssignedPartition.restored(at, generation, state, **fields)
                if state is not None
                else None
            )
        except RecordError as error:
            assigned = AssignedPartition.unreadable(
                at, generation, state or {}, str(error), topic_id=topic_id, **fields
            )
            _log.warning(assigned.notes[-1])
            await context.store.save(at, generation, assigned.to_state())
            return assigned
        if assigned is not None and assigned.checker.topic != assigned.source:
            if assigned.checker.proves_topic:
                before = assigned.checker.topic
                raise UsageError(
                    f"{at} was judged as the copy of {before!r}, as its messages prove, and not of "
                    f"{assigned.source!r}: {options.mapping.correction(at.topic, before)}"
                )
            _log.warning(
                "partition is judged again: it was judged as the copy of another topic",
                partition=str(at),
                before=assigned.checker.topic,
            )
            assigned = None
        if assigned is None or state is None:
            assigned = AssignedPartition.fresh(at, generation, topic_id=first_id, **fields)
            if first_id is not None:
                await context.store.save(at, generation, assigned.to_state())
            return assigned
        context.topics.judges[at.topic].losses.merge(assigned.claimed)
        context.metrics.took_over(assigned.source, assigned.unmeasured)
        # Saved at once under our generation: a zombie can no longer overwrite it.
        await context.store.save(at, generation, state)
        if assigned.topic_id is None:
            assigned.topic_id = topic_id  # the comparison of the last record will prove it
        elif context.reader.sees_topic_ids:
            assigned.resumed = False  # each fetch proves the id, also after the topic was missing
        return assigned

    async def _topic_ids(self, topic: str) -> tuple[str | None, str | None]:
        """The topic's id when this consumer first saw the topic, and its present id."""
        now = await self._context.reader.topic_id(topic)
        return self._context.topics.judges[topic].first_topic_id(now), now

    async def _exists(self, topic: str) -> bool:
        """Whether a topic exists; if so, its id is recorded."""
        try:
            await self._topic_ids(topic)
        except TopicMissingError:
            return False
        return True

    async def _seek(self, assigned: AssignedPartition, *, from_end: bool = False) -> None:
        """Seek to the next offset; offsets that were deleted meanwhile become an unread range.

        With `from_end`, all offsets up to the partition's end become one.
        """
        context, at, checker = self._context, assigned.at, assigned.checker
        context.buffer.drop(at)
        offsets = context.admin.end_offsets if from_end else context.admin.beginning_offsets
        begin = (await offsets([at]))[at]
        if checker.next_offset < begin:
            found_ns = context.metrics.clocks.latest_ns()
            context.log.unread(assigned, checker.next_offset, begin, found_ns)
            checker.unread(checker.next_offset, begin, found_ns)
            assigned.resumed = False
            assigned.epochs.clear()  # which leaders wrote the deleted records is unknown
        if assigned.read_from is None:
            assigned.read_from = checker.next_offset
        offset, epoch, topic_id = assigned.read_position
        start = max(assigned.start_offset, begin)
        if start > assigned.start_offset:
            assigned.resumed = False  # the last judged record was deleted: it cannot be compared
        context.reader.seek(
            at, start, topic_id=topic_id, leader_epoch=epoch if start == offset else -1
        )

    async def begin_reading(self, assigned: AssignedPartition, *, from_end: bool = False) -> bool:
        """Read from the next offset on; if that is not possible now, postpone it and return False.

        It is not possible while the topic is missing or the partition has no leader. That may last,
        and the topic may not even be the run's, so the other partitions do not wait for it.
        """
        at, context, reader = assigned.at, self._context, self._context.reader
        try:
            readable = at not in await context.admin.leaderless([at.topic])
            if readable:
                await self._seek(assigned, from_end=from_end)
        except TopicMissingError:
            readable = from_end = False
        if not readable:
            context.buffer.drop(at)
            reader.seek(at, 0)
            reader.pause([at])
            self._postponed[at] = from_end
        elif self._postponed.pop(at, None) is not None:
            reader.resume([at])
        return readable

    async def _begin_postponed(self) -> None:
        """Read postponed partitions and claim unclaimed ones, where that is possible now."""
        context = self._context
        there = context.topics.counts.keys() & context.topics.judges.keys()
        for at in self._postponed.keys() - context.partitions.keys():
            del self._postponed[at]
        waiting = sorted(at for at in self._postponed if at.topic in there)
        leaderless = await context.admin.leaderless(at.topic for at in waiting)
        for at in waiting:
            assigned, from_end = context.partitions[at], self._postponed[at]
            if at not in leaderless and await self.begin_reading(assigned, from_end=from_end):
                await self.set_backlogs([assigned])
        if claimable := sorted(at for at in self._unclaimed if at.topic in there):
            self._unclaimed -= {*claimable}
            self._postponed |= dict.fromkeys(claimable, False)
            await self._take(claimable)

    async def set_backlogs(self, taken: Collection[AssignedPartition]) -> None:
        """Count what these partitions contain now as backlog, unless --include-backlog is set.

        No consumer read them until now, so the age of their messages does not measure the mirror.
        The same holds for an incarnation that was found before the previous one's backlog was read.
        An outage is different: the consumer still owns the partitions, so messages that arrive late
        are late for everyone.
        """
        await self.watch(taken)
        if not self._context.options.include_backlog:
            for assigned in taken:
                assigned.absent_ns = self._context.topics.absent_ns(assigned.at)
                assigned.begin_backlog(assigned.watched_from)
                self._context.log.backlog(assigned)

    async def watch(self, partitions: Collection[AssignedPartition]) -> None:
        """Set `watched_from` to these partitions' ends.

        Messages below may have been written while the destination had fewer partitions. A partition
        whose topic does not exist now contains none.
        """
        if not partitions:
            return
        try:
            ends = await self._context.admin.end_offsets([each.at for each in partitions])
        except TopicMissingError:
            for each in partitions if len(partitions) > 1 else ():
                await self.watch([each])
            return
        for assigned in partitions:
            assigned.watched_from = ends[assigned.at]

    # -- recreated topics, where the cluster has no topic ids -------------------------------------

    async def recheck(self, topics: Collection[str] | None = None) -> None:
        """Read the last judged records again, to find topics that were recreated.

        Checks the partitions of `topics`, which were missing; without an argument, after an outage,
        those of all topics that exist; and now and then idle ones. Without this check, a recreated
        topic that is already longer than what was read would go unnoticed. Where the cluster has
        topic ids, each fetch compares them, and no check is needed. Also begins to read what was
        postponed. Raises ClusterError.
        """
        await self._begin_postponed()
        context, idle = self._context, self._idle()
        for assigned in list(context.partitions.values()):
            if assigned.topic_id is not None and context.reader.sees_topic_ids:
                continue
            at = assigned.at
            if at in idle or at.topic in (context.topics.counts if topics is None else topics):
                assigned.resumed = assigned.last_record is not None
                await self.begin_reading(assigned)

    def _idle(self) -> set[TopicPartition]:
        """The partitions without a new message since the last check; empty if none is due."""
        now = time.monotonic()
        if now < self._idle_due:
            return set()
        self._idle_due = now + _IDLE_SECONDS
        before = self._last_offsets
        self._last_offsets = {
            at: assigned.checker.next_offset for at, assigned in self._context.partitions.items()
        }
        return {at for at, offset in self._last_offsets.items() if before.get(at) == offset}
