"""When bytes pass a line that delays them and lets so many pass per second; reads no clock.

Times are int nanoseconds of any clock that never steps back. No byte is altered, reordered or lost.
"""

from __future__ import annotations

from collections import deque

_SECOND = 1_000_000_000
_SLICES = 100
"""A limited line lets bytes pass in slices of a hundredth of a second."""
LATE_NS = _SECOND // _SLICES
"""How late a slice may be asked for without any of the line's rate being lost."""


class Line:
    """What all connections share in one direction; each gets its slice in turn.

    Within any time `t` at most ``rate * (t + LATE_NS)`` bytes pass, and a slice of each connection.

    Attributes:
        rate: the most bytes per second; None: no limit.
        is_cut: nothing passes.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self.is_cut = False
        self._free_ns = -(1 << 63)

    @property
    def slice(self) -> int | None:
        """The most bytes that pass together; None: no limit."""
        return None if self.rate is None else max(1, self.rate // _SLICES)

    def book(self, now_ns: int, due_ns: int, size: int) -> int:
        """Reserve the line's next free time for bytes that could pass since `due_ns`.

        Returns when the last of them has passed.
        """
        start_ns = max(self._free_ns, due_ns, now_ns - LATE_NS)
        if self.rate is None:
            return start_ns
        self._free_ns = start_ns + -(-size * _SECOND // self.rate)
        return self._free_ns

    def change(self, now_ns: int, rate: int | None, *, is_cut: bool) -> None:
        """Go on with another rate; what was reserved and has not passed is to be booked again."""
        self.rate, self.is_cut, self._free_ns = rate, is_cut, now_ns


class Passage:
    """The bytes of one connection in one direction, in order.

    Attributes:
        size: the bytes that have entered and not left.
    """

    def __init__(self, line: Line) -> None:
        self.size = 0
        self._line = line
        self._waiting = deque[tuple[int, memoryview]]()
        self._booked_ns: int | None = None

    def put(self, data: bytes, due_ns: int) -> None:
        """Bytes enter that may pass from `due_ns` on, after all before them; none: the end."""
        if self._waiting:
            due_ns = max(due_ns, self._waiting[-1][0])
        self._waiting.append((due_ns, memoryview(data)))
        self.size += len(data)

    def change(self, latest_ns: int) -> None:
        """The line was changed: what is underway may pass from `latest_ns` on, if not sooner."""
        self._booked_ns = None
        self._waiting = deque((min(due, latest_ns), data) for due, data in self._waiting)

    def next_ns(self, now_ns: int) -> int | None:
        """When to take something, now or later; None: not before something enters or changes."""
        if not self._waiting or self._line.is_cut:
            return None
        due_ns, data = self._waiting[0]
        if due_ns > now_ns:
            return due_ns
        if self._booked_ns is None:
            size = len(data[: self._line.slice])
            self._booked_ns = self._line.book(now_ns, due_ns, size)
        return self._booked_ns

    def take(self) -> bytes:
        """The bytes whose time `next_ns` gave, once it has come; empty: the end."""
        due_ns, data = self._waiting.popleft()
        taken = data[: self._line.slice]
        if rest := data[len(taken) :]:
            self._waiting.appendleft((due_ns, rest))
        self._booked_ns = None
        self.size -= len(taken)
        return bytes(taken)
