"""Long work on the event loop, cut into slices."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.002


class TimeSlice:
    """Yields to the event loop when a task has run for a slice of time.

    Messages get their arrival time on the event loop: a loop that is blocked for a second adds
    up to a second to their latencies.
    """

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    async def over(self) -> bool:
        """Await this after each small piece of work: if the slice is over, it yields."""
        if time.perf_counter() - self._since < self._seconds:
            return False
        await asyncio.sleep(0)
        self._since = time.perf_counter()
        return True
