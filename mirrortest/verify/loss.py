"""When a missing message is claimed lost: the specification and its implementation.

To one consumer, each acknowledged seq of a stream is in one of these states:

| state | entered when |
|---|---|
| noted | the consumer finds its acknowledgement in the ledger (`note`); the deadline starts |
| expired | the deadline has passed since then; detected never early, at most 1/64 of it late |
| overdue | a judging round finds it expired, neither seen nor claimed, without another finding |
| pending | it is overdue, and the end offsets were requested after it had expired (`open`) |
| claimed | every partition has been read up to these ends, and it is still missing (`settle`) |

Deadlines run by the monotonic clock. A message that is seen before its seq is claimed is delivered,
in whichever state the seq is. A message that is seen after the claim is `late`. A claim is never
withdrawn, and other consumers' claims count like our own (`merge`).

A seq must not be claimed if one of these applies:

- Compaction explains, or may explain, why it is missing.
- It may be in an unread range.
- It may have been in an earlier topic of this name that no current state of a partition covers.
- Its stream's ids were given up at the memory bound.

`verify.judge` gives it a finding other than `in_flight`. Only seqs in flight become overdue or
claimed.

Why a claim is true: a judging round takes these steps in this order.

1. It reads the monotonic clock. A seq that has expired by this reading had its full deadline.
2. It merges the shared claims, and notes the ledger's acknowledgements. Those that the ledger
   receives later are noted in the next round.
3. It collects each partition's newest checker.
4. It counts the topic's partitions and requests the end offset of each. Everything that the mirror
   had written when the clock was read is below these ends.
5. It judges all streams with those checkers, and so finds the overdue seqs.
6. It cancels the pending loss if one of its ends has moved back (`cancel`). Then the topic was
   deleted, recreated or truncated, and that offset might never be reached.
7. If the ends belong to the logs that the checkers have read (`all_ends_known`), it makes the
   overdue seqs the pending loss (`open`), unless there is one already.
8. If every partition has been read up to the ends of the pending loss (`read_past`), it claims
   what is still missing (`settle`), in this round or in a later one.

At step 8, every offset that the mirror had written by step 1 has been judged or is in an unread
range. So a seq that is still missing was not in the destination at its deadline. The order matters:

- The clock is read before the partitions are counted and the ends requested. Otherwise a message
  could be written above the ends in between, and be claimed lost although it was in time.
- The checkers are collected before the ends are requested. Otherwise a checker could read on past
  its end in between, and that would look like a replaced log.

Seqs that become overdue while a loss is pending wait for the next one. So one end-offset snapshot
at a time is enough, and a claim is delayed by at most the time of reading the backlog once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mirrortest.verify.partition import PartitionChecker

Numbers: TypeAlias = dict[StreamId, IntervalSet]
Checkers: TypeAlias = "Mapping[int, PartitionChecker]"
"""One topic's: destination partition -> its newest checker."""

_STEPS = 64
"""Seqs of a stream noted within 1/64 of the deadline expire together: this bounds memory."""


@dataclass(slots=True)
class _Clocks:
    """The seqs of one stream whose deadline has started."""

    noted: IntervalSet = field(default_factory=IntervalSet)
    expired: IntervalSet = field(default_factory=IntervalSet)
    running: deque[tuple[int, IntervalSet]] = field(default_factory=deque)
    """(elapsed time when noted, rounded up; the seqs), ascending by time"""


@dataclass
class _PendingLoss:
    """Overdue seqs, and the end offsets that all partitions must be read up to before the claim."""

    ends: Mapping[int, int]
    overdue: Numbers


class Losses:
    """The losses of one topic. Times are elapsed ns, monotonic, from any origin."""

    def __init__(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self.claimed: Numbers = {}
        """All seqs ever claimed lost, by any consumer."""
        self._step = max(1, deadline_ns // _STEPS)
        self._clocks: dict[StreamId, _Clocks] = {}
        self._pending: _PendingLoss | None = None

    def note(self, stream: StreamId, acked: IntervalSet, elapsed_ns: int) -> None:
        """Start the deadline of the acknowledged seqs that were not noted before."""
        clocks = self._clocks.setdefault(stream, _Clocks())
        self._expire(clocks, elapsed_ns)
        fresh = acked - clocks.noted
        if not fresh:
            return
        clocks.noted.update(fresh)
        noted = -(-elapsed_ns // self._step) * self._step
        if clocks.running and clocks.running[-1][0] >= noted:
            clocks.running[-1][1].update(fresh)
        else:
            clocks.running.append((noted, fresh))

    def expired(self, stream: StreamId, elapsed_ns: int) -> IntervalSet:
        """The seqs noted at least a deadline ago, as the caller's own copy."""
        clocks = self._clocks.get(stream)
        if clocks is None:
            return IntervalSet()
        self._expire(clocks, elapsed_ns)
        return clocks.expired.copy()

    def all_expired(self, elapsed_ns: int) -> Iterator[tuple[StreamId, IntervalSet]]:
        """Each stream that has expired seqs, and these; the caller must not change them."""
        for stream, clocks in self._clocks.items():
            self._expire(clocks, elapsed_ns)
            if clocks.expired:
                yield stream, clocks.expired

    def open(self, overdue: Numbers, ends: Mapping[int, int]) -> None:
        """Make seqs that expired before `ends` were requested pending, unless a loss is pending."""
        if overdue and self._pending is None:
            self._pending = _PendingLoss(ends, overdue)

    def cancel(self, ends: Mapping[int, int]) -> None:
        """Drop the pending loss if one of its ends has moved back or is unknown now."""
        pending = self._pending
        if pending and any(ends.get(number, 0) < end for number, end in pending.ends.items()):
            self._pending = None

    def settle(self, in_flight: Callable[[StreamId], IntervalSet], checkers: Checkers) -> Numbers:
        """Claim what is still missing once all is read; return the newly claimed seqs.

        `in_flight` returns a stream's missing seqs, as judged with the same checkers.
        """
        pending = self._pending
        if pending is None or not read_past(checkers, pending.ends):
            return {}
        self._pending = None
        newly_claimed: Numbers = {}
        for stream, overdue in sorted(pending.overdue.items(), key=itemgetter(0)):
            # Claims of other consumers may have been merged since the stream was judged.
            missing = (overdue & in_flight(stream)) - self.claimed.get(stream, NOTHING)
            if missing:
                newly_claimed[stream] = missing
        self.merge(newly_claimed)
        return newly_claimed

    def merge(self, claims: Mapping[StreamId, IntervalSet]) -> None:
        """Add the claims of another consumer, or of an earlier one."""
        for stream, numbers in claims.items():
            self.claimed[stream] = self.claimed.get(stream, NOTHING) | numbers

    def _expire(self, clocks: _Clocks, elapsed_ns: int) -> None:
        while clocks.running and clocks.running[0][0] + self.deadline_ns <= elapsed_ns:
            clocks.expired.update(clocks.running.popleft()[1])

    def clocks_to_state(self, monotonic_ns: Callable[[], int]) -> Iterator[list[Any]]:
        """The deadlines of each stream as JSON types; times become ages.

        Streams without noted seqs are left out. The caller may note more between two streams, so
        the clock is read for each: an age must not be below zero by more than the rounding.
        """
        for stream, clocks in list(self._clocks.items()):
            if clocks.noted:
                elapsed_ns = monotonic_ns()
                running = [[elapsed_ns - noted, ids.to_list()] for noted, ids in clocks.running]
                yield [list(stream), clocks.expired.to_list(), running]

    def restore_clocks(
        self, state: Iterable[object], elapsed_ns: int, *, of_topic: str, of_run: str
    ) -> None:
        """Restore what `clocks_to_state` wrote; the time since then does not count.

        Raises:
            RecordError: the state is invalid, or of another topic or run; nothing is restored.
        """
        restored = [self._read(entry, elapsed_ns, of_topic, of_run) for entry in state]
        self._clocks.update(restored)

    def _read(
        self, entry: object, elapsed_ns: int, of_topic: str, of_run: str
    ) -> tuple[StreamId, _Clocks]:
        stream, expired, running = untrusted.listed(entry, 3)
        numbers = untrusted.intervals(expired)
        clocks = _Clocks(numbers.copy(), numbers)
        youngest = untrusted.NUMBERS_END
        for age, deltas in (untrusted.listed(noted, 2) for noted in untrusted.listed(running)):
            # Times were rounded up, by less than a step, and ascend: so ages descend.
            youngest = untrusted.number(age, -self._step, youngest)
            numbers = untrusted.intervals(deltas)
            if numbers & clocks.noted:
                raise RecordError("a number that was noted twice")
            clocks.noted.update(numbers)
            clocks.running.append((elapsed_ns - age, numbers))
        return untrusted.stream(stream, of_topic=of_topic, of_run=of_run), clocks


def read_past(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether every partition has been read up to these ends; empty ones need no reader."""
    return all(
        end == 0 or (number in checkers and checkers[number].next_offset >= end)
        for number, end in ends.items()
    )


def all_ends_known(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether `ends` has every partition that was ever read, and none ends below what was read.

    Other ends prove nothing. A broker that has just started, or a deleted topic, has no ends. A
    recreated topic ends below what was read, until its reader has noticed.
    """
    return checkers.keys() <= ends.keys() and not ended_earlier(checkers, ends)


def ended_earlier(checkers: Checkers, ends: Mapping[int, int]) -> list[int]:
    """The partitions that end below what was read of them."""
    return sorted(
        number
        for number, checker in checkers.items()
        if ends.get(number, checker.next_offset) < checker.next_offset
    )
