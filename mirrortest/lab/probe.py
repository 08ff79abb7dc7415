"""What the lab asks of its clusters, by real requests; callable with or without a running loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError

from mirrortest.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


def count_brokers(address: str, *, timeout: float) -> int:
    """How many brokers the broker at `address` knows.

    Raises:
        UnreachableError: it does not answer.
    """

    async def ask(admin: Any) -> int:
        described = await admin.describe_cluster()
        return len(described["brokers"])

    host, port = address.rsplit(":", 1)
    try:  # the client library logs an error for each knock at a port where nobody listens
        socket.create_connection((host, int(port)), timeout).close()
    except OSError as error:
        raise UnreachableError(f"{address} does not answer: {error}") from error
    return _with_admin(address, ask, timeout=timeout)


def create_topic(
    bootstrap: str, name: str, partitions: int, *, replication: int, configs: dict[str, str]
) -> None:
    """Create a topic and wait until it is in the metadata."""

    async def ask(admin: Any) -> None:
        topic = NewTopic(name, partitions, replication, topic_configs=configs)
        answer = await admin.create_topics([topic])
        for _, code, *message in answer.topic_errors:
            if code:
                raise ClusterError(f"topic {name} was not created: error {code} {message}")
        while True:
            found = (await admin.describe_topics([name]))[0]
            leaders = [p["leader"] for p in found["partitions"]]
            if not found["error_code"] and len(leaders) == partitions and -1 not in leaders:
                return
            await asyncio.sleep(0.02)

    _with_admin(bootstrap, ask)


def partitions(bootstrap: str, topic: str) -> int:
    """How many partitions a topic has; 0 without it."""

    async def ask(admin: Any) -> int:
        if topic not in await admin.list_topics():
            return 0
        return len((await admin.describe_topics([topic]))[0]["partitions"])

    return _with_admin(bootstrap, ask)


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """The end offset of each partition; empty without the topic."""
    count = partitions(bootstrap, topic)

    async def ask() -> dict[int, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            ends = await consumer.end_offsets([TopicPartition(topic, n) for n in range(count)])
            return {where.partition: end for where, end in ends.items()}
        finally:
            await consumer.stop()

    return _run(bootstrap, ask, 30) if count else {}


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Delete the records of each partition below an offset."""

    async def ask(admin: Any) -> None:
        await admin.delete_records(
            {TopicPartition(topic, n): RecordsToDelete(offset) for n, offset in before.items()}
        )

    _with_admin(bootstrap, ask)


def _with_admin(bootstrap: str, ask: Callable[[Any], Awaitable[T]], *, timeout: float = 30) -> T:
    async def main() -> T:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await admin.start()
            return await ask(admin)
        finally:
            await admin.close()

    return _run(bootstrap, main, timeout)


def _run(bootstrap: str, main: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
    """Run it on a loop of its own in a thread of its own: the caller may be inside another."""
    outcome: list[T | BaseException] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(asyncio.wait_for(main(), timeout)))
        except BaseException as error:  # noqa: BLE001  # handed to the caller
            outcome.append(error)

    thread = threading.Thread(target=body, name="lab-probe")
    thread.start()
    thread.join()
    result = outcome[0]
    if isinstance(result, (KafkaError, TimeoutError, OSError)):
        raise UnreachableError(f"{bootstrap} does not answer: {result!r}") from result
    if isinstance(result, BaseException):
        raise result
    return result
