"""From fetched batches to judged rows: waiting batches are judged, logged and counted in portions.

A fetch may report instead that a position no longer exists. Then the log was replaced or truncated,
and its next incarnation is read.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from mirrortest.config.client_config import IsolationLevel
from mirrortest.consume.source_names import SourceNameCheck
from mirrortest.kafka.fetched import Diverged, OutOfRange, Recreated
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.fragment import ALWAYS
from mirrortest.wire.record_batch import decode_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from mirrortest.consume.assigned_partition import AssignedPartition, Decoded
    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.end_offsets import Ends
    from mirrortest.consume.saves import Saves
    from mirrortest.kafka.fetched import End, FetchedBatches
    from mirrortest.verify.row import SeenRow

_log = structlog.get_logger()

_MOST_PENDING = 1 << 19
"""Rows that may wait to be written to disk; half a kilobyte each."""
_ALL_BITS = (1 << 32) - 1
_MOST_NOTES = 20
"""How many unreadable ranges of a partition its notes, and so its state, name; the log has all."""


class BatchJudge:
    """Reads the assigned partitions and judges the messages that arrive."""

    def __init__(self, context: ConsumerContext, assignment: Assignment, saves: Saves) -> None:
        self._context = context
        self._assignment = assignment
        self._saves = saves
        self._source_names = SourceNameCheck(context.options)
        isolation = context.options.client.isolation_level
        self._uncommitted = isolation is IsolationLevel.READ_UNCOMMITTED

    async def read(self, timeout: float) -> None:  # noqa: ASYNC109  # how long to wait for data
        """Judge and log what arrives within `timeout` seconds; small batches wait for more."""
        context, buffer = self._context, self._context.buffer
        left = min(timeout, buffer.due_in(time.monotonic()))
        out_of_range: list[OutOfRange] = []
        for item in await context.reader.next(left):
            if isinstance(item, OutOfRange):
                out_of_range.append(item)
            elif (at := TopicPartition(item.topic, item.partition)) in context.partitions:
                buffer.add(at, item, time.monotonic())
        if context.stalls.take():
            self._begin_backlogs()
        # If the cluster does not answer now, these items are returned again; batches are not. So
        # the batches are buffered first.
        for each in out_of_range:
            at = TopicPartition(each.topic, each.partition)
            if at in context.partitions:
                await self._position_lost(context.partitions[at], each)
        if not buffer.due_in(time.monotonic()):
            await self._judge_next()
        while buffer.is_full:
            await self._judge_next()
        if context.log.pending_rows >= _MOST_PENDING:
            # The disk does not keep up: wait for it, or the rows would fill the memory.
            await context.log.sync()

    def _begin_backlogs(self) -> None:
        """Count all messages as backlog until `end_backlogs`: they may have waited for us."""
        if not self._context.options.include_backlog:
            for assigned in self._context.partitions.values():
                assigned.begin_backlog(ALWAYS)

    def end_backlogs(self, ends: Ends) -> None:
        """End the backlogs that `_begin_backlogs` began: they go up to these ends."""
        for at, assigned in self._context.partitions.items():
            end = ends.get(at.topic, {}).get(at.partition)
            if assigned.backlog_to == ALWAYS and end is not None:
                assigned.begin_backlog(end)
                self._context.log.backlog(assigned)

    async def buffer_arrived(self) -> None:
        """Move arrived batches into the buffer unless it is full, so that more is fetched."""
        context = self._context
        if context.buffer.is_full:
            return
        for item in await context.reader.arrived():
            at = TopicPartition(item.topic, item.partition)
            if at in context.partitions:
                context.buffer.add(at, item, time.monotonic())

    async def judge_all(self) -> None:
        """Judge all batches in the buffer."""
        while await self._judge_next():
            pass

    async def _judge_next(self) -> bool:
        """Judge one portion of the buffer; False if it is empty."""
        waiting = self._context.buffer.take()
        if waiting is None:
            return False
        at, batches = waiting
        if at in self._context.partitions:
            await self._judge(self._context.partitions[at], batches)
        # Yield, so that batches that arrived meanwhile get their arrival times now.
        await asyncio.sleep(0)
        return True

    async def _judge(self, assigned: AssignedPartition, batches: list[FetchedBatches]) -> None:
        """Judge batches of one partition together, because mirrors write small batches."""
        if batches[0].unread is not None:
            self._pass_over(assigned, batches[0], batches[0].unread)
            assigned.note_origin(batches[:1])
            assigned.resumed = False  # the last judged record may be among these
            return
        context, topic = self._context, assigned.at.topic
        until_answered = context.outage.until_answered
        full = [(batch.buffer, batch) for batch in batches if batch.buffer is not None]
        records = decode_batches([buffer for buffer, _ in full]) if full else None
        may_compact = context.topics.may_compact(topic)
        if assigned.was_recreated(records, batches[0].fetched_from, may_compact=may_compact):
            topic_id = await until_answered(context.reader.topic_id, topic)
            await self._begin_incarnation(assigned, _recreated(assigned, topic_id))
            return
        if records is not None:
            decoded = assigned.decode(records, _arrivals([batch for _, batch in full]))
            stamped = [batch for _, batch in full if batch.stamped]
            if stamped:
                context.topics.stamped.add(topic)
                decoded = _without_stamps(decoded, stamped)
            if assigned.has_misrouted(decoded):
                # They may be the first that were mirrored after partitions were added.
                arrived_ns = max(batch.arrived_ns for _, batch in full)
                await until_answered(context.topics.recount, topic, arrived_ns)
            self._expect_markers(assigned, batches)
            judged = assigned.judge(decoded)
            self._source_names.check(topic, assigned.source, records, judged.rows)
            if self._uncommitted and any_in_transactions(judged.rows, batches):
                context.log.uncommitted(topic)
                assigned.uncommitted = True
            context.log.seen(assigned, judged)
            of_run = bool(assigned.checker.fragments) or (
                any(row.findings & Finding.CORRUPTED for row in judged.rows)
                and assigned.source in context.topics.recorded
            )
            context.metrics.count(assigned.source, judged, of_run=of_run)
        else:
            self._expect_markers(assigned, batches)
        assigned.note_origin(batches)
        assigned.checker.advance(batches[-1].next_offset)

    def _expect_markers(self, assigned: AssignedPartition, batches: list[FetchedBatches]) -> None:
        """Give the checker the offsets that have no record for another reason than compaction."""
        topics, topic = self._context.topics, assigned.at.topic
        markers = [(each.markers_from, each.next_offset) for each in batches]
        expected = [(begin, end) for begin, end in markers if begin is not None]
        if not (self._context.reader.sees_markers or topics.may_compact(topic)):
            expected = [(batches[0].fetched_from, batches[-1].next_offset)]
        if expected:
            assigned.checker.expect_markers(expected)

    def _pass_over(self, assigned: AssignedPartition, batch: FetchedBatches, why: str) -> None:
        """Skip records that cannot be read: their offsets become an unread range."""
        lo, hi = max(batch.fetched_from, assigned.checker.next_offset), batch.next_offset
        if lo >= hi:
            return
        found_ns = self._context.metrics.clocks.latest_ns()
        self._context.log.unread(assigned, lo, hi, found_ns)
        assigned.checker.unread(lo, hi, found_ns)
        at = assigned.at
        note = f"{at}: offsets {lo} to {hi - 1} not read: {why}"
        if note not in assigned.notes and len(assigned.notes) < _MOST_NOTES:
            assigned.notes.append(note)

    async def _position_lost(self, assigned: AssignedPartition, answer: OutOfRange) -> None:
        """Continue after a broker's answer that a position no longer exists."""
        context, identity = self._context, assigned.identity
        await self.judge_all()
        if assigned.identity != identity:
            return  # the buffered batches showed it already
        if isinstance(answer, (Recreated, Diverged)):
            following = _after_answer(assigned, answer)
        else:
            at = assigned.at
            end = (await context.reader.ends({at: assigned.read_position}))[at]
            if None not in {end.topic_id, assigned.topic_id} and end.topic_id != assigned.topic_id:
                return  # the next fetch reports the recreated topic
            following = _before_position(assigned, end)
            if following is None:
                await context.outage.until_answered(self._assignment.begin_reading, assigned)
        if following is not None:
            await self._begin_incarnation(assigned, following)

    async def _begin_incarnation(
        self, assigned: AssignedPartition, following: NextIncarnation
    ) -> None:
        """Read a log's next incarnation, once a durable state names it."""
        context = self._context
        _log.warning(following.note)
        assigned.notes.append(following.note)
        context.buffer.drop(assigned.at)
        found_ns = context.metrics.clocks.latest_ns()
        await self._saves.begin_incarnation(assigned, found_ns, following)
        if context.store.fenced(assigned.at, assigned.generation):
            # Its new owner finds the same incarnation, under the same number.
            context.reader.pause([assigned.at])
            return
        # The reader has moved past what it returned: retry until the new position is set.
        if await context.outage.until_answered(self._assignment.begin_reading, assigned):
            begin = self._assignment.watch if assigned.caught_up else self._assignment.set_backlogs
            await context.outage.until_answered(begin, [assigned])


def _arrivals(batches: list[FetchedBatches]) -> int | NDArray[np.int64]:
    """When the records of these batches arrived: one time for all, or one for each record."""
    times = [batch.arrived_ns for batch in batches]
    if all(time_ns == times[0] for time_ns in times):
        return times[0]
    return np.repeat(np.array(times, np.int64), [batch.count for batch in batches])


def _without_stamps(decoded: Decoded, stamped: Iterable[FetchedBatches]) -> Decoded:
    """The messages without findings on timestamps that a broker stamped."""
    findings = decoded.findings.copy()
    for batch in stamped:
        lo, hi = np.searchsorted(decoded.messages.offset, (batch.fetched_from, batch.next_offset))
        findings[lo:hi] &= np.uint32(~Finding.ALTERED_TIMESTAMP & _ALL_BITS)
    return decoded._replace(findings=findings)


def any_in_transactions(rows: Iterable[SeenRow], batches: Sequence[FetchedBatches]) -> bool:
    """Whether messages of the run were written in transactions.

    Under `isolation.level=read_uncommitted` a consumer also reads messages of aborted transactions.
    These were not delivered, but look like any other message.

    `rows` are those of these batches of one partition. Transactions without a message of the run do
    not count.
    """
    written = [(each.fetched_from, each.next_offset) for each in batches if each.transactional]
    if not written:
        return False
    ours = IntervalSet((row.offset_lo, row.offset_hi) for row in rows if row.stream is not None)
    return bool(ours & IntervalSet(written))


# -- a log that was replaced or truncated ---------------------------------------------------------


class NextIncarnation(NamedTuple):
    """A log's next incarnation: `note` is for the user, `topic_id` is the topic's present id."""

    note: str
    topic_id: str | None
    offset: int = 0
    """Below it, the log still contains what was read before."""
    unread: int = 0
    """Offsets from `offset` up to this one are left unread: some may have been read before."""


def _after_answer(assigned: AssignedPartition, why: OutOfRange) -> NextIncarnation | None:
    """The incarnation that a broker's answer proves; None: not a new one."""
    if isinstance(why, Diverged):
        return _truncated(assigned, assigned.common_end(why.leader_epoch, why.end_offset))
    # An isolated broker may still list a deleted topic.
    if isinstance(why, Recreated) and why.topic_id not in assigned.left_ids:
        return _recreated(assigned, why.topic_id)
    return None


def _before_position(assigned: AssignedPartition, end: End) -> NextIncarnation | None:
    """The incarnation of a log that ends below what was read; None: it only lost old records."""
    if end.stable_offset >= assigned.checker.next_offset:
        return None
    if None in {end.topic_id, assigned.topic_id}:
        return _recreated(assigned, end.topic_id)
    # Which leader wrote the last read records is unknown, and so is how far they still exist.
    return _truncated(assigned, 0, unread=end.stable_offset)


def _recreated(assigned: AssignedPartition, topic_id: str | None) -> NextIncarnation:
    """The incarnation of a recreated topic; without ids, it may be a truncated log instead."""
    proven = topic_id is not None and assigned.topic_id not in {None, topic_id}
    doubt = "" if proven else ", or truncated before it"
    note = (
        f"{assigned.at} was deleted and recreated after offset "
        f"{assigned.checker.next_offset}{doubt}: judged again from its beginning"
    )
    return NextIncarnation(note, topic_id)


def _truncated(assigned: AssignedPartition, offset: int, *, unread: int = 0) -> NextIncarnation:
    """The incarnation of a log that was truncated to an offset."""
    note = (
        f"{assigned.at} was truncated after offset "
        f"{assigned.checker.next_offset} was read (an unclean leader election): judged again from "
        f"offset {max(offset, unread)}"
    )
    return NextIncarnation(note, assigned.topic_id, offset, unread)
