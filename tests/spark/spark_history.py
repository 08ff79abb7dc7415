"""Small synthetic histories, written as logs of producer, consumers and observers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.model.findings import Finding, Outcome
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.session import Incarnation, Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import Sparse
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.seqlog.rows import Row

RUN = "r1"
START = 28_000_000 * 60_000_000_000
SECOND = 1_000_000_000
DEADLINE = 10 * SECOND


def stream(lane: int = 0, *, producer: str = "p", topic: str = "t") -> StreamId:
    """A stream of the run."""
    return StreamId(topic, RUN, producer, 1, lane)


def intended(seq: int) -> int:
    """The intended send time of a message: ten per second."""
    return START + seq * SECOND // 10


def seen(
    of: StreamId | None,
    lo: int,
    hi: int,
    offset: int,
    *,
    partition: int = 0,
    findings: int = 0,
    topic: str = "t",
    identity: int = 0,
) -> Row:
    """A `seen` row; without a stream, `lo` and `hi` only give a count, and `topic` is used.

    `identity` is the topic's incarnation.
    """
    first, last = intended(lo), intended(hi - 1)
    own = (lo, hi) if of is not None else (0, 0)
    row = SeenRow(
        of, *own, offset, offset + hi - lo, findings, first, last, first, last,
        first + SECOND, last + SECOND,
    )  # fmt: skip
    latencies = Sparse(0, (2000,), (hi - lo,)) if of is not None else None
    where = of.topic if of is not None else topic
    return rows.seen(
        row,
        topic=where,
        partition=partition,
        topic_identity=str(identity),
        latencies=latencies,
    )


def sent(
    of: StreamId,
    lo: int,
    hi: int,
    outcome: Outcome = Outcome.ACKED,
    *,
    at: int | None = None,
    partition: int = 0,
    offset: int | None = 0,
) -> Row:
    """A `sent` row; `at` is when the acknowledgement came.

    The source's offsets are the seqs plus `offset`; None: no broker returned any.
    """
    acked_ns = intended(hi - 1) + SECOND // 100 if at is None else at
    return rows.sent(
        of, lo, hi, partition=partition, outcome=outcome,
        offset_lo=None if offset is None else lo + offset,
        intended=(intended(lo), intended(hi - 1)), acknowledged=(acked_ns, acked_ns),
        latencies=Sparse(0, (1000,), (hi - lo,)),
    )  # fmt: skip


@dataclass
class History:
    """The logs of one run, to be written."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 1})
    """Destination partitions by topic."""
    producer: list[Row] = field(default_factory=list)
    consumers: list[list[Row]] = field(default_factory=lambda: [[]])
    observers: list[list[Row]] = field(default_factory=list)
    """Logs of source observers."""
    policy: str = "source"
    compacted: tuple[str, ...] = ()
    """Topics that are compacted in the source and in the destination."""
    compacted_copies: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Topics whose cleanup policy no consumer could see."""
    detail: Detail = Detail.INTERVALS
    producer_name: str = "p"
    expiry_logged: bool = False
    """Whether the consumers log passed deadlines; earlier versions did not."""

    def sends(self, of: StreamId, count: int, *, acked: bool = True) -> None:
        """Reserve seqs; if `acked`, acknowledge them and end the lane."""
        self.producer.append(rows.reserved(of, 0, count))
        if acked:
            self.producer += [sent(of, 0, count), rows.end(of, count)]

    def reads(
        self, hi: int, *, topic: str = "t", partition: int = 0, lo: int = 0, tail: int | None = -1
    ) -> None:
        """Log offsets [lo, hi) as read, and the partition's end: `hi`, or `tail` (None: no end)."""
        if hi > lo:
            self.consumers[-1].append(rows.read(topic, partition, lo, hi, topic_identity="0"))
        if tail is not None:
            end = hi if tail < 0 else tail
            self.consumers[-1].append(rows.tail(topic, partition, end, topic_identity="0"))

    def write(self, logdir: Path) -> Path:
        """Write all logs."""
        asyncio.run(self._write(logdir))
        return logdir

    async def _write(self, logdir: Path) -> None:
        if self.producer:
            await self._log(logdir, Role.PRODUCER, self.producer_name, self.producer)
        for number, written in enumerate(self.consumers):
            await self._log(logdir, Role.CONSUMER, f"c{number}", written)
        for number, written in enumerate(self.observers):
            await self._log(logdir, Role.SOURCE, f"s{number}", written)

    async def _log(self, logdir: Path, role: Role, name: str, written: list[Row]) -> None:
        about = Session(
            run=RUN,
            role=role,
            name=name,
            session=new_session_id(START),
            detail=self.detail,
            incarnation=1 if role is Role.PRODUCER else None,
            started_ns=START,
            expiry_logged=self.expiry_logged and role is Role.CONSUMER,
            topics={
                topic: Topic(
                    destination=topic,
                    destination_partitions=count,
                    compacted=topic in self.compacted
                    or (role is not Role.PRODUCER and topic in self.compacted_copies),
                    policy_hidden=topic in self.hidden,
                    incarnations=(_log_of(topic, count),) if role is Role.SOURCE else (),
                )
                for topic, count in self.topics.items()
            },
            expect_partition=self.policy,
            deadline_ns=DEADLINE,
        )
        log = await SequenceLog.open(logdir, about)
        log.append(written)
        await log.sync()
        await log.close()


def _log_of(topic: str, count: int) -> Incarnation:
    """The one log that all observers read."""
    return Incarnation(number=0, topic_id=topic, since_ns=START, partitions=tuple(range(count)))


def lost(of: StreamId, lo: int, hi: int) -> Row:
    """A row of seqs that a consumer claimed lost."""
    return rows.claimed(of, lo, hi)


def found(
    of: StreamId,
    lo: int,
    hi: int,
    finding: Finding,
    at: int,
    partition: int = 0,
    *,
    identity: int = 0,
) -> Row:
    """A row of what a consumer's checker had found below offset `at` of this incarnation."""
    place = {"partition": partition, "next_offset": at}
    return rows.found(of, lo, hi, finding, **place, topic_identity=str(identity))
