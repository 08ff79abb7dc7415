"""Produce requests, whose batches are not copied, and their responses.

A producer sends a request at each tick. With aiokafka's schemas, field by field, a request would
cost as much as its batches.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.produce import ProduceRequest_v3, ProduceResponse_v5
from aiokafka.protocol.types import String

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka.protocol.produce import ProduceRequest


_OLDEST = ProduceRequest_v3.API_VERSION
"""The first version with record batches of format v2; since Kafka 0.11."""
NEWEST = 7
"""The last version whose responses are decoded here: the next has errors of single records."""
_HEADER = struct.Struct(">hhi")  # API key, version, correlation id
_RULES = struct.Struct(">hi")  # acks, timeout
_CORRELATION = 4
"""Bytes of a correlation id."""
_COUNT = struct.Struct(">i")
_BATCH = struct.Struct(">ii")  # partition, bytes
_NAME = struct.Struct(">h")
_STORED = struct.Struct(">ihqq")  # partition, error, offset, timestamp
_STORED_FROM = struct.Struct(">ihqqq")  # and the log start offset


def prepared(request: ProduceRequest, versions: Mapping[int, tuple[int, int]]) -> Any:
    """The request in the newest version that the broker supports.

    Raises:
        IncompatibleBrokerVersion: the broker does not support record batches of format v2.
    """
    made = request.prepare(versions)
    if made.API_VERSION < _OLDEST:
        raise IncompatibleBrokerVersion("record batches need Kafka 0.11 or newer")
    return made


def pieces(request: Any, correlation_id: int, client_id: str) -> list[bytes]:
    """The buffers to send for a prepared request; its batches are not copied."""
    text = String("utf-8").encode
    head = [
        _HEADER.pack(request.API_KEY, request.API_VERSION, correlation_id),
        text(client_id),
        text(request.transactional_id),
        _RULES.pack(request.required_acks, request.timeout),
        _COUNT.pack(len(request.topics)),
    ]
    made: list[bytes] = [b"", b"".join(head)]
    size = len(made[1])
    for topic, batches in request.topics:
        made.append(text(topic) + _COUNT.pack(len(batches)))
        size += len(made[-1])
        for partition, batch in batches:
            made += (_BATCH.pack(partition, len(batch)), batch)
            size += _BATCH.size + len(batch)
    made[0] = _COUNT.pack(size)
    return made


def answer(request: Any, data: memoryview) -> Any:
    """Decode the response to a prepared request; its header is the correlation id.

    Raises:
        ValueError: the response is cut off.
    """
    kind = request.RESPONSE_TYPE
    stored = _STORED_FROM if kind.API_VERSION >= ProduceResponse_v5.API_VERSION else _STORED
    try:
        (count,), at = _COUNT.unpack_from(data, _CORRELATION), _CORRELATION + _COUNT.size
        topics = []
        for _ in range(count):
            (length,) = _NAME.unpack_from(data, at)
            at += _NAME.size + length
            name = data[at - length : at].tobytes().decode()
            (partitions,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            end = at + partitions * stored.size
            topics.append((name, list(stored.iter_unpack(data[at:end]))))
            at = end
        (throttle,) = _COUNT.unpack_from(data, at)
    except struct.error as error:
        raise ValueError(f"a broker's answer to a produce request is cut off: {error}") from error
    return kind(topics, throttle)
