"""Constructors of a log's rows, one for each kind, so that no caller fills a wrong column.

They raise ValueError if an interval is empty, or if its numbers of seqs and offsets differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.fragment import arrived_early

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.model.findings import Outcome
    from mirrortest.timing.histogram import Sparse
    from mirrortest.verify.row import SeenRow
    from mirrortest.wire.stream import StreamId

Times = tuple[int, int]
"""The first and the last time of an interval's messages, ns since the epoch."""

EARLY = 1
"""The `outcome` of a `seen` row whose messages arrived long before their intended time."""
RESERVED_ONLY = 0
"""The `outcome` of a `vouched` row whose seqs are only reserved in the ledger."""


class Row(NamedTuple):
    """One row, its columns in the order of `schema.ROWS`; None is null."""

    kind: str
    topic: str
    run: str | None = None
    producer: str | None = None
    incarnation: int | None = None
    lane: int | None = None
    seq_lo: int | None = None
    seq_hi: int | None = None
    partition: int | None = None
    offset_lo: int | None = None
    offset_hi: int | None = None
    topic_identity: str | None = None
    outcome: int | None = None
    findings: int | None = None
    intended_first: int | None = None
    intended_last: int | None = None
    sent_first: int | None = None
    sent_last: int | None = None
    arrived_first: int | None = None
    arrived_last: int | None = None
    negative: int | None = None
    latency_bucket: Sequence[int] | None = None
    latency_count: Sequence[int] | None = None


def _checked(lo: int, hi: int, what: str = "seq") -> int:
    if not 0 <= lo < hi:
        raise ValueError(f"{what} [{lo}, {hi}) is empty or negative")
    return hi - lo


def _of_stream(kind: Kind, stream: StreamId, seq_lo: int, seq_hi: int) -> Row:
    _checked(seq_lo, seq_hi)
    return Row(kind.value, *stream, seq_lo, seq_hi)


def reserved(stream: StreamId, seq_lo: int, seq_hi: int, *, partition: int | None = None) -> Row:
    """These seqs may be sent once this row is durable; `partition` is the source's."""
    return _of_stream(Kind.RESERVED, stream, seq_lo, seq_hi)._replace(partition=partition)


def sent(
    stream: StreamId,
    seq_lo: int,
    seq_hi: int,
    *,
    partition: int,
    outcome: Outcome,
    offset_lo: int | None,
    intended: Times | None,
    sent: Times | None = None,
    acknowledged: Times | None = None,
    topic_identity: str | None = None,
    latencies: Sparse | None = None,
) -> Row:
    """How the sends of these seqs ended, on which source partition and offsets.

    `offset_lo` is the first message's source offset, None (or below 0) if it is unknown.
    """
    count = _checked(seq_lo, seq_hi)
    offsets: tuple[int | None, int | None] = (None, None)
    if offset_lo is not None and offset_lo >= 0:
        offsets = (offset_lo, offset_lo + count)
    return Row._make(
        (
            Kind.SENT.value,
            *stream,
            seq_lo,
            seq_hi,
            partition,
            *offsets,
            topic_identity,
            int(outcome),
            None,
            *(intended or (None, None)),
            *(sent or (None, None)),
            *(acknowledged or (None, None)),
            *_latency_columns(latencies),
        )
    )


def end(stream: StreamId, seq_hi: int, *, partition: int | None = None) -> Row:
    """The lane is closed: `seq_hi` seqs were used in all; 0 is possible."""
    if seq_hi < 0:
        raise ValueError(f"a lane cannot end at {seq_hi}")
    return Row(Kind.END.value, *stream, None, seq_hi, partition)


def seen(
    row: SeenRow,
    *,
    topic: str,
    partition: int,
    topic_identity: str | None = None,
    latencies: Sparse | None = None,
) -> Row:
    """These messages were read at these offsets of this destination partition.

    `topic` is the source topic's name, for messages without a stream; others have their stream's.
    """
    count = _checked(row.offset_lo, row.offset_hi, "offset")
    key_lane = None if row.key_lane < 0 else row.key_lane
    stream: tuple[int | str | None, ...] = (None, None, None, key_lane, None, None)
    if row.stream is not None:
        if _checked(row.seq_lo, row.seq_hi) != count:
            raise ValueError(f"{count} offsets for seq [{row.seq_lo}, {row.seq_hi})")
        topic = row.stream.topic
        stream = (*row.stream[1:], row.seq_lo, row.seq_hi)
    return Row._make(
        (
            Kind.SEEN.value,
            topic,
            *stream,
            partition,
            row.offset_lo,
            row.offset_hi,
            topic_identity,
            EARLY if arrived_early(row) else None,
            int(row.findings),
            row.intended_first or None,
            row.intended_last or None,
            row.sent_first or None,
            row.sent_last or None,
            row.arrived_first or None,
            row.arrived_last or None,
            *_latency_columns(latencies),
        )
    )


def read(
    topic: str,
    partition: int,
    offset_lo: int,
    offset_hi: int,
    *,
    topic_identity: str | None = None,
    has_holes: bool | None = None,
) -> Row:
    """These destination offsets were read, whether or not they had records.

    `has_holes`: whether some are holes, for each of which the caller logs a row; None: unknown.
    """
    row = _of_offsets(Kind.READ, topic, partition, offset_lo, offset_hi, topic_identity)
    findings = None if has_holes is None else int(Finding.COMPACTED) if has_holes else 0
    return row._replace(findings=findings)


def hole(
    topic: str, partition: int, offset_lo: int, offset_hi: int, *, topic_identity: str | None = None
) -> Row:
    """These destination offsets were read and had no record."""
    return _of_offsets(Kind.HOLE, topic, partition, offset_lo, offset_hi, topic_identity)


def backlog(
    topic: str, partition: int, offset_lo: int, offset_hi: int, *, topic_identity: str | None = None
) -> Row:
    """These offsets existed when the consumer took the partition, or after it was stalled."""
    return _of_offsets(Kind.BACKLOG, topic, partition, offset_lo, offset_hi, topic_identity)


def unread(
    topic: str,
    partition: int,
    offset_lo: int,
    offset_hi: int,
    *,
    topic_identity: str | None = None,
    latest_ns: int | None = None,
) -> Row:
    """These destination offsets were deleted before they were read.

    `offset_hi` is `schema.ENDLESS` if the topic was created again. None of their messages has an
    intended time after the minute of `latest_ns`; None: unknown.
    """
    row = _of_offsets(Kind.UNREAD, topic, partition, offset_lo, offset_hi, topic_identity)
    return row._replace(intended_first=latest_ns)


def tail(
    topic: str,
    partition: int,
    offset_hi: int,
    *,
    judged_to: int | None = None,
    topic_identity: str | None = None,
) -> Row:
    """The partition ended at `offset_hi` when reading stopped; an empty one ends at 0.

    This session or earlier ones judged all offsets below `judged_to`; None: all below the end.
    """
    if offset_hi < 0:
        raise ValueError(f"a partition cannot end at {offset_hi}")
    return Row(
        Kind.TAIL.value,
        topic,
        partition=partition,
        offset_lo=offset_hi if judged_to is None else min(judged_to, offset_hi),
        offset_hi=offset_hi,
        topic_identity=topic_identity,
    )


def vouched(stream: StreamId, seq_lo: int, seq_hi: int, outcome: Outcome | None) -> Row:
    """The ledger records these seqs with this outcome; None: reserved only."""
    value = RESERVED_ONLY if outcome is None else int(outcome)
    return _of_stream(Kind.VOUCHED, stream, seq_lo, seq_hi)._replace(outcome=value)


def claimed(stream: StreamId, seq_lo: int, seq_hi: int) -> Row:
    """These seqs were claimed lost online; a later `seen` makes them late."""
    return _of_stream(Kind.CLAIMED, stream, seq_lo, seq_hi)


def expired(stream: StreamId, seq_lo: int, seq_hi: int) -> Row:
    """The deadline of these seqs had passed at the consumer's last end-offset snapshot.

    It runs on the consumer's monotonic clock, from when it read their acknowledgement in the
    ledger.
    """
    return _of_stream(Kind.EXPIRED, stream, seq_lo, seq_hi)


def found(
    stream: StreamId,
    seq_lo: int,
    seq_hi: int,
    findings: Finding,
    *,
    partition: int | None = None,
    next_offset: int | None = None,
    topic_identity: str | None = None,
) -> Row:
    """The online verdict on these seqs, as of the partition's next offset.

    `partition` is None for a verdict on the union of all partitions (lost, in flight, late).
    """
    row = _of_stream(Kind.FOUND, stream, seq_lo, seq_hi)
    return row._replace(
        findings=int(findings),
        partition=partition,
        offset_hi=next_offset,
        topic_identity=topic_identity,
    )


def _of_offsets(
    kind: Kind, topic: str, partition: int, lo: int, hi: int, topic_identity: str | None
) -> Row:
    _checked(lo, hi, "offset")
    return Row(
        kind.value,
        topic,
        partition=partition,
        offset_lo=lo,
        offset_hi=hi,
        topic_identity=topic_identity,
    )


def _latency_columns(
    latencies: Sparse | None,
) -> tuple[int | None, Sequence[int] | None, Sequence[int] | None]:
    if latencies is None:
        return (None, None, None)
    if len(latencies.buckets) != len(latencies.counts):
        raise ValueError("a latency bucket without its count")
    return (int(latencies.negative), latencies.buckets, latencies.counts)
