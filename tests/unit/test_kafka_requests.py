"""Requests newer than aiokafka's, byte by byte as Kafka's protocol defines them."""

from __future__ import annotations

import asyncio
import struct
import threading
from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.types import UnsignedVarInt32
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.error_table import RequestError
from mirrortest.kafka.fast import requests
from mirrortest.kafka.fast.administration import FastAdmin
from mirrortest.kafka.fast.frames import Cursor, Frame, Section
from mirrortest.kafka.fast.metadata import MetadataRequest, MetadataResponse
from mirrortest.kafka.fast.wire_types import Uuid, varint
from mirrortest.kafka.ports import TopicDescription

RAW_ID = bytes(range(0xF0, 0x100))
TOPIC_ID = "8PHy8_T19vf4-fr7_P3-_w"
OLD = {1: (0, 11), 2: (0, 3), 3: (0, 5)}
NEW = {1: (4, 17), 2: (1, 11), 3: (0, 13), 23: (2, 4)}


def i16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def i64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def compact(text: str) -> bytes:
    """A compact string of one length byte (length + 1), then the text."""
    return bytes([len(text) + 1]) + text.encode()


def cursor(data: bytes) -> Cursor:
    return Cursor(Frame(memoryview(data), 77))


def test_a_topics_id_has_kafkas_spelling() -> None:
    """URL-safe base64 without padding; zeros mean no id."""
    assert Uuid.encode(TOPIC_ID) == RAW_ID
    assert Uuid.decode(BytesIO(RAW_ID)) == TOPIC_ID
    assert Uuid.decode(BytesIO(bytes(16))) == ""
    assert Uuid.encode("") == bytes(16)


def fetch(rack: str = "", topic_id: str | None = TOPIC_ID) -> requests.FetchRequest:
    limits = requests.FetchLimits(500, 1, 1 << 20, 4096, committed=True, rack=rack)
    position = requests.FetchPosition("t", topic_id, 3, 7, 42, 6)
    return requests.FetchRequest(limits, [position])


def test_a_fetch_names_its_topic_by_id_and_both_epochs() -> None:
    """Version 13: topic id, leader epoch, and the epoch of the batch before the offset."""
    prepared = fetch("r1").prepare(NEW)
    header = prepared.build_request_header(correlation_id=9, client_id="me").encode()
    assert header == i16(1) + i16(13) + i32(9) + i16(2) + b"me" + b"\0"
    assert prepared.encode() == b"".join(
        [
            i32(-1),  # a consumer
            i32(500) + i32(1) + i32(1 << 20) + b"\1",  # read committed
            i32(0) + i32(-1),  # no session
            b"\2" + RAW_ID,  # one topic
            b"\2" + i32(3),  # one partition
            i32(7) + i64(42) + i32(6),  # current epoch, offset, last fetched epoch
            i64(-1) + i32(4096) + b"\0",
            b"\0",  # the topic's tags
            b"\1",  # nothing forgotten
            compact("r1") + b"\0",
        ]
    )


TOPIC_IDS = st.binary(min_size=16, max_size=16).filter(any)


@given(
    st.lists(
        st.builds(
            requests.FetchPosition,
            *(st.just("t"), TOPIC_IDS.map(lambda raw: Uuid.decode(BytesIO(raw)))),
            *(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1)),
            *(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1)),
        ),
        max_size=200,
    ),
    st.integers(0, 2**31 - 1),
    st.text(max_size=200),
)
def test_a_fetch_is_what_its_schema_encodes(
    positions: list[requests.FetchPosition], most: int, rack: str
) -> None:
    """The faster encoder writes the bytes that the schema would."""
    limits = requests.FetchLimits(500, 1, 1 << 20, most, committed=False, rack=rack)
    prepared = requests.FetchRequest(limits, positions).prepare(NEW)
    assert prepared.encode() == RequestStruct.encode(prepared)


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID])
def test_a_broker_without_record_batches_is_not_asked(topic_id: str | None) -> None:
    """The error names the Kafka version that is needed, not versions of requests."""
    with pytest.raises(IncompatibleBrokerVersion, match=r"need Kafka 0\.11"):
        fetch(topic_id=topic_id).prepare({1: (0, 3)})


def test_a_broker_that_knows_no_topic_ids_is_asked_by_name() -> None:
    """So is any broker if the topic's id is unknown."""
    for asked, versions in ((fetch(), OLD), (fetch(topic_id=None), NEW)):
        prepared = asked.prepare(versions)
        assert prepared.API_VERSION == 11
        assert prepared.topics == [("t", [(3, -1, 42, -1, 4096)])]
        assert not asked.by_id


def fetched(records: bytes, tags: bytes, aborted: bytes = b"\0") -> bytes:
    return b"".join(
        [
            i32(0) + i16(0) + i32(0),
            b"\2" + RAW_ID,
            b"\2" + i32(3) + i16(0) + i64(50) + i64(48) + i64(2),
            aborted,
            i32(-1),
            records,
            tags,
            b"\0" + b"\0",
        ]
    )


def test_a_fetch_is_answered_in_the_shape_that_aiokafka_reads() -> None:
    """Long records are not copied; aborted transactions are pairs."""
    raw = bytes(5000)
    data = fetched(b"\x89\x27" + raw, b"\0", b"\2" + i64(11) + i64(40) + b"\0")
    made = requests.FetchResponse.decode(cursor(data))
    [(topic_id, [partition])] = made.topics
    assert topic_id == TOPIC_ID
    assert partition[:-1] == (3, 0, 50, 48, 2, [(11, 40)], -1)
    assert isinstance(partition[-1], Section)
    assert len(partition[-1]) == 5000
    assert made.diverging == {}


def test_a_fetch_tells_where_its_log_may_be_what_was_read() -> None:
    """Tag 0 has the last epoch, and its end, that both can share; other tags are skipped."""
    end = i32(4) + i64(6) + b"\0"
    leader = i32(2) + i32(5) + b"\0"
    tags = b"\2" + b"\0" + bytes([len(end)]) + end + b"\1" + bytes([len(leader)]) + leader
    made = requests.FetchResponse.decode(cursor(fetched(b"\1", tags)))
    assert made.diverging == {(TOPIC_ID, 3): requests.EpochEnd(4, 6)}
    assert made.topics[0][1][0][-1] == b""


def test_an_answer_that_is_cut_off_is_no_answer() -> None:
    """It is refused wherever it is cut; only its last byte is not needed."""
    response = fetched(b"\1", b"\0")
    for size in range(len(response) - 1):
        with pytest.raises((ValueError, struct.error)):
            requests.FetchResponse.decode(cursor(response[:size]))


def test_metadata_is_asked_by_name_and_creates_nothing() -> None:
    """Version 12; without topics, it requests all topics."""
    prepared = MetadataRequest(["t"]).prepare(NEW)
    assert prepared.encode() == b"\2" + bytes(16) + compact("t") + b"\0" + b"\0\0" + b"\0"
    assert MetadataRequest().prepare(NEW).encode() == b"\0" + b"\0\0" + b"\0"
    old = MetadataRequest(["t"]).prepare(OLD)
    assert (old.API_VERSION, old.allow_auto_topic_creation) == (5, False)


def test_metadata_tells_ids_and_epochs_beside_what_aiokafka_reads() -> None:
    """The rest has the form of version 5."""
    data = b"".join(
        [
            i32(0),
            b"\2" + i32(1) + compact("host") + i32(9092) + b"\0" + b"\0",
            compact("cluster") + i32(1),
            b"\3",
            i16(0) + compact("t") + RAW_ID + b"\0",
            b"\2" + i16(0) + i32(0) + i32(1) + i32(7),
            b"\3" + i32(1) + i32(2) + b"\2" + i32(1) + b"\1" + b"\0",
            i32(-(1 << 31)) + b"\0",
            i16(3) + compact("gone") + bytes(16) + b"\0" + b"\1" + i32(0) + b"\0",
            b"\0",
        ]
    )
    made = MetadataResponse.decode(BytesIO(data))
    assert made.brokers == [(1, "host", 9092, None)]
    assert made.topics == [
        (0, "t", False, [(0, 0, 1, [1, 2], [1], [])]),
        (3, "gone", False, []),
    ]
    assert made.topic_ids == {"t": TOPIC_ID}
    assert made.leaders == {("t", 0): (7, 1)}
    described: Any = made.to_object()
    assert described["topics"][0]["partitions"][0]["leader"] == 1
    for size in range(len(data) - 1):
        with pytest.raises(ValueError, match=r"."):
            MetadataResponse.decode(BytesIO(data[:size]))


def described_by(data: bytes) -> FastAdmin:
    """An admin whose broker answers a request for metadata with these bytes."""
    admin = FastAdmin(ClientConfig(bootstrap_servers=("a:1",)))

    async def answer(request: MetadataRequest) -> Any:
        await asyncio.sleep(0)
        return request.prepare(NEW).RESPONSE_TYPE.decode(BytesIO(data))

    admin.client._send_request = answer
    return admin


def topics_of(*names: str) -> bytes:
    """An answer: each topic has two partitions, of which the second comes first."""
    partitions = b"".join(
        i16(0) + i32(number) + i32(leader) + i32(7) + b"\1\1\1" + b"\0"
        for number, leader in ((1, 9), (0, -1))
    )
    topics = [
        i16(0) + compact(name) + RAW_ID + b"\0\3" + partitions + i32(-(1 << 31)) + b"\0"
        for name in names
    ]
    head = i32(0) + b"\1" + compact("cluster") + i32(1)
    return b"".join([head, UnsignedVarInt32.encode(len(topics) + 1), *topics, b"\0"])


async def test_a_topic_is_described_by_its_partitions_leaders() -> None:
    """In the order of partitions, whatever their order in the answer."""
    admin = described_by(topics_of("t"))
    assert await admin.describe_topics(["t"]) == [TopicDescription("t", None, False, 2, [-1, 9])]


async def test_brokers_before_kafka_3_1_describe_topics_too() -> None:
    """Their answer is aiokafka's."""
    admin = FastAdmin(ClientConfig(bootstrap_servers=("a:1",)))
    partitions: Any = [(0, 1, 9, [], [], []), (0, 0, -1, [], [], [])]

    async def answer(_: Any) -> Any:
        return MetadataResponse_v5(0, [], "c", 1, [(3, "t", False, partitions)])

    admin.client._send_request = answer
    (topic,) = await admin.describe_topics(["t"])
    assert topic.error is not None
    assert topic[2:] == (False, 2, [-1, 9])


async def test_the_topics_of_a_large_cluster_do_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread reads them: messages that arrive meanwhile get their arrival time at once."""
    read, threads = MetadataResponse.decode, set()

    def decode(data: Any) -> MetadataResponse:
        threads.add(threading.get_ident())
        return read(data)

    monkeypatch.setattr(MetadataResponse, "decode", decode)
    assert len(await described_by(topics_of(*map(str, range(200)))).describe_topics(None)) == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_metadata_that_cannot_be_read_are_an_error_of_the_request() -> None:
    """As if the connection had broken."""
    with pytest.raises(RequestError, match="too early"):
        await described_by(topics_of("t")[:-9]).describe_topics(None)


def test_a_number_of_a_broker_has_any_length() -> None:
    """Seven bits a byte, five bytes at most."""
    for value in (0, 1, 127, 128, 300, 2**31 - 1):
        assert varint(BytesIO(UnsignedVarInt32.encode(value))) == value
    with pytest.raises(ValueError, match="too long"):
        varint(BytesIO(b"\x80" * 5 + b"\1"))


def test_ends_are_asked_of_a_leader_by_its_epoch() -> None:
    """ListOffsets version 4, OffsetForLeaderEpoch version 3; older brokers get no epoch."""
    asked = requests.EndsRequest(1, {"t": [(3, 7)]})
    assert asked.prepare(NEW).encode() == (
        i32(-1) + b"\1" + i32(1) + i16(1) + b"t" + i32(1) + i32(3) + i32(7) + i64(-1)
    )
    assert asked.prepare(OLD).topics == [("t", [(3, -1)])]
    epochs = requests.LeaderEpochRequest({"t": [(3, 7, 6)]}).prepare(NEW)
    assert epochs.encode() == (i32(-1) + i32(1) + i16(1) + b"t" + i32(1) + i32(3) + i32(7) + i32(6))
