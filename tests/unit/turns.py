"""Counts how often another task gets its turn on the event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """Counts the turns that another task has had."""

    def __init__(self) -> None:
        self.had = 0

    async def take(self) -> None:
        """Take every turn of the event loop."""
        while True:
            self.had += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def taking_turns() -> AsyncIterator[Turns]:
    """Run another task that is always ready, within the context."""
    turns = Turns()
    task = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        task.cancel()
