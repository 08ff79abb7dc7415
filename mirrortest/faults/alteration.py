"""What the acts that fall on one message make of it: a pure function.

They are done in this order, whatever their order in the specification, and several of one kind in
the specification's:

1. drop-producer, drop-partition, drop-tail, drop-run, drop: the first one takes the message;
2. merge-topics;
3. change-id, change-seq, change-time, change-descriptor, strip-header, rename-header,
   change-payload, truncate, extend, add-header, rekey, restamp;
4. reroute, merge-partitions: the first one moves the message;
5. swap, hold, delay: the first one keeps it back, unless it was moved;
6. duplicate, duplicate-later, other-run, replay (see `course`).

No act touches a message after one that took it or left nothing by which its id can be read. An act
that would make a message that is too small for its proof pass for another one is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.faults.record_changes import CONTENT, change
from mirrortest.faults.records import put_together
from mirrortest.faults.seeded_random import Draw
from mirrortest.faults.selection import place_of
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.message import decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.faults.records import RawRecord
    from mirrortest.faults.spec import Act, Spec
    from mirrortest.wire.message import Form, Record
    from mirrortest.wire.stream import ProducerId

DROPS = (
    Anomaly.DROP_PRODUCER,
    Anomaly.DROP_PARTITION,
    Anomaly.DROP_TAIL,
    Anomaly.DROP_RUN,
    Anomaly.DROP,
)
MOVES = (Anomaly.REROUTE, Anomaly.MERGE_PARTITIONS)
DEFERRALS = (Anomaly.SWAP, Anomaly.HOLD, Anomaly.DELAY)
REPETITIONS = (
    Anomaly.DUPLICATE,
    Anomaly.DUPLICATE_LATER,
    Anomaly.OTHER_RUN,
    Anomaly.REPLAY,
)
ORDER = (*DROPS, Anomaly.MERGE_TOPICS, *CONTENT, *MOVES, *DEFERRALS, *REPETITIONS)
"""Every kind, in the order in which acts on one message are done."""

_RANK = {kind: rank for rank, kind in enumerate(ORDER)}


class Subject(NamedTuple):
    """The message acted on: where it stands in the source, and what it says it is.

    `id`, `form` are None, `lane` and `seq` -1, where it cannot be read.
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


class Note(NamedTuple):
    """A row of the truth, but for the place in the destination, which is known when it is there."""

    act: int
    kind: Anomaly
    subject: Subject
    detail: str
    part: str = ""
    overtaken: int | None = None


class Target(NamedTuple):
    """Where a record goes: the source topic in whose copy, and the partition there."""

    topic: str
    partition: int


@dataclass(slots=True)
class AlteredMessage:
    """What becomes of a message.

    `raw` is what is written, None where it is dropped; `gone` says that what is written names no
    id any more, `moved` that it goes elsewhere. `notes` tell what was done to it, `left` are the
    acts of steps 5 and 6 that are to be done, by their indices.
    """

    subject: Subject
    raw: RawRecord | None
    target: Target
    notes: list[Note] = field(default_factory=list)
    gone: bool = False
    moved: bool = False
    left: list[tuple[int, Act]] = field(default_factory=list)


def in_order(spec: Spec, indices: Sequence[int]) -> list[tuple[int, Act]]:
    """Acts by their indices, in the order in which they are done."""
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
    """Do to one message what acts 1 to 4 do, and name those that are left.

    `record` is the same as `raw`, taken apart, or None where that cannot be done; `partitions` are
    the counts of the source's topics.
    """
    fate = AlteredMessage(subject, raw, Target(subject.topic, subject.partition))
    place = place_of(subject.topic, subject.partition, subject.id, subject.lane)
    number = subject.offset if subject.id is None else subject.seq
    current = record
    for index, act in in_order(spec, indices):
        kind = act.kind
        draw = Draw(spec.seed, index, place, number)
        if kind in DROPS:
            fate.raw = None
            fate.notes.append(Note(index, kind, subject, "not written"))
            return fate
        if fate.gone:
            break
        if kind is Anomaly.MERGE_TOPICS:
            _merge_topics(fate, index, act, partitions)
        elif kind in CONTENT:
            if current is not None:
                current = _change(fate, index, act, current, draw)
        elif kind in MOVES:
            if not fate.moved:
                _move(fate, index, act, partitions[subject.topic], draw)
        else:
            fate.left.append((index, act))
    if current is not None and current is not record:
        fate.raw = put_together(current)
    if fate.gone:
        fate.left.clear()
    return fate


def _merge_topics(
    fate: AlteredMessage, index: int, act: Act, partitions: Mapping[str, int]
) -> None:
    other = act.parameter("to_topic")
    count = partitions.get(other)
    if count is None or other == fate.subject.topic:
        return
    fate.target = Target(other, fate.subject.partition % count)
    fate.moved = True
    # What a message proves, it proves of its own topic; the ancestor's prove nothing.
    fate.gone = fate.subject.id is not None
    fate.notes.append(Note(index, act.kind, fate.subject, f"to the copy of {other}"))


def _change(fate: AlteredMessage, index: int, act: Act, record: Record, draw: Draw) -> Record:
    done = change(act, record, draw)
    if done is None:
        return record
    subject = fate.subject
    if subject.id is not None:
        read = decode(done.record, subject.topic)
        if read.id is None:
            fate.gone = True
        elif (read.id, read.lane, read.seq) != (subject.id, subject.lane, subject.seq):
            return record
    fate.notes.append(Note(index, act.kind, subject, done.detail, done.part))
    return done.record


def _move(fate: AlteredMessage, index: int, act: Act, count: int, draw: Draw) -> None:
    here = fate.subject.partition
    wanted = act.parameter("to_partition")
    if wanted is None:
        if count < 2:
            return
        wanted = draw.other_than(here, count)
    if wanted == here:
        return
    fate.target = fate.target._replace(partition=wanted)
    fate.moved = True
    fate.notes.append(Note(index, act.kind, fate.subject, f"partition {here} -> {wanted}"))
