"""Which vouched numbers have had their time, by elapsed time alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.check.intervals import IntervalSet
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEPS = 64
"""Numbers of one stream noted within a 64th of the deadline wait as one: memory stays bounded."""


@dataclass(slots=True)
class _Waiting:
    known: IntervalSet = field(default_factory=IntervalSet)
    expired: IntervalSet = field(default_factory=IntervalSet)
    pending: deque[tuple[int, IntervalSet]] = field(default_factory=deque)
    """(elapsed time at which they were noted, rounded up; the numbers)"""


class Deadlines:
    """Fed with what is vouched for and the elapsed time (ns, monotonic, from any origin).

    Noting times are rounded up by at most a 64th of the deadline: a number may expire that much
    late, never early.
    """

    def __init__(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self._step = max(1, deadline_ns // _STEPS)
        self._waiting: dict[StreamId, _Waiting] = {}

    def note(self, stream: StreamId, acked: IntervalSet, elapsed_ns: int) -> None:
        """Start the clock of those numbers that were not noted before."""
        waiting = self._waiting.setdefault(stream, _Waiting())
        fresh = acked - waiting.known
        if not fresh:
            return
        waiting.known.update(fresh)
        noted = -(-elapsed_ns // self._step) * self._step
        if waiting.pending and waiting.pending[-1][0] >= noted:
            waiting.pending[-1][1].update(fresh)
        else:
            waiting.pending.append((noted, fresh))

    def expired(self, stream: StreamId, elapsed_ns: int) -> IntervalSet:
        """The numbers noted at least a deadline ago; the caller's own copy."""
        waiting = self._waiting.get(stream)
        if waiting is None:
            return IntervalSet()
        while waiting.pending and waiting.pending[0][0] + self.deadline_ns <= elapsed_ns:
            waiting.expired.update(waiting.pending.popleft()[1])
        return waiting.expired.copy()

    def to_state(self, elapsed_ns: int) -> list[Any]:
        """All of it, of JSON's types; times become ages. Streams without a number are left out."""
        return [
            [
                list(stream),
                waiting.expired.to_list(),
                [[elapsed_ns - noted, numbers.to_list()] for noted, numbers in waiting.pending],
            ]
            for stream, waiting in self._waiting.items()
            if waiting.known
        ]

    def restore(self, state: Sequence[Any], elapsed_ns: int) -> None:
        """Take over what `to_state` wrote; the time between counts for nothing."""
        for stream, expired, pending in state:
            numbers = IntervalSet.from_list(expired)
            waiting = _Waiting(numbers.copy(), numbers)
            for age, deltas in pending:
                numbers = IntervalSet.from_list(deltas)
                waiting.known.update(numbers)
                waiting.pending.append((elapsed_ns - age, numbers))
            self._waiting[StreamId(*stream)] = waiting
