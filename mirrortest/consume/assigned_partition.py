"""One destination partition in this consumer's care: from fetched batches to judged rows."""

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
    place_of,
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
    """Of what was fetched: rows for checker and log, and the latencies of our messages.

    `latency_intended` and `latency_sent` are ns, one entry per message of the run in offset order
    (`latency_sent` only where the message carries its actual send). Entry i of
    `latency_intended` belongs to `rows[row_index[i]]`. `backlog` messages of the run have none, as
    they were there before their reader; nor have further copies: a message is there when the first
    one is.
    """

    rows: list[SeenRow]
    latency_intended: NDArray[np.int64]
    latency_sent: NDArray[np.int64]
    row_index: NDArray[np.int64]
    messages: int
    value_bytes: int
    backlog: int = 0


class Decoded(NamedTuple):
    """Records with the messages in them, before anything is judged; see `row.Messages`."""

    records: RecordArrays
    arrived_ns: int | NDArray[np.int64]
    messages: MessageArrays
    streams: list[StreamId]
    stream: NDArray[np.int32]
    findings: NDArray[np.uint32]
    key_lane: NDArray[np.int64] | None


class JudgedUpTo(NamedTuple):
    """How far a partition of a source topic has been judged, in which incarnation of the topic.

    `topic_id` is Kafka's, None where it is unknown, or not proven yet; `cuts` as in
    `AssignedPartition`.
    """

    topic: str
    partition: int
    identity: int
    next_offset: int
    topic_id: str | None = None
    cuts: int = 0


@dataclass
class AssignedPartition:
    """A partition with its checker, under the generation that was claimed for it.

    `identity` counts the incarnations of the partition's log: it steps when the topic turns out to
    have been deleted and created again, or the log to have been cut back. `claimed` are the numbers
    of home lanes that were claimed lost here.
    """

    at: TopicPartition
    source: str
    run: str
    generation: int
    policy: ExpectPartition
    counts: list[int]
    """The destination's partition counts in force so far; it grows while this is assigned."""
    checker: PartitionChecker
    identity: int = 0
    topic_id: str | None = None
    """Kafka's id of the topic that is judged; None where the cluster has no ids."""
    left_ids: list[str] = field(default_factory=list)
    """Of the topics of this name that were deleted: none of them comes back."""
    begins_at: int = 0
    """Where this incarnation begins: below it stands what was there before it was cut back."""
    cuts: int = 0
    """How often this topic was cut back before."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(leader epoch, offset from which on it was read), of what was read without a gap."""
    claimed: dict[StreamId, IntervalSet] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What befell the topic: whoever reports the partition's findings reports it, too."""
    uncommitted: bool = False
    """Whether messages of the run were read here that may be of aborted transactions."""
    last_record: tuple[int, int] | None = None
    """(offset, CRC-32C of key and value) of the last judged record."""
    taken_over: int = 0
    """Messages of the run that others had judged, as their state says that this goes on from."""
    read_from: int | None = None
    """Where the offsets read but not logged as such begin."""
    backlog_to: int = 0
    """What lies below this offset was there when the partition was taken, or after a standstill:
    that it is read late is the reader's doing, so that its latencies are not measured."""
    absent_ns: int = 0
    """Of a partition that its reader saw come: when it looked for it last, and it was not there.
    What had been sent by then is late for all, and counts as if it had come at once."""
    caught_up: bool = False
    """Whether nothing of that is left. Before, what is in the log's next incarnation is a backlog,
    too."""
    watched_from: int = 0
    """From this offset on the destination's partitions were counted while messages came: how many
    a producer had planned for says only of those below where they may belong."""
    resumed: bool = False
    """Whether the last judged record is still to be compared with what is there now."""
    rerouted_from: str | None = None
    """`SavedState.rerouted_from` of the state that this goes on from."""
    newest_ns: int = 0
    """When the newest message of the run that was judged here was meant to be sent, by its
    producer's wall clock; 0 before the first."""

    def __post_init__(self) -> None:
        """Make the decoder of the source topic's messages."""
        self._decoder = BatchDecoder(self.source)

    @property
    def reached(self) -> JudgedUpTo:
        """How far it has been judged."""
        return JudgedUpTo(
            self.source,
            self.at.partition,
            self.identity,
            self.checker.next_offset,
            None if self.resumed else self.topic_id,
            self.cuts,
        )

    def begin_backlog(self, end: int, absent_ns: int = 0) -> None:
        """What is up to there may have waited for the reader, who is at the next offset."""
        # A reader that is beyond the end has not seen yet that the log was replaced.
        self.backlog_to, self.caught_up = end, self.checker.next_offset == end
        self.absent_ns = absent_ns

    @property
    def place(self) -> ReadPosition:
        """How far it has been judged, as the cluster can check it."""
        return place_of(self.checker, self.epochs, self.topic_id)

    @classmethod
    def fresh(cls, at: TopicPartition, generation: int, **about: Any) -> AssignedPartition:
        """A partition that nobody has judged yet."""
        checker = PartitionChecker(about["source"], at.partition)
        return cls(at=at, generation=generation, checker=checker, **about)

    @classmethod
    def restored(
        cls, at: TopicPartition, generation: int, state: dict[str, Any], **about: Any
    ) -> AssignedPartition:
        """A partition as its last judge left it; the counts that it knew are added.

        Raises:
            RecordError: the state cannot be read; `unreadable` goes on without it.
        """
        saved = SavedState.read(state, at, run=about["run"], policy=about["policy"])
        about["counts"] += [count for count in saved.counts if count not in about["counts"]]
        return cls(
            at=at,
            generation=generation,
            checker=saved.checker,
            taken_over=saved.checker.messages,
            identity=saved.identity,
            topic_id=saved.topic_id,
            left_ids=saved.left_ids,
            begins_at=saved.begins_at,
            cuts=saved.cuts,
            epochs=saved.epochs,
            # What lies before the beginning may not be in the log yet.
            read_from=0 if saved.checker.next_offset == saved.begins_at else None,
            claimed=saved.claimed,
            notes=saved.notes,
            uncommitted=saved.uncommitted,
            last_record=saved.last_record,
            resumed=saved.last_record is not None,
            rerouted_from=saved.rerouted_from,
            **about,
        )

    @classmethod
    def unreadable(
        cls, at: TopicPartition, generation: int, state: dict[str, Any], why: str, **about: Any
    ) -> AssignedPartition:
        """A partition whose last state cannot be read: it is judged anew, from its beginning.

        What was seen of an incarnation of the topic before this one is not known any more: what
        stood there is in doubt, as what nobody read. Which incarnation this is may be readable: its
        records stand in logs under this number already.
        """
        assigned = cls.fresh(at, generation, **about)
        with contextlib.suppress(RecordError):
            identity = untrusted.entry(state, "identity")
            assigned.identity = untrusted.number(identity, 0, untrusted.COUNTS_END)
            if state.get("topic_id") is not None:
                assigned.topic_id = untrusted.topic_id(state["topic_id"])
        assigned.checker.begin_anew()
        assigned.notes.append(
            f"{at}: the state of its last consumer cannot be read ({why}): "
            "judged anew from its beginning"
        )
        return assigned

    def to_state(self) -> dict[str, Any]:
        """The state as JSON's types; it shares nothing with this object."""
        return {
            "v": STATE_VERSION,
            "checker": self.checker.to_state(),
            "identity": self.identity,
            # While it is to be proven by the last record, it is not known.
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
        """Where to read from: one record early after a resumption, to compare it."""
        if self.resumed and self.last_record is not None:
            return self.last_record[0]
        return self.checker.next_offset

    def start_over(
        self, found_ns: int | None = None, topic_id: str | None = None, offset: int = 0
    ) -> None:
        """Judge the next incarnation: of another topic, or of the log from where it was cut back.

        What was seen in the one before stays seen; what stood in it beyond that, nobody read.
        `found_ns` is the wall clock's time, as for `PartitionChecker.unread`.
        """
        if self.topic_id not in {None, topic_id}:
            self.left_ids = [*self.left_ids, str(self.topic_id)][-MOST_LEFT:]
        self.cuts = self.cuts + 1 if self.topic_id == topic_id else 0
        self.topic_id, self.begins_at = topic_id, offset
        self.epochs = [each for each in self.epochs if each[1] < offset]
        self.checker.begin_anew(found_ns, offset)
        self.identity += 1
        self.last_record, self.resumed, self.read_from = None, False, None
        self.backlog_to = self.watched_from = 0

    def passed(self, batches: Iterable[FetchedBatches]) -> None:
        """Note of which topic it was, if that is not known yet, and which leaders wrote it."""
        epoch = self.epochs[-1][0] if self.epochs else -1
        for batch in batches:
            if not self.resumed:
                self.topic_id = self.topic_id or batch.topic_id
            if batch.leader_epoch > epoch:
                epoch = batch.leader_epoch
                self.epochs = [*self.epochs, (epoch, batch.fetched_from)][-MOST_EPOCHS:]

    def common_end(self, leader_epoch: int, end_offset: int) -> int:
        """Up to where a log agrees with what was read, which it has up to an epoch and offset."""
        later = (offset for epoch, offset in self.epochs if epoch > leader_epoch)
        return min(end_offset, self.checker.next_offset, *later)

    def was_recreated(self, records: RecordArrays) -> bool:
        """Whether the last judged record's offset now holds another record; asked once."""
        if not self.resumed or self.last_record is None:
            return False
        self.resumed = False
        at = np.flatnonzero(records.offsets == self.last_record[0])
        return bool(at.size) and _fingerprint(records, int(at[0])) != self.last_record[1]

    def take(self, records: RecordArrays, arrived_ns: int | NDArray[np.int64]) -> JudgedBatch:
        """Judge records that arrived at one time, or at one each.

        Those below the checker's next offset are passed over.
        """
        return self.judge(self.decode(records, arrived_ns))

    def decode(self, records: RecordArrays, arrived_ns: int | NDArray[np.int64]) -> Decoded:
        """The messages in records that `judge` takes next."""
        kept = records.from_offset(self.checker.next_offset)
        if not isinstance(arrived_ns, int):
            # What is passed over stands at the head.
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

    def strays(self, decoded: Decoded) -> bool:
        """Whether some messages stand where no partition count that is known so far puts them."""
        depends = self.policy in {ExpectPartition.MURMUR2, ExpectPartition.SOURCE_MODULO}
        return depends and bool(self._routing(decoded.messages, decoded.stream).any())

    def judge(self, decoded: Decoded) -> JudgedBatch:
        """Judge what was decoded, by all partition counts known by now."""
        records, arrived_ns, messages, streams, index, findings, keys = decoded
        findings = findings | self._routing(messages, index)
        waited = int(np.searchsorted(messages.offset, self.backlog_to))
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
            cut=waited,
        )
        ours, at = index >= 0, 0
        for row in rows:
            for lo, hi in self.checker.seen_before(row).intervals():
                ours[at + lo - row.seq_lo : at + hi - row.seq_lo] = False
            # Rows follow each other, and a row's offsets are dense.
            at += row.offset_hi - row.offset_lo
            self.checker.apply(row)
            if row.stream is not None:
                self.newest_ns = max(self.newest_ns, row.intended_last)
        self.caught_up |= self.checker.next_offset >= self.backlog_to
        if len(records.offsets):
            last = len(records.offsets) - 1
            self.last_record = (int(records.offsets[last]), _fingerprint(records, last))
        read, sent = np.count_nonzero(ours), messages.sent_ns > 0
        if waited:
            ours[:waited] &= messages.intended_ns[:waited] < self.absent_ns
            sent[:waited] &= messages.sent_ns[:waited] < self.absent_ns
            arrived_ns = np.broadcast_to(arrived_ns, ours.shape).copy()
            arrived_ns[:waited] = self.absent_ns
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
    """The lanes whose keys those in no stream have, as `Messages.key_lane`."""
    outside = stream < 0
    if not outside.any():
        return None
    altered = (messages.findings & Finding.ALTERED_KEY.value) != 0
    lanes = np.where(outside & ~altered, messages.lane, -1)
    # Those that were decoded alone have their keys looked at alone, too.
    for row in np.flatnonzero(outside & (lanes < 0)).tolist():
        lane = parse_lane(records.key(row))
        lanes[row] = -1 if lane is None else lane
    return lanes


def _at(times: int | NDArray[np.int64], where: NDArray[np.bool_]) -> int | NDArray[np.int64]:
    return times if isinstance(times, int) else times[where]


def _fingerprint(records: RecordArrays, at: int) -> int:
    return int(crc32c.crc32c(records.value(at) or b"", crc32c.crc32c(records.key(at) or b"")))
