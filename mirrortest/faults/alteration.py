"""Applies all acts that fall on one message: a pure function.

Acts are applied in this order, whatever their order in the specification; several acts of one kind
in the specification's order:

1. drop-producer, drop-partition, drop-tail, drop-run, drop: the first one drops the message;
2. merge-topics;
3. change-id, change-seq, change-time, change-descriptor, strip-header, rename-header,
   change-payload, truncate, extend, add-header, rekey, restamp;
4. reroute, merge-partitions: the first one moves the message;
5. swap, hold, delay: the first one defers it, unless it was moved;
6. duplicate, duplicate-later, other-run, replay (see `injector`).

After an act that removes a message or its id, no further act is applied. An act that would turn a
message that is too small for a proof into another valid message is not applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.faults.record_changes import CONTENT
from mirrortest.faults.records import encode_record
from mirrortest.faults.seeded_random import Draw
from mirrortest.faults.selection import scope_of
from mirrortest.verify.anomaly import DROPS, HELD_BACK, MOVES, Anomaly
from mirrortest.wire.message import decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.faults.records import RawRecord
    from mirrortest.faults.spec import Act, Spec
    from mirrortest.wire.form import Form
    from mirrortest.wire.message import Record
    from mirrortest.wire.stream import ProducerId

DEFERRALS = (*HELD_BACK, Anomaly.DELAY)
REPETITIONS = (
    Anomaly.DUPLICATE,
    Anomaly.DUPLICATE_LATER,
    Anomaly.OTHER_RUN,
    Anomaly.REPLAY,
)
ORDER = (*DROPS, Anomaly.MERGE_TOPICS, *CONTENT, *MOVES, *DEFERRALS, *REPETITIONS)
"""Every kind, in the order in which acts on one message are applied."""

_RANK = {kind: rank for rank, kind in enumerate(ORDER)}


class Subject(NamedTuple):
    """The message on which an act falls: its place in the source, and its id.

    If it cannot be read, `id` and `form` are None, `lane` and `seq` -1.
    """

    topic: str
    partition: int
    offset: int
    id: ProducerId | None
    lane: int
    seq: int
    form: Form | None

    def __str__(self) -> str:
        if self.id is None:
            return f"{self.topic}-{self.partition} offset {self.offset}"
        return f"{self.id.encode().decode()} {self.lane} {self.seq}"


class TruthRow(NamedTuple):
    """A row of the truth, without the offset in the destination, which is added once written."""

    act: int
    kind: Anomaly
    subject: Subject
    detail: str
    part: str = ""
    overtaken: int | None = None


class Target(NamedTuple):
    """Where a record is written: to this partition of the copy of this source topic."""

    topic: str
    partition: int


@dataclass(slots=True)
class AlteredMessage:
    """A message after steps 1 to 4.

    Attributes:
        subject: the message as it was.
        raw: the record to write; None if it is dropped.
        target: where it is written.
        faults: the rows of the acts that were applied.
        lost_id: whether its id can no longer be read.
        moved: whether it is written to another partition or topic.
        remaining: the acts of steps 5 and 6, by their indices.
    """

    subject: Subject
    raw: RawRecord | None
    target: Target
    faults: list[TruthRow] = field(default_factory=list)
    lost_id: bool = False
    moved: bool = False
    remaining: list[tuple[int, Act]] = field(default_factory=list)


def in_order(spec: Spec, indices: Sequence[int]) -> list[tuple[int, Act]]:
    """Acts by their indices, in the order in which they are applied."""
    acts = [(index, spec.acts[index]) for index in indices]
    return sorted(acts, key=lambda each: (_RANK[each[1].kind], each[0]))


def alter_message(
    spec: Spec,
    indices: Sequence[int],
    subject: Subject,
    raw: RawRecord,
    record: Record | None,
    partitions: Mapping[str, int],
) -> AlteredMessage:
    """Apply steps 1 to 4 to one message.

    `record` is `raw` decoded; None if it cannot be decoded, or no act changes the content.
    `partitions` are the partition counts of the source's topics.
    """
    altered = AlteredMessage(subject, raw, Target(subject.topic, subject.partition))
    scope = scope_of(subject.topic, subject.partition, subject.id, subject.lane)
    number = subject.offset if subject.id is None else subject.seq
    current = record
    for index, act in in_order(spec, indices):
        kind = act.kind
        draw = Draw(spec.seed, index, scope, number)
        if kind in DROPS:
            altered.raw = None
            altered.faults.append(TruthRow(index, kind, subject, "not written"))
            return altered
        if altered.lost_id:
            break
        if kind is Anomaly.MERGE_TOPICS:
            _merge_topics(altered, index, act, partitions)
        elif kind in CONTENT:
            if current is not None:
                current = _change(altered, index, act, current, draw)
        elif kind in MOVES:
            if not altered.moved:
                _move(altered, index, act, partitions[subject.topic], draw)
        else:
            altered.remaining.append((index, act))
    if current is not None and current is not record:
        altered.raw = encode_record(current)
    if altered.lost_id:
        altered.remaining.clear()
    return altered


def _merge_topics(
    altered: AlteredMessage, index: int, act: Act, partitions: Mapping[str, int]
) -> None:
    other = act.parameter("to_topic")
    count = partitions.get(other)
    if count is None or other == altered.subject.topic:
        return
    altered.target = Target(other, altered.subject.partition % count)
    altered.moved = True
    # A proof covers the topic, so in another topic it proves nothing.
    altered.lost_id = altered.subject.id is not None
    altered.faults.append(TruthRow(index, act.kind, altered.subject, f"to the copy of {other}"))


def _change(altered: AlteredMessage, index: int, act: Act, record: Record, draw: Draw) -> Record:
    changed = CONTENT[act.kind](act, record, draw)
    if changed is None:
        return record
    subject = altered.subject
    if subject.id is not None:
        read = decode(changed.record, subject.topic)
        if read.id is None:
            altered.lost_id = True
        elif (read.id, read.lane, read.seq) != (subject.id, subject.lane, subject.seq):
            return record
    altered.faults.append(TruthRow(index, act.kind, subject, changed.detail, changed.part))
    return changed.record


def _move(altered: AlteredMessage, index: int, act: Act, count: int, draw: Draw) -> None:
    here = altered.subject.partition
    wanted = act.parameter("to_partition")
    if wanted is None:
        if count < 2:
            return
        wanted = draw.other_than(here, count)
    if wanted == here:
        return
    altered.target = altered.target._replace(partition=wanted)
    altered.moved = True
    altered.faults.append(
        TruthRow(index, act.kind, altered.subject, f"partition {here} -> {wanted}")
    )
