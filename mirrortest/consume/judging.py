"""Judging rounds: once a second the ledger is held against all that any consumer has seen.

A round that finds acknowledged numbers missing past their deadline asks for the end offset of
every partition of the topic. Only when all of them have been read past those ends are the numbers
claimed lost: what is missing then was not there when we looked after the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mirrortest.check.intervals import IntervalSet
from mirrortest.check.judge import StreamVerdict, doubtful, judge, superseded
from mirrortest.check.routing import ExpectPartition, expected_partition
from mirrortest.wire.lanes import lane_key, partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.check.deadline import Deadlines
    from mirrortest.check.fragment import Fragment
    from mirrortest.check.ledger import Ledger
    from mirrortest.check.ledger_record import LaneRecord
    from mirrortest.check.partition import PartitionChecker
    from mirrortest.wire.stream import StreamId

Checkers: TypeAlias = "Mapping[int, PartitionChecker]"
"""The union's view of one topic: destination partition -> its newest checker."""


@dataclass
class _Hearing:
    """Numbers past their deadline, and the ends that must be read before they are claimed."""

    ends: Mapping[int, int]
    expired: dict[StreamId, IntervalSet]


@dataclass
class TopicJudge:
    """Judges the streams of one source topic, over all partitions of its copy."""

    source: str
    run: str
    policy: ExpectPartition
    deadlines: Deadlines
    destination_partitions: int = 0
    """0 while the topic is not there."""
    compact: bool = False
    """Whether the destination compacts the topic: a later message of a key explains a gap."""
    claimed: dict[StreamId, IntervalSet] = field(default_factory=dict)
    """What was claimed lost, ever; what of it was seen later is `late`."""
    _hearing: _Hearing | None = None
    _unvouched: dict[StreamId, int] = field(default_factory=dict)
    """Streams seen that the ledger did not know, and when that was first found."""

    def note(self, ledger: Ledger, elapsed_ns: int) -> None:
        """Start the clock for what the ledger newly vouches for."""
        for stream, lane in self._lanes(ledger).items():
            self.deadlines.note(stream, lane.acked, elapsed_ns)

    def merge_claims(self, claims: Mapping[StreamId, IntervalSet]) -> None:
        """Take over what another consumer, or an earlier one, has claimed."""
        for stream, numbers in claims.items():
            self.claimed[stream] = self.claimed.get(stream, IntervalSet()) | numbers

    def overdue(self, ledger: Ledger, checkers: Checkers, elapsed_ns: int) -> bool:
        """Whether numbers are past their deadline, unseen, unclaimed, and not being heard."""
        return self._hearing is None and bool(self._overdue(ledger, checkers, elapsed_ns))

    def hear(
        self, ledger: Ledger, checkers: Checkers, ends: Mapping[int, int], elapsed_ns: int
    ) -> None:
        """Open a hearing on all that is overdue now; `ends` were asked for after it was."""
        self._hearing = _Hearing(ends, self._overdue(ledger, checkers, elapsed_ns))

    def adjourn(self, ends: Mapping[int, int]) -> None:
        """Drop the hearing where an end lies lower now, or is not told: it may never be reached.

        So it is where a topic was deleted, whether or not it was made again.
        """
        hearing = self._hearing
        if hearing and any(ends.get(number, 0) < end for number, end in hearing.ends.items()):
            self._hearing = None

    def decide(self, ledger: Ledger, checkers: Checkers) -> dict[StreamId, IntervalSet]:
        """Close the hearing once the ends are read; the numbers newly claimed lost."""
        hearing = self._hearing
        if hearing is None or not read_past(checkers, hearing.ends):
            return {}
        self._hearing = None
        news: dict[StreamId, IntervalSet] = {}
        for stream, expired in hearing.expired.items():
            missing = self._missing(stream, expired, checkers, ledger.lanes.get(stream))
            if missing:
                news[stream] = missing
        self.merge_claims(news)
        return news

    def verdicts(
        self, ledger: Ledger, checkers: Checkers, *, closed: bool
    ) -> dict[StreamId, StreamVerdict]:
        """The verdict on every stream of the run as of now.

        `closed`: all producers have ended and what they sent has been judged.
        """
        lanes = self._lanes(ledger)
        streams = set(lanes)
        for checker in checkers.values():
            streams.update(s for s in checker.fragments if s.run == self.run)
        return {
            stream: judge(
                stream,
                _fragments(stream, checkers),
                lanes.get(stream),
                claimed=self.claimed.get(stream),
                ledger_complete=closed,
                policy=self.policy,
                home=self._home(lanes.get(stream)),
                compact=self.compact,
                superseded=self._superseded(stream, checkers, lanes.get(stream)),
            )
            for stream in sorted(streams)
        }

    def awaits_ledger(self, ledger: Ledger, checkers: Checkers, elapsed_ns: int) -> bool:
        """Whether streams were seen, for less than a deadline, of which the ledger does not know.

        Copies of a topic may run ahead of the ledger's copy. What a producer vouches for too late
        must not be told a phantom meanwhile.
        """
        lanes = self._lanes(ledger)
        unknown = {
            stream
            for checker in checkers.values()
            for stream in checker.fragments
            if stream.run == self.run and stream not in lanes
        }
        self._unvouched = {s: self._unvouched.get(s, elapsed_ns) for s in unknown}
        grace = self.deadlines.deadline_ns
        return any(elapsed_ns - since < grace for since in self._unvouched.values())

    def judged(self, ledger: Ledger, checkers: Checkers) -> bool:
        """Whether every acknowledged number was seen or claimed, or may stand where nobody read."""
        return not any(
            self._missing(stream, lane.acked, checkers, lane)
            for stream, lane in self._lanes(ledger).items()
        )

    def _overdue(
        self, ledger: Ledger, checkers: Checkers, elapsed_ns: int
    ) -> dict[StreamId, IntervalSet]:
        found: dict[StreamId, IntervalSet] = {}
        for stream, lane in self._lanes(ledger).items():
            expired = self.deadlines.expired(stream, elapsed_ns)
            missing = self._missing(stream, expired, checkers, lane)
            if missing:
                found[stream] = missing
        return found

    def _missing(
        self,
        stream: StreamId,
        numbers: IntervalSet,
        checkers: Checkers,
        lane: LaneRecord | None,
    ) -> IntervalSet:
        """Those numbers that were neither seen nor claimed, and would have been seen if there.

        What compaction explains may have been there once.
        """
        missing = numbers - self.claimed.get(stream, IntervalSet())
        fragments = _fragments(stream, checkers)
        seen_end = 0
        for fragment in fragments.values():
            missing -= fragment.seen
            seen_end = max(seen_end, fragment.seen.end)
        if self.compact and missing:
            bound = missing.end if superseded(stream, checkers) else seen_end
            missing -= missing.below(bound)
        return missing - doubtful(fragments, missing.end, home=self._home(lane))

    def _superseded(self, stream: StreamId, checkers: Checkers, lane: LaneRecord | None) -> bool:
        """Whether compaction may explain a missing tail; looked into where there is one."""
        if not self.compact or lane is None:
            return False
        missing = lane.acked.copy()
        for fragment in _fragments(stream, checkers).values():
            missing -= fragment.seen
        return bool(missing) and superseded(stream, checkers)

    def _home(self, lane: LaneRecord | None) -> int | None:
        """The destination partition to which a lane belongs, where that is known."""
        if lane is None or not lane.source_partitions:
            return None
        source = partition_of(lane_key(lane.stream.lane), lane.source_partitions)
        return expected_partition(
            self.policy, lane.stream.lane, source, self.destination_partitions
        )

    def _lanes(self, ledger: Ledger) -> dict[StreamId, LaneRecord]:
        return {
            stream: lane
            for stream, lane in ledger.lanes.items()
            if stream.topic == self.source and stream.run == self.run
        }


def read_past(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether every partition has been read up to these ends; an empty one needs no reader."""
    return all(
        end == 0 or (number in checkers and checkers[number].next_offset >= end)
        for number, end in ends.items()
    )


def all_told(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether the end of every partition that was ever read is told, and is the end of what was.

    A broker that just started, or a topic that was deleted, tells of none; one that was made again
    tells of ends before what was read, until its reader has noticed. That proves nothing.
    """
    return checkers.keys() <= ends.keys() and not gone_back(checkers, ends)


def gone_back(checkers: Checkers, ends: Mapping[int, int]) -> list[int]:
    """The partitions that end before what was read of them."""
    return sorted(
        number
        for number, checker in checkers.items()
        if ends.get(number, checker.next_offset) < checker.next_offset
    )


def _fragments(stream: StreamId, checkers: Checkers) -> dict[int, Fragment]:
    found = {number: checker.fragment(stream) for number, checker in checkers.items()}
    return {number: fragment for number, fragment in found.items() if fragment is not None}
