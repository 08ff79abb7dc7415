"""What one destination partition knows of one stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.check.intervals import IntervalSet
from mirrortest.check.verdict import PER_MESSAGE, STREAM_FINDINGS, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.check.row import SeenRow

_SETS = ("seen", "duplicated", "reordered", "shadow")
_TIMES = ("intended_first", "intended_last", "arrived_first", "arrived_last")


@dataclass(slots=True)
class Fragment:
    """A stream as one destination partition shows it, exact until it is collapsed.

    Fed with rows in offset order, each offset once. All sets hold seqs.
    """

    seen: IntervalSet = field(default_factory=IntervalSet)
    duplicated: IntervalSet = field(default_factory=IntervalSet)
    """Seen at more than one offset of this partition."""
    copies: int = 0
    """Messages beyond the first copy of each."""
    reordered: IntervalSet = field(default_factory=IntervalSet)
    """First seen here after a later seq was. In the shadow a first copy may stand: none of it."""
    by_finding: dict[Finding, IntervalSet] = field(default_factory=dict)
    """Those with the finding on any of their copies; members of `STREAM_FINDINGS`."""
    shadow: IntervalSet = field(default_factory=IntervalSet)
    """What may have stood in offsets that nobody read."""
    open_from: int | None = None
    """The shadow goes on from here without end, until a seq at or above it is seen."""
    last_place: int = -1
    """Where the stream was last seen (`PartitionChecker.before`, and the offset); -1: never."""
    intended_first: int = 0
    intended_last: int = 0
    arrived_first: int = 0
    arrived_last: int = 0
    """Least and greatest times, ns since the epoch; 0: none yet."""
    summary: dict[str, int] | None = None
    """Set once collapsed: how many messages had each finding, ids forgotten; see `collapse`."""

    @property
    def inconclusive(self) -> bool:
        """Whether the ids were given up for lack of memory."""
        return self.summary is not None

    @property
    def mark(self) -> tuple[int, int | None, bool]:
        """Another one after each change."""
        return self.last_place, self.open_from, self.summary is None

    @property
    def size(self) -> int:
        """What it costs: one, and one for each interval held."""
        sets = (self.seen, self.duplicated, self.reordered, self.shadow, *self.by_finding.values())
        return 1 + sum(map(len, sets))

    def apply(self, row: SeenRow, before: int = 0) -> int:
        """Take in the row's messages; it lies at places after all those before.

        `before` and an offset are a place. Returns by how much the size has grown.
        """
        lo, hi = row.seq_lo, row.seq_hi
        self._note_times(row)
        self.last_place = before + row.offset_hi - 1
        if self.summary is not None:
            self._count(self.summary, hi - lo, row.findings)
            return 0
        end = self.seen.end
        if lo >= end and self.open_from is None and not row.findings:
            # What comes in order, as nearly everything does.
            self.seen.add(lo, hi)
            return 0 if lo == end and end else 1
        before = self.size
        self._apply_out_of_order(row, lo, hi)
        return self.size - before

    def _apply_out_of_order(self, row: SeenRow, lo: int, hi: int) -> None:
        self._close_shadow(lo, hi)
        again = self.seen.within(lo, hi)
        if again:
            self.copies += again.count
            self.duplicated.update(again)
        if lo < self.seen.end:
            self.reordered.update(self.seen.missing(lo, min(hi, self.seen.end)) - self.shadow)
        self.seen.add(lo, hi)
        if row.findings & PER_MESSAGE:
            for finding in STREAM_FINDINGS:
                if row.findings & finding:
                    self.by_finding.setdefault(finding, IntervalSet()).add(lo, hi)

    @property
    def messages(self) -> int:
        """How many messages were applied, copies included."""
        distinct = self.seen.count if self.summary is None else self.summary["seen"]
        return distinct + self.copies

    def open_shadow(self) -> None:
        """Offsets are passed by unread: what stood there is not known.

        Only numbers above those already seen are put in doubt: a number that was missing before
        could stand there only if it was reordered as well.
        """
        if self.open_from is None:
            self.open_from = self.seen.end

    def shadow_below(self, bound: int) -> IntervalSet:
        """The shadow among the numbers below `bound`, an open one included; seen ones too."""
        shadow = self.shadow.within(0, bound)
        if self.open_from is not None:
            shadow.add(self.open_from, bound)
        return shadow

    def collapse(self) -> None:
        """Give up the ids and keep counts; all sets are empty from now on.

        `summary` holds counts under the findings' labels, under `seen` that of distinct messages;
        later messages count as seen, and no longer as duplicated or reordered.
        """
        if self.summary is not None:
            return
        self.summary = {"seen": self.seen.count}
        for finding, ids in (
            (Finding.DUPLICATED, self.duplicated),
            (Finding.REORDERED, self.reordered),
            *self.by_finding.items(),
        ):
            if ids:
                self.summary[finding.label] = ids.count
        for name in _SETS:
            setattr(self, name, IntervalSet())
        self.by_finding = {}

    def _close_shadow(self, lo: int, hi: int) -> None:
        if self.open_from is not None and hi > self.open_from:
            self.shadow.add(self.open_from, lo)
            self.open_from = None

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

    def to_state(self) -> dict[str, Any]:
        """What `from_state` needs, of JSON's types; empty parts are left out."""
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
        if self.open_from is not None:
            state["open_from"] = self.open_from
        if self.summary is not None:
            state["summary"] = dict(self.summary)
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Fragment:
        """Read what `to_state` wrote; KeyError, TypeError or ValueError where it is not that."""
        times: Sequence[int] = state["times"]
        if len(times) != len(_TIMES):
            raise ValueError("a fragment has four times")
        made = cls(
            copies=state.get("copies", 0),
            open_from=state.get("open_from"),
            last_place=state["at"],
            summary=state.get("summary"),
        )
        for name, value in zip(_TIMES, times, strict=True):
            setattr(made, name, value)
        for name in _SETS:
            setattr(made, name, IntervalSet.from_list(state.get(name, [])))
        made.by_finding = {
            Finding[label.upper()]: IntervalSet.from_list(ids)
            for label, ids in state.get("findings", {}).items()
        }
        return made
