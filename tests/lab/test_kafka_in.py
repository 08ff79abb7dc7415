"""The reader on a real Kafka with assigned partitions: gaps, markers, retention and outages."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from mirrortest.config.client_config import ClientConfig, IsolationLevel
from mirrortest.errors import UnreachableError
from mirrortest.kafka.fetched import OutOfRange
from mirrortest.kafka.reader import Reader
from mirrortest.wire.record_batch import decode_records
from tests.lab.reading import both, reached, read, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.kafka.admin import Admin

pytestmark = pytest.mark.lab


async def test_batches_come_as_they_were_sent(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Batches are whole and in order, from the one with the sought offset, with arrival times."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 100, 50, 25)
    before = time.time_ns()
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 120)
        (found,) = await read(reader, reached(175))
        assert (found.fetched_from, found.next_offset, found.count) == (120, 175, 75)
        assert before <= found.arrived_ns <= time.time_ns()
        assert decode_records(found.buffer).offsets.tolist() == list(range(100, 175))
        assert await reader.next(0) == []
        assert await reader.end_offsets([(topic, 0)]) == {(topic, 0): 175}
        assert await reader.beginning_offsets([(topic, 0)]) == {(topic, 0): 0}


@both
async def test_every_offset_comes_once(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Offsets come from the sought one on; each batch begins where the one before it ended."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 100, 50, 25)
    before = time.time_ns()
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 120)
        found = await read(reader, reached(175))
        assert [offset for offset, _ in rows(found)] == list(range(120, 175))
        starts = [item.fetched_from for item in found]
        assert starts == [120, *(item.next_offset for item in found[:-1])]
        assert all(before <= item.arrived_ns <= time.time_ns() for item in found)


@both
async def test_what_is_taken_in_between_is_neither_lost_nor_repeated(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """`arrived` returns what was fetched so far; `next` returns what follows it."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 100)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 0)
        found: list[Any] = []
        async with asyncio.timeout(30):
            while not reached(100)(found):
                found += await reader.arrived()
                await asyncio.sleep(0)
        await send(topic, 50)
        found += await read(reader, reached(150))
        await send(topic, 25)
        async with asyncio.timeout(30):
            while not reached(175)(found):
                found += await reader.arrived()
                found += await reader.next(0)
        assert [offset for offset, _ in rows(found)] == list(range(175))


@both
async def test_a_wider_assignment_keeps_positions_and_pauses(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Adding partitions to the assignment changes nothing for those that are being read."""
    topic = topic_name()
    await admin.create_topic(topic, 3)
    for number in range(3):
        await send(topic, 10, partition=number)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0), (topic, 1)])
        reader.seek((topic, 0), 0)
        reader.seek((topic, 1), 0)
        reader.pause([(topic, 1)])
        await read(reader, reached(10))
        await reader.assign([(topic, number) for number in range(3)])
        reader.seek((topic, 2), 0)
        (third,) = await read(reader, lambda found: len(found) == 1)
        assert (third.partition, third.fetched_from) == (2, 0)
        reader.resume([(topic, 1)])
        (second,) = await read(reader, lambda found: len(found) == 1)
        assert (second.partition, second.fetched_from) == (1, 0)
        await send(topic, 5)
        (first,) = await read(reader, lambda found: len(found) == 1)
        assert (first.partition, first.fetched_from) == (0, 10)


@both
async def test_a_seek_counts_from_the_next_batch_on(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Whatever was fetched before, the next batch begins at the sought offset, each time."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, *[10] * 20)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        for offset in (0, 50, 0, 199, 70):
            reader.seek((topic, 0), offset)
            found = await read(reader, bool)
            assert found[0].fetched_from == offset


@both
async def test_retention_that_overtook_the_position_is_an_event(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """A position outside the log is reported until the next seek; nothing is skipped silently."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 10, 10, 10)
    assert await admin.delete_records(topic, 0, 20) == 20
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        for outside in (5, 31):
            reader.seek((topic, 0), outside)
            found = await read(reader, bool)
            assert found == [OutOfRange(topic, 0, outside)]
        begin = (await reader.beginning_offsets([(topic, 0)]))[topic, 0]
        assert begin == 20
        reader.seek((topic, 0), begin)
        (batch,) = await read(reader, reached(30))
        assert batch.fetched_from == 20


@both
async def test_a_partition_that_was_never_sought_is_an_error(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """The caller decides where to read: there is no default position."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        with pytest.raises(RuntimeError, match="never sought"):
            await read(reader, bool)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_that_others_compressed_are_read(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str], codec: str
) -> None:
    """A mirror may compress with any codec."""
    topic = topic_name()
    await admin.create_topic(topic, 1, configs={"compression.type": codec})
    producer = AIOKafkaProducer(bootstrap_servers=list(config.bootstrap_servers), linger_ms=50)
    async with producer:
        await asyncio.gather(
            *(producer.send_and_wait(topic, b"%d" % number * 100) for number in range(10))
        )
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 0)
        found = await read(reader, reached(10))
        assert all(isinstance(item.buffer, bytearray) for item in found)  # decompressed
        records = [decode_records(item.buffer) for item in found]
        values = {part.value(index) for part in records for index in range(len(part))}
        assert values == {b"%d" % number * 100 for number in range(10)}


@both
async def test_what_compresses_well_comes_in_portions(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """A response of a megabyte may expand to a gigabyte, which must not be in memory at once."""
    topic, megabyte, count = topic_name(), bytes(1 << 20), 80
    await admin.create_topic(topic, 1, configs={"max.message.bytes": str(4 << 20)})
    producer = AIOKafkaProducer(
        bootstrap_servers=list(config.bootstrap_servers),
        compression_type="zstd",
        max_request_size=4 << 20,
    )
    async with producer:
        for _ in range(count):
            await producer.send_and_wait(topic, megabyte)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 0)
        portions: list[list[Any]] = []
        while not portions or portions[-1][-1].next_offset < count:
            if found := await reader.next(0.2):
                portions.append(found)
    offsets = [[offset for offset, _ in rows(portion)] for portion in portions]
    assert [offset for portion in offsets for offset in portion] == list(range(count))
    assert max(len(portion) for portion in offsets) <= 16


@both
async def test_transactions_are_read_as_asked(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Markers are passed and the end is reached, for committed records alone and for all."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    producer = AIOKafkaProducer(
        bootstrap_servers=list(config.bootstrap_servers), transactional_id=uuid.uuid4().hex
    )
    async with producer:
        for kind in ("commit", "abort", "commit"):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, kind.encode())
            await (
                producer.commit_transaction() if kind == "commit" else producer.abort_transaction()
            )
    seen = {}
    for level in IsolationLevel:
        async with Reader(replace(config, isolation_level=level)) as reader:
            await reader.assign([(topic, 0)])
            reader.seek((topic, 0), 0)
            end = (await reader.end_offsets([(topic, 0)]))[topic, 0]
            assert end == 6
            found = await read(reader, reached(end))
            seen[level] = [value for _, value in rows(found)]
    assert seen[IsolationLevel.READ_COMMITTED] == [b"commit", b"commit"]
    assert seen[IsolationLevel.READ_UNCOMMITTED] == [b"commit", b"abort", b"commit"]


async def test_an_address_where_nobody_answers_is_named() -> None:
    """The error names the address and the cause."""
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9: connection refused"):
        await Reader(ClientConfig(bootstrap_servers=("127.0.0.1:9",))).start()


@both
async def test_a_frozen_broker_delays_and_loses_nothing(
    lab: Any, config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Reading continues at its position when the broker answers again."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 10)
    broker = lab.destination.brokers[0]
    async with Reader(replace(config, request_timeout_ms=1000)) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 0)
        await read(reader, reached(10))
        broker.stop()
        try:
            assert await reader.next(1.5) == []
        finally:
            broker.cont()
        await send(topic, 10)
        (batch,) = await read(reader, reached(20))
        assert batch.fetched_from == 10
