"""The wall clocks that latencies hang on: this machine's, and the producers'.

A clock that is set changes no verdict, since all of those run on the monotonic clock. It changes
latencies, and these are flagged: by what is said here, and by the count of negative ones.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.timing.clock_watch import STEP_BOUND_NS, ClockWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirrortest.verify.row import SeenRow
    from mirrortest.wire.stream import StreamId

_log = structlog.get_logger()


class Clocks:
    """Watches our own wall clock directly, and the producers' by the times in their messages.

    Within a stream the intended time never falls while the seq rises, unless the producer's clock
    was set back. One that was set forwards shows in negative latencies.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.watch = ClockWatch(wall_ns(), monotonic_ns())
        self._least_ns = self._most_ns = self.watch.offset_ns
        self.notes: list[str] = []
        self._last: dict[StreamId, tuple[int, int]] = {}
        """stream -> (the seq after its latest message, that one's intended time)"""
        self._set_back: set[tuple[str, int]] = set()

    def look(self) -> None:
        """Read our own clocks once more."""
        step = self.watch.measure(self._monotonic_ns, self._wall_ns)
        self._least_ns = min(self._least_ns, self.watch.offset_ns)
        self._most_ns = max(self._most_ns, self.watch.offset_ns)
        if step is not None:
            self._tell(
                f"the wall clock here was set by {step.by_ns / 1e9:+.3f} s during the run: "
                "latencies around it are off by as much, verdicts are not touched"
            )

    def earliest_ns(self) -> int:
        """The wall time now, ns since the epoch, by the earliest that our clock was set during it.

        If it was set forwards nobody knows when it was right: nothing is overdue for that.
        """
        self.look()
        return self._monotonic_ns() + self._least_ns

    def latest_ns(self) -> int:
        """The wall time now, by the latest that our clock was set: nothing was sent after it."""
        self.look()
        return self._monotonic_ns() + self._most_ns

    def follow(self, rows: Iterable[SeenRow]) -> None:
        """Look at the times of messages without findings, in the order of one partition."""
        for row in rows:
            if row.stream is None or row.findings:
                continue
            seq, intended_ns = self._last.get(row.stream, (0, row.intended_first))
            if row.seq_lo < seq:
                continue  # a copy, or out of order
            self._last[row.stream] = (row.seq_hi, row.intended_last)
            back_ns = intended_ns - row.intended_first
            producer = (row.stream.producer, row.stream.incarnation)
            if back_ns > STEP_BOUND_NS and producer not in self._set_back:
                self._set_back.add(producer)
                self._tell(
                    f"the wall clock of producer {producer[0]} (incarnation {producer[1]}) was "
                    f"set back by {back_ns / 1e9:.3f} s between two messages: their latencies are "
                    "off by as much, verdicts are not touched"
                )

    def _tell(self, note: str) -> None:
        _log.warning(note)
        self.notes.append(note)
