"""Waiting for work that may never end, with a user who may want to stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


async def before_stop(
    work: Coroutine[Any, Any, T], stop: asyncio.Event, *, grace_seconds: float
) -> T | None:
    """Wait for work; `grace_seconds` after `stop` is set, cancel it and return None."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=grace_seconds)
        return task.result() if task.done() else None
    finally:
        await cancel_and_wait(task, stopped)


async def while_waiting(
    work: Awaitable[T], every_seconds: float, do: Callable[[], Awaitable[object]]
) -> T:
    """Wait for work, and call `do` each time that it has lasted `every_seconds` longer."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=every_seconds))[0]:
            await do()
        return task.result()
    finally:
        await cancel_and_wait(task)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most `seconds`; return whether it is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def cancel_and_wait(*futures: asyncio.Future[Any]) -> None:
    """Cancel unfinished futures and wait for them, without raising their errors."""
    pending = {future for future in futures if not future.done()}
    # More than once: the client library swallows a cancellation now and then.
    while pending:
        for future in pending:
            future.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for future in futures:
        if not future.cancelled():
            future.exception()
