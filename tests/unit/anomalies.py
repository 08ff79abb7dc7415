"""A small mirror in memory: what it copies, its anomalies, and the findings that they cause.

The anomalies are made here by hand, in records of `message.encode`, so that the table of findings
does not depend on the faulty mirror alone. The findings are those of the real decoder and checkers.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.model.findings import NO_STREAM, OF_STREAM, Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.anomaly import Anomaly
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_numbers
from mirrortest.wire.message import Message, Record, encode
from mirrortest.wire.record_batch import RecordArrays, decode_records
from mirrortest.wire.stream import ProducerId, StreamId
from tests.unit.settled import judge_settled

if TYPE_CHECKING:
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.verify.partition import PartitionChecker

TOPICS = ("orders", "clicks.eu")
PARTITIONS = 2
ANN, BOB = ProducerId("ann", "r7", 1), ProducerId("bob", "r7", 2)
START = 1_700_000_000_000_000_000
COUNT = 24
"""Messages per lane."""


class Id(NamedTuple):
    """A message's id; `partition` is the source partition."""

    topic: str
    partition: int
    producer: ProducerId
    seq: int

    @property
    def stream(self) -> StreamId:
        lane = lane_numbers(PARTITIONS)[self.partition]
        producer = self.producer
        return StreamId(self.topic, producer.run, producer.name, producer.incarnation, lane)


class Copy(NamedTuple):
    """A record in the destination.

    `id` is the id of the message that it copies, or None; `acts` are the anomalies made in it, as
    (kind, part).
    """

    id: Id | None
    record: Record
    acts: tuple[tuple[Anomaly, str], ...] = ()

    @property
    def known(self) -> Id:
        """The id of the message that it copies; there must be one."""
        assert self.id is not None
        return self.id

    def but(self, kind: Anomaly, part: str = "", **changes: Any) -> Copy:
        """The copy with one more act on it."""
        return self._replace(acts=(*self.acts, (kind, part)), **changes)


def message(topic: str, partition: int, producer: ProducerId, seq: int) -> Message:
    lane = lane_numbers(PARTITIONS)[partition]
    at = START + 1_000_000 * seq
    return Message(topic, producer, lane, seq, at, at + 500_000, partition, PARTITIONS, 150)


@cache
def copies(form: str, topic: str, partition: int) -> list[Copy]:
    """A partition that was copied faithfully; messages of two producers alternate."""
    return [
        Copy(
            Id(topic, partition, producer, seq),
            encode(message(topic, partition, producer, seq), Form(form)),
        )
        for seq in range(COUNT)
        for producer in (ANN, BOB)
    ]


# -- anomalies of one record -----------------------------------------------------------------------

ID_SIZE = len(ANN.encode())
FIELDS = {  # header name, offset of its value in the body, offset of the changed byte in it
    Anomaly.CHANGE_ID: ("id", 0, 1),
    Anomaly.CHANGE_SEQ: ("seq", ID_SIZE + 1, 11),
    Anomaly.CHANGE_TIME: ("ts", ID_SIZE + 14, 18),
    Anomaly.CHANGE_DESCRIPTOR: ("d", ID_SIZE + 34, 5),
}
CUTS = {
    "fill": -1,
    "descriptor": ID_SIZE + 54,
    "header": ID_SIZE + 34,
    "numbers": ID_SIZE + 9,
    "id": 2,
}
TO_ONE_RECORD = (
    *FIELDS,
    *(Anomaly.CHANGE_PAYLOAD, Anomaly.TRUNCATE, Anomaly.EXTEND, Anomaly.REKEY),
    *(Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER, Anomaly.ADD_HEADER, Anomaly.RESTAMP),
)


def flipped(raw: bytes | None, at: int) -> bytes:
    assert raw is not None
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def change(kind: Anomaly, part: str, form: Form, record: Record) -> Record:
    """The record with one anomaly."""
    key, value = record.key or b"", record.value or b""
    match kind:
        case Anomaly.CHANGE_PAYLOAD:
            return record._replace(value=flipped(value, len(value) - 3))
        case Anomaly.TRUNCATE:
            return record._replace(value=value[: CUTS[part or "fill"]])
        case Anomaly.EXTEND:
            return record._replace(value=value + b"more")
        case Anomaly.REKEY:
            return record._replace(key=b"not " + key)
        case Anomaly.STRIP_HEADER:
            return record._replace(headers=tuple(h for h in record.headers if h[0] != part))
        case Anomaly.RENAME_HEADER:
            renamed = tuple((f"x-{n}" if n == part else n, v) for n, v in record.headers)
            return record._replace(headers=renamed)
        case Anomaly.ADD_HEADER:
            return record._replace(headers=(*record.headers, ("from", b"dc1")))
        case Anomaly.RESTAMP:
            return record._replace(timestamp_ms=record.timestamp_ms + 3)
    name, at, within = FIELDS[kind]
    if form is Form.BODY:
        return record._replace(value=flipped(value, at + within))
    headers = tuple((n, flipped(v, within) if n == name else v) for n, v in record.headers)
    return record._replace(headers=headers)


# -- anomalies of partitions -----------------------------------------------------------------------


class World:
    """The mirror's output, {(topic, partition): copies}, and the messages that it dropped."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.made = {
            where: [*copies(form.value, *where)] for where in product(TOPICS, range(PARTITIONS))
        }
        self.dropped: list[tuple[Id, Anomaly]] = []

    def _drop(self, kind: Anomaly, hit: set[Id]) -> set[Id]:
        for each in self.made.values():
            self.dropped += [(copy.known, kind) for copy in each if copy.id in hit]
            each[:] = [copy for copy in each if copy.id not in hit]
        return hit

    def commit(
        self, kind: Anomaly, part: str = "", where: tuple[str, int] = (TOPICS[0], 0), at: int = 22
    ) -> set[Id]:
        """Make one anomaly at an index of a partition; return the ids of the affected messages."""
        here = self.made[where]
        copy = here[at]
        topic, partition = where
        other_partition = self.made[topic, 1 - partition]
        if kind in TO_ONE_RECORD:
            record = change(kind, part, self.form, copy.record)
            here[at] = copy.but(kind, part, record=record)
            return {copy.known}
        match kind:
            case Anomaly.DROP:
                return self._drop(kind, {copy.known})
            case Anomaly.DROP_RUN:
                return self._drop(kind, {copy.known for copy in here[at : at + 7]})
            case Anomaly.DROP_TAIL:
                first = copy.known
                later = {c.known for c in here if c.known.seq >= first.seq}
                return self._drop(kind, {each for each in later if each[:3] == first[:3]})
            case Anomaly.DROP_PRODUCER:
                every = [copy for each in self.made.values() for copy in each]
                return self._drop(kind, {c.id for c in every if c.id and c.id.producer == BOB})
            case Anomaly.DROP_PARTITION:
                return self._drop(kind, {copy.known for copy in here})
            case Anomaly.DUPLICATE:
                here.insert(at + 1, copy.but(kind))
            case Anomaly.DUPLICATE_LATER:
                here.append(copy.but(kind))
            case Anomaly.SWAP:  # the next record is of another stream, the one after it of its own
                here.insert(at + 2, here.pop(at).but(kind))
            case Anomaly.HOLD:
                here.insert(at + 9, here.pop(at).but(kind))
            case Anomaly.REROUTE:
                other_partition.insert(5, here.pop(at).but(kind))
            case Anomaly.MERGE_PARTITIONS:
                other_partition[at:at] = [copy.but(kind) for copy in here]
                hit = {copy.known for copy in here}
                here.clear()
                return hit
            case Anomaly.MERGE_TOPICS:
                other = TOPICS[1 - TOPICS.index(topic)]
                self.made[other, partition].insert(5, here.pop(at).but(kind))
            case Anomaly.REPLAY:
                again = here[at - 8 : at]
                here[at:at] = [copy.but(kind) for copy in again]
                return {copy.known for copy in again}
            case Anomaly.OTHER_RUN:
                older = message(*where, ANN._replace(run="r6"), 11)
                here.insert(at, Copy(None, encode(older, self.form)).but(kind))
                return set()
            case Anomaly.DELAY:
                here.insert(at + 9 if part else at, here.pop(at).but(kind, part))
        return {copy.known}

    # -- findings ----------------------------------------------------------------------------------

    def found(self) -> tuple[set[tuple[Id, Finding]], set[tuple[str, int, int, Finding]]]:
        """What the checkers find: ({(id, finding)}, {(topic, partition, offset, finding)})."""
        of_messages, of_records = set(), set()
        checkers = {}
        for (topic, partition), here in self.made.items():
            assigned = AssignedPartition.fresh(
                TopicPartition(f"A.{topic}", partition),
                1,
                source=topic,
                run=ANN.run,
                policy=ExpectPartition.SOURCE,
                counts=[PARTITIONS],
            )
            checkers[topic, partition] = assigned.checker
            for row in assigned.take(_records_of(here), START).rows if here else ():
                if row.stream is None:
                    record_finding = Finding(row.findings & (NO_STREAM | Finding.CORRUPTED))
                    of_records |= {
                        (topic, partition, at, record_finding)
                        for at in range(row.offset_lo, row.offset_hi)
                    }
        assert len(of_records) == sum(sum(c.streamless.values()) for c in checkers.values())
        for topic, home, producer in product(TOPICS, range(PARTITIONS), (ANN, BOB)):
            verdict = _judged(Id(topic, home, producer, 0).stream, home, checkers)
            of_messages |= {
                (Id(topic, home, producer, seq), finding)
                for finding in OF_STREAM
                for lo, hi in verdict.having(finding).intervals()
                for seq in range(lo, hi)
            }
        return of_messages, of_records


def _records_of(here: list[Copy]) -> RecordArrays:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, (_, r, _) in enumerate(here):
        assert builder.append(offset, r.timestamp_ms, r.key, r.value, list(r.headers))
    return decode_records(bytes(builder.build()))


def _judged(
    stream: StreamId, home: int, checkers: dict[tuple[str, int], PartitionChecker]
) -> StreamVerdict:
    """The verdict on a stream whose messages are all acknowledged and past their deadline."""
    every = IntervalSet([(0, COUNT)])
    fragments = {
        number: checkers[stream.topic, number].fragment(stream) for number in range(PARTITIONS)
    }
    return judge_settled(
        stream,
        {number: fragment for number, fragment in fragments.items() if fragment is not None},
        LaneRecord(stream, reserved=COUNT, acked=every, end=COUNT),
        expired=every,
        ledger_complete=True,
        policy=ExpectPartition.SOURCE,
        homes={home},
    )
