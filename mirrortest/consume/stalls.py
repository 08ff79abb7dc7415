"""Stalls of this process: it was stopped, got no CPU, or one task blocked the event loop."""

from __future__ import annotations

import asyncio
import time

import structlog

from mirrortest.results.words import times_and_duration

_log = structlog.get_logger()

_BEAT_SECONDS = 0.5
_MOST_SECONDS = 2.0
"""A longer time between two beats is a stall; a shorter one only makes latencies less exact."""


class Stalls:
    """Beats on the event loop: messages that arrive during a stall get later arrival times."""

    def __init__(self) -> None:
        self._last_beat = time.monotonic()
        self._stalled = False
        """Whether there was a stall since the last `take`."""
        self._times = 0
        self._seconds = 0.0

    @property
    def notes(self) -> list[str]:
        """The report's note on stalls; empty if there was none."""
        if not self._times:
            return []
        note = (
            f"this consumer was stalled {times_and_duration(self._times, self._seconds)}: "
            "latencies of messages that may have arrived meanwhile are not measured"
        )
        return [note]

    async def watch(self) -> None:
        """Beat for ever."""
        while True:
            self._beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def take(self) -> bool:
        """Whether there was a stall since the last call."""
        self._beat()
        stalled, self._stalled = self._stalled, False
        return stalled

    def _beat(self) -> None:
        now = time.monotonic()
        elapsed, self._last_beat = now - self._last_beat, now
        if elapsed > _MOST_SECONDS:
            self._stalled = True
            self._times, self._seconds = self._times + 1, self._seconds + elapsed
            _log.warning("this process was stalled", seconds=round(elapsed, 1))
