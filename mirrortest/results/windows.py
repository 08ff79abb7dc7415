"""What a process did in each interval, from its successive statuses: for lines of Kafka's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Callable


class Totals(NamedTuple):
    """What a process, or several together, has done since it began.

    `messages` were acknowledged, or have arrived; `latency` (ns) is of these, where it is measured.
    """

    seconds: float = 0.0
    messages: int = 0
    value_bytes: int = 0
    rebalance_ns: int = 0
    latency: Sparse = Sparse()

    def since(self, before: Totals) -> Totals:
        """What was done after `before`."""
        return Totals(
            self.seconds - before.seconds,
            self.messages - before.messages,
            self.value_bytes - before.value_bytes,
            self.rebalance_ns - before.rebalance_ns,
            Histogram.of(self.latency).since(Histogram.of(before.latency)),
        )


class Windows:
    """Prints a line of each window that is at least `seconds` long, once it has a message.

    `line` makes it of what was done in the window, and of all up to its end.
    """

    def __init__(
        self,
        print_line: Callable[[str], object],
        line: Callable[[Totals, Totals], str],
        seconds: float,
    ) -> None:
        self._print = print_line
        self._line = line
        self._seconds = seconds
        self._before = Totals()

    def show(self, now: Totals) -> None:
        """Take the newest totals."""
        before = self._before
        if now.seconds - before.seconds >= self._seconds and now.messages > before.messages:
            self._before = now
            self._print(self._line(now.since(before), now))
