"""What a consumer writes into its sequence log, and when a range of offsets is logged as read."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from mirrortest.errors import SequenceLogError
from mirrortest.metrics.kernel_clock import known_clock_error_ns
from mirrortest.model.findings import MISSING, Finding, Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.seqlog.session import Incarnation, Session, Topic
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import sparse_groups
from mirrortest.verify.fragment import latest_intended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa

    from mirrortest.consume.assigned_partition import AssignedPartition, JudgedBatch, JudgedUpTo
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.verify.ledger import Ledger
    from mirrortest.wire.stream import StreamId

_ALL = IntervalSet([(0, ENDLESS)])
_Incarnations: TypeAlias = dict[tuple[int, str, int], tuple[int, set[int]]]
"""(number, topic id, cuts) -> when it was first seen, and the partitions that have it."""


class ConsumerLog:
    """The sequence log of one consumer."""

    def __init__(self, log: SequenceLog, options: ConsumeOptions, topics: JudgedTopics) -> None:
        self._log = log
        self._options = options
        self._counts = dict(topics.counts)
        self._compacted = set(topics.compacted)
        self._uncommitted: set[str] = set()
        self._judged_before: set[str] = set()
        self._incarnations: defaultdict[str, _Incarnations] = defaultdict(dict)
        self._session_stale = False
        """Whether session.json lacks some of what was recorded here."""
        self._earlier: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
        self._hidden = set(topics.policy_hidden)
        self._stamped = set(topics.stamped)
        self._stamped_at_source = set(topics.stamped_at_source)
        self._below_zero: Counter[str] = Counter()
        """Source topic -> how far its lowest latency is below zero, ns."""
        self._written_below_zero: Counter[str] = Counter()
        """The same, as session.json has it."""
        self._clocks_set_ns = 0
        self._ends_asked_ns: int | None = None

    @classmethod
    async def open(
        cls, options: ConsumeOptions, *, session: str, cluster: str, topics: JudgedTopics
    ) -> Self:
        """Open the log of one consumer's session."""
        about = Session(
            run=options.run,
            role=options.role,
            name=options.name,
            session=session,
            detail=options.log_detail,
            started_ns=time.time_ns(),
            expiry_logged=True,
            clock_error_ns=known_clock_error_ns(),
            topics=_topics(
                options,
                topics.counts,
                topics.compacted,
                set(),
                {},
                topics.policy_hidden,
                topics.stamped,
                topics.stamped_at_source,
                {},
                {},
            ),
            expect_partition=options.expect_partition.value,
            deadline_ns=round(options.deadline * 1e9),
            clusters={
                "source" if options.role is Role.SOURCE else "destination": cluster,
            },
            settings=options.settings,
            client=options.client.recorded,
        )
        spool = Path(options.log_spool)
        log = await SequenceLog.open(options.log_dir, about, spool=spool, csv=options.csv)
        return cls(log, options, topics)

    @property
    def where(self) -> str:
        """The session's directory."""
        return self._log.where

    @property
    def durable_rows(self) -> int:
        """How many rows are durable."""
        return self._log.durable_rows

    @property
    def pending_rows(self) -> int:
        """How many rows wait to be written."""
        return self._log.pending_rows

    async def update_topics(self, topics: JudgedTopics) -> None:
        """Record what has changed about topics in session.json. Raises SequenceLogError."""
        if (
            topics.counts.items() <= self._counts.items()
            and topics.compacted <= self._compacted
            and topics.policy_hidden == self._hidden
            and topics.stamped <= self._stamped
            and topics.stamped_at_source <= self._stamped_at_source
        ):
            return
        # Messages of a deleted topic are judged by the partition counts that it had.
        for topic, count in topics.counts.items():
            before = self._counts.get(topic, count)
            if before != count and before not in self._earlier[topic]:
                self._earlier[topic] += (before,)
        self._counts |= topics.counts
        self._compacted |= topics.compacted
        self._hidden = set(topics.policy_hidden)
        self._stamped |= topics.stamped
        self._stamped_at_source |= topics.stamped_at_source
        await self._revise()

    async def _revise(self) -> None:
        entries = _topics(
            self._options,
            self._counts,
            self._compacted,
            self._uncommitted,
            self._earlier,
            self._hidden,
            self._stamped,
            self._stamped_at_source,
            self._incarnations,
            self._below_zero,
        )
        below_zero = self._below_zero.copy()
        changes = {
            "topics": entries,
            "judged_before": tuple(sorted(self._judged_before)),
            "clocks_set_ns": self._clocks_set_ns,
        }
        self._session_stale = False  # what is recorded during the write makes it stale again
        try:
            await self._log.revise(lambda session: session.model_copy(update=changes))
        except BaseException:
            self._session_stale = True
            raise
        self._written_below_zero = below_zero

    def uncommitted(self, topic: str) -> None:
        """Record that some messages may be from aborted transactions; `sync` writes it."""
        self._session_stale |= topic not in self._uncommitted
        self._uncommitted.add(topic)

    def _numbered(self, reached: JudgedUpTo) -> str:
        """The incarnation's number for rows; `sync` writes its topic id to session.json."""
        if reached.topic_id is not None:
            which = reached.identity, reached.topic_id, reached.cuts
            entries = self._incarnations[reached.topic]
            _, partitions = entries.setdefault(which, (time.time_ns(), set()))
            self._session_stale |= reached.partition not in partitions
            partitions.add(reached.partition)
        return str(reached.identity)

    def seen(self, assigned: AssignedPartition, judged: JudgedBatch) -> None:
        """Log a judged batch."""
        each = sparse_groups(judged.latency_intended, judged.row_index, len(judged.rows))
        if (lowest := int(judged.latency_intended.min(initial=0))) < 0:
            self._below_zero[assigned.source] = max(self._below_zero[assigned.source], -lowest)
        identity = self._numbered(assigned.reached)
        self._log.append(
            rows.seen(
                row,
                topic=assigned.source,
                partition=assigned.at.partition,
                topic_identity=identity,
                latencies=latencies if latencies.buckets or latencies.negative else None,
            )
            for row, latencies in zip(judged.rows, each, strict=True)
        )

    def read(self, assigned: AssignedPartition) -> None:
        """Log the offsets read since the last call, before the partition's state is saved."""
        if assigned.rerouted_from is not None:
            self._session_stale |= assigned.rerouted_from not in self._judged_before
            self._judged_before.add(assigned.rerouted_from)
        start, end = assigned.read_from, assigned.checker.next_offset
        if start is not None and start < end:
            columns, identity = (
                (assigned.source, assigned.at.partition),
                self._numbered(assigned.reached),
            )
            holes = assigned.checker.take_new_holes()
            self._log.append(
                [
                    *(rows.hole(*columns, *hole, topic_identity=identity) for hole in holes),
                    rows.read(*columns, start, end, topic_identity=identity, has_holes=bool(holes)),
                ]
            )
        assigned.read_from = end

    def backlog(self, assigned: AssignedPartition) -> None:
        """Log the offsets of the backlog that are not judged yet, if there are any."""
        lo, hi = assigned.checker.next_offset, assigned.backlog_to
        if lo < hi:
            identity = self._numbered(assigned.reached)
            self._log.append(
                [
                    rows.backlog(
                        assigned.source, assigned.at.partition, lo, hi, topic_identity=identity
                    )
                ]
            )

    def unread(
        self, assigned: AssignedPartition, lo: int, hi: int, found_ns: int | None = None
    ) -> None:
        """Log an unread range; `found_ns` is as for `PartitionChecker.unread`."""
        self.read(assigned)
        assigned.read_from = hi
        self._log.append(
            [
                rows.unread(
                    assigned.source,
                    assigned.at.partition,
                    lo,
                    hi,
                    topic_identity=self._numbered(assigned.reached),
                    latest_ns=latest_intended(found_ns),
                )
            ]
        )

    def left(self, assigned: AssignedPartition, found_ns: int | None = None) -> None:
        """Log the end of this incarnation: all its offsets from the next one on are unread."""
        self.unread(assigned, assigned.checker.next_offset, ENDLESS, found_ns)

    def tail(self, reached: JudgedUpTo, end: int) -> None:
        """Log where a partition ended, and how far this consumer and earlier owners judged it.

        An end below what was judged belongs to another incarnation, proves nothing, and is not
        logged.
        """
        topic, partition, _, judged_to, *_ = reached
        if end >= judged_to:
            identity = self._numbered(reached)
            self._log.append(
                [rows.tail(topic, partition, end, judged_to=judged_to, topic_identity=identity)]
            )

    def ends_asked(self, at_ns: int) -> None:
        """Record when the ends that `tail` logs were asked for; the log may end much later."""
        self._ends_asked_ns = at_ns

    def clocks_set(self, by_ns: int) -> None:
        """Record by how much latencies may be off because clocks were set; `sync` writes it."""
        self._session_stale |= by_ns != self._clocks_set_ns
        self._clocks_set_ns = by_ns

    def claimed(self, stream: StreamId, numbers: IntervalSet) -> None:
        """Log seqs as claimed lost."""
        self._log.append(rows.claimed(stream, lo, hi) for lo, hi in numbers.intervals())

    def expired(self, stream: StreamId, numbers: IntervalSet) -> None:
        """Log seqs whose deadline had passed when the ends that `tail` logs were asked for."""
        self._log.append(rows.expired(stream, lo, hi) for lo, hi in numbers.intervals())

    def found(self, assigned: AssignedPartition) -> None:
        """Log the findings of a partition's checker, as of its next offset.

        If the checker gave up a stream's ids, any seq of it may have any finding: all are logged as
        inconclusive.
        """
        identity = self._numbered(assigned.reached)
        self._log.append(
            rows.found(
                stream,
                lo,
                hi,
                finding,
                partition=assigned.at.partition,
                next_offset=assigned.checker.next_offset,
                topic_identity=identity,
            )
            for stream, fragment in assigned.checker.fragments.items()
            for finding, numbers in (
                *fragment.found(),
                *(((Finding.INCONCLUSIVE, _ALL),) if fragment.inconclusive else ()),
            )
            for lo, hi in numbers.intervals()
        )

    def verdict(self, stream: StreamId, verdict: StreamVerdict) -> None:
        """Log the online verdict on missing messages, over all partitions."""
        self._log.append(
            rows.found(stream, lo, hi, finding)
            for finding in MISSING
            if finding is not Finding.COMPACTED
            for lo, hi in verdict.having(finding).intervals()
        )

    def vouched(self, ledger: Ledger) -> None:
        """Log what the ledger recorded of the run by its end."""
        added = []
        for stream, lane in ledger.lanes_of(self._options.run).items():
            for outcome, numbers in (
                (Outcome.ACKED, lane.acked),
                (Outcome.FAILED, lane.failed),
                (Outcome.UNKNOWN, lane.unknown),
            ):
                added += [rows.vouched(stream, lo, hi, outcome) for lo, hi in numbers.intervals()]
            if lane.reserved:
                added.append(rows.vouched(stream, 0, lane.reserved, None))
        self._log.append(added)

    def record(self, interval: pa.RecordBatch) -> None:
        """Write a reporting interval, after all rows logged so far."""
        self._log.record(interval)

    async def sync(self) -> None:
        """Make everything logged durable. Raises SequenceLogError."""
        if self._session_stale or any(
            below > 2 * self._written_below_zero[topic] for topic, below in self._below_zero.items()
        ):
            # Before any state that has moved past these messages; a full log writes rows earlier.
            await self._revise()
        await self._log.sync()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session_stale or self._below_zero != self._written_below_zero:
            with suppress(SequenceLogError):
                await self._revise()
        await self._log.close(clean=error is None, looked_ns=self._ends_asked_ns)

    async def __aenter__(self) -> Self:
        return self


def _topics(
    options: ConsumeOptions,
    partitions: dict[str, int],
    compacted: set[str],
    uncommitted: set[str],
    earlier: Mapping[str, tuple[int, ...]],
    hidden: set[str],
    stamped: set[str],
    stamped_at_source: set[str],
    incarnations: Mapping[str, _Incarnations],
    below_zero: Mapping[str, int],
) -> dict[str, Topic]:
    if options.role is Role.SOURCE:
        return {
            topic: Topic(
                source_partitions=partitions.get(topic),
                compacted=topic in compacted,
                uncommitted=topic in uncommitted,
                policy_hidden=topic in hidden,
                stamped=topic in stamped,
                incarnations=_recorded(incarnations.get(topic, {})),
                below_zero_ns=below_zero.get(topic, 0),
            )
            for topic in {*options.topics, *partitions}
        }
    return {
        (source := options.mapping.source_of(topic)): Topic(
            destination=topic,
            destination_partitions=partitions.get(topic),
            earlier_counts=earlier.get(topic, ()),
            compacted=topic in compacted,
            uncommitted=topic in uncommitted,
            policy_hidden=topic in hidden,
            stamped=topic in stamped,
            stamped_at_source=topic in stamped_at_source,
            incarnations=_recorded(incarnations.get(source, {})),
            below_zero_ns=below_zero.get(options.mapping.source_of(topic), 0),
        )
        for topic in {*options.topics, *partitions}
    }


def _recorded(incarnations: _Incarnations) -> tuple[Incarnation, ...]:
    return tuple(
        Incarnation(
            number=number,
            topic_id=topic_id,
            cuts=cuts,
            since_ns=since_ns,
            partitions=tuple(sorted(partitions)),
        )
        for (number, topic_id, cuts), (since_ns, partitions) in sorted(incarnations.items())
    )
