"""What a consumer writes into its sequence log, and when a stretch of offsets counts as read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from mirrortest.check.verdict import Finding, Outcome
from mirrortest.seqlog import rows
from mirrortest.seqlog.schema import Role
from mirrortest.seqlog.session import Session, Topic
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from types import TracebackType

    from mirrortest.check.intervals import IntervalSet
    from mirrortest.check.ledger import Ledger
    from mirrortest.consume.assigned import AssignedPartition, Taken
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.wire.stream import StreamId


class Logbook:
    """The consumer's side of the sequence logs."""

    def __init__(self, log: SequenceLog, options: ConsumeOptions, counts: dict[str, int]) -> None:
        self._log = log
        self._options = options
        self._counts = counts

    @classmethod
    async def open(
        cls, options: ConsumeOptions, *, session: str, cluster: str, partitions: dict[str, int]
    ) -> Self:
        """Open the log of one consumer's session; `partitions` are the destination topics'."""
        about = Session(
            run=options.run,
            role=Role.CONSUMER,
            name=options.name,
            session=session,
            detail=options.log_detail,
            started_ns=time.time_ns(),
            topics=_topics(options, partitions),
            expect_partition=options.expect_partition.value,
            deadline_ns=int(options.deadline * 1e9),
            clusters={"destination": cluster},
        )
        return cls(await SequenceLog.open(options.log_dir, about), options, dict(partitions))

    @property
    def where(self) -> str:
        """The session's directory."""
        return self._log.where

    async def know(self, partitions: dict[str, int]) -> None:
        """Note topics and partitions that have come since. Raises SequenceLogError."""
        if partitions.items() <= self._counts.items():
            return
        # What is gone was there: it is judged by the count that it had.
        self._counts |= partitions
        topics = _topics(self._options, self._counts)
        await self._log.revise(lambda session: session.model_copy(update={"topics": topics}))

    def seen(self, mine: AssignedPartition, taken: Taken) -> None:
        """Log a judged batch."""
        bounds = taken.row_index.searchsorted(range(len(taken.rows) + 1))
        added = []
        for number, row in enumerate(taken.rows):
            latency = taken.latency_intended[bounds[number] : bounds[number + 1]]
            latencies = None
            if row.stream is not None:
                histogram = Histogram()
                histogram.add(latency)
                buckets, counts = histogram.sparse()
                latencies = rows.Latencies(histogram.negative, buckets, counts)
            added.append(
                rows.seen(
                    row,
                    topic=mine.source,
                    partition=mine.at.partition,
                    topic_identity=str(mine.identity),
                    latencies=latencies,
                )
            )
        self._log.append(added)

    def read(self, mine: AssignedPartition) -> None:
        """Log the offsets read since this was last called."""
        start, end = mine.read_from, mine.checker.next_offset
        if start is not None and start < end:
            self._log.append(
                [
                    rows.read(
                        mine.source,
                        mine.at.partition,
                        start,
                        end,
                        topic_identity=str(mine.identity),
                    )
                ]
            )
        mine.read_from = end

    def unread(self, mine: AssignedPartition, lo: int, hi: int) -> None:
        """Log offsets that were gone before we came."""
        self.read(mine)
        mine.read_from = hi
        identity = str(mine.identity)
        self._log.append(
            [rows.unread(mine.source, mine.at.partition, lo, hi, topic_identity=identity)]
        )

    def tail(self, mine: AssignedPartition, end: int) -> None:
        """Log where the partition ended."""
        identity = str(mine.identity)
        self._log.append([rows.tail(mine.source, mine.at.partition, end, topic_identity=identity)])

    def claimed(self, stream: StreamId, numbers: IntervalSet) -> None:
        """Log numbers as claimed lost."""
        self._log.append(rows.claimed(stream, lo, hi) for lo, hi in numbers.intervals())

    def found(self, mine: AssignedPartition) -> None:
        """Log what the checker of a partition found, as of its next offset."""
        self._log.append(
            rows.found(
                stream,
                lo,
                hi,
                finding,
                partition=mine.at.partition,
                next_offset=mine.checker.next_offset,
            )
            for stream, fragment in mine.checker.fragments.items()
            for finding, numbers in (
                (Finding.DUPLICATED, fragment.duplicated),
                (Finding.REORDERED, fragment.reordered),
                *((Finding(bit), held) for bit, held in fragment.by_finding.items()),
            )
            for lo, hi in numbers.intervals()
        )

    def lost(self, stream: StreamId, numbers: IntervalSet) -> None:
        """Log the online verdict that numbers are lost, on the union of all partitions."""
        self._log.append(rows.found(stream, lo, hi, Finding.LOST) for lo, hi in numbers.intervals())

    def vouched(self, ledger: Ledger) -> None:
        """Log what the ledger said of the run in the end."""
        added = []
        for stream, lane in ledger.lanes.items():
            if stream.run != self._options.run:
                continue
            for outcome, numbers in (
                (Outcome.ACKED, lane.acked),
                (Outcome.FAILED, lane.failed),
                (Outcome.UNKNOWN, lane.unknown),
            ):
                added += [rows.vouched(stream, lo, hi, outcome) for lo, hi in numbers.intervals()]
            if lane.reserved:
                added.append(rows.vouched(stream, 0, lane.reserved, None))
        self._log.append(added)

    async def sync(self) -> None:
        """Make all of it durable. Raises SequenceLogError."""
        await self._log.sync()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._log.close(clean=error is None)

    async def __aenter__(self) -> Self:
        return self


def _topics(options: ConsumeOptions, partitions: dict[str, int]) -> dict[str, Topic]:
    return {
        options.mapping.source_of(topic): Topic(
            destination=topic, destination_partitions=partitions.get(topic)
        )
        for topic in {*options.topics, *partitions}
    }
