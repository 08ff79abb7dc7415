"""Which vouched numbers have had their time, by elapsed time alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.model.intervals import IntervalSet
from mirrortest.verify import untrusted
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.wire.stream import StreamId

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
        self._expire(waiting, elapsed_ns)
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
        self._expire(waiting, elapsed_ns)
        return waiting.expired.copy()

    def all_expired(self, elapsed_ns: int) -> Iterator[tuple[StreamId, IntervalSet]]:
        """Each stream that has expired numbers, with these; they are to be read, not changed."""
        for stream, waiting in self._waiting.items():
            self._expire(waiting, elapsed_ns)
            if waiting.expired:
                yield stream, waiting.expired

    def _expire(self, waiting: _Waiting, elapsed_ns: int) -> None:
        while waiting.pending and waiting.pending[0][0] + self.deadline_ns <= elapsed_ns:
            waiting.expired.update(waiting.pending.popleft()[1])

    def to_state(self, elapsed_ns: int) -> Iterator[list[Any]]:
        """Stream by stream, of JSON's types; times become ages.

        Streams without a number are left out; between two of them more may be noted.
        """
        for stream, waiting in list(self._waiting.items()):
            if waiting.known:
                pending = [[elapsed_ns - noted, ids.to_list()] for noted, ids in waiting.pending]
                yield [list(stream), waiting.expired.to_list(), pending]

    def restore(
        self, state: Iterable[object], elapsed_ns: int, *, of_topic: str, of_run: str
    ) -> None:
        """Take over what `to_state` wrote; the time between counts for nothing.

        Raises:
            RecordError: it is no such state, or of another topic or run; nothing is taken over.
        """
        restored = [self._read(entry, elapsed_ns, of_topic, of_run) for entry in state]
        self._waiting.update(restored)

    def _read(
        self, entry: object, elapsed_ns: int, of_topic: str, of_run: str
    ) -> tuple[StreamId, _Waiting]:
        stream, expired, pending = untrusted.listed(entry, 3)
        numbers = untrusted.intervals(expired)
        waiting = _Waiting(numbers.copy(), numbers)
        youngest = untrusted.NUMBERS_END
        for age, deltas in (untrusted.listed(noted, 2) for noted in untrusted.listed(pending)):
            # Noting times are rounded up, and ascend.
            youngest = untrusted.number(age, -self._step, youngest)
            numbers = untrusted.intervals(deltas)
            if numbers & waiting.known:
                raise RecordError("a number that was noted twice")
            waiting.known.update(numbers)
            waiting.pending.append((elapsed_ns - age, numbers))
        return untrusted.stream(stream, of_topic=of_topic, of_run=of_run), waiting
