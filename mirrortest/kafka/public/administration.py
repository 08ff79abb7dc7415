"""Topics, configurations and cluster metadata with aiokafka's public API."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.ports import Configuration, TopicDescription
from mirrortest.kafka.public.connection import (
    arguments,
    broker_error,
    request_errors,
    stop_cleanly,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import Operation
    from mirrortest.model.topic_partition import TopicPartition

T = TypeVar("T")
_KINDS = {ConfigResourceType.BROKER: "brokers", ConfigResourceType.TOPIC: "topics"}


class PublicAdmin:
    """See `ports.AdminPort`."""

    client_type: Any = AIOKafkaAdminClient

    def __init__(self, config: ClientConfig) -> None:
        self.client = self.client_type(**arguments(config))

    async def start(self) -> None:
        """See `ports.ClientPort`."""
        with request_errors():
            await self.client.start()

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        await stop_cleanly(self.client.close, seconds)

    async def describe_cluster(self) -> tuple[str, int]:
        """See `ports.AdminPort`."""
        with request_errors():
            described = await self.client.describe_cluster()
        return str(described["cluster_id"]), len(described["brokers"])

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        """See `ports.AdminPort`."""
        with request_errors():
            described = await self.client.describe_topics(topics)
        return [
            TopicDescription(
                topic["topic"],
                broker_error(topic["error_code"], topic["topic"]),
                topic["is_internal"],
                len(topic["partitions"]),
                [
                    part["leader"]
                    for part in sorted(topic["partitions"], key=itemgetter("partition"))
                ],
            )
            for topic in described
        ]

    async def create_topics(
        self, topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, str]
    ) -> set[str]:
        """See `ports.AdminPort`."""
        request = [
            NewTopic(name, count, 1, topic_configs=dict(configs)) for name, count in topics.items()
        ]
        for topic in request:
            # Set afterwards, since NewTopic refuses the -1 that brokers accept since 2.4.
            topic.replication_factor = replication_factor
        response = await _controller_response(self.client.create_topics(request))
        created = set()
        for name, code, *message in response.topic_errors:
            if code == Code.TOPIC_ALREADY_EXISTS:
                continue
            if error := broker_error(code, f"{name}: {message[0] if message else ''}"):
                raise error
            created.add(name)
        return created

    async def create_partitions(self, topic: str, total: int) -> None:
        """See `ports.AdminPort`."""
        request = {topic: NewPartitions(total)}
        await _controller_response(self.client.create_partitions(request))

    async def delete_topic(self, topic: str) -> None:
        """See `ports.AdminPort`."""
        response = await _controller_response(self.client.delete_topics([topic]))
        for _, code, *_ in response.topic_error_codes:
            if error := broker_error(code, topic):
                raise error

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """See `ports.AdminPort`."""
        at = KafkaPartition(*partition)
        with request_errors():
            low = await self.client.delete_records({at: RecordsToDelete(before_offset)})
        return int(low[at])

    async def configurations(
        self, topics: list[str], *, brokers: bool = True
    ) -> list[Configuration]:
        """See `ports.AdminPort`."""
        with request_errors():
            nodes = (await self.client.describe_cluster())["brokers"] if brokers else []
        return await self._described(
            [
                ConfigResource(kind, name)
                for kind, names in zip(
                    _KINDS, ([str(node["node_id"]) for node in nodes], topics), strict=True
                )
                for name in names
            ]
        )

    async def _described(self, resources: list[ConfigResource]) -> list[Configuration]:
        with request_errors():
            responses = await self.client.describe_configs(resources)
        return [
            Configuration(
                _KINDS[ConfigResourceType(kind)],
                name,
                broker_error(code, message),
                {entry[0]: entry[1] for entry in entries if entry[1] is not None},
            )
            for response in responses
            for code, message, kind, name, entries in response.resources
        ]

    async def permitted_operations(
        self,
        topics: list[str],  # noqa: ARG002  # the public API does not ask for them
    ) -> dict[str, frozenset[Operation]]:
        """See `ports.AdminPort`."""
        return {}


async def _controller_response(request: Awaitable[T]) -> T:
    """The controller's response; raises a retriable error while there is no controller."""
    try:
        with request_errors():
            return await request
    except AttributeError as error:
        # aiokafka raises this if brokers that have just restarted report no controller.
        raise RequestError(
            Code.NOT_CONTROLLER, "NOT_CONTROLLER the cluster has no controller now"
        ) from error
