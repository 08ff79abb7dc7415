"""The verdict on a stream over all partitions, and on a run."""

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
    """The judgement of one stream, as sets of seqs that callers must not change.

    Empty sets are one shared object, and some sets belong to the ledger. Each acknowledged seq is
    in `delivered`, or has exactly one finding of `Scope.MISSING`.
    """

    stream: StreamId
    acked: IntervalSet = NOTHING
    failed: IntervalSet = NOTHING
    """Certainly not written."""
    unknown: IntervalSet = NOTHING
    """Sends that ended without an answer, whether the message was seen or not."""
    delivered: IntervalSet = NOTHING
    """Acknowledged and seen."""
    found: dict[Finding, IntervalSet] = field(default_factory=dict)
    """The seqs with each finding; a finding without seqs has no entry."""
    copies: int = 0
    """How many messages were further copies, over all partitions."""
    given_up: Counter[str] = field(default_factory=Counter)
    """Finding's label -> messages whose ids were given up at the memory bound."""
    bounded: bool = False
    """Whether ids were given up at the memory bound: then missing messages are inconclusive."""
    excused: tuple[Finding, ...] = ()
    """Findings that the mirror might not have caused; see `judge`."""

    def having(self, finding: Finding) -> IntervalSet:
        """The seqs with a finding."""
        return self.found.get(finding, NOTHING)

    def add(self, finding: Finding, numbers: IntervalSet) -> None:
        """Add seqs to a finding."""
        if numbers:
            found = self.found.get(finding)
            self.found[finding] = numbers if found is None else found | numbers

    def counts(self) -> dict[Finding, int]:
        """The number of messages with each finding, ids kept or not; zeros are left out."""
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

    Findings of `BY_REPEATS` are excused if copies may come from aborted transactions, or from a
    producer without idempotence. Without a lane record it is unknown how the stream was sent, so
    they are excused too. Without an acknowledgement it is unknown whether brokers stamped the
    records, so `ALTERED_TIMESTAMP` is excused.

    Args:
        stream: the stream to judge.
        fragments: destination partition -> its `PartitionChecker.fragment`.
        lane: what the ledger or the logs recorded of the stream; None: nothing.
        claimed: the seqs ever claimed lost. Seen ones are late. Missing ones stay lost, unless they
            are in `seen_before`, compaction explains them, or ids of the stream were given up.
        seen_before: the seqs that lost states had seen; None: no state was lost, and no topic was
            recreated before its consumers began. Missing seqs in it count as delivered. All others
            may have been there, unread.
        ledger_complete: whether every lane has a ledger record.
        policy: how `MISROUTED` is judged.
        homes: the partitions where the lane belongs, or belonged under earlier partition counts;
            empty: unknown.
        counts: the partition counts that the destination is known to have had.
        explained: which missing seqs compaction explains or may explain; None: no seq.
        stamped: whether the source's brokers stamp the records: then no timestamp is altered.
        uncommitted: whether copies may come from aborted transactions.
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
        # What single messages show does not count here.
        verdict.found.pop(Finding.MISROUTED, None)
        limit = len(counts_in_force(counts)) or 1
        verdict.add(Finding.MISROUTED, _seen_outside(fragments, _fullest(fragments, limit)))
    elif homes and (outside := _seen_outside(fragments, homes)):
        verdict.add(Finding.MISROUTED, outside - verdict.having(Finding.UNPROVEN))
    if lane is not None:
        verdict.acked, verdict.failed, verdict.unknown = lane.acked, lane.failed, lane.unknown
        verdict.delivered = lane.acked & seen
        missing = lane.acked - seen
        if seen_before and missing:
            verdict.delivered |= missing & seen_before
            missing -= seen_before
        if verdict.bounded:
            # Any of them may have been seen.
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
    """The bound below which every missing seq may be in an unread range; 0: none may.

    A partition's unread offsets put a stream in doubt if the stream was seen in the partition or
    belongs there. A stream with unknown homes may be anywhere.
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
    """Streams whose ids were given up at the memory bound: inconclusive."""
    untracked: int = 0
    """Messages of streams that were never tracked, for the same reason."""
    excused: Counter[str] = field(default_factory=Counter)
    """Finding's label -> messages whose finding the mirror might not have caused."""

    @classmethod
    def of(
        cls,
        verdicts: Iterable[StreamVerdict],
        checkers: Iterable[PartitionChecker] = (),
        others: Iterable[PartitionChecker] = (),
    ) -> RunVerdict:
        """The totals of all verdicts. Messages without a stream count under their own findings.

        `others` are the checkers of topics that are not the run's. `CORRUPTED` does not count
        there: what seems corrupted may be a foreign copy of another topic's messages.
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
        """Add a stream; return how many messages have each of its findings."""
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
    """The seqs seen, those seen in more than one partition, and how many copies these add."""
    seen, twice, surplus = IntervalSet(), IntervalSet(), 0
    if len(fragments) == 1:
        # The usual case. Callers only read the result, so it need not be a copy.
        return next(iter(fragments)).seen, twice, surplus
    for fragment in fragments:
        again = seen & fragment.seen
        surplus += again.count
        twice.update(again)
        seen.update(fragment.seen)
    return seen, twice, surplus


def _fullest(fragments: Mapping[int, Fragment], limit: int) -> Collection[int]:
    """The partitions with the most seqs of a stream, at most `limit` of them."""
    return sorted(fragments, key=lambda n: (-fragments[n].seen.count, n))[:limit]


def _seen_outside(fragments: Mapping[int, Fragment], homes: Collection[int]) -> IntervalSet:
    """The seqs seen in partitions where the stream never belonged, whatever its rows say.

    Rows have `MISROUTED` by the policy of the consumer that read them. They are more exact, since
    they use the partition counts of that time.
    """
    outside = NOTHING
    for number, fragment in fragments.items():
        if number not in homes:
            outside |= fragment.seen
    return outside


def _never_sent(
    seen: IntervalSet, lane: LaneRecord | None, *, ledger_complete: bool
) -> IntervalSet:
    if lane is None:
        return seen.copy() if ledger_complete else NOTHING
    # A failed outcome is final. While a lane is open, higher seqs may still be recorded. If a
    # successor closed it, an old record may have replaced the newest one.
    never = seen & lane.failed if lane.failed else NOTHING
    if lane.end is None or lane.closed_at is not None or seen.end <= lane.end:
        return never
    return never | seen.within(lane.end, seen.end)
