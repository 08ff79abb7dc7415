"""A blocking client of the lab's clusters, which also works inside a running event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import PartitionCountError, UnreachableError
from mirrortest.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

T = TypeVar("T")

TIMEOUT = 30.0


class ClusterClient:
    """A client of one cluster; each request opens its own connection, since brokers restart.

    Methods raise ClusterError if the cluster does not answer or refuses.

    Attributes:
        bootstrap_servers: addresses, separated by commas.
    """

    def __init__(self, bootstrap_servers: str, timeout: float = TIMEOUT) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._timeout = timeout

    def broker_count(self) -> int:
        """The number of brokers in the cluster's metadata."""
        self._check_port()
        return self._ask(Admin.broker_count)

    def broker_ids(self) -> set[int]:
        """The ids of the brokers in the cluster's metadata."""
        found = self._ask(lambda admin: admin.configurations(()))
        return {int(each.name) for each in found if each.kind == "brokers"}

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> bool:
        """Create a topic and wait until it can be used; returns whether it is new.

        Raises:
            PartitionCountError: it exists with another number of partitions. A running mirror
                creates a topic's copy with the partition count of its source.
        """
        created = self._ask(lambda admin: admin.create_topic(topic, partitions, configs=configs))
        if not created and (found := self.partitions(topic)) != partitions:
            raise PartitionCountError(
                f"topic {topic} exists already, with {found} partitions, not {partitions}"
            )
        return created

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to `total`."""
        return self._ask(lambda admin: admin.add_partitions(topic, total))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it is deleted."""
        return self._ask(lambda admin: admin.delete_topic(topic))

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic; 0 if there is no such topic."""

        async def ask(admin: Admin) -> int:
            return (await admin.partition_counts([topic])).get(topic, 0)

        return self._ask(ask)

    def beginning_offsets(self, topic: str) -> dict[int, int]:
        """The first offset of each partition; empty if there is no such topic."""
        return self._offsets(topic, Admin.beginning_offsets)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The end offset of each partition; empty if there is no such topic."""
        return self._offsets(topic, Admin.end_offsets)

    def _offsets(self, topic: str, which: Callable[..., Awaitable[Any]]) -> dict[int, int]:
        async def ask(admin: Admin) -> dict[int, int]:
            numbers = await admin.partitions(topic) or []
            offsets = await which(admin, [(topic, number) for number in numbers])
            return {at.partition: offset for at, offset in offsets.items()}

        return self._ask(ask)

    def delete_records(self, topic: str, before: Mapping[int, int] | int) -> None:
        """Delete records below an offset, one per partition or one for all; -1 means the end."""

        async def ask(admin: Admin) -> None:
            every = (
                dict.fromkeys(await admin.partitions(topic) or [], before)
                if isinstance(before, int)
                else before
            )
            for number, offset in every.items():
                await admin.delete_records(topic, number, offset)

        return self._ask(ask)

    def _check_port(self) -> None:
        """Raise UnreachableError if nothing listens: the client library would log each attempt."""
        host, port = self.bootstrap_servers.split(",")[0].rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), self._timeout).close()
        except OSError as error:
            raise UnreachableError(f"{self.bootstrap_servers} does not answer: {error}") from error

    def _ask(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        config = ClientConfig(
            bootstrap_servers=tuple(self.bootstrap_servers.split(",")),
            client_id="mirrortest-lab",
            request_timeout_ms=round(self._timeout * 1000),
        )

        async def main() -> T:
            async with asyncio.timeout(self._timeout + 5), Admin(config) as admin:
                return await ask(admin)

        answer: Future[T] = Future()

        def body() -> None:
            try:
                answer.set_result(asyncio.run(main()))
            except TimeoutError:
                error = UnreachableError(f"{self.bootstrap_servers} does not answer")
                answer.set_exception(error)
            except BaseException as error:  # noqa: BLE001  # raised again by the caller
                answer.set_exception(error)

        # In its own thread: that of the caller may run an event loop.
        threading.Thread(target=body, name="lab-client", daemon=True).start()
        return answer.result()
