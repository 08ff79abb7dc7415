"""Whether this process stood still: stopped, starved of its CPU, or busy with one thing."""

from __future__ import annotations

import asyncio
import time

import structlog

from mirrortest.results.words import spells

_log = structlog.get_logger()

_BEAT_SECONDS = 0.5
_MOST_SECONDS = 2.0
"""Between two beats; whatever is shorter is the latencies' error."""


class Standstill:
    """Beats on the event loop: what arrives while it cannot is seen late, nobody knows how late."""

    def __init__(self) -> None:
        self._beaten = time.monotonic()
        self._stood = False
        """Whether it did since this was last asked."""
        self._times = 0
        self._seconds = 0.0

    @property
    def notes(self) -> list[str]:
        """What a report should say of it; nothing where there was none."""
        if not self._times:
            return []
        note = (
            f"this consumer stood still {spells(self._times, self._seconds)}: latencies of what "
            "may have waited for it are not measured"
        )
        return [note]

    async def watch(self) -> None:
        """Beat, for ever."""
        while True:
            self._beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def take(self) -> bool:
        """Whether it stood still since this was last asked."""
        self._beat()
        stood, self._stood = self._stood, False
        return stood

    def _beat(self) -> None:
        now = time.monotonic()
        missed, self._beaten = now - self._beaten, now
        if missed > _MOST_SECONDS:
            self._stood = True
            self._times, self._seconds = self._times + 1, self._seconds + missed
            _log.warning("this process stood still", seconds=round(missed, 1))
