"""How often others have their turn on the event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turns:
    """Counts those that another task has had."""

    def __init__(self) -> None:
        self.had = 0

    async def take(self) -> None:
        """Take each turn that there is."""
        while True:
            self.had += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def taking_turns() -> AsyncIterator[Turns]:
    """Another task that is always ready, for so long."""
    turns = Turns()
    task = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        task.cancel()
