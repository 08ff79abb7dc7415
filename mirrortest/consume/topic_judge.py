"""One topic in a judging round: the ledger compared with what all consumers have seen.

`verify.loss` specifies when a missing message is claimed lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.compaction import (
    Explained,
    Missing,
    explained,
    partitions_of,
    removed_from_source,
)
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
    """The destination's partition counts so far: the list of `JudgedTopics.in_force`."""
    compact: bool = False
    """Whether any consumer ever saw that the destination compacts the topic. If not, the cause of
    holes in its offsets is unknown."""
    first_id: str | None = None
    """Kafka's id of the topic that this consumer first saw under this name."""
    closing: ClosingSnapshot | None = None
    """Up to where all consumers together read before the run is over."""
    topic_ids: set[str] = field(default_factory=set)
    """Kafka's ids of the topics of this name that consumers of the run have read, or saw first."""
    stamped_at_source: bool = False
    """Whether the source's brokers stamp the topic's records, by the ledger."""
    uncommitted: bool = False
    """Whether any consumer read messages that may be from aborted transactions."""
    lost_states: list[PartitionChecker] | None = None
    """The checkers of states that no present state continues; None if no state was lost, and the
    present states cover all topics of this name."""
    _planned: set[int] = field(default_factory=set)
    """The partition counts that producers planned for."""
    _unrecorded_since: dict[StreamId, int] = field(default_factory=dict)
    """Stream that was seen and is not in the ledger -> when that was first found, monotonic ns."""
    _cached: dict[StreamId, tuple[tuple[object, ...], StreamVerdict]] = field(default_factory=dict)
    """The last verdict on each stream, with the inputs that it depends on."""

    def note(self, lane: LaneRecord, elapsed_ns: int) -> None:
        """Start the deadline of seqs that the ledger newly records as acknowledged.

        Also notes the destination's partition count for which the producer planned its lanes: the
        destination may have had it.
        """
        if lane.destination_partitions:
            self._planned.add(lane.destination_partitions)
        self.stamped_at_source |= lane.stamped
        self.losses.note(lane.stream, lane.acked, elapsed_ns)

    def first_topic_id(self, topic_id: str | None) -> str | None:
        """Kafka's id of the topic that was seen first under this name; `topic_id` if none was."""
        self.first_id = self.first_id or topic_id
        self.topic_ids |= {self.first_id} if self.first_id else set()
        return self.first_id

    def close(self, closing: ClosingSnapshot) -> None:
        """Join a closing snapshot, ours or another consumer's, with the present one."""
        self.closing = closing.joined(self.closing)

    def claim_losses(self, topic_round: TopicRound, checkers: Checkers) -> Numbers:
        """Claim what `losses` allows, and judge those streams again; the newly claimed seqs."""
        new_claims = self.losses.settle(topic_round.in_flight, checkers)
        topic_round.judge_again(new_claims)
        return new_claims

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

        `ledger_complete`: its producer has no lane that is not in the ledger. `explained`: what
        compaction explains of the missing messages, including the source's if `source_compacted`.
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
        cached = self._cached.get(stream)
        # Most streams are of producers that have ended. A verdict with `explained` is not cached,
        # because it depends on other streams, too.
        if cached is not None and cached[0] == rests_on and not explained:
            return cached[1]
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
            self._cached.pop(stream, None)
        else:
            self._cached[stream] = rests_on, verdict
        return verdict

    def _seen_before(self, stream: StreamId) -> IntervalSet | None:
        """The seqs of a stream that lost states had seen; None if no state was lost."""
        if self.lost_states is None:
            return None
        seen = IntervalSet()
        for checker in self.lost_states:
            if stream in checker.fragments:
                seen.update(checker.fragments[stream].seen)
        return seen

    def awaits_ledger(self, topic_round: TopicRound, elapsed_ns: int) -> bool:
        """Whether some streams are not in the ledger, and were first seen less than a deadline ago.

        The copy of a topic may be ahead of the ledger's copy. Until the ledger's records arrive,
        the messages must not be called phantoms.
        """
        self._unrecorded_since = {
            s: self._unrecorded_since.get(s, elapsed_ns) for s in topic_round.unrecorded
        }
        grace = self.losses.deadline_ns
        return any(elapsed_ns - since < grace for since in self._unrecorded_since.values())

    def missing(
        self, stream: StreamId, lane: LaneRecord, index: FragmentIndex, elapsed_ns: int
    ) -> Missing:
        """The missing seqs of a stream, for `verify.compaction`."""
        fragments, seen_before = index.fragments(stream), self._seen_before(stream)
        numbers = lane.acked - (seen_before or NOTHING)
        for fragment in fragments.values():
            numbers -= fragment.seen
        homes = self.homes(lane)
        if any(fragment.inconclusive for fragment in fragments.values()):
            return Missing(NOTHING, NOTHING, homes)  # which seqs are missing is unknown
        if not numbers:
            return Missing(numbers, numbers, homes)
        below = ALWAYS if seen_before is not None else doubtful_below(fragments, homes=homes)
        due = numbers.below(below) | numbers & self.losses.expired(stream, elapsed_ns)
        return Missing(numbers, due | numbers & self.losses.claimed.get(stream, NOTHING), homes)

    def homes(self, lane: LaneRecord | None) -> frozenset[int]:
        """The destination partitions where a lane belongs, or belonged; empty if unknown."""
        if lane is None or not lane.source_partitions:
            return frozenset()
        source = partition_of(lane_key(lane.stream.lane), lane.source_partitions)
        return homes_of(self.policy, lane.stream.lane, source, self._possible_counts(lane))

    def _possible_counts(self, lane: LaneRecord | None) -> set[int]:
        """The partition counts that the destination had, or for which a producer planned."""
        planned = lane.destination_partitions if lane else 0
        return {*self.counts, *self._planned, planned}

    def lanes(self, ledger: Ledger) -> dict[StreamId, LaneRecord]:
        """The ledger's records of the topic's lanes."""
        return {
            stream: lane
            for stream, lane in ledger.lanes_of(self.run).items()
            if stream.topic == self.source
        }


class TopicRound:
    """One topic in a round: the verdict on each of its streams, once all `steps` were taken.

    It judges by the ledger as of its creation, and by checkers that must not change meanwhile.
    `closed`: the ledger is complete, so that messages of streams that it lacks can be phantoms.
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
        """The seqs in flight whose deadline had passed at `elapsed_ns`."""
        self.unrecorded: list[StreamId] = []
        """Streams that were seen and are not in the ledger."""
        self._judge = judge
        self._lanes = judge.lanes(ledger)
        self._checkers = checkers
        self._elapsed_ns = elapsed_ns
        claims = ledger.registrations(judge.run) if closed else ()
        # Nothing is proven of producers without a registration that names this topic. The ledger's
        # copy may have expired the records of producers that have ended. And messages in a topic
        # that the registration does not name are from another producer with the same id.
        self._closed = {
            (claim.producer, claim.incarnation) for claim in claims if judge.source in claim.lanes
        }
        """(producer, incarnation) of which the ledger has all lanes in this topic."""
        self._index = FragmentIndex()
        self._explained: dict[StreamId, Explained] = {}
        """Stream -> what compaction explains of it, if anything is missing."""

    def steps(self) -> Iterator[None]:
        """Judge stream by stream, in small steps: the caller may yield to other tasks between."""
        for number, checker in self._checkers.items():
            self._index.add(number, checker)
            yield
        if self._source_compacted or any(checker.holes for checker in self._checkers.values()):
            yield from self._explain()
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
        """Take all steps; returns itself."""
        for _ in self.steps():
            pass
        return self

    def in_flight(self, stream: StreamId) -> IntervalSet:
        """The acknowledged seqs that are in flight: not seen, not claimed, and not explained.

        Seqs that may be in an unread range, or that compaction explains, are not in flight.
        """
        verdict = self.verdicts.get(stream)
        return IntervalSet() if verdict is None else verdict.having(Finding.IN_FLIGHT)

    def messages(self, stream: StreamId) -> int:
        """How many messages of a stream were seen, copies included."""
        return sum(fragment.messages for fragment in self._index.fragments(stream).values())

    def partitions(self, stream: StreamId) -> frozenset[int]:
        """The partitions where a stream belongs; if that is unknown, where it was seen."""
        homes = self._judge.homes(self._lanes.get(stream))
        return homes or frozenset(self._index.fragments(stream))

    def judge_again(self, streams: Iterable[StreamId]) -> None:
        """Judge streams again after their losses were claimed."""
        for stream in streams:
            self._judge_stream(stream)
            self.overdue.pop(stream, None)

    @property
    def judged(self) -> bool:
        """Whether no acknowledged seq is in flight any more."""
        return not any(verdict.having(Finding.IN_FLIGHT) for verdict in self.verdicts.values())

    @property
    def ledger_size(self) -> LedgerSize:
        """How much the ledger records of the topic."""
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
        """What compaction explains of a stream; None: nothing."""
        found = self._explained.get(stream)
        return found if found and (found.removed or found.doubtful) else None

    @cached_property
    def _source_compacted(self) -> bool:
        """Whether any producer saw the source compact the topic; one that ended before did not."""
        return any(lane.compacted for lane in self._lanes.values())

    def _explain(self) -> Iterator[None]:
        """Compute what compaction explains, in small steps: all streams compete for its holes."""
        missing: dict[StreamId, Missing] = {}
        by_partition: dict[int, dict[StreamId, Missing]] = {
            number: {} for number, checker in self._checkers.items() if checker.holes
        }
        for stream, lane in self._lanes.items():
            its = self._judge.missing(stream, lane, self._index, self._elapsed_ns)
            if its.numbers:
                missing[stream] = its
                for number in partitions_of(stream, its.homes, self._index):
                    if number in by_partition:
                        by_partition[number][stream] = its
            yield
        for number, here in by_partition.items():
            explanations = yield from explained(number, here, self._index)
            for stream, found in explanations.items():
                self._explained[stream] = self._explained.get(stream, Explained()) | found
        for stream, its in missing.items() if self._source_compacted else ():
            bound = removed_from_source(stream, its.homes, self._index)
            found = Explained(its.numbers.below(bound))
            self._explained[stream] = self._explained.get(stream, Explained()) | found
            yield
