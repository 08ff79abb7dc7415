"""What one destination partition shows of one stream.

An unread range may have contained any missing seq: a higher one than those seen before the range,
because the range may have contained any number of messages, and a lower one, because a mirror
replays and reorders. Only time limits this doubt: messages sent after the range was found deleted
cannot have been in it. Seqs and intended times ascend together. So the first message seen after the
range with a late enough intended time ends the doubt for its own seq and all higher ones. This
compares the clocks of two hosts. If a message arrived long before its intended time, a clock is
wrong, and time proves nothing for its stream.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import STREAM_FINDINGS, Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify import untrusted
from mirrortest.verify.row import MINUTE_NS
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.verify.row import SeenRow

CLOCK_TOLERANCE_NS = 300_000_000_000
"""How far apart the clocks of producers and consumers are assumed to be at most, unless a message
shows more. Kerberos assumes the same."""
ALWAYS = 1 << 62
"""A bound above all minutes and all seqs."""
_UNPROVEN = int(Finding.UNPROVEN | Finding.CORRUPTED)
_SETS = ("seen", "duplicated", "reordered")
_TIMES = ("intended_first", "intended_last", "arrived_first", "arrived_last")
_BY_LABEL = {finding.label: finding for finding in STREAM_FINDINGS}
_COUNTED = {"seen", Finding.DUPLICATED.label, Finding.REORDERED.label, *_BY_LABEL}
"""The keys of a summary."""


def latest_intended(found_ns: int | None) -> int | None:
    """The latest intended time of messages that may be in an unread range; None: unknown.

    `found_ns` is when a consumer found the range deleted, by its wall clock, in ns since the epoch.
    """
    return None if found_ns is None else found_ns + CLOCK_TOLERANCE_NS


def last_minute(found_ns: int | None) -> int:
    """The minute of `latest_intended`; `ALWAYS` if that is unknown."""
    latest = latest_intended(found_ns)
    return ALWAYS if latest is None else latest // MINUTE_NS


def arrived_early(row: SeenRow) -> bool:
    """Whether messages arrived so long before their intended times that a clock must be wrong."""
    ahead_ns = row.intended_first - row.arrived_first
    return ahead_ns > CLOCK_TOLERANCE_NS and not row.findings & _UNPROVEN


@dataclass(slots=True)
class HoleCounts:
    """How many holes precede the first copy of each seen seq, as a step function of the seq."""

    _from: list[int] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def at(self, number: int) -> int:
        """The count of a seen seq."""
        at = bisect_right(self._from, number)
        return self._counts[at - 1] if at else 0

    def put(self, lo: int, hi: int | None, count: int) -> None:
        """Set the count of [lo, hi), seen for the first time; None: it is above all seen seqs."""
        begin = bisect_left(self._from, lo)
        if hi is None:
            if count != (self._counts[-1] if begin else 0):
                self._from.append(lo)
                self._counts.append(count)
            return
        behind, end = self.at(hi), bisect_right(self._from, hi)
        if begin < end or count != behind:
            self._from[begin:end] = [lo, hi]
            self._counts[begin:end] = [count, behind]

    def to_list(self) -> list[int]:
        """Seqs, each followed by the count from that seq on."""
        return [each for step in zip(self._from, self._counts, strict=True) for each in step]

    @classmethod
    def from_list(cls, steps: object) -> HoleCounts:
        """Read what `to_list` wrote. Raises RecordError."""
        flat = [untrusted.number(each) for each in untrusted.listed(steps)]
        numbers, counts = flat[::2], flat[1::2]
        if len(numbers) != len(counts) or sorted(set(numbers)) != numbers:
            raise RecordError("numbers without a count, or not in order")
        return cls(numbers, counts)

    def __len__(self) -> int:
        """The number of steps, which is its cost in memory."""
        return len(self._from)


@dataclass(slots=True)
class Fragment:
    """What one destination partition shows of a stream; exact until it is collapsed.

    The caller applies rows in offset order, each offset once. All sets are sets of seqs.
    """

    seen: IntervalSet = field(default_factory=IntervalSet)
    duplicated: IntervalSet = field(default_factory=IntervalSet)
    """Seen at more than one offset of this partition."""
    copies: int = 0
    """How many messages were further copies."""
    reordered: IntervalSet = field(default_factory=IntervalSet)
    """First seen after a higher seq. Not if a first copy in order may be in an unread range."""
    by_finding: dict[Finding, IntervalSet] = field(default_factory=dict)
    """Finding of `STREAM_FINDINGS` -> the seqs of which any copy has it."""
    read_below: int | None = None
    """The bound above all seqs seen before the first unread range; None: there is no such range."""
    unread_minute: int = -1
    """The last minute of intended time of messages that may be in the unread ranges."""
    certain_from: int | None = None
    """The least seq seen after the unread ranges whose intended time is too late to be in them."""
    clock_off: bool = False
    """Whether some messages have `arrived_early`."""
    last_place: int = -1
    """Where it was last seen: `PartitionChecker.before` plus the offset; -1: never."""
    holes: int = 0
    """How many holes (`PartitionChecker.holes`) precede `last_place`."""
    holes_before: HoleCounts | None = None
    """None: no hole precedes any seq."""
    intended_first: int = 0
    intended_last: int = 0
    arrived_first: int = 0
    arrived_last: int = 0
    """Least and greatest times, ns since the epoch; 0: none yet."""
    summary: dict[str, int] | None = None
    """Set by `collapse`: how many messages had each finding, without their ids."""

    @property
    def inconclusive(self) -> bool:
        """Whether the ids were given up at the memory bound."""
        return self.summary is not None

    @property
    def mark(self) -> tuple[int, int | None, int | None, bool]:
        """A value that changes whenever the stream's verdict may change, except by `forget`."""
        return self.last_place, self.read_below, self.certain_from, self.summary is None

    @property
    def size(self) -> int:
        """Its cost in memory: one, plus one for each interval and each step of hole counts."""
        sets = (self.seen, self.duplicated, self.reordered, *self.by_finding.values())
        return 1 + sum(map(len, sets)) + len(self.holes_before or ())

    def apply(self, row: SeenRow, before: int = 0, holes: int = 0) -> tuple[IntervalSet, int]:
        """Add the messages of a row whose places follow those of all earlier rows.

        `before` plus an offset is a place; `holes` holes precede the row.

        Returns:
            The row's seqs that were seen before, as far as ids are kept, and by how much `size`
            has grown.
        """
        lo, hi = row.seq_lo, row.seq_hi
        self._note_times(row)
        if not self.clock_off and arrived_early(row):
            self.clock_off, self.certain_from = True, None
        self.last_place = before + row.offset_hi - 1
        self.holes = holes
        if self.summary is not None:
            self._count(self.summary, hi - lo, row.findings)
            return NOTHING, 0
        grown = self._count_holes(lo, hi, holes) if holes else 0
        if lo >= self.seen.end and not self._in_doubt and not row.findings:
            # The usual case: messages in order.
            return NOTHING, grown + self.seen.add(lo, hi)
        repeated, by = self._apply_out_of_order(row, lo, hi)
        return repeated, grown + by

    def _count_holes(self, lo: int, hi: int, holes: int) -> int:
        """Note how many holes precede newly seen seqs; return by how much `size` has grown."""
        counts = self.holes_before = self.holes_before or HoleCounts()
        before, end = len(counts), self.seen.end
        for first, last in self.seen.missing(lo, hi).intervals():
            counts.put(first, last if first < end else None, holes)
        return len(counts) - before

    def _apply_out_of_order(self, row: SeenRow, lo: int, hi: int) -> tuple[IntervalSet, int]:
        too_late = row.intended_first // MINUTE_NS > self.unread_minute and not self.clock_off
        if self.read_below is not None and too_late and not row.findings & _UNPROVEN:
            self.certain_from = min(lo, self.doubtful_below)
        grown, repeated = 0, self.seen.within(lo, hi)
        if repeated:
            self.copies += repeated.count
            grown += self.duplicated.update(repeated)
        bound = min(hi, self.seen.end)
        if bound - lo > repeated.count:  # not all of [lo, bound) were seen before
            overtaken = self.seen.missing(lo, bound)
            if self.read_below is not None and not too_late:
                overtaken = overtaken.below(self.read_below)
            grown += self.reordered.update(overtaken)
        grown += self.seen.add(lo, hi)
        if row.findings:
            for finding in STREAM_FINDINGS:
                if row.findings & finding:
                    grown += self.by_finding.setdefault(finding, IntervalSet()).add(lo, hi)
        return repeated, grown

    @property
    def messages(self) -> int:
        """How many messages were applied, copies included."""
        distinct = self.seen.count if self.summary is None else self.summary["seen"]
        return distinct + self.copies

    def pass_unread(self, last_minute: int) -> None:
        """Note an unread range; `last_minute` is the last intended minute of messages in it.

        `ALWAYS` if that is unknown.
        """
        if self.read_below is None:
            self.read_below = self.seen.end
        self.unread_minute = max(self.unread_minute, last_minute)
        self.certain_from = None

    @property
    def doubtful_below(self) -> int:
        """The bound below which every missing seq may be in an unread range."""
        if self.read_below is None:
            return 0
        return ALWAYS if self.certain_from is None else self.certain_from

    @property
    def _in_doubt(self) -> bool:
        return self.read_below is not None and self.certain_from is None

    def collapse(self) -> None:
        """Give up the ids and keep counts; all sets are empty from now on.

        `summary` has the count of each finding under its label, and that of distinct messages under
        `seen`. Later messages all count as seen, never as duplicated or reordered.
        """
        if self.summary is not None:
            return
        self.summary = {"seen": self.seen.count}
        for finding, ids in self.found():
            if ids:
                self.summary[finding.label] = ids.count
        for name in _SETS:
            setattr(self, name, IntervalSet())
        self.by_finding = {}
        self.holes_before = None

    def forget(self, finding: Finding) -> int:
        """Forget a finding of `STREAM_FINDINGS`; return by how much `size` changed (0 or less)."""
        if self.summary is not None:
            self.summary.pop(finding.label, None)
        return -len(self.by_finding.pop(finding, ()))

    @staticmethod
    def _count(summary: dict[str, int], messages: int, findings: int) -> None:
        summary["seen"] += messages
        for finding in STREAM_FINDINGS:
            if findings & finding:
                summary[finding.label] = summary.get(finding.label, 0) + messages

    def _note_times(self, row: SeenRow) -> None:
        if self.last_place < 0:
            self.intended_first, self.intended_last = row.intended_first, row.intended_last
            self.arrived_first, self.arrived_last = row.arrived_first, row.arrived_last
        else:
            self.intended_first = min(self.intended_first, row.intended_first)
            self.intended_last = max(self.intended_last, row.intended_last)
            self.arrived_first = min(self.arrived_first, row.arrived_first)
            self.arrived_last = max(self.arrived_last, row.arrived_last)

    def found(self) -> Iterator[tuple[Finding, IntervalSet]]:
        """The seqs with each finding; a set may be empty."""
        yield Finding.DUPLICATED, self.duplicated
        yield Finding.REORDERED, self.reordered
        yield from self.by_finding.items()

    def to_state(self) -> dict[str, Any]:
        """What `from_state` reads, as JSON types; empty parts are left out."""
        state: dict[str, Any] = {
            "at": self.last_place,
            "times": [getattr(self, n) for n in _TIMES],
        }
        for name in _SETS:
            ids: IntervalSet = getattr(self, name)
            if ids:
                state[name] = ids.to_list()
        if self.by_finding:
            state["findings"] = {f.label: ids.to_list() for f, ids in self.by_finding.items()}
        if self.copies:
            state["copies"] = self.copies
        if self.read_below is not None:
            state["unread"] = [self.read_below, self.unread_minute, self.certain_from]
        if self.clock_off:
            state["clock_off"] = True
        if self.holes:
            counts = self.holes_before
            state["holes"] = [self.holes, *(counts.to_list() if counts else ())]
        if self.summary is not None:
            state["summary"] = dict(self.summary)
        return state

    @classmethod
    def from_state(cls, state: object) -> Fragment:
        """Read what `to_state` wrote.

        Raises:
            RecordError: the state is invalid or contradicts itself.
        """
        fields = untrusted.mapped(state)
        summary = fields.get("summary")
        fragment = cls(
            copies=untrusted.number(fields.get("copies", 0)),
            clock_off=untrusted.flag(fields.get("clock_off", False)),
            last_place=untrusted.number(untrusted.entry(fields, "at")),
            summary=None if summary is None else untrusted.counts(summary, _COUNTED),
        )
        times = untrusted.listed(untrusted.entry(fields, "times"), len(_TIMES))
        for name, value in zip(_TIMES, times, strict=True):
            setattr(fragment, name, untrusted.number(value, -untrusted.NUMBERS_END))
        for name in _SETS:
            setattr(fragment, name, untrusted.intervals(fields.get(name, [])))
        if "holes" in fields:
            holes, *steps = untrusted.listed(fields["holes"])
            fragment.holes = untrusted.number(holes)
            fragment.holes_before = HoleCounts.from_list(steps)
        if "unread" in fields:
            fragment._restore_unread(untrusted.listed(fields["unread"], 3))
        for label, ids in untrusted.mapped(fields.get("findings", {})).items():
            fragment.by_finding[untrusted.entry(_BY_LABEL, label)] = untrusted.intervals(ids)
        fragment._check()
        return fragment

    def _restore_unread(self, unread: list[Any]) -> None:
        below, minute, certain = unread
        self.read_below = None if below is None else untrusted.number(below)
        self.unread_minute = untrusted.number(minute, -1, ALWAYS + 1)
        self.certain_from = None if certain is None else untrusted.number(certain)

    def _check(self) -> None:
        """Raise RecordError where parts of a state contradict each other."""
        of_seen = (self.duplicated, self.reordered, *self.by_finding.values())
        if any(ids - self.seen for ids in of_seen):
            raise RecordError("findings on messages that were not seen")
        if self.summary is None:
            if not self.seen or self.copies < self.duplicated.count:
                raise RecordError("a stream that was not seen, or fewer copies than duplicates")
        elif self.seen or "seen" not in self.summary:
            raise RecordError("a collapsed stream still has ids")
