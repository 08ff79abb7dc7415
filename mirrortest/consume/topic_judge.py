"""One topic in a judging round: the ledger compared with all that any consumer has seen.

When a missing message is claimed lost is specified in `verify.loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.compaction import Explained, Missing, explained, removed_from_source
from mirrortest.verify.fragment import ALWAYS
from mirrortest.verify.fragment_index import FragmentIndex
from mirrortest.verify.judge import StreamVerdict, doubtful_below, judge
from mirrortest.verify.placement import ExpectPartition, homes_of
from mirrortest.wire.lanes import lane_key, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.consume.closing import ClosingSnapshot, LedgerSize
    from mirrortest.verify.ledger import Ledger
    from mirrortest.verify.ledger_record import LaneRecord
    from mirrortest.verify.loss import Checkers, Losses, Numbers
    from mirrortest.verify.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId


@dataclass
class TopicJudge:
    """Judges the streams of one source topic, over all partitions of its copy."""

    source: str
    run: str
    policy: ExpectPartition
    losses: Losses
    counts: list[int] = field(default_factory=list)
    """Every partition count that the destination is known to have had: `JudgedTopics.in_force`."""
    compact: bool = False
    """Whether any consumer ever saw that the destination compacts the topic; else nobody knows
    what made the holes in its offsets."""
    first_id: str | None = None
    """Kafka's id of the topic that this consumer first saw under this name."""
    closing: ClosingSnapshot | None = None
    """Up to where all consumers together read before the run is over."""
    topic_ids: set[str] = field(default_factory=set)
    """Kafka's ids of the topics of this name that consumers of the run have read, or saw first."""
    stamped_at_source: bool = False
    """Whether the source's brokers stamp the topic's records, as producers recorded."""
    uncommitted: bool = False
    """Whether any consumer read messages that may be of aborted transactions."""
    lost_states: list[PartitionChecker] | None = None
    """States that no present one continues; None where present states know of all these topics."""
    _planned: set[int] = field(default_factory=set)
    """The partition counts that producers planned for."""
    _unrecorded_since: dict[StreamId, int] = field(default_factory=dict)
    """Streams seen that the ledger did not know, and when that was first found."""
    _known: dict[StreamId, tuple[tuple[object, ...], StreamVerdict]] = field(default_factory=dict)
    """The last verdict on each stream, and what it rests on."""

    def note(self, lane: LaneRecord, elapsed_ns: int) -> None:
        """Start the clock for what the ledger newly vouches for.

        The destination may have had the partitions for which its producer planned its lanes.
        """
        if lane.destination_partitions:
            self._planned.add(lane.destination_partitions)
        self.stamped_at_source |= lane.stamped
        self.losses.note(lane.stream, lane.acked, elapsed_ns)

    def first_topic_id(self, topic_id: str | None) -> str | None:
        """Kafka's id of the topic that was seen first under this name; it may be this one."""
        self.first_id = self.first_id or topic_id
        self.topic_ids |= {self.first_id} if self.first_id else set()
        return self.first_id

    def close(self, closing: ClosingSnapshot) -> None:
        """Take in where the topic ended when all was judged, be it that another saw it."""
        self.closing = closing.joined(self.closing)

    def claim_losses(self, topic_round: TopicRound, checkers: Checkers) -> Numbers:
        """Claim what `losses` allows, and judge its streams again; the numbers newly claimed."""
        news = self.losses.settle(topic_round.in_flight, checkers)
        topic_round.judge_again(news)
        return news

    def verdict(
        self,
        stream: StreamId,
        lane: LaneRecord | None,
        index: FragmentIndex,
        *,
        ledger_complete: bool,
        explained: Explained | None = None,
        source_compacted: bool = False,
    ) -> StreamVerdict:
        """The verdict on a stream as of now.

        `ledger_complete`: a lane of its producer that the ledger does not know cannot exist;
        `explained` is what compaction explains of it, in the source, too, if that is compacted.
        """
        fragments, claimed = index.fragments(stream), self.losses.claimed.get(stream)
        seen_before = self._seen_before(stream)
        rests_on = (
            lane,
            claimed,
            seen_before,
            ledger_complete,
            self.stamped_at_source,
            self.uncommitted,
            *self.counts,
            *sorted(self._planned),
            [(number, fragment, fragment.mark) for number, fragment in fragments.items()],
        )
        known = self._known.get(stream)
        # Most streams are those of producers that have ended. Under compaction others count, too.
        if known is not None and known[0] == rests_on and not explained:
            return known[1]
        verdict = judge(
            stream,
            fragments,
            lane,
            claimed=claimed,
            seen_before=seen_before,
            ledger_complete=ledger_complete,
            policy=self.policy,
            homes=self.homes(lane),
            counts=self._possible_counts(lane),
            explained=explained,
            stamped=self.stamped_at_source,
            uncommitted=self.uncommitted,
        )
        if not (self.compact or source_compacted):
            verdict.add(Finding.INCONCLUSIVE, verdict.found.pop(Finding.COMPACTED, NOTHING))
        if explained:
            self._known.pop(stream, None)  # it rests on other streams, too
        else:
            self._known[stream] = rests_on, verdict
        return verdict

    def _seen_before(self, stream: StreamId) -> IntervalSet | None:
        """What lost states had seen of a stream; None: all that was there is in present ones."""
        if self.lost_states is None:
            return None
        seen = IntervalSet()
        for checker in self.lost_states:
            if stream in checker.fragments:
                seen.update(checker.fragments[stream].seen)
        return seen

    def awaits_ledger(self, topic_round: TopicRound, elapsed_ns: int) -> bool:
        """Whether streams were seen, for less than a deadline, of which the ledger does not know.

        Copies of a topic may run ahead of the ledger's copy. What a producer vouches for too late
        must not be called a phantom meanwhile.
        """
        self._unrecorded_since = {
            s: self._unrecorded_since.get(s, elapsed_ns) for s in topic_round.unrecorded
        }
        grace = self.losses.deadline_ns
        return any(elapsed_ns - since < grace for since in self._unrecorded_since.values())

    def missing(
        self, stream: StreamId, lane: LaneRecord, index: FragmentIndex, elapsed_ns: int
    ) -> Missing:
        """What is missing of a stream, for `verify.compaction`."""
        fragments, seen_before = index.fragments(stream), self._seen_before(stream)
        numbers = lane.acked - (seen_before or NOTHING)
        for fragment in fragments.values():
            numbers -= fragment.seen
        homes = self.homes(lane)
        if not numbers:
            return Missing(numbers, numbers, homes)
        below = ALWAYS if seen_before is not None else doubtful_below(fragments, homes=homes)
        due = numbers.below(below) | numbers & self.losses.expired(stream, elapsed_ns)
        return Missing(numbers, due | numbers & self.losses.claimed.get(stream, NOTHING), homes)

    def homes(self, lane: LaneRecord | None) -> frozenset[int]:
        """The destination partitions to which a lane belongs, or did; none where nobody knows."""
        if lane is None or not lane.source_partitions:
            return frozenset()
        source = partition_of(lane_key(lane.stream.lane), lane.source_partitions)
        return homes_of(self.policy, lane.stream.lane, source, self._possible_counts(lane))

    def _possible_counts(self, lane: LaneRecord | None) -> set[int]:
        """The partition counts that the destination had, or that a producer planned for."""
        planned = lane.destination_partitions if lane else 0
        return {*self.counts, *self._planned, planned}

    def lanes(self, ledger: Ledger) -> dict[StreamId, LaneRecord]:
        """What the ledger vouches for of the topic."""
        return {
            stream: lane
            for stream, lane in ledger.lanes_of(self.run).items()
            if stream.topic == self.source
        }


class TopicRound:
    """How a topic stands in a round: the verdict on each of its streams.

    Of the ledger as it is now, and of checkers that nobody changes meanwhile. Complete once all
    `steps` were taken.
    """

    def __init__(
        self,
        judge: TopicJudge,
        ledger: Ledger,
        checkers: Checkers,
        elapsed_ns: int = 0,
        *,
        closed: bool = False,
    ) -> None:
        self.verdicts: dict[StreamId, StreamVerdict] = {}
        self.overdue: dict[StreamId, IntervalSet] = {}
        """The numbers past their deadline at `elapsed_ns`, neither seen nor claimed."""
        self.unrecorded: list[StreamId] = []
        """Streams that were seen, and of which the ledger knows nothing."""
        self._judge = judge
        self._lanes = judge.lanes(ledger)
        self._checkers = checkers
        self._elapsed_ns = elapsed_ns
        claims = ledger.registrations(judge.run) if closed else ()
        # A ledger's copy may have forgotten producers that have ended, and who writes to topics
        # that its registration does not name is another one with its id: of those nothing is
        # proven.
        self._closed = {
            (claim.producer, claim.incarnation) for claim in claims if judge.source in claim.lanes
        }
        """The incarnations of which everything is recorded and judged."""
        self._index = FragmentIndex()
        self._explained: dict[StreamId, Explained] = {}
        """What compaction explains of streams, of those lanes that were asked for."""

    def steps(self) -> Iterator[None]:
        """Judge stream by stream, each a small step: who waits for the next one may rest before."""
        for number, checker in self._checkers.items():
            self._index.add(number, checker)
            yield
        run = self._judge.run
        seen = {stream for stream in self._index.streams if stream.run == run}
        self.unrecorded = [stream for stream in seen if stream not in self._lanes]
        for stream in seen | self._lanes.keys():
            self._judge_stream(stream)
            if missing := self.in_flight(stream):
                expired = missing & self._judge.losses.expired(stream, self._elapsed_ns)
                if expired:
                    self.overdue[stream] = expired
            yield

    def completed(self) -> TopicRound:
        """Itself, with all steps taken."""
        for _ in self.steps():
            pass
        return self

    def in_flight(self, stream: StreamId) -> IntervalSet:
        """The acknowledged numbers that were neither seen nor claimed, and would be if there.

        What compaction explains may have been there once.
        """
        verdict = self.verdicts.get(stream)
        return IntervalSet() if verdict is None else verdict.having(Finding.IN_FLIGHT)

    def messages(self, stream: StreamId) -> int:
        """How many messages of a stream were seen, copies included."""
        return sum(fragment.messages for fragment in self._index.fragments(stream).values())

    def partitions(self, stream: StreamId) -> frozenset[int]:
        """Where a stream belongs in the destination; where that is unknown, where it was seen."""
        homes = self._judge.homes(self._lanes.get(stream))
        return homes or frozenset(self._index.fragments(stream))

    def judge_again(self, streams: Iterable[StreamId]) -> None:
        """After claims of these."""
        for stream in streams:
            self._judge_stream(stream)
            self.overdue.pop(stream, None)

    @property
    def judged(self) -> bool:
        """Whether every acknowledged number was seen or claimed, or may stand where nobody read."""
        return not any(verdict.having(Finding.IN_FLIGHT) for verdict in self.verdicts.values())

    @property
    def ledger_size(self) -> LedgerSize:
        """How much the ledger vouches for of the topic."""
        return len(self._lanes), sum(lane.acked.count for lane in self._lanes.values())

    def _judge_stream(self, stream: StreamId) -> None:
        self.verdicts[stream] = self._judge.verdict(
            stream,
            self._lanes.get(stream),
            self._index,
            ledger_complete=(stream.producer, stream.incarnation) in self._closed,
            explained=self._explanation(stream),
            source_compacted=self._source_compacted,
        )

    def _explanation(self, stream: StreamId) -> Explained | None:
        """What compaction explains of a stream; None: nothing, or nothing of it is missing."""
        lane = self._lanes.get(stream)
        if lane is None or not (self._source_compacted or self._holed):
            return None
        if stream not in self._explained:
            self._explain(stream.lane)
        found = self._explained[stream]
        return found if found.removed or found.doubtful else None

    @cached_property
    def _holed(self) -> bool:
        return any(checker.holes for checker in self._checkers.values())

    @cached_property
    def _source_compacted(self) -> bool:
        """Whether any producer saw that: one that ended before it was so cannot say it."""
        return any(lane.compacted for lane in self._lanes.values())

    @cached_property
    def _of_lane(self) -> dict[int, list[LaneRecord]]:
        """The ledger's records of all streams of each lane."""
        found: dict[int, list[LaneRecord]] = {}
        for lane in self._lanes.values():
            found.setdefault(lane.stream.lane, []).append(lane)
        return found

    def _explain(self, number: int) -> None:
        """Find out what compaction explains of a lane's streams, which compete for its holes."""
        missing = {
            lane.stream: self._judge.missing(lane.stream, lane, self._index, self._elapsed_ns)
            for lane in self._of_lane[number]
        }
        self._explained |= explained(number, missing, self._index)
        for stream, its in missing.items():
            if self._source_compacted and its.numbers:
                bound = removed_from_source(stream, its.homes, self._index)
                found = self._explained[stream]
                removed = found.removed | its.numbers.below(bound)
                self._explained[stream] = found._replace(removed=removed)
