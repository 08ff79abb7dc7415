"""One destination partition that this consumer owns: from fetched records to judged rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c
import numpy as np

from mirrortest.consume.partition_views import (
    MOST_EPOCHS,
    MOST_LEFT,
    STATE_VERSION,
    SavedState,
    read_position_of,
)
from mirrortest.model.findings import Finding
from mirrortest.verify import untrusted
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.routing import misrouted
from mirrortest.verify.row import Messages, SeenRow, rows_of, streams_of
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.lanes import parse_lane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from mirrortest.kafka.fetched import FetchedBatches, ReadPosition
    from mirrortest.model.intervals import IntervalSet
    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.wire.batch_decoder import MessageArrays
    from mirrortest.wire.record_batch import RecordArrays
    from mirrortest.wire.stream import StreamId


@dataclass
class JudgedBatch:
    """Judged records: their rows for the log, and the latencies of the run's messages.

    `latency_intended` and `latency_sent` are ns, one entry per measured message of the run, in
    offset order (`latency_sent` only where the message carries its actual send time). Entry i of
    `latency_intended` belongs to `rows[row_index[i]]`. Further copies are not measured: a message
    has arrived when its first copy has. Nor are the run's `backlog` messages, which were in the
    partition before the consumer; their number is `backlog`.
    """

    rows: list[SeenRow]
    latency_intended: NDArray[np.int64]
    latency_sent: NDArray[np.int64]
    row_index: NDArray[np.int64]
    messages: int
    value_bytes: int
    backlog: int = 0


class Decoded(NamedTuple):
    """Fetched records and the messages in them, not judged yet; see `row.Messages`."""

    records: RecordArrays
    arrived_ns: int | NDArray[np.int64]
    messages: MessageArrays
    streams: list[StreamId]
    stream: NDArray[np.int32]
    findings: NDArray[np.uint32]
    key_lane: NDArray[np.int64] | None


class JudgedUpTo(NamedTuple):
    """How far a partition has been judged, and in which incarnation of its log.

    `topic` is the source topic's name. `topic_id` is Kafka's id, None where it is unknown or not
    proven yet. `cuts` is as in `AssignedPartition`.
    """

    topic: str
    partition: int
    identity: int
    next_offset: int
    topic_id: str | None = None
    cuts: int = 0


@dataclass
class AssignedPartition:
    """A partition with its checker, under the generation that this consumer claimed.

    `identity` is the number of the log's incarnation. It grows by one when this consumer finds
    that the topic was recreated or the log truncated. `claimed` are the topic's seqs that were
    claimed lost, as far as this partition's state records them.
    """

    at: TopicPartition
    source: str
    run: str
    generation: int
    policy: ExpectPartition
    counts: list[int]
    """The destination's partition counts so far; the list is shared by the topic and grows."""
    checker: PartitionChecker
    identity: int = 0
    topic_id: str | None = None
    """Kafka's id of the topic that is judged; None where the cluster has no topic ids."""
    left_ids: list[str] = field(default_factory=list)
    """Ids of deleted topics of this name; Kafka never uses an id again."""
    begins_at: int = 0
    """The offset where this incarnation begins; records below it survived the log's truncation."""
    cuts: int = 0
    """How often the log of this topic was truncated."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(leader epoch, first offset that was read of it), of what was read without a gap."""
    claimed: dict[StreamId, IntervalSet] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What happened to the topic; each report on the partition's findings includes these notes."""
    uncommitted: bool = False
    """Whether some messages of the run that were read here may be from aborted transactions."""
    last_record: tuple[int, int] | None = None
    """(offset, CRC-32C of key and value) of the last judged record."""
    taken_over: int = 0
    """Messages of the run that the saved state, from which this consumer continues, had judged."""
    unmeasured: int = 0
    """Those of them whose latencies may be in no report, as their consumer may have been killed."""
    read_from: int | None = None
    """The first offset that was read and is in no `read` row yet."""
    backlog_to: int = 0
    """Messages below this offset were in the partition when the consumer took it, or after a
    stall. They are read late because of the consumer, so their latencies are not measured."""
    absent_ns: int = 0
    """When the consumer last looked for this partition before it existed; 0: unknown. A backlog's
    messages that were sent before then are late for everyone. They are measured as if they had
    arrived at that time, the earliest possible."""
    caught_up: bool = False
    """Whether the backlog has been judged. Until then, what the log's next incarnation contains is
    backlog, too."""
    watched_from: int = 0
    """From this offset on, the consumer counted the destination's partitions as messages arrived.
    Only below it may a message also belong where its producer's planned partition count puts it."""
    resumed: bool = False
    """Whether the last judged record must still be compared with the one now at its offset."""
    rerouted_from: str | None = None
    """`SavedState.rerouted_from` of the state from which this consumer continues."""
    newest_ns: int = 0
    """The latest intended time of the run's messages that were judged here, by their producers'
    wall clocks; 0 before the first."""

    def __post_init__(self) -> None:
        """Create the decoder of the source topic's messages."""
        self._decoder = BatchDecoder(self.source)

    @property
    def reached(self) -> JudgedUpTo:
        """How far the partition has been judged, for the log."""
        return JudgedUpTo(
            self.source,
            self.at.partition,
            self.identity,
            self.checker.next_offset,
            None if self.resumed else self.topic_id,
            self.cuts,
        )

    def begin_backlog(self, end: int) -> None:
        """Count messages from the next offset up to `end` as backlog."""
        # A consumer that is beyond the end has not noticed yet that the log was replaced.
        self.backlog_to, self.caught_up = end, self.checker.next_offset == end

    @property
    def read_position(self) -> ReadPosition:
        """How far the partition has been judged, in a form that brokers can check."""
        return read_position_of(self.checker, self.epochs, self.topic_id)

    @classmethod
    def fresh(cls, at: TopicPartition, generation: int, **fields: Any) -> AssignedPartition:
        """A partition that no consumer has judged yet."""
        checker = PartitionChecker(fields["source"], at.partition)
        return cls(at=at, generation=generation, checker=checker, **fields)

    @classmethod
    def restored(
        cls, at: TopicPartition, generation: int, state: dict[str, Any], **fields: Any
    ) -> AssignedPartition:
        """A partition with its saved state, whose partition counts are added to `counts`.

        Raises:
            RecordError: the state cannot be read; use `unreadable` to continue without it.
        """
        saved = SavedState.read(state, at, run=fields["run"], policy=fields["policy"])
        fields["counts"] += [count for count in saved.counts if count not in fields["counts"]]
        return cls(
            at=at,
            generation=generation,
            checker=saved.checker,
            taken_over=saved.checker.messages,
            unmeasured=0 if saved.latencies_reported else saved.checker.messages,
            identity=saved.identity,
            topic_id=saved.topic_id,
            left_ids=saved.left_ids,
            begins_at=saved.begins_at,
            cuts=saved.cuts,
            epochs=saved.epochs,
            # The offsets below the beginning may not be in the log yet.
            read_from=0 if saved.checker.next_offset == saved.begins_at else None,
            claimed=saved.claimed,
            notes=saved.notes,
            uncommitted=saved.uncommitted,
            last_record=saved.last_record,
            resumed=saved.last_record is not None,
            rerouted_from=saved.rerouted_from,
            **fields,
        )

    @classmethod
    def unreadable(
        cls, at: TopicPartition, generation: int, state: dict[str, Any], why: str, **fields: Any
    ) -> AssignedPartition:
        """A partition whose saved state cannot be read: it is judged anew, from its beginning.

        What earlier incarnations of its log contained is unknown, so they count as unread. The
        number of the present incarnation is taken from the state if it can be read: logs already
        contain rows under this number.
        """
        assigned = cls.fresh(at, generation, **fields)
        with contextlib.suppress(RecordError):
            identity = untrusted.entry(state, "identity")
            assigned.identity = untrusted.number(identity, 0, untrusted.COUNTS_END)
            if state.get("topic_id") is not None:
                assigned.topic_id = untrusted.topic_id(state["topic_id"])
        assigned.checker.begin_incarnation()
        assigned.notes.append(
            f"{at}: the state of its last consumer cannot be read ({why}): "
            "judged again from its beginning"
        )
        return assigned

    def to_state(self) -> dict[str, Any]:
        """The state in JSON's types; it shares no data with this object."""
        return {
            "v": STATE_VERSION,
            "checker": self.checker.to_state(),
            "identity": self.identity,
            # Until the last record has proven it, the id is unknown.
            "topic_id": None if self.resumed else self.topic_id,
            "left_ids": list(self.left_ids),
            "begins_at": self.begins_at,
            "cuts": self.cuts,
            "epochs": list(self.epochs),
            "counts": list(self.counts),
            "policy": self.policy.value,
            "claimed": [[list(s), numbers.to_list()] for s, numbers in self.claimed.items()],
            "notes": list(self.notes),
            "uncommitted": self.uncommitted,
            "last_record": list(self.last_record) if self.last_record else None,
        }

    @property
    def start_offset(self) -> int:
        """The offset to read from; after a resumption the last judged record, to compare it."""
        if self.resumed and self.last_record is not None:
            return self.last_record[0]
        return self.checker.next_offset

    def start_over(
        self, found_ns: int | None = None, topic_id: str | None = None, offset: int = 0
    ) -> None:
        """Go on with the log's next incarnation: a recreated topic, or a truncated log.

        What was seen in the previous incarnation stays seen. The rest of it counts as unread. The
        next one begins at `offset`: 0 for a recreated topic. `found_ns` is the wall clock's time,
        as for `PartitionChecker.unread`.
        """
        if self.topic_id not in {None, topic_id}:
            self.left_ids = [*self.left_ids, str(self.topic_id)][-MOST_LEFT:]
        self.cuts = self.cuts + 1 if self.topic_id == topic_id else 0
        self.topic_id, self.begins_at = topic_id, offset
        self.epochs = [each for each in self.epochs if each[1] < offset]
        self.checker.begin_incarnation(found_ns, offset)
        self.identity += 1
        self.last_record, self.resumed, self.read_from = None, False, None
        self.backlog_to = self.watched_from = 0

    def note_origin(self, batches: Iterable[FetchedBatches]) -> None:
        """Record the topic id of judged batches, if it is unknown, and their leader epochs."""
        epoch = self.epochs[-1][0] if self.epochs else -1
        for batch in batches:
            if not self.resumed:
                self.topic_id = self.topic_id or batch.topic_id
            if batch.leader_epoch > epoch:
                epoch = batch.leader_epoch
                self.epochs = [*self.epochs, (epoch, batch.fetched_from)][-MOST_EPOCHS:]

    def common_end(self, leader_epoch: int, end_offset: int) -> int:
        """The offset below which the log still contains what was read.

        The arguments are the broker's answer: see `kafka.fetched.Diverged`.
        """
        later = (offset for epoch, offset in self.epochs if epoch > leader_epoch)
        return min(end_offset, self.checker.next_offset, *later)

    def was_recreated(
        self, records: RecordArrays | None, fetched_from: int, *, may_compact: bool
    ) -> bool:
        """Whether another record, or none, is at the last judged record's offset; compared once.

        `records` are those from `fetched_from` on, None if these offsets have none. A missing
        record proves nothing if compaction may have removed it, or if they were fetched from behind
        it, before the consumer sought back to it.
        """
        if not self.resumed or self.last_record is None:
            return False
        self.resumed = False
        offset, fingerprint = self.last_record
        if records is not None and (at := np.flatnonzero(records.offsets == offset)).size:
            return _fingerprint(records, int(at[0])) != fingerprint
        return fetched_from <= offset and not may_compact

    def take(self, records: RecordArrays, arrived_ns: int | NDArray[np.int64]) -> JudgedBatch:
        """Judge records, skipping those below the checker's next offset.

        `arrived_ns` is one arrival time for all, or one for each.
        """
        return self.judge(self.decode(records, arrived_ns))

    def decode(self, records: RecordArrays, arrived_ns: int | NDArray[np.int64]) -> Decoded:
        """Decode the messages in records for `judge`."""
        kept = records.from_offset(self.checker.next_offset)
        if not isinstance(arrived_ns, int):
            # The skipped records are the first ones.
            arrived_ns = arrived_ns[len(records) - len(kept) :]
        records = kept
        messages = self._decoder.decode(records)
        streams, index, findings = streams_of(
            self.source,
            self.run,
            messages.ids,
            messages.id_index,
            messages.lane,
            messages.findings,
        )
        keys = _key_lanes(records, messages, index)
        return Decoded(records, arrived_ns, messages, streams, index, findings, keys)

    def has_misrouted(self, decoded: Decoded) -> bool:
        """Whether some messages are where none of the partition counts known so far puts them."""
        depends = self.policy in {ExpectPartition.MURMUR2, ExpectPartition.SOURCE_MODULO}
        return depends and bool(self._routing(decoded.messages, decoded.stream).any())

    def judge(self, decoded: Decoded) -> JudgedBatch:
        """Judge decoded messages, by all partition counts known so far."""
        records, arrived_ns, messages, streams, index, findings, keys = decoded
        findings = findings | self._routing(messages, index)
        in_backlog = int(np.searchsorted(messages.offset, self.backlog_to))
        rows = rows_of(
            Messages(
                streams,
                index,
                messages.seq,
                messages.offset,
                messages.intended_ns,
                messages.sent_ns,
                findings,
                arrived_ns,
                keys,
            ),
            cut=in_backlog,
        )
        ours, at = index >= 0, 0
        for row in rows:
            for lo, hi in self.checker.apply(row).intervals():
                ours[at + lo - row.seq_lo : at + hi - row.seq_lo] = False
            # Rows cover all messages in order; within a row, offsets have no gaps.
            at += row.offset_hi - row.offset_lo
            if row.stream is not None:
                self.newest_ns = max(self.newest_ns, row.intended_last)
        self.caught_up |= self.checker.next_offset >= self.backlog_to
        if len(records.offsets):
            last = len(records.offsets) - 1
            self.last_record = (int(records.offsets[last]), _fingerprint(records, last))
        read, sent = np.count_nonzero(ours), messages.sent_ns > 0
        if in_backlog:
            ours[:in_backlog] &= messages.intended_ns[:in_backlog] < self.absent_ns
            sent[:in_backlog] &= messages.sent_ns[:in_backlog] < self.absent_ns
            arrived_ns = np.broadcast_to(arrived_ns, ours.shape).copy()
            arrived_ns[:in_backlog] = self.absent_ns
        sent &= ours
        counts = [row.offset_hi - row.offset_lo for row in rows]
        return JudgedBatch(
            rows=rows,
            latency_intended=_at(arrived_ns, ours) - messages.intended_ns[ours],
            latency_sent=_at(arrived_ns, sent) - messages.sent_ns[sent],
            row_index=np.repeat(np.arange(len(rows)), counts)[ours],
            messages=len(messages.offset),
            value_bytes=int(np.maximum(records.value_len, 0).sum()),
            backlog=int(read - np.count_nonzero(ours)),
        )

    def _routing(self, messages: MessageArrays, index: NDArray[np.int32]) -> NDArray[np.uint32]:
        unwatched = messages.offset < self.watched_from
        wrong = misrouted(
            self.policy,
            lanes=messages.lane,
            source_partitions=messages.source_partition,
            counted=np.where(unwatched, messages.destination_partitions, 0),
            partition=self.at.partition,
            counts=self.counts,
        )
        return np.where(wrong & (index >= 0), Finding.MISROUTED.value, 0).astype(np.uint32)


def _key_lanes(
    records: RecordArrays, messages: MessageArrays, stream: NDArray[np.int32]
) -> NDArray[np.int64] | None:
    """The lanes whose keys the messages without a stream have, as `Messages.key_lane`."""
    outside = stream < 0
    if not outside.any():
        return None
    altered = (messages.findings & Finding.ALTERED_KEY.value) != 0
    lanes = np.where(outside & ~altered, messages.lane, -1)
    # Where the decoder gave no lane, or the key was altered, the record's own key is parsed.
    for row in np.flatnonzero(outside & (lanes < 0)).tolist():
        lane = parse_lane(records.key(row))
        lanes[row] = -1 if lane is None else lane
    return lanes


def _at(times: int | NDArray[np.int64], where: NDArray[np.bool_]) -> int | NDArray[np.int64]:
    return times if isinstance(times, int) else times[where]


def _fingerprint(records: RecordArrays, at: int) -> int:
    return int(crc32c.crc32c(records.value(at) or b"", crc32c.crc32c(records.key(at) or b"")))
