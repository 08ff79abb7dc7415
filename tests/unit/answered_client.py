"""A client whose connections a test answers."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class AnsweredClient(Generic[Connection]):
    """Brokers by node, and a client's view of them; it also plays its own `cluster`."""

    def __init__(self, brokers: dict[int, Connection]) -> None:
        self.brokers = brokers
        self.open = set(brokers)
        self.reachable = True
        self.connects = 0
        self.updates = 0
        self.cluster = self

    def connected(self, node: int) -> Connection | None:
        """The open connection to a broker."""
        return self.brokers[node] if node in self.open else None

    async def ready(self, node: int) -> bool:
        """Open a connection, if the test allows it."""
        self.connects += 1
        if self.reachable:
            self.open.add(node)
        return self.reachable

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Count the update, which completes at once."""
        self.updates += 1
        done = asyncio.get_running_loop().create_future()
        done.set_result(True)
        return done
