"""Jobs for the pool's tests: what a worker process runs in place of an application."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirrortest.errors import ClusterError
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.workers.worker_pool import Worker, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable


def quiet() -> None:
    """Prepare a worker: there is nothing to do."""


class Unreadable:
    """Progress that the command's process cannot read."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return int, ("no number",)


class AllReported:
    """Receives the workers' progress; `wait` returns once each of them has sent some."""

    def __init__(self, workers: int) -> None:
        self._missing = set(range(1, workers + 1))
        self._complete = asyncio.Event()

    def __call__(self, worker: Worker) -> None:
        self._missing.discard(worker.number)
        if not self._missing:
            self._complete.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._complete.wait(), 60)


async def until_stopped(
    share: int,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[tuple[int, int]], None],
    serve: Callable[..., object],
) -> SimpleNamespace:
    """Send pid and share as progress, serve the share as a counter, report both once stopped."""
    metrics, health = Metrics(), Health(60)
    metrics.counter(names.LOG_ROWS).add(share)
    health.started, health.ready = True, share != 3
    serve(metrics, address="", port=1, health=health)
    on_progress((os.getpid(), share))
    await stop.wait()
    return SimpleNamespace(pid=os.getpid(), share=share, error=None)


async def first_falls(share: str, **arguments: Any) -> SimpleNamespace:
    """Fail as the share says; with another share, wait to be stopped."""
    if share == "refuse":
        raise ClusterError("the brokers refuse")
    if share == "report":
        return SimpleNamespace(share=share, error=ClusterError("it ended early"))
    if share == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if share == "leave":
        os._exit(7)
    if share == "mumble":
        arguments["on_progress"](Unreadable())
    return await until_stopped(0, **arguments)


async def _write_pids(file: Path) -> None:
    reported = AllReported(2)
    async with WorkerPool(until_stopped, [1, 2], prepare=quiet, on_progress=reported) as crew:
        await reported.wait()
        part = file.with_suffix(".part")
        part.write_text(" ".join(str(worker.pid) for worker in crew.workers))
        part.rename(file)
        await crew.ended(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(_write_pids(Path(sys.argv[1])))
