"""One topic in a judging round: the ledger compared with all that any consumer has seen.

When a missing message is claimed lost is specified in `verify.loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.fragment_index import FragmentIndex
from mirrortest.verify.judge import StreamVerdict, judge
from mirrortest.verify.placement import ExpectPartition, homes_of
from mirrortest.wire.lanes import lane_key, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
    """Whether the destination compacts the topic: a later message of a key explains a gap."""
    policy_hidden: bool = False
    """Whether that cannot be seen: what compaction would explain, if it is, is not known."""
    first_id: str | None = None
    """Kafka's id of the topic that this consumer first saw under this name."""
    closing: ClosingSnapshot | None = None
    """Up to where all consumers together read before the run is over."""
    topic_ids: set[str] = field(default_factory=set)
    """Kafka's ids of the topics of this name that consumers of the run have read, or saw first."""
    stamped_at_source: bool = False
    """Whether the source's brokers stamp the topic's records, as producers recorded."""
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
    ) -> StreamVerdict:
        """The verdict on a stream as of now.

        `ledger_complete`: a lane of its producer that the ledger does not know cannot exist.
        """
        fragments, claimed = index.fragments(stream), self.losses.claimed.get(stream)
        seen_before = self._seen_before(stream)
        rests_on = (
            lane,
            claimed,
            seen_before,
            ledger_complete,
            self.stamped_at_source,
            *self.counts,
            *sorted(self._planned),
            [(number, fragment, fragment.mark) for number, fragment in fragments.items()],
        )
        known = self._known.get(stream)
        # Most streams are those of producers that have ended. Under compaction others count, too.
        if known is not None and known[0] == rests_on and not self._compacted(lane):
            return known[1]
        homes = self.homes(lane)
        verdict = judge(
            stream,
            fragments,
            lane,
            claimed=claimed,
            seen_before=seen_before,
            ledger_complete=ledger_complete,
            policy=self.policy,
            homes=homes,
            counts=self._possible_counts(lane),
            explained_below=self._explained_below(stream, lane, index, homes),
            stamped=self.stamped_at_source,
        )
        if not (self.compact or (lane and lane.compacted)):
            verdict.add(Finding.INCONCLUSIVE, verdict.found.pop(Finding.COMPACTED, NOTHING))
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

    @property
    def _may_compact(self) -> bool:
        return self.compact or self.policy_hidden

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

    def _compacted(self, lane: LaneRecord | None) -> bool:
        """Whether compaction, of the destination or of the source, may explain a gap."""
        return lane is not None and (self._may_compact or lane.compacted)

    def _explained_below(
        self,
        stream: StreamId,
        lane: LaneRecord | None,
        index: FragmentIndex,
        homes: Collection[int],
    ) -> int:
        """The bound below which compaction explains what is missing; looked into where some is."""
        if lane is None or not self._compacted(lane):
            return 0
        missing = lane.acked
        for fragment in index.fragments(stream).values():
            missing -= fragment.seen
        return index.explained_below(stream, homes, at_source=lane.compacted) if missing else 0

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
        # A ledger's copy may have forgotten producers that have ended: of those nothing is proven.
        self._closed = {(claim.producer, claim.incarnation) for claim in claims}
        """The incarnations of which everything is recorded and judged."""
        self._index = FragmentIndex()

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
        )
