"""Figures by interval, from successive statuses of a process: for lines like Kafka's tools'."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Callable


class Totals(NamedTuple):
    """What one process, or several together, has done since it began.

    `messages` were acknowledged, or have arrived; `latency` (ns) is of those with a measured one.
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
    """Prints a line for each window, which is at least `seconds` long and has a message.

    `line` formats the totals of the window and those up to its end.
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
        """Take the newest totals; print a line if the window is over."""
        before = self._before
        if now.seconds - before.seconds >= self._seconds and now.messages > before.messages:
            self._before = now
            self._print(self._line(now.since(before), now))
