"""Metadata with topic ids (KIP-516), leader epochs and authorized operations.

With brokers that do not support this version, it is aiokafka's own request.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.protocol import metadata as _metadata
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from mirrortest.kafka.fast.wire_types import (
    Uuid,
    exactly,
    length,
    nodes,
    skip_tags,
    string,
    supported,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA = 12
"""The version of Metadata that brokers with `requests.FETCH` support; since Kafka 3.1."""

_NOT_ASKED = -(1 << 31)
"""The authorized operations of a topic if the request did not ask for them."""
_PARTITION = struct.Struct(">hiii")  # error, partition, leader, leader's epoch


class MetadataResponse(Response):  # type: ignore[misc]  # untyped
    """Version 12 with the fields of version 5, which aiokafka reads.

    Attributes:
        topic_ids: topic -> id, for topics that have one.
        leaders: (topic, partition) -> (leader epoch, leader's node).
        operations: topic -> a bit for each operation that we may do, if the request asked for it.
    """

    API_KEY = 3
    API_VERSION = METADATA
    SCHEMA = _metadata.MetadataResponse_v5.SCHEMA

    topic_ids: dict[str, str]
    leaders: dict[tuple[str, int], tuple[int, int]]
    operations: dict[str, int]

    @classmethod
    def decode(cls, data: Any) -> MetadataResponse:
        """Decode a response; raises ValueError if its bytes end too early."""
        throttle = Int32.decode(data)
        brokers = []
        for _ in range(length(data)):
            node = Int32.decode(data)
            host, port = string(data), Int32.decode(data)
            brokers.append((node, host, port, string(data)))
            skip_tags(data)
        cluster, controller = string(data), Int32.decode(data)
        topics, ids = [], {}
        leaders: dict[tuple[str, int], tuple[int, int]] = {}
        operations: dict[str, int] = {}
        for _ in range(length(data)):
            error, name = Int16.decode(data), string(data)
            topic_id, internal = Uuid.decode(data), Boolean.decode(data)
            partitions = []
            for _ in range(length(data)):
                code, number, leader, epoch = _PARTITION.unpack(exactly(data, _PARTITION.size))
                replicas = [nodes(data) for _ in range(3)]  # all, in sync, offline
                skip_tags(data)
                partitions.append((code, number, leader, *replicas))
                leaders[str(name), number] = epoch, leader
            permitted = Int32.decode(data)
            skip_tags(data)
            topics.append((error, name, internal, partitions))
            if topic_id and name and not error:
                ids[name] = topic_id
            if permitted != _NOT_ASKED and not error:
                operations[str(name)] = permitted
        made = cls(throttle, brokers, cluster, controller, topics)
        made.topic_ids, made.leaders, made.operations = ids, leaders, operations
        return made


class MetadataRequest_v12(RequestStruct):  # type: ignore[misc]  # noqa: N801  # as aiokafka names them
    """Version 12, by topic name."""

    API_KEY = 3
    API_VERSION = METADATA
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE: Any = MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Undecoded:
    """A response that stays bytes."""

    @staticmethod
    def decode(data: Any) -> bytes:
        return bytes(data.read())


class _UndecodedRequest(MetadataRequest_v12):
    RESPONSE_TYPE = _Undecoded


class MetadataRequest(_metadata.MetadataRequest):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's request with topic ids and leader epochs; by default it creates no topic.

    If `undecoded`, brokers since Kafka 3.1 return the bytes for `MetadataResponse.decode`.
    """

    def __init__(
        self,
        topics: list[str] | None = None,
        allow_auto_topic_creation: bool = False,
        *,
        operations: bool = False,
        undecoded: bool = False,
    ) -> None:
        super().__init__(topics, allow_auto_topic_creation)
        self._operations = operations
        self._kind = _UndecodedRequest if undecoded else MetadataRequest_v12

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """See aiokafka's `Request`."""
        if not supported(versions, self.API_KEY, METADATA):
            return super().prepare(versions)
        topics = self._topics
        named: Any = None if topics is None else [("", topic, {}) for topic in topics]
        return self._kind(named, self._allow_auto_topic_creation, self._operations, {})
