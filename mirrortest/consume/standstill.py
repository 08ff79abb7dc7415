"""Whether this process stood still: stopped, starved of its CPU, or busy with one thing."""

from __future__ import annotations

import asyncio
import time

import structlog

_log = structlog.get_logger()

_BEAT_SECONDS = 0.5
_MOST_SECONDS = 2.0
"""Between two beats; whatever is shorter is the latencies' error."""


class Standstill:
    """Beats on the event loop: what arrives while it cannot is seen late, nobody knows how late."""

    def __init__(self) -> None:
        self._beaten = time.monotonic()
        self._seconds = 0.0
        """Since this was last asked for."""
        self._times = 0
        self._total = 0.0

    @property
    def notes(self) -> list[str]:
        """What a report should say of it; nothing where there was none."""
        if not self._times:
            return []
        often = "once" if self._times == 1 else f"{self._times} times"
        note = (
            f"this consumer stood still {often}, for {self._total:.1f} s in all: latencies of what "
            "may have waited for it are not measured"
        )
        return [note]

    async def watch(self) -> None:
        """Beat, for ever."""
        while True:
            self._beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def take(self) -> float:
        """For how many seconds it stood still since this was last asked; 0: it did not."""
        self._beat()
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _beat(self) -> None:
        missed, self._beaten = time.monotonic() - self._beaten, time.monotonic()
        if missed > _MOST_SECONDS:
            self._seconds += missed
            self._times, self._total = self._times + 1, self._total + missed
            _log.warning("this process stood still", seconds=round(missed, 1))
