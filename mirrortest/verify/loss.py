"""When a missing message is claimed lost: the specification, and the object that carries it out.

Each acknowledged number of a stream is in one of these states, as one consumer sees it:

| state | entered when |
|---|---|
| noted | the ledger has its acknowledgement (`note`): its monotonic clock starts |
| expired | the deadline has passed since then; found never early, at most a 64th late |
| overdue | a round finds it expired, neither seen nor claimed, and explained by nothing else |
| pending | it was overdue, and the ends of all partitions were asked for after that (`open`) |
| claimed | every partition has been read up to these ends, and it is still missing (`settle`) |

Seen at any time before, it is delivered, and its state no longer matters. Seen after it was
claimed, it is `late`. A claim is never taken back; claims of other consumers are as good as our own
(`merge`).

What may not be claimed: a number that compaction explains, or that may be in a range that no
consumer read, or in a topic that no present state of its partitions has read, or whose stream is
past the memory bound. `judge` gives these other findings, so that they are not in flight, and only
what is in flight becomes overdue or claimed.

Why a claim is true. A round does these in order:

1. It reads the monotonic clock. What is expired then had its whole deadline.
2. It takes over the shared claims, and notes what the ledger has. What the ledger brings later
   is noted in the next round.
3. It collects each partition's newest checker.
4. It counts the topic's partitions, and asks for the end of each. Whatever the mirror had written
   when the clock was read is below these ends.
5. It judges all streams by those checkers, which gives the overdue numbers.
6. It cancels a pending loss one of whose ends has moved back (`cancel`): its topic was deleted,
   created again or cut back, and that offset may never be reached.
7. If the ends are of the logs that the checkers read (`all_ends_known`), it opens a pending loss on
   what is overdue, unless one is open.
8. If all partitions have been read up to the ends of the pending loss (`read_past`), it settles it.

So between 1 and 8 every offset that the mirror had filled by the deadline has been judged or is in
an unread range. A number that is missing then was not in the destination at its deadline. If the
ends were asked for, or the partitions counted, before the clock was read, a message could be
written between the two, above the ends, and be claimed although it was in time. If the checkers
were collected after the ends, one could be ahead of its end because it read on, and that would look
like a replaced log.

While a loss is pending, what becomes overdue waits for the next one: one snapshot of ends is enough
at any time, and a claim comes at most one reading of the backlog later.
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
"""Of one topic: destination partition -> its newest checker."""

_STEPS = 64
"""Numbers of one stream noted within a 64th of the deadline wait as one: memory stays bounded."""


@dataclass(slots=True)
class _Clocks:
    """The numbers of one stream whose clock has started."""

    noted: IntervalSet = field(default_factory=IntervalSet)
    expired: IntervalSet = field(default_factory=IntervalSet)
    running: deque[tuple[int, IntervalSet]] = field(default_factory=deque)
    """(elapsed time at which they were noted, rounded up; the numbers)"""


@dataclass
class _PendingLoss:
    """Overdue numbers, and the ends up to which all partitions are read before the claim."""

    ends: Mapping[int, int]
    overdue: Numbers


class Losses:
    """The losses of one topic. Times are elapsed ns, monotonic, from any origin."""

    def __init__(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self.claimed: Numbers = {}
        """What was claimed lost, ever, by any consumer."""
        self._step = max(1, deadline_ns // _STEPS)
        self._clocks: dict[StreamId, _Clocks] = {}
        self._pending: _PendingLoss | None = None

    def note(self, stream: StreamId, acked: IntervalSet, elapsed_ns: int) -> None:
        """Start the clock of those numbers that were not noted before."""
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
        """The numbers noted at least a deadline ago; the caller's own copy."""
        clocks = self._clocks.get(stream)
        if clocks is None:
            return IntervalSet()
        self._expire(clocks, elapsed_ns)
        return clocks.expired.copy()

    def all_expired(self, elapsed_ns: int) -> Iterator[tuple[StreamId, IntervalSet]]:
        """Each stream that has expired numbers, with these; they are to be read, not changed."""
        for stream, clocks in self._clocks.items():
            self._expire(clocks, elapsed_ns)
            if clocks.expired:
                yield stream, clocks.expired

    def open(self, overdue: Numbers, ends: Mapping[int, int]) -> None:
        """Let what was overdue before `ends` were asked for be pending, unless a loss is."""
        if overdue and self._pending is None:
            self._pending = _PendingLoss(ends, overdue)

    def cancel(self, ends: Mapping[int, int]) -> None:
        """Drop the pending loss if one of its ends has moved back, or is not known now."""
        pending = self._pending
        if pending and any(ends.get(number, 0) < end for number, end in pending.ends.items()):
            self._pending = None

    def settle(self, in_flight: Callable[[StreamId], IntervalSet], checkers: Checkers) -> Numbers:
        """Claim what is still missing once all is read; the numbers newly claimed.

        `in_flight`: a stream's missing numbers, of the same checkers.
        """
        pending = self._pending
        if pending is None or not read_past(checkers, pending.ends):
            return {}
        self._pending = None
        news: Numbers = {}
        for stream, overdue in sorted(pending.overdue.items(), key=itemgetter(0)):
            # Others' claims may have come since it was judged.
            missing = (overdue & in_flight(stream)) - self.claimed.get(stream, NOTHING)
            if missing:
                news[stream] = missing
        self.merge(news)
        return news

    def merge(self, claims: Mapping[StreamId, IntervalSet]) -> None:
        """Take over what another consumer, or an earlier one, has claimed."""
        for stream, numbers in claims.items():
            self.claimed[stream] = self.claimed.get(stream, NOTHING) | numbers

    def _expire(self, clocks: _Clocks, elapsed_ns: int) -> None:
        while clocks.running and clocks.running[0][0] + self.deadline_ns <= elapsed_ns:
            clocks.expired.update(clocks.running.popleft()[1])

    def clocks_to_state(self, elapsed_ns: int) -> Iterator[list[Any]]:
        """The clocks stream by stream, of JSON's types; times become ages.

        Streams without a number are left out; between two of them more may be noted.
        """
        for stream, clocks in list(self._clocks.items()):
            if clocks.noted:
                running = [[elapsed_ns - noted, ids.to_list()] for noted, ids in clocks.running]
                yield [list(stream), clocks.expired.to_list(), running]

    def restore_clocks(
        self, state: Iterable[object], elapsed_ns: int, *, of_topic: str, of_run: str
    ) -> None:
        """Take over what `clocks_to_state` wrote; the time between counts for nothing.

        Raises:
            RecordError: it is no such state, or of another topic or run; nothing is taken over.
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
            # Noting times are rounded up, and ascend.
            youngest = untrusted.number(age, -self._step, youngest)
            numbers = untrusted.intervals(deltas)
            if numbers & clocks.noted:
                raise RecordError("a number that was noted twice")
            clocks.noted.update(numbers)
            clocks.running.append((elapsed_ns - age, numbers))
        return untrusted.stream(stream, of_topic=of_topic, of_run=of_run), clocks


def read_past(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether every partition has been read up to these ends; an empty one needs no reader."""
    return all(
        end == 0 or (number in checkers and checkers[number].next_offset >= end)
        for number, end in ends.items()
    )


def all_ends_known(checkers: Checkers, ends: Mapping[int, int]) -> bool:
    """Whether `ends` has every partition that was ever read, and none ends before what was read.

    A broker that just started, or a topic that was deleted, has no ends; one that was created again
    has ends before what was read, until its reader has noticed. That proves nothing.
    """
    return checkers.keys() <= ends.keys() and not ended_earlier(checkers, ends)


def ended_earlier(checkers: Checkers, ends: Mapping[int, int]) -> list[int]:
    """The partitions that end before what was read of them."""
    return sorted(
        number
        for number, checker in checkers.items()
        if ends.get(number, checker.next_offset) < checker.next_offset
    )
