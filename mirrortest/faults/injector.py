"""Injects faults into the records of one source partition, batch by batch, without I/O.

Records on which no act falls are copied in bulk. These acts change order and number:

- **hold** writes the message after `distance` further offsets, and not before a later message of
  its stream; **swap** writes it right after the next message of its stream; **delay** after its
  time. If no offset passed before a held or swapped message was written, it has no row in the
  truth. If only messages of other streams were written before it, its row has `overtaken` 0.
- **duplicate** writes the copies at once; **duplicate-later** after `distance` further offsets.
- **other-run** writes a message of another run after the message.
- **replay** writes the last `length` offsets of the partition once more, as they were written:
  without messages that were dropped, are deferred, or have lost their id.

When no record has come for `release_after` and the partition is read to its end, all deferred
messages except delays are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.faults.alteration import DEFERRALS, AlteredMessage, Target, TruthRow, alter_message
from mirrortest.faults.ground_truth import Deferral
from mirrortest.faults.record_changes import CONTENT
from mirrortest.faults.records import CopiedRows, RawRecord, encode_record, raw_record, record_at
from mirrortest.faults.source_batch import ReplayBuffer
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.message import Message, encode
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.faults.alteration import Subject
    from mirrortest.faults.selection import Selection
    from mirrortest.faults.source_batch import SourceBatch
    from mirrortest.faults.spec import Act, Spec

_NS = 1_000_000_000
_NEVER = 1 << 62


class Write(NamedTuple):
    """Records to write; if there are `faults`, they are those of its single record."""

    target: Target
    content: CopiedRows | RawRecord
    faults: tuple[TruthRow, ...] = ()


class Output(NamedTuple):
    """What to write, in order, and the faults of messages that are not written."""

    writes: list[Write]
    faults: list[TruthRow]


@dataclass(slots=True, eq=False)
class _Deferred:
    """A message, or a later copy of one, that is written later: see `Deferral`."""

    altered: AlteredMessage
    act: int
    kind: Anomaly
    due: int
    due_ns: int
    is_copy: bool
    overtaken: int = 0

    def is_due(self, offset: int) -> bool:
        return offset >= self.due and (self.is_copy or self.overtaken > 0)


class PartitionInjector:
    """Injects the faults of one source partition.

    `partitions` are the partition counts of the source's topics. All times are monotonic
    nanoseconds of the caller's clock.
    """

    def __init__(
        self, spec: Spec, selection: Selection, at: Target, partitions: Mapping[str, int]
    ) -> None:
        self._spec = spec
        self._selection = selection
        self._home = at
        self._partitions = partitions
        self._deferred: list[_Deferred] = []
        lengths = [act.parameter("length") for act in selection.acts if act.kind is Anomaly.REPLAY]
        self._history = ReplayBuffer(max(lengths, default=0))
        self._fed_ns = 0
        self._reached = -1
        """The last source offset that was processed."""
        self._out = Output([], [])

    @property
    def replay_length(self) -> int:
        """The number of offsets before the next one that `recall` needs, besides deferred ones."""
        return self._history.length

    @property
    def deferred(self) -> int:
        """The number of deferred messages and copies."""
        return len(self._deferred)

    def deferrals(self, now_ns: int) -> list[Deferral]:
        """The deferred messages and copies, for `recall` after a restart."""
        return [
            Deferral(
                offset=each.altered.subject.offset,
                act=each.act,
                due=each.due,
                left_ns=each.due_ns - now_ns,
                overtaken=each.overtaken,
                copy_of=each.is_copy,
            )
            for each in self._deferred
        ]

    # -- input ------------------------------------------------------------------------------------

    def feed(self, batch: SourceBatch, now_ns: int) -> Output:
        """Process the next records; returns what to write."""
        self._fed_ns = now_ns
        chosen = self._selection.chosen(batch.messages)
        lo = 0
        for row, acts in chosen.items():
            self._copy(batch, lo, row, now_ns)
            self._alter(batch, row, acts, now_ns)
            self._release_due(now_ns)
            lo = row + 1
        self._copy(batch, lo, len(batch), now_ns)
        return self._take_output()

    def is_silent(self, now_ns: int) -> bool:
        """Whether a message waits for further records, and none has come for `release_after`."""
        silent = now_ns - self._fed_ns >= self._spec.release_after * _NS
        return silent and any(deferred.kind is not Anomaly.DELAY for deferred in self._deferred)

    def tick(self, now_ns: int, *, ended: bool) -> Output:
        """Write what is due by time; if the partition has `ended`, all except delays."""
        for deferred in list(self._deferred):
            if now_ns >= deferred.due_ns or (ended and deferred.kind is not Anomaly.DELAY):
                self._release(deferred, now_ns)
        return self._take_output()

    def finish(self, now_ns: int) -> Output:
        """Write all that is deferred, when the mirror ends."""
        while self._deferred:  # writing a message can defer a copy of it
            self._release(self._deferred[0], now_ns)
        return self._take_output()

    def recall(
        self, batch: SourceBatch, rows: int, deferrals: Iterable[Deferral], now_ns: int
    ) -> None:
        """Process the first `rows` again, without output: they were processed before a restart.

        Those in `deferrals` are deferred again; all of them can be replayed once written.
        """
        waiting: dict[int, list[Deferral]] = {}
        for each in deferrals:
            waiting.setdefault(each.offset, []).append(each)
        lo = 0
        for row, acts in self._selection.chosen(batch.messages).items():
            if row >= rows:
                break
            self._history.add_rows(batch, lo, row)
            lo = row + 1
            altered = self._apply_acts(batch, row, acts)
            self._history.add(altered)
            for each in waiting.get(altered.subject.offset, ()):
                due_ns = now_ns + each.left_ns
                kind = self._spec.acts[each.act].kind
                deferred = _Deferred(altered, each.act, kind, each.due, due_ns, each.copy_of)
                deferred.overtaken = each.overtaken
                self._deferred.append(deferred)
        self._history.add_rows(batch, lo, rows)
        self._fed_ns = now_ns
        if rows:
            self._reached = batch.offset(rows - 1)

    def _take_output(self) -> Output:
        taken, self._out = self._out, Output([], [])
        return taken

    # -- records without faults -----------------------------------------------------------------

    def _copy(self, batch: SourceBatch, lo: int, hi: int, now_ns: int) -> None:
        while lo < hi:
            stop = min(
                (self._boundary(deferred, batch, lo, hi) for deferred in self._deferred), default=hi
            )
            self._out.writes.append(Write(self._home, CopiedRows(batch.records, lo, stop)))
            self._history.add_rows(batch, lo, stop)
            for deferred in self._deferred:
                if not deferred.is_copy:
                    later = batch.later_in_stream(deferred.altered.subject, lo, stop)
                    deferred.overtaken += len(later)
            self._reached = batch.offset(stop - 1)
            self._release_due(now_ns)
            lo = stop

    def _boundary(self, deferred: _Deferred, batch: SourceBatch, lo: int, hi: int) -> int:
        """The row in (lo, hi] before which this is due; `hi` if it is not."""
        if deferred.due == _NEVER:
            return hi
        due = batch.row_from(deferred.due)
        if not deferred.is_copy and not deferred.overtaken:
            later = batch.later_in_stream(deferred.altered.subject, lo, hi)
            if not len(later):
                return hi
            due = max(due, int(later[0]))
        return min(max(due, lo) + 1, hi)

    # -- records with faults --------------------------------------------------------------------

    def _apply_acts(self, batch: SourceBatch, row: int, acts: list[int]) -> AlteredMessage:
        kinds = {self._spec.acts[index].kind for index in acts}
        record = record_at(batch.records, row) if kinds & CONTENT.keys() else None
        return alter_message(
            self._spec,
            acts,
            batch.subject(row),
            raw_record(batch.records, row),
            record,
            self._partitions,
        )

    def _alter(self, batch: SourceBatch, row: int, acts: list[int], now_ns: int) -> None:
        altered = self._apply_acts(batch, row, acts)
        self._reached = altered.subject.offset
        if altered.raw is None:
            self._out.faults.extend(altered.faults)
            return
        self._history.add(altered)
        deferred = self._deferral(altered, now_ns)
        if deferred is None:
            self._write(altered)
        else:
            self._deferred.append(deferred)
        for index, act in altered.remaining:
            if act.kind is Anomaly.OTHER_RUN:
                self._add_other_run(batch, row, altered, index, act)
            elif act.kind is Anomaly.REPLAY:
                self._replay(altered.subject, index, act)

    def _deferral(self, altered: AlteredMessage, now_ns: int) -> _Deferred | None:
        deferrals = [(i, act) for i, act in altered.remaining if act.kind in DEFERRALS]
        if not deferrals or altered.moved or altered.subject.id is None:
            return None
        index, act = deferrals[0]
        offset = altered.subject.offset
        due, due_ns = _NEVER, _NEVER
        if act.kind is Anomaly.DELAY:
            due_ns = now_ns + round(act.parameter("seconds") * _NS)
        else:
            due = offset + (act.parameter("distance") if act.kind is Anomaly.HOLD else 0)
        return _Deferred(altered, index, act.kind, due, due_ns, is_copy=False)

    def _write(self, altered: AlteredMessage, further: tuple[TruthRow, ...] = ()) -> None:
        """Write a message and its immediate copies, and defer its later copies."""
        subject = altered.subject
        if altered.raw is None:
            return
        self._out.writes.append(Write(altered.target, altered.raw, (*altered.faults, *further)))
        if not altered.lost_id and not altered.moved and subject.id is not None:
            for deferred in self._deferred:
                other = deferred.altered.subject
                same = (other.id, other.lane) == (subject.id, subject.lane)
                if same and not deferred.is_copy and other.seq < subject.seq:
                    deferred.overtaken += 1
        for index, act in altered.remaining:
            if act.kind is Anomaly.DUPLICATE:
                copies = act.parameter("copies")
                for number in range(1, copies + 1):
                    fault = TruthRow(index, act.kind, subject, f"copy {number} of {copies}")
                    self._out.writes.append(Write(altered.target, altered.raw, (fault,)))
            elif act.kind is Anomaly.DUPLICATE_LATER:
                due = self._reached + act.parameter("distance")
                self._deferred.append(
                    _Deferred(altered, index, act.kind, due, _NEVER, is_copy=True)
                )

    def _add_other_run(
        self, batch: SourceBatch, row: int, altered: AlteredMessage, index: int, act: Act
    ) -> None:
        subject, messages = altered.subject, batch.messages
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
            max(int(batch.records.value_len[row]), 0),
        )
        raw = encode_record(encode(message, subject.form))
        detail = f"put in {other.encode().decode()} {subject.lane} {subject.seq}"
        self._out.writes.append(
            Write(self._home, raw, (TruthRow(index, act.kind, subject, detail),))
        )

    def _replay(self, at: Subject, index: int, act: Act) -> None:
        deferred = {each.altered.subject.offset for each in self._deferred if not each.is_copy}
        replayed = self._history.last(act.parameter("length"), at.offset, deferred)
        for subject, raw, target in replayed:
            fault = TruthRow(index, act.kind, subject, f"once more, at {at}")
            self._out.writes.append(Write(target, raw, (fault,)))

    # -- deferred messages -------------------------------------------------------------------

    def _release_due(self, now_ns: int) -> None:
        due = [deferred for deferred in self._deferred if deferred.is_due(self._reached)]
        for deferred in sorted(due, key=lambda each: (each.due, each.altered.subject.offset)):
            self._release(deferred, now_ns)

    def _release(self, deferred: _Deferred, now_ns: int) -> None:
        self._deferred.remove(deferred)
        altered = deferred.altered
        passed = self._reached - altered.subject.offset
        if deferred.is_copy:
            detail = f"copied again {passed} offsets later"
        elif deferred.kind is Anomaly.DELAY:
            overdue = (now_ns - deferred.due_ns) / _NS
            seconds = self._spec.acts[deferred.act].parameter("seconds")
            detail = f"written {seconds + overdue:.3f} s later"
        elif deferred.kind is Anomaly.HOLD:
            detail = f"held back for {passed} offsets"
        else:
            detail = "written behind the next message of its stream"
        fault = TruthRow(deferred.act, deferred.kind, altered.subject, detail)
        if deferred.is_copy and altered.raw is not None:
            self._out.writes.append(Write(altered.target, altered.raw, (fault,)))
        # A hold or swap that no offset has passed is written in its place: this is not a fault.
        elif passed or deferred.kind is Anomaly.DELAY:
            self._write(altered, (fault._replace(overtaken=deferred.overtaken),))
        else:
            self._write(altered)
