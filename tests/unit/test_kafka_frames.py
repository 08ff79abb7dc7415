"""A connection returns responses unchanged, however the network splits their bytes."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import conn
from aiokafka.protocol import produce
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.kafka.fast.connection import Connection
from mirrortest.kafka.fast.frames import Cursor, Frame, FrameCutter, FrameProtocol, Section

if TYPE_CHECKING:
    from asyncio.streams import StreamReader, StreamWriter
    from collections.abc import Callable


VERSIONS = {0: (0, 8), 1: (0, 11), 3: (0, 5)}


def feed(cutter: FrameCutter, data: bytes, sizes: list[int]) -> None:
    """Receive the data in pieces of at most these sizes, cycling through the sizes."""
    at, turn = 0, 0
    while at < len(data):
        room = cutter.room()
        count = min(len(room), max(1, sizes[turn % len(sizes)]), len(data) - at)
        room[:count] = data[at : at + count]
        cutter.received(count)
        at, turn = at + count, turn + 1


@given(
    st.lists(st.sampled_from([0, 1, 3, 50, 16_380, 16_384, 40_000]), max_size=6),
    st.lists(st.integers(1, 60_000), min_size=1, max_size=5),
)
def test_frames_are_what_was_sent(lengths: list[int], sizes: list[int]) -> None:
    """However the network splits the bytes, each frame is complete, separate and in order."""
    sent = [bytes([i]) * length for i, length in enumerate(lengths, 1)]
    cutter = FrameCutter()
    feed(cutter, b"".join(struct.pack(">i", len(one)) + one for one in sent), sizes)
    assert [frame.data.tobytes() for frame in cutter.frames] == sent
    assert all(frame.data.readonly and frame.arrived_ns for frame in cutter.frames)


def test_a_negative_length_is_no_kafka() -> None:
    """Other protocols than Kafka's are refused before memory is allocated for a frame."""
    with pytest.raises(ValueError, match="-1 bytes"):
        feed(FrameCutter(), b"\xff\xff\xff\xff", [4])


def test_only_long_parts_are_views() -> None:
    """Short parts are bytes, as aiokafka expects; a long one is not copied."""
    data = memoryview(bytes(range(256)) * 64)
    cursor = Cursor(Frame(data, 7))
    assert cursor.read(4) == b"\x00\x01\x02\x03"
    part = cursor.read(5000)
    assert isinstance(part, Section)
    assert (len(part), part.arrived_ns) == (5000, 7)
    assert part.data.obj is data.obj
    assert part.data.tobytes() == data[4:5004].tobytes()
    rest = cursor.read(1 << 20)
    assert isinstance(rest, Section)
    assert rest.data.tobytes() == data[5004:].tobytes()


class Broker:
    """Answers each request with `answer(raw bytes)`; None closes the connection."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self.requests: list[bytes] = []

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                request = await reader.readexactly(size)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    break
                writer.write(struct.pack(">i", len(answer)) + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def connected(port: int) -> Connection:
    made = Connection("127.0.0.1", port, request_timeout_ms=20_000)
    made._do_version_lookup = lambda: asyncio.sleep(0)
    await made.connect()
    made._versions = VERSIONS
    return made


async def test_a_produce_request_is_byte_for_byte_aiokafkas() -> None:
    """Batches are written without joining them; the broker sees no difference."""
    batches = [bytearray(b"a" * 70_000), bytearray(b"b" * 3)]
    request = ProduceRequest(
        transactional_id=None,
        required_acks=-1,
        timeout=1000,
        topics=[("t", [(0, batches[0]), (3, batches[1])]), ("u", [(1, batches[1])])],
    )
    broker = Broker(lambda raw: raw[4:8] + b"\0\0\0\0" + b"\0\0\0\0")
    async with broker as port:
        connection = await connected(port)
        assert isinstance(connection._protocol, FrameProtocol)
        response = await connection.send(request)
        assert response.topics == []
        prepared = request.prepare(VERSIONS)
        header = prepared.build_request_header(correlation_id=1, client_id="aiokafka")
        assert broker.requests == [header.encode() + prepared.encode()]
        await connection.close()


STORED = [("t", [(0, 0, 5, -1), (3, 6, -1, -1)]), ("\xfc", [(1, 0, 2**40, 1_700_000_000_000)])]
"""Partitions of two topics in a produce response, as brokers up to Kafka 0.11 send it."""


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
async def test_an_answer_to_a_produce_request_is_what_aiokafka_reads(version: int) -> None:
    """Every version: partitions, errors, offsets, timestamps, and the log start offset if any."""
    kind = getattr(produce, f"ProduceResponse_v{version}")
    start = (7,) if version >= 5 else ()
    topics = [(topic, [(*each, *start) for each in stored]) for topic, stored in STORED]
    async with Broker(lambda raw: raw[4:8] + kind(topics, 30).encode()) as port:
        connection = await connected(port)
        connection._versions = {0: (3, version)}
        response = await connection.send(ProduceRequest(None, -1, 1000, []))
        assert (type(response), response) == (kind, kind(topics, 30))
        await connection.close()


async def test_an_answer_to_a_produce_request_that_is_cut_off_ends_its_connection() -> None:
    """The request then fails as unanswered, and the sender sends it again."""
    answer = produce.ProduceResponse_v4(STORED, 0).encode()[:-9]
    async with Broker(lambda raw: raw[4:8] + answer) as port:
        connection = await connected(port)
        connection._versions = {0: (3, 4)}
        with pytest.raises(conn.Errors.KafkaConnectionError, match="closed"):
            await connection.send(ProduceRequest(None, -1, 1000, []))


async def test_a_broker_without_record_batches_is_refused() -> None:
    """The error is one of aiokafka's that fails the batches, not one that ends the sender."""
    async with Broker(lambda _: None) as port:
        connection = await connected(port)
        connection._versions = {0: (0, 2)}
        with pytest.raises(conn.Errors.IncompatibleBrokerVersion, match=r"0\.11"):
            await connection.send(ProduceRequest(None, -1, 1000, []))
        await connection.close()


async def test_a_fetch_brings_its_records_as_a_view() -> None:
    """Records are a `Section` with their arrival time, not a copy."""
    records = bytes(range(256)) * 100

    def answer(raw: bytes) -> bytes:
        partition = struct.pack(">ihqqqi", 5, 0, 9, 9, 0, -1)
        return (
            raw[4:8]
            + struct.pack(">ihi", 0, 0, 0)
            + struct.pack(">ih", 1, 1)
            + b"t"
            + struct.pack(">i", 1)
            + partition
            + (struct.pack(">i", -1) if raw[2:4] >= b"\0\x0b" else b"")
            + struct.pack(">i", len(records))
            + records
        )

    async with Broker(answer) as port:
        connection = await connected(port)
        request = FetchRequest(100, 1, 1 << 20, 0, [("t", [(5, 0, 1 << 20)])], "")
        response = await connection.send(request)
        ((topic, ((partition, *_, section),)),) = response.topics
        assert (topic, partition, section.data.tobytes()) == ("t", 5, records)
        assert section.arrived_ns > 0
        await connection.close()


async def test_a_broker_that_hangs_up_fails_what_waits() -> None:
    """The error is aiokafka's own, so that aiokafka reconnects as usual."""
    async with Broker(lambda _: None) as port:
        connection = await connected(port)
        with pytest.raises(conn.Errors.KafkaConnectionError, match="closed"):
            await connection.send(MetadataRequest([]))
        assert not connection.connected()


@pytest.mark.parametrize("produce", [False, True])
async def test_a_transport_that_was_just_closed_is_a_connection_that_broke(produce: bool) -> None:
    """The event loop refuses the write with a RuntimeError; the caller gets a connection error."""

    def refuse(_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    request: Any = MetadataRequest([])
    if produce:
        topics = [("t", [(0, bytearray(b"a"))])]
        request = ProduceRequest(
            transactional_id=None, required_acks=-1, timeout=1000, topics=topics
        )
    async with Broker(lambda _: None) as port:
        connection = await connected(port)
        connection._writer.write = connection._writer.writelines = refuse
        with pytest.raises(conn.Errors.KafkaConnectionError, match="handler is closed"):
            await connection.send(request)
        assert not connection.connected()
