"""Replaces the module `time` in the applications while they are simulated."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .loop import PROCESS, START_NS, SimulationLoop

EPOCH_NS = 28_000_000 * 60_000_000_000
"""The wall time at the start of a history: a whole minute."""


def _loop() -> SimulationLoop | None:
    loop = asyncio._get_running_loop()
    return loop if type(loop) is SimulationLoop else None


class VirtualTime:
    """Virtual in a simulated history, real elsewhere."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def monotonic_ns() -> int:
        """See `time`."""
        loop = _loop()
        return time.monotonic_ns() if loop is None else loop.now_ns

    @staticmethod
    def monotonic() -> float:
        """See `time`."""
        loop = _loop()
        return time.monotonic() if loop is None else loop.now_ns / 1e9

    @staticmethod
    def time_ns() -> int:
        """See `time`; by the wall clock of the calling process."""
        loop = _loop()
        if loop is None:
            return time.time_ns()
        process = PROCESS.get()
        ahead = 0 if process is None else process.wall_offset_ns
        return EPOCH_NS + loop.now_ns - START_NS + ahead

    @staticmethod
    def time() -> float:
        """See `time`."""
        return VirtualTime.time_ns() / 1e9

    @staticmethod
    def perf_counter() -> float:
        """CPU work takes no virtual time, but sometimes appears to have used a time slice."""
        loop = _loop()
        if loop is None:
            return time.perf_counter()
        process = PROCESS.get()
        return loop.now_ns / 1e9 if process is None else process.world.worked_ns() / 1e9


VIRTUAL_TIME = VirtualTime()
