"""What all clients of the simulated clusters share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.kafka.error_table import Code, RequestError

from .loop import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.config.client_config import ClientConfig

    from .cluster import Cluster, Topic
    from .loop import Process
    from .world import World


def here(config: ClientConfig) -> tuple[World, Process, Cluster]:
    """The world and process in which a client is created, and the client's cluster."""
    process = PROCESS.get()
    assert process is not None
    return process.world, process, process.world.cluster_at(config.bootstrap_servers[0])


class SimulatedClient:
    """What all clients share."""

    def __init__(self, config: ClientConfig) -> None:
        self.world, self.process, self.cluster = here(config)
        self.seconds = config.request_timeout_ms / 1000
        self.backoff = config.retry_backoff_ms / 1000

    async def ask(self, what: str, serve: Callable[[], Any]) -> Any:
        return await self.world.net.ask(self.cluster, what, serve, seconds=self.seconds)

    async def start(self) -> None:
        """Reach a broker."""
        try:
            await self.ask("start", lambda: None)
        except RequestError as error:
            raise RequestError(Code.NOT_CONNECTED, "Unable to bootstrap") from error

    async def stop(self, seconds: float) -> None:
        """There is nothing to close."""


def id_of(topic: Topic) -> str:
    """A topic's id as clients see it, 22 characters long."""
    return f"{topic.id:022}"
