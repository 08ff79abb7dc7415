"""Fetch, ListOffsets and OffsetForLeaderEpoch with topic ids (KIP-516) and leader epochs (KIP-320).

With brokers that do not support these versions, Fetch and ListOffsets are aiokafka's own requests.
Responses have the fields that aiokafka reads, and those that it does not request.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import fetch as _fetch
from aiokafka.protocol import offset as _offset
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
    UnsignedVarInt32,
)

from mirrortest.kafka.fast.wire_types import Uuid, supported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.kafka.fast.frames import Cursor

FETCH = 13
"""The first version of Fetch that names topics by their id; since Kafka 3.1."""
LIST_OFFSETS = 4
"""The first version of ListOffsets with the leader's epoch; since Kafka 2.1."""
LEADER_EPOCH = 3
"""The version of OffsetForLeaderEpoch that serves consumers; since Kafka 2.3."""

_OLDEST_FETCH = 4
"""The first version of Fetch with record batches of format v2; since Kafka 0.11."""

LATEST = -1
"""The timestamp that asks for the end of a log."""

_CONSUMER = -1
_NO_START = -1
"""The log start offset in a consumer's fetch: it has no log."""
_DIVERGING_EPOCH_TAG = 0

_REQUEST_HEAD = struct.Struct(">hhih")  # API key, version, correlation id, bytes of client id
_RESPONSE_HEAD = struct.Struct(">ihi")  # throttle, error, session
_REPLICA = struct.Struct(">i")
_FETCHED = struct.Struct(">ihqqq")  # partition, error, high watermark, last stable offset, start
_EPOCH_END = struct.Struct(">iq")  # epoch, end offset
_ABORTED = struct.Struct(">qq")
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqix")  # and no tags
_NO_TAGS, _NO_TOPICS = b"\0", b"\1"


class EpochEnd(NamedTuple):
    """The offset at which a leader epoch ends in a leader's log."""

    leader_epoch: int
    end_offset: int


# -- fetch -----------------------------------------------------------------------------------------


class FetchLimits(NamedTuple):
    """The limits and options of a fetch."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    committed: bool
    """Whether the consumer reads with read_committed."""
    rack: str
    """`client.rack`; empty for none."""


class FetchPosition(NamedTuple):
    """A partition's position, with what the broker checks; -1 and None mean unknown."""

    topic: str
    topic_id: str | None
    partition: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int


class FetchResponse(Response):  # type: ignore[misc]  # untyped
    """Version 13 with the fields of version 11, but topic ids in place of names.

    Attributes:
        diverging: (topic id, partition) -> the last epoch, and its end, that the leader's log can
            have in common with what was read.
    """

    API_KEY = 1
    API_VERSION = FETCH
    SCHEMA = _fetch.FetchResponse_v11.SCHEMA

    diverging: dict[tuple[str, int], EpochEnd]

    @classmethod
    def decode(cls, data: Cursor) -> FetchResponse:
        """Decode a response; record sections stay views (`frames.Section`)."""
        throttle, error, session = data.unpack(_RESPONSE_HEAD)
        diverging: dict[tuple[str, int], EpochEnd] = {}
        topics = []
        for _ in range(data.varint() - 1):
            topic_id = Uuid.decode(data)
            partitions = []
            for _ in range(data.varint() - 1):
                head = data.unpack(_FETCHED)
                aborted = []
                for _ in range(data.varint() - 1):
                    aborted.append(data.unpack(_ABORTED))
                    data.tags()
                (replica,) = data.unpack(_REPLICA)
                size = data.varint() - 1
                records = data.section(size) if size > 0 else b""
                tags = data.tags()
                if _DIVERGING_EPOCH_TAG in tags:
                    raw = tags[_DIVERGING_EPOCH_TAG][: _EPOCH_END.size]
                    diverging[topic_id, head[0]] = EpochEnd(*_EPOCH_END.unpack(raw))
                partitions.append((*head, aborted, replica, records))
            data.tags()
            topics.append((topic_id, partitions))
        made = cls(throttle, error, session, topics)
        made.diverging = diverging
        return made


class _Header(NamedTuple):
    """A flexible request's header without tags, with the method that aiokafka calls."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str

    def encode(self) -> bytes:
        """See aiokafka's `Struct`."""
        name = self.client_id.encode()
        return b"".join((_REQUEST_HEAD.pack(*self[:3], len(name)), name, _NO_TAGS))


class FetchRequest_v13(RequestStruct):  # type: ignore[misc]  # noqa: N801  # as aiokafka names them
    """Version 13: by topic id, without a fetch session."""

    API_KEY = 1
    API_VERSION = FETCH
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("offset", Int64),
                        ("last_fetched_epoch", Int32),
                        ("log_start_offset", Int64),
                        ("max_bytes", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("forgotten_topics_data", CompactArray(Int32)),  # always empty
        ("rack_id", CompactString("utf-8")),
        ("tags", TaggedFields),
    )

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        """See aiokafka's `RequestStruct`."""
        return _Header(self.API_KEY, self.API_VERSION, correlation_id, client_id)

    def encode(self) -> bytes:
        """Encode like the schema in a fifth of its time: there is a request for each response."""
        pieces = [
            _FETCH_HEAD.pack(
                *(self.replica_id, self.max_wait_time, self.min_bytes, self.max_bytes),
                *(self.isolation_level, self.session_id, self.session_epoch),
            ),
            UnsignedVarInt32.encode(len(self.topics) + 1),
        ]
        for topic_id, partitions, _ in self.topics:
            pieces += (Uuid.encode(topic_id), UnsignedVarInt32.encode(len(partitions) + 1))
            pieces += (_FETCH_PARTITION.pack(*each[:6]) for each in partitions)
            pieces.append(_NO_TAGS)
        pieces += (_NO_TOPICS, CompactString("utf-8").encode(self.rack_id), _NO_TAGS)
        return b"".join(pieces)


class FetchRequest(Request[FetchRequest_v13]):  # type: ignore[misc]  # untyped
    """A fetch by topic id if the broker supports it and all ids are there, else by name."""

    API_KEY = 1

    def __init__(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> None:
        self._limits = limits
        self._positions = positions
        self.by_id = False
        """Whether the fetch is by topic id; set by `prepare`."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """See aiokafka's `Request`.

        Raises:
            IncompatibleBrokerVersion: the broker does not support record batches of format v2.
        """
        if versions.get(self.API_KEY, (0, -1))[1] < _OLDEST_FETCH:
            raise IncompatibleBrokerVersion("record batches need Kafka 0.11 or newer")
        all_known = all(at.topic_id is not None for at in self._positions)
        self.by_id = all_known and supported(versions, self.API_KEY, FETCH)
        return self.build(FetchRequest_v13) if self.by_id else self._by_name().prepare(versions)

    def build(self, request_struct_class: type[FetchRequest_v13]) -> FetchRequest_v13:
        """See aiokafka's `Request`."""
        limits = self._limits
        topics: dict[str | None, list[Any]] = {}
        for _, topic_id, *place in self._positions:  # in the schema's order
            topics.setdefault(topic_id, []).append((*place, _NO_START, limits.partition_bytes, {}))
        return request_struct_class(
            *(_CONSUMER, limits.max_wait_ms, limits.min_bytes, limits.max_bytes),
            *(int(limits.committed), 0, -1),
            [(topic_id, places, {}) for topic_id, places in topics.items()],
            *([], limits.rack, {}),
        )

    def _by_name(self) -> _fetch.FetchRequest:
        limits = self._limits
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for at in self._positions:
            place = at.partition, at.offset, limits.partition_bytes
            topics.setdefault(at.topic, []).append(place)
        return _fetch.FetchRequest(
            *(limits.max_wait_ms, limits.min_bytes, limits.max_bytes),
            *(int(limits.committed), list(topics.items())),
            rack_id=limits.rack,
        )


# -- offsets ---------------------------------------------------------------------------------------


class ListOffsetsRequest_v4(RequestStruct):  # type: ignore[misc]  # noqa: N801  # as aiokafka names them
    """Version 4: with the epoch of the leader that is asked."""

    API_KEY = 2
    API_VERSION = LIST_OFFSETS
    RESPONSE_TYPE = _offset.OffsetResponse_v4
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("timestamp", Int64),
                    ),
                ),
            ),
        ),
    )


class EndsRequest(_offset.OffsetRequest):  # type: ignore[misc]  # aiokafka is untyped
    """A request for end offsets; `topics` maps a name to (partition, leader epoch) pairs."""

    def __init__(self, isolation_level: int, topics: Mapping[str, list[tuple[int, int]]]) -> None:
        original = [(topic, [(n, LATEST) for n, _ in asked]) for topic, asked in topics.items()]
        super().__init__(_CONSUMER, isolation_level, original)
        self._with_epochs = [
            (topic, [(n, epoch, LATEST) for n, epoch in asked]) for topic, asked in topics.items()
        ]

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """See aiokafka's `Request`."""
        if not supported(versions, self.API_KEY, LIST_OFFSETS):
            return super().prepare(versions)
        return ListOffsetsRequest_v4(_CONSUMER, self._isolation_level, self._with_epochs)


class LeaderEpochResponse(Response):  # type: ignore[misc]  # untyped
    """Version 3: (error, partition, epoch, end offset) by topic."""

    API_KEY = 23
    API_VERSION = LEADER_EPOCH
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class LeaderEpochRequest_v3(RequestStruct):  # type: ignore[misc]  # noqa: N801  # as aiokafka names them
    """Version 3 of OffsetForLeaderEpoch, as consumers send it."""

    API_KEY = 23
    API_VERSION = LEADER_EPOCH
    RESPONSE_TYPE = LeaderEpochResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                    ),
                ),
            ),
        ),
    )


class LeaderEpochRequest(Request[LeaderEpochRequest_v3]):  # type: ignore[misc]  # untyped
    """A request for the offset at which an epoch ends in a leader's log.

    `topics` maps a name to (partition, leader's current epoch, requested epoch).
    """

    API_KEY = 23

    def __init__(self, topics: Mapping[str, list[tuple[int, int, int]]]) -> None:
        self._topics = list(topics.items())

    def build(self, request_struct_class: type[LeaderEpochRequest_v3]) -> LeaderEpochRequest_v3:
        """See aiokafka's `Request`."""
        return request_struct_class(_CONSUMER, self._topics)
