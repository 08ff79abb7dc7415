"""Long work on the event loop, cut into slices."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.002


class TimeSlice:
    """Lets the event loop go on wherever a task has held it for a slice of time.

    What arrives meanwhile is stamped as it arrives: a loop that is held for a second makes
    latencies of up to a second of what took a millisecond.
    """

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._since = time.perf_counter()

    async def over(self) -> bool:
        """Call it after each small piece of work: waits a turn where the slice is over."""
        if time.perf_counter() - self._since < self._seconds:
            return False
        await asyncio.sleep(0)
        self._since = time.perf_counter()
        return True
