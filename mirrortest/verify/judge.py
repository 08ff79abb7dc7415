"""Everything brought together: the verdict on a stream over all partitions, and on a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.model.findings import BY_REPEATS, OF_STREAM, Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.fragment import ALWAYS
from mirrortest.verify.placement import ExpectPartition, counts_in_force

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.verify.compaction import Explained
    from mirrortest.verify.fragment import Fragment
    from mirrortest.verify.ledger_record import LaneRecord
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId

_LABELS = tuple((finding, finding.label) for finding in OF_STREAM)


@dataclass(slots=True)
class StreamVerdict:
    """The judgement of one stream, in sets of seqs that are to be read, not changed.

    The empty ones are one object, and some are the ledger's. Each acknowledged number is in
    `delivered`, or has exactly one of the findings of `Scope.MISSING`.
    """

    stream: StreamId
    acked: IntervalSet = NOTHING
    failed: IntervalSet = NOTHING
    """Of which it is certain that nothing was written."""
    unknown: IntervalSet = NOTHING
    """Whose sends ended without an answer, seen or not."""
    delivered: IntervalSet = NOTHING
    """Acknowledged and seen."""
    found: dict[Finding, IntervalSet] = field(default_factory=dict)
    """The numbers with each finding; a finding of no number has no entry."""
    copies: int = 0
    """Messages beyond the first copy of each, over all partitions."""
    given_up: Counter[str] = field(default_factory=Counter)
    """Past the memory bound: messages by finding's label whose ids were not kept."""
    bounded: bool = False
    """Whether the memory bound was passed, so that nothing missing can be proven."""
    excused: tuple[Finding, ...] = ()
    """Findings that may be none of the mirror's; see `judge`."""

    def having(self, finding: Finding) -> IntervalSet:
        """The numbers with a finding."""
        return self.found.get(finding, NOTHING)

    def add(self, finding: Finding, numbers: IntervalSet) -> None:
        """Add numbers that have a finding."""
        if numbers:
            found = self.found.get(finding)
            self.found[finding] = numbers if found is None else found | numbers

    def counts(self) -> dict[Finding, int]:
        """How many messages have each finding, ids kept or not; those of none are left out."""
        counts = {finding: numbers.count for finding, numbers in self.found.items()}
        if self.given_up:
            for finding, label in _LABELS:
                if label in self.given_up:
                    counts[finding] = counts.get(finding, 0) + self.given_up[label]
        return counts


def judge(
    stream: StreamId,
    fragments: Mapping[int, Fragment],
    lane: LaneRecord | None,
    *,
    claimed: IntervalSet | None = None,
    seen_before: IntervalSet | None = None,
    ledger_complete: bool = False,
    policy: ExpectPartition = ExpectPartition.ANY,
    homes: Collection[int] = (),
    counts: Iterable[int] = (),
    explained: Explained | None = None,
    stamped: bool = False,
    uncommitted: bool = False,
) -> StreamVerdict:
    """Judge one stream over all partitions of its destination topic.

    Args:
        stream: which.
        fragments: destination partition -> what `PartitionChecker.fragment` gives for it.
        lane: what the ledger or the logs vouch for; None: nothing.
        claimed: the numbers ever claimed lost; missing, they stay lost, seen, they are late.
            (What is missing of a stream past the memory bound is inconclusive.)
        seen_before: what states had seen that were lost; None: no state was lost, and no topic was
            recreated before its consumers began. Of what is missing it is delivered; all else may
            have been there, unread.
        ledger_complete: whether a lane without a ledger record cannot exist.
        policy: how `MISROUTED` is judged.
        homes: where the lane belongs, and belonged under earlier partition counts; none: unknown.
        counts: the partition counts that the destination is known to have had.
        explained: what compaction explains of what is missing; None: nothing.
        stamped: whether the source's brokers stamp the records: no timestamp is altered then.
        uncommitted: whether copies may be of aborted transactions. So may those of a producer that
            sends without idempotence be its own. How a stream without a lane was sent is unknown,
            and without an acknowledgement who stamped its records.
    """
    verdict = StreamVerdict(stream)
    if lane is None or uncommitted or lane.repeats:
        verdict.excused = BY_REPEATS
    if lane is None or not lane.acked:
        verdict.excused = (*verdict.excused, Finding.ALTERED_TIMESTAMP)
    claimed = claimed or NOTHING
    seen, twice, surplus = _union(fragments.values())
    for fragment in fragments.values():
        verdict.copies += fragment.copies
        for finding, ids in fragment.found():
            if ids:
                verdict.add(finding, ids.copy())
        if fragment.summary is not None:
            verdict.bounded = True
            verdict.given_up.update(fragment.summary)
    if surplus:
        verdict.add(Finding.DUPLICATED, twice)
        verdict.copies += surplus
    if stamped:
        verdict.found.pop(Finding.ALTERED_TIMESTAMP, None)
        del verdict.given_up[Finding.ALTERED_TIMESTAMP.label]
    if policy is ExpectPartition.ANY:
        verdict.found.pop(Finding.MISROUTED, None)  # what a message alone shows does not count
        most = len(counts_in_force(counts)) or 1
        verdict.add(Finding.MISROUTED, _away(fragments, _fullest(fragments, most)))
    elif homes and (away := _away(fragments, homes)):
        verdict.add(Finding.MISROUTED, away - verdict.having(Finding.UNPROVEN))
    if lane is not None:
        verdict.acked, verdict.failed, verdict.unknown = lane.acked, lane.failed, lane.unknown
        verdict.delivered = lane.acked & seen
        missing = lane.acked - seen
        if seen_before and missing:
            verdict.delivered |= missing & seen_before
            missing -= seen_before
        if verdict.bounded:
            # Any of it may have been seen.
            verdict.add(Finding.INCONCLUSIVE, missing)
            missing = NOTHING
        if explained and missing:
            removed = missing & explained.removed
            verdict.add(Finding.COMPACTED, removed)
            missing -= removed
        if missing and claimed:
            lost = missing & claimed
            verdict.add(Finding.LOST, lost)
            missing -= lost
        if missing:
            below = ALWAYS if seen_before is not None else doubtful_below(fragments, homes=homes)
            doubts = missing.below(below)
            if explained:
                doubts |= missing & explained.doubtful
            verdict.add(Finding.INCONCLUSIVE, doubts)
            missing -= doubts
        verdict.add(Finding.IN_FLIGHT, missing)
    if claimed:
        verdict.add(Finding.LATE, (seen | seen_before if seen_before else seen) & claimed)
    never = _never_sent(seen, lane, ledger_complete=ledger_complete)
    if never:
        verdict.add(Finding.PHANTOM, never - verdict.having(Finding.UNPROVEN))
    return verdict


def doubtful_below(fragments: Mapping[int, Fragment], *, homes: Collection[int] = ()) -> int:
    """The bound below which every missing number may be in an unread range; 0: none may.

    A partition's unread offsets put a stream in doubt if the stream was seen in it or belongs
    into it; a stream without a home may be anywhere.
    """
    return max(
        (
            ALWAYS if fragment.inconclusive else fragment.doubtful_below
            for number, fragment in fragments.items()
            if fragment.inconclusive or not homes or number in homes or fragment.last_place >= 0
        ),
        default=0,
    )


@dataclass(slots=True)
class RunVerdict:
    """Totals over all streams and partitions."""

    counts: Counter[Finding] = field(default_factory=Counter)
    acked: int = 0
    delivered: int = 0
    failed: int = 0
    unknown: int = 0
    copies: int = 0
    bounded: list[StreamId] = field(default_factory=list)
    """Streams whose ids were given up for lack of memory: inconclusive."""
    untracked: int = 0
    """Messages of streams that were never tracked, for the same reason."""
    excused: Counter[str] = field(default_factory=Counter)
    """By finding's label, messages that may have it for another reason than the mirror."""

    @classmethod
    def of(
        cls,
        verdicts: Iterable[StreamVerdict],
        checkers: Iterable[PartitionChecker] = (),
        others: Iterable[PartitionChecker] = (),
    ) -> RunVerdict:
        """Add up. Messages that enter no stream count under their own findings.

        `others` are of topics that are not the run's: what seems damaged there may be somebody
        else's copy of another topic's messages.
        """
        total = cls()
        for checker in others:
            total.counts.update(
                {each: n for each, n in checker.streamless.items() if each != Finding.CORRUPTED}
            )
        for verdict in verdicts:
            total.add_stream(verdict)
        for checker in checkers:
            total.counts.update(checker.streamless)
            total.untracked += checker.untracked["seen"]
            for finding in OF_STREAM:
                total.counts[finding] += checker.untracked[finding.label]
        return total

    def add_stream(self, verdict: StreamVerdict) -> dict[Finding, int]:
        """Add a stream; its findings."""
        found = verdict.counts()
        for finding, count in found.items():
            self.counts[finding] += count
        self.acked += verdict.acked.count
        self.delivered += verdict.delivered.count
        self.failed += verdict.failed.count
        self.unknown += verdict.unknown.count
        self.copies += verdict.copies
        if verdict.bounded:
            self.bounded.append(verdict.stream)
        if verdict.excused:
            self.excused.update({each.label: found.get(each, 0) for each in verdict.excused})
        return found

    def add(self, other: RunVerdict) -> None:
        """Add the totals of other streams and partitions."""
        self.counts.update(other.counts)
        self.acked += other.acked
        self.delivered += other.delivered
        self.failed += other.failed
        self.unknown += other.unknown
        self.copies += other.copies
        self.bounded += other.bounded
        self.untracked += other.untracked
        self.excused.update(other.excused)


def _union(fragments: Collection[Fragment]) -> tuple[IntervalSet, IntervalSet, int]:
    """All that was seen, what was seen in more than one partition, and the copies that makes."""
    seen, twice, surplus = IntervalSet(), IntervalSet(), 0
    if len(fragments) == 1:
        # As nearly every stream has; the result is only read.
        return next(iter(fragments)).seen, twice, surplus
    for fragment in fragments:
        again = seen & fragment.seen
        surplus += again.count
        twice.update(again)
        seen.update(fragment.seen)
    return seen, twice, surplus


def _fullest(fragments: Mapping[int, Fragment], most: int) -> Collection[int]:
    """The partitions with the most of a stream: as many as it may be in."""
    return sorted(fragments, key=lambda n: (-fragments[n].seen.count, n))[:most]


def _away(fragments: Mapping[int, Fragment], homes: Collection[int]) -> IntervalSet:
    """What of a stream is in no partition where it belongs or belonged, whatever its rows say.

    Rows say it of messages by the policy of the consumer that read them, more closely: by the
    counts of that time.
    """
    away = NOTHING
    for number, fragment in fragments.items():
        if number not in homes:
            away |= fragment.seen
    return away


def _never_sent(
    seen: IntervalSet, lane: LaneRecord | None, *, ledger_complete: bool
) -> IntervalSet:
    if lane is None:
        return seen.copy() if ledger_complete else NOTHING
    # What failed is final. While a lane goes on, higher numbers may still be recorded; and of one
    # that a successor closed, the newest record may have been displaced.
    never = seen & lane.failed if lane.failed else NOTHING
    if lane.end is None or lane.closed_at is not None or seen.end <= lane.end:
        return never
    return never | seen.within(lane.end, seen.end)
