"""The end of one of aiokafka's clients, in order or not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def ended(stop: Callable[[], Awaitable[None]], seconds: float) -> bool:
    """Stop one of aiokafka's clients; whether it did so in order and in time. Raises nothing.

    Without a broker its `stop` may hang, or raise the cancellation of a task of its own.
    """
    stopping = asyncio.ensure_future(stop())
    try:
        await asyncio.wait({stopping}, timeout=seconds)
    finally:
        stopping.cancel()
    return stopping.done() and not stopping.cancelled() and stopping.exception() is None
