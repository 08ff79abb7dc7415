"""Delays and limits bytes on a simulated network line; reads no clock.

Times are int nanoseconds of any clock that never steps back. No byte is altered, reordered or lost.
"""

from __future__ import annotations

from collections import deque

from mirrortest.config.units import SECOND_NS

_SLICES = 100
"""A limited line passes bytes in slices of 1/100 s."""
LATE_NS = SECOND_NS // _SLICES
"""How late a slice may be taken without losing any of the line's rate."""


class Line:
    """The capacity that all connections share in one direction; each gets its slice in turn.

    Within any time `t`, at most ``rate * (t + LATE_NS)`` bytes pass, plus a slice per connection.

    Attributes:
        rate: the most bytes per second; None: no limit.
        is_cut: whether nothing passes.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self.is_cut = False
        self._free_ns = -(1 << 63)

    @property
    def slice(self) -> int | None:
        """The most bytes that pass at once; None: no limit."""
        return None if self.rate is None else max(1, self.rate // _SLICES)

    def book(self, now_ns: int, due_ns: int, size: int) -> int:
        """Reserve the line's next free time for `size` bytes that may pass from `due_ns` on.

        Returns when the last of them has passed.
        """
        start_ns = max(self._free_ns, due_ns, now_ns - LATE_NS)
        if self.rate is None:
            return start_ns
        self._free_ns = start_ns + -(-size * SECOND_NS // self.rate)
        return self._free_ns

    def change(self, now_ns: int, rate: int | None, *, is_cut: bool) -> None:
        """Change the rate; the caller books again what was reserved and has not passed."""
        self.rate, self.is_cut, self._free_ns = rate, is_cut, now_ns


class Passage:
    """The bytes of one connection in one direction, in order.

    Attributes:
        size: how many bytes have entered and not left.
    """

    def __init__(self, line: Line) -> None:
        self.size = 0
        self._line = line
        self._waiting = deque[tuple[int, memoryview]]()
        self._booked_ns: int | None = None

    def put(self, data: bytes, due_ns: int) -> None:
        """Add bytes that may pass from `due_ns` on, after all earlier ones; empty: the end."""
        if self._waiting:
            due_ns = max(due_ns, self._waiting[-1][0])
        self._waiting.append((due_ns, memoryview(data)))
        self.size += len(data)

    def change(self, latest_ns: int) -> None:
        """Adapt to a changed line: all waiting bytes may pass from `latest_ns` on at the latest."""
        self._booked_ns = None
        self._waiting = deque((min(due, latest_ns), data) for due, data in self._waiting)

    def next_ns(self, now_ns: int) -> int | None:
        """When to call `take`, now or later; None: not before bytes enter or the line changes."""
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
        """Take the bytes that are due at the time that `next_ns` returned; empty: the end."""
        due_ns, data = self._waiting.popleft()
        taken = data[: self._line.slice]
        if rest := data[len(taken) :]:
            self._waiting.appendleft((due_ns, rest))
        self._booked_ns = None
        self.size -= len(taken)
        return bytes(taken)
