"""The way of one source partition's records through the faulty mirror: pure, fed with stretches.

What no act falls on passes as rows, untouched and in bulk. Of the acts upon order and number:

- **hold** writes the message after `distance` further offsets, and not before a later message of
  its stream; **swap** right after the next message of its stream; **delay** after its time. A hold
  or swap that is written in its place after all has no row in the truth; where other streams'
  messages alone were written before it, its row says that nothing of its own overtook it.
- **duplicate** writes the copies at once; **duplicate-later** after `distance` further offsets.
- **other-run** writes a message of another run behind the message's place.
- **replay** writes the last `length` offsets of the partition once more, as they were written:
  without what was dropped, is held back, or names no id any more.

Where the partition has ended and falls silent, all but delays are let go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.faults.alteration import DEFERRALS, AlteredMessage, Note, Target, alter_message
from mirrortest.faults.record_changes import CONTENT
from mirrortest.faults.records import RawRecord, Rows, put_together, raw_record, record_at
from mirrortest.faults.source_records import History
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.message import Message, encode
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.faults.alteration import Subject
    from mirrortest.faults.selection import Selection
    from mirrortest.faults.source_records import SourceRecords
    from mirrortest.faults.spec import Act, Spec

_NS = 1_000_000_000
_NEVER = 1 << 62


class Sending(NamedTuple):
    """Something to be written; the notes are told of its (one) record."""

    target: Target
    content: Rows | RawRecord
    notes: tuple[Note, ...] = ()


class Step(NamedTuple):
    """What comes out: what is to be written, in order, and notes of what is not."""

    sendings: list[Sending]
    notes: list[Note]


class Pending(NamedTuple):
    """Something kept back, so that it can be kept back again after a restart.

    `due` is the source offset after which it is let go, `left_ns` the time that a delay still has;
    `copy` tells a later copy from a message that is itself kept back.
    """

    offset: int
    act: int
    due: int
    left_ns: int
    overtaken: int
    copy: bool


@dataclass(slots=True, eq=False)
class _Kept:
    """A message, or a later copy of one, that waits."""

    fate: AlteredMessage
    act: int
    kind: Anomaly
    due: int
    due_ns: int
    since_ns: int
    copy: bool
    overtaken: int = 0

    def is_due(self, offset: int) -> bool:
        return offset >= self.due and (self.copy or self.overtaken > 0)


class PartitionInjector:
    """One source partition's way; `partitions` are the counts of the source's topics.

    All times are monotonic nanoseconds of the caller's clock.
    """

    def __init__(
        self, spec: Spec, selection: Selection, at: Target, partitions: Mapping[str, int]
    ) -> None:
        self._spec = spec
        self._selection = selection
        self._home = at
        self._partitions = partitions
        self._kept: list[_Kept] = []
        lengths = [act.parameter("length") for act in selection.acts if act.kind is Anomaly.REPLAY]
        self._history = History(max(lengths, default=0))
        self._fed_ns = 0
        self._reached = -1
        """The last source offset that was fed."""
        self._out = Step([], [])

    @property
    def memory(self) -> int:
        """How many offsets before the next one `recall` must see, those kept back apart."""
        return self._history.length

    @property
    def kept(self) -> int:
        """How many messages and copies are kept back."""
        return len(self._kept)

    def pending(self, now_ns: int) -> list[Pending]:
        """What is kept back, for `recall`."""
        return [
            Pending(
                kept.fate.subject.offset,
                kept.act,
                kept.due,
                kept.due_ns - now_ns,
                kept.overtaken,
                kept.copy,
            )
            for kept in self._kept
        ]

    # -- what goes in ---------------------------------------------------------------------------

    def feed(self, stretch: SourceRecords, now_ns: int) -> Step:
        """Take the next records."""
        self._fed_ns = now_ns
        chosen = self._selection.chosen(stretch.messages)
        lo = 0
        for row, acts in chosen.items():
            self._pass(stretch, lo, row, now_ns)
            self._touch(stretch, row, acts, now_ns)
            self._let_due_go(now_ns)
            lo = row + 1
        self._pass(stretch, lo, len(stretch), now_ns)
        return self._taken()

    def is_silent(self, now_ns: int) -> bool:
        """Whether something waits for further records, and none has come for `release_after`."""
        silent = now_ns - self._fed_ns >= self._spec.release_after * _NS
        return silent and any(kept.kind is not Anomaly.DELAY for kept in self._kept)

    def tick(self, now_ns: int, *, ended: bool) -> Step:
        """Let go what time lets go, and, where the partition has `ended`, all but delays."""
        for kept in list(self._kept):
            if now_ns >= kept.due_ns or (ended and kept.kind is not Anomaly.DELAY):
                self._let_go(kept, now_ns)
        return self._taken()

    def finish(self, now_ns: int) -> Step:
        """Let everything go: the mirror ends."""
        while self._kept:  # what is let go may have a later copy of its own
            self._let_go(self._kept[0], now_ns)
        return self._taken()

    def recall(self, stretch: SourceRecords, pending: Iterable[Pending], now_ns: int) -> None:
        """See records again that were fed before a restart; nothing comes out.

        Those in `pending` are kept back again, the others may be replayed.
        """
        waiting: dict[int, list[Pending]] = {}
        for each in pending:
            waiting.setdefault(each.offset, []).append(each)
        chosen = self._selection.chosen(stretch.messages)
        lo = 0
        for row, acts in chosen.items():
            self._history.add_rows(stretch, lo, row)
            lo = row + 1
            fate = self._fate(stretch, row, acts)
            self._history.add(fate)
            for each in waiting.get(fate.subject.offset, ()):
                due_ns = now_ns + each.left_ns
                kind = self._spec.acts[each.act].kind
                kept = _Kept(fate, each.act, kind, each.due, due_ns, now_ns, each.copy)
                kept.overtaken = each.overtaken
                self._kept.append(kept)
        self._history.add_rows(stretch, lo, len(stretch))
        self._fed_ns = now_ns
        self._reached = stretch.offset(len(stretch) - 1)

    def _taken(self) -> Step:
        taken, self._out = self._out, Step([], [])
        return taken

    # -- what no act falls on -------------------------------------------------------------------

    def _pass(self, stretch: SourceRecords, lo: int, hi: int, now_ns: int) -> None:
        while lo < hi:
            stop = min((self._boundary(kept, stretch, lo, hi) for kept in self._kept), default=hi)
            self._out.sendings.append(Sending(self._home, Rows(stretch.records, lo, stop)))
            self._history.add_rows(stretch, lo, stop)
            for kept in self._kept:
                if not kept.copy:
                    later = stretch.later_in_stream(kept.fate.subject, lo, stop)
                    kept.overtaken += len(later)
            self._reached = stretch.offset(stop - 1)
            self._let_due_go(now_ns)
            lo = stop

    def _boundary(self, kept: _Kept, stretch: SourceRecords, lo: int, hi: int) -> int:
        """The row in (lo, hi] before which this is to be let go; `hi` if it is not."""
        if kept.due == _NEVER:
            return hi
        due = stretch.row_from(kept.due)
        if not kept.copy and not kept.overtaken:
            later = stretch.later_in_stream(kept.fate.subject, lo, hi)
            if not len(later):
                return hi
            due = max(due, int(later[0]))
        return min(max(due, lo) + 1, hi)

    # -- what acts fall on ----------------------------------------------------------------------

    def _fate(self, stretch: SourceRecords, row: int, acts: list[int]) -> AlteredMessage:
        kinds = {self._spec.acts[index].kind for index in acts}
        record = record_at(stretch.records, row) if kinds & CONTENT.keys() else None
        return alter_message(
            self._spec,
            acts,
            stretch.subject(row),
            raw_record(stretch.records, row),
            record,
            self._partitions,
        )

    def _touch(self, stretch: SourceRecords, row: int, acts: list[int], now_ns: int) -> None:
        fate = self._fate(stretch, row, acts)
        self._reached = fate.subject.offset
        if fate.raw is None:
            self._out.notes.extend(fate.notes)
            return
        self._history.add(fate)
        kept = self._kept_back(fate, now_ns)
        if kept is None:
            self._write(fate, now_ns)
        else:
            self._kept.append(kept)
        for index, act in fate.left:
            if act.kind is Anomaly.OTHER_RUN:
                self._put_in_other_run(stretch, row, fate, index, act)
            elif act.kind is Anomaly.REPLAY:
                self._replay(fate.subject, index, act)

    def _kept_back(self, fate: AlteredMessage, now_ns: int) -> _Kept | None:
        deferrals = [(i, act) for i, act in fate.left if act.kind in DEFERRALS]
        if not deferrals or fate.moved or fate.subject.id is None:
            return None
        index, act = deferrals[0]
        offset = fate.subject.offset
        due, due_ns = _NEVER, _NEVER
        if act.kind is Anomaly.DELAY:
            due_ns = now_ns + round(act.parameter("seconds") * _NS)
        else:
            due = offset + (act.parameter("distance") if act.kind is Anomaly.HOLD else 0)
        return _Kept(fate, index, act.kind, due, due_ns, now_ns, copy=False)

    def _write(self, fate: AlteredMessage, now_ns: int, further: tuple[Note, ...] = ()) -> None:
        """Write a message itself, and its copies."""
        subject = fate.subject
        if fate.raw is None:
            return
        self._out.sendings.append(Sending(fate.target, fate.raw, (*fate.notes, *further)))
        if not fate.gone and not fate.moved and subject.id is not None:
            for kept in self._kept:
                other = kept.fate.subject
                same = (other.id, other.lane) == (subject.id, subject.lane)
                if same and not kept.copy and other.seq < subject.seq:
                    kept.overtaken += 1
        for index, act in fate.left:
            if act.kind is Anomaly.DUPLICATE:
                copies = act.parameter("copies")
                for number in range(1, copies + 1):
                    note = Note(index, act.kind, subject, f"copy {number} of {copies}")
                    self._out.sendings.append(Sending(fate.target, fate.raw, (note,)))
            elif act.kind is Anomaly.DUPLICATE_LATER:
                due = self._reached + act.parameter("distance")
                self._kept.append(_Kept(fate, index, act.kind, due, _NEVER, now_ns, copy=True))

    def _put_in_other_run(
        self, stretch: SourceRecords, row: int, fate: AlteredMessage, index: int, act: Act
    ) -> None:
        subject, messages = fate.subject, stretch.messages
        sent_ns = int(messages.sent_ns[row])
        if subject.id is None or subject.form is None or not sent_ns:
            return
        age_ns = round(act.parameter("age") * _NS)
        other = ProducerId(subject.id.name, act.parameter("other_run"), subject.id.incarnation)
        message = Message(
            subject.topic,
            other,
            subject.lane,
            subject.seq,
            max(int(messages.intended_ns[row]) - age_ns, 0),
            max(sent_ns - age_ns, 0),
            int(messages.source_partition[row]),
            int(messages.destination_partitions[row]),
            max(int(stretch.records.value_len[row]), 0),
        )
        raw = put_together(encode(message, subject.form))
        detail = f"put in {other.encode().decode()} {subject.lane} {subject.seq}"
        self._out.sendings.append(
            Sending(self._home, raw, (Note(index, act.kind, subject, detail),))
        )

    def _replay(self, at: Subject, index: int, act: Act) -> None:
        held = {kept.fate.subject.offset for kept in self._kept if not kept.copy}
        told = f"once more, at {at}"
        for subject, raw, target in self._history.last(act.parameter("length"), at.offset, held):
            note = Note(index, act.kind, subject, told)
            self._out.sendings.append(Sending(target, raw, (note,)))

    # -- what was kept back ---------------------------------------------------------------------

    def _let_due_go(self, now_ns: int) -> None:
        if not self._kept:
            return
        due = [kept for kept in self._kept if kept.is_due(self._reached)]
        for kept in sorted(due, key=lambda each: (each.due, each.fate.subject.offset)):
            self._let_go(kept, now_ns)

    def _let_go(self, kept: _Kept, now_ns: int) -> None:
        self._kept.remove(kept)
        fate = kept.fate
        subject = fate.subject
        passed = self._reached - subject.offset
        if kept.copy and fate.raw is not None:
            note = Note(kept.act, kept.kind, subject, f"copied again {passed} offsets later")
            self._out.sendings.append(Sending(fate.target, fate.raw, (note,)))
            return
        if kept.kind is Anomaly.DELAY:
            detail = f"written {(now_ns - kept.since_ns) / _NS:.3f} s later"
        elif kept.kind is Anomaly.HOLD:
            detail = f"held back for {passed} offsets"
        else:
            detail = "written behind the next message of its stream"
        note = Note(kept.act, kept.kind, subject, detail, overtaken=kept.overtaken)
        # Else what is left alone would not stand in the order of the source.
        effective = passed or kept.kind is Anomaly.DELAY
        self._write(fate, now_ns, (note,) if effective else ())
