"""aiokafka's admin client, with metadata requests that never create a topic."""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import asyncio
from io import BytesIO
from operator import itemgetter
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError

from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.metadata import MetadataRequest, MetadataResponse
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.ports import Operation, TopicDescription
from mirrortest.kafka.public.administration import PublicAdmin
from mirrortest.kafka.public.connection import broker_error, request_errors


class _AdminClient(AIOKafkaAdminClient):  # type: ignore[misc]  # aiokafka is untyped
    __init__ = rebound(AIOKafkaAdminClient.__init__, AIOKafkaClient=Client)
    _get_cluster_metadata = rebound(
        AIOKafkaAdminClient._get_cluster_metadata, MetadataRequest=MetadataRequest
    )


class FastAdmin(PublicAdmin):
    """See `ports.AdminPort`."""

    client_type = _AdminClient

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        """See `ports.AdminPort`."""
        with request_errors():
            answer = await self.client._send_request(MetadataRequest(topics, undecoded=True))
            # All topics of a large cluster would occupy the event loop for a quarter of a second.
            return await asyncio.to_thread(_described, answer)

    async def permitted_operations(self, topics: list[str]) -> dict[str, frozenset[Operation]]:
        """See `ports.AdminPort`."""
        with request_errors():
            answer = await self.client._send_request(MetadataRequest(topics, operations=True))
        # Brokers before Kafka 3.1 get aiokafka's own request, without operations.
        found: dict[str, int] = getattr(answer, "operations", {})
        return {
            topic: frozenset(each for each in Operation if bits >> each & 1)
            for topic, bits in found.items()
        }


def _described(answer: Any) -> list[TopicDescription]:
    """The topics in a response, or in its bytes."""
    if isinstance(answer, bytes):
        try:
            answer = MetadataResponse.decode(BytesIO(answer))
        except ValueError as error:
            raise KafkaConnectionError(str(error)) from error
    return [
        TopicDescription(
            name,
            broker_error(code, name),
            internal,
            len(partitions),
            [leader for _, _, leader, *_ in sorted(partitions, key=itemgetter(1))],
        )
        for code, name, internal, partitions in answer.topics
    ]
