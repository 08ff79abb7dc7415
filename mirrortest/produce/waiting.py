"""Waiting for work that may never end, with a user who may want to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


async def before_stop(
    work: Coroutine[Any, Any, T], stop: asyncio.Event, *, grace_seconds: float
) -> T | None:
    """Wait for work; once `stop` is set no longer than `grace_seconds`: then None, cancelled."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=grace_seconds)
        return task.result() if task.done() else None
    finally:
        await cancelled(task, stopped)


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for their end; what they raise has been seen or is of no account."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
