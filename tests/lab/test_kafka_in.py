"""The reader on a real Kafka: by hand and in groups, over gaps, markers and retention."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer

from mirrortest.config.client import ClientConfig, IsolationLevel
from mirrortest.errors import ClusterError, UnreachableError, UsageError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.reader import FetchedBatch, OutOfRange, Reader
from mirrortest.kafka.sender import Sender
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.message import Form
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.lab

At = tuple[str, int]


both = pytest.mark.parametrize(
    "config", [False, True], indirect=True, ids=["by its insides", "by public calls"]
)
"""Whichever way aiokafka is used."""


@pytest.fixture
def config(lab: Any, request: pytest.FixtureRequest) -> ClientConfig:
    return ClientConfig(
        portable=getattr(request, "param", False),
        bootstrap_servers=tuple(lab.destination.bootstrap_servers.split(",")),
        metadata_max_age_ms=500,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
    )


@pytest.fixture
async def admin(config: ClientConfig) -> AsyncIterator[Admin]:
    async with Admin(config) as made:
        yield made


@pytest.fixture
async def send(config: ClientConfig) -> AsyncIterator[Callable[..., Any]]:
    async with Sender(config) as sender:

        async def batches(topic: str, *counts: int, partition: int = 0) -> None:
            encoder = LaneEncoder(topic, ProducerId("p", "r", 1), 0, 0, 1, Form.BODY, 100)
            for count in counts:
                now = time.time_ns()
                batch = encoder.encode(0, np.full(count, now), now)
                sent = await (await sender.send(topic, partition, batch))
                assert sent.error is None

        yield batches


async def read(reader: Reader, until: Callable[[list[Any]], bool]) -> list[Any]:
    """Read until enough has come."""
    found: list[Any] = []
    while not until(found):
        found += await reader.next(0.2)
    return found


def rows(found: list[Any]) -> list[tuple[int, bytes | None]]:
    """All records as (offset, value), from where each batch was read on."""
    batches = [(decode_records(item.buffer), item) for item in found if item.buffer is not None]
    return [
        (int(offset), records.value(row))
        for records, item in batches
        for row, offset in enumerate(records.offsets)
        if offset >= item.fetched_from
    ]


def reached(*ends: int) -> Callable[[list[Any]], bool]:
    """Whether each partition's last batch ends at its offset."""

    def check(found: list[Any]) -> bool:
        last = {item.partition: item.next_offset for item in found}
        return all(last.get(number) == end for number, end in enumerate(ends))

    return check


# -- by hand -------------------------------------------------------------------------------------


async def test_batches_come_as_they_were_sent(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Whole, in order, from the batch that holds the offset asked for, stamped on arrival."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    await send(topic, 100, 50, 25)
    before = time.time_ns()
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        reader.seek((topic, 0), 120)
        first, second = await read(reader, reached(175))
        assert (first.fetched_from, first.base_offset, first.next_offset) == (120, 100, 150)
        assert (second.fetched_from, second.base_offset, second.next_offset) == (150, 150, 175)
        assert before <= first.arrived_ns <= time.time_ns()
        assert decode_records(second.buffer).offsets.tolist() == list(range(150, 175))
        assert await reader.next(0) == []
        assert await reader.end_offsets([(topic, 0)]) == {(topic, 0): 175}
        assert await reader.beginning_offsets([(topic, 0)]) == {(topic, 0): 0}


@both
async def test_every_offset_comes_once(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """From the offset that was asked for, each batch where the one before it ended."""
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
async def test_a_wider_assignment_keeps_positions_and_pauses(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Partitions added by hand disturb none of those that are being read."""
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
    """Whatever was fetched before: what lies there comes next, as often as it is sought."""
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
    """The position that is gone is named until it is sought; nothing is skipped silently."""
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
        assert batch.base_offset == 20


@both
async def test_a_partition_that_was_never_sought_is_an_error(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Where to read is the caller's decision: there is no default."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    async with Reader(config) as reader:
        await reader.assign([(topic, 0)])
        with pytest.raises(ClusterError, match="never sought"):
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
        records = [decode_records(batch.buffer) for batch in found]
        values = {part.value(index) for part in records for index in range(len(part))}
        assert values == {b"%d" % number * 100 for number in range(10)}
        assert found[0].codec != 0


@both
async def test_what_compresses_well_comes_in_portions(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """A response of a megabyte may hold a gigabyte, which must not all be in memory at once."""
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
    """Committed alone or all; either way markers are passed and the end offset is reached."""
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
    """The error holds address and cause."""
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9: connection refused"):
        await Reader(ClientConfig(bootstrap_servers=("127.0.0.1:9",))).start()


# -- in a group ----------------------------------------------------------------------------------


class Member:
    """A group's member that seeks to where the group has got, as the consumer does by its state."""

    def __init__(self, config: ClientConfig, group: str, positions: dict[At, int]) -> None:
        self.reader = Reader(config, group=group)
        self.positions = positions
        self.mine: set[At] = set()
        self.batches: list[FetchedBatch] = []
        self.busy = False

    async def on_assigned(self, partitions: list[At]) -> None:
        assert not self.busy
        await asyncio.sleep(0.05)  # whatever comes meanwhile must not be returned
        for at in partitions:
            self.reader.seek(at, self.positions.get(at, 0))
        self.mine = set(partitions)

    async def on_revoked(self, partitions: list[At]) -> None:
        assert not self.busy
        if partitions:
            await self.reader.commit({at: self.positions.get(at, 0) for at in partitions})
        self.mine -= set(partitions)

    async def turn(self) -> None:
        """Read once, and account for what came."""
        for item in await self.reader.next(0.1):
            assert isinstance(item, FetchedBatch)
            self.busy = True
            await asyncio.sleep(0)
            at = (item.topic, item.partition)
            assert at in self.mine
            assert item.fetched_from == self.positions.get(at, 0)
            self.positions[at] = item.next_offset
            self.batches.append(item)
            self.busy = False


async def turns(members: list[Member], until: Callable[[], bool]) -> None:
    """Let members read side by side, each in a task of its own, until something holds."""

    async def run(member: Member) -> None:
        while not until():
            await member.turn()

    await asyncio.gather(*(run(member) for member in members))


@both
async def test_a_group_shares_partitions_without_loss_or_repetition(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Members come and go; positions handed over in the callbacks fit without a gap."""
    topic, group, positions = topic_name(), uuid.uuid4().hex, dict[At, int]()
    await admin.create_topic(topic, 4)
    for number in range(4):
        await send(topic, 10, 10, partition=number)
    first, second = Member(config, group, positions), Member(config, group, positions)
    async with first.reader:
        await first.reader.subscribe(
            topics=[topic], on_assigned=first.on_assigned, on_revoked=first.on_revoked
        )
        await turns([first], lambda: sum(positions.values()) == 80)
        async with second.reader:
            await second.reader.subscribe(
                topics=[topic], on_assigned=second.on_assigned, on_revoked=second.on_revoked
            )
            await turns([first, second], lambda: len(first.mine) == len(second.mine) == 2)
            assert not first.mine & second.mine
            for number in range(4):
                await send(topic, 10, partition=number)
            await turns([first, second], lambda: sum(positions.values()) == 120)
            assert second.reader.assignment() == second.mine
        await turns([first], lambda: len(first.mine) == 4)
        await send(topic, 5)
        await turns([first], lambda: sum(positions.values()) == 125)
        assert await first.reader.commit({(topic, 0): 35})
        assert await first.reader.committed((topic, 0)) == 35


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
async def test_a_pattern_takes_in_new_topics_and_partitions(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str], assignor: str
) -> None:
    """Topics made later, and partitions added, are assigned while reading goes on."""
    stem, group = topic_name(), uuid.uuid4().hex
    config = ClientConfig.from_properties(
        {
            "bootstrap.servers": ",".join(config.bootstrap_servers),
            "metadata.max.age.ms": "300",
            "partition.assignment.strategy": assignor,
        }
    )
    await admin.create_topic(f"{stem}.a", 1)
    await admin.create_topic(f"{stem}.ab-not", 1)
    member = Member(config, group, {})
    async with member.reader:
        await member.reader.subscribe(
            pattern=stem.replace(".", r"\.") + r"\.[a-z]",
            on_assigned=member.on_assigned,
            on_revoked=member.on_revoked,
        )
        await turns([member], lambda: member.mine == {(f"{stem}.a", 0)})
        await admin.create_topic(f"{stem}.b", 1)
        await turns([member], lambda: (f"{stem}.b", 0) in member.mine)
        await admin.add_partitions(f"{stem}.a", 2)
        await turns([member], lambda: (f"{stem}.a", 1) in member.mine)
        await send(f"{stem}.a", 10, partition=1)
        await turns([member], lambda: len(member.batches) == 1)


async def test_what_a_callback_raises_comes_out_of_next(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """An application that cannot take a partition over hears of it, and can still close."""
    topic = topic_name()
    await admin.create_topic(topic, 1)

    async def fail(partitions: list[At]) -> None:
        if partitions:
            raise RuntimeError("cannot take it")

    async with Reader(config, group=uuid.uuid4().hex) as reader:
        await reader.subscribe(topics=[topic], on_assigned=fail, on_revoked=fail)
        with pytest.raises(RuntimeError, match="cannot take it"):
            await read(reader, bool)


async def test_a_reader_closes_while_a_rebalance_waits_for_it(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Nobody calls `next` any more: the rebalance is let go."""
    topic = topic_name()
    await admin.create_topic(topic, 1)

    async def nothing(partitions: list[At]) -> None:
        raise AssertionError(partitions)

    async with asyncio.timeout(20), Reader(config, group=uuid.uuid4().hex) as reader:
        await reader.subscribe(topics=[topic], on_assigned=nothing, on_revoked=nothing)
        assert reader._rebalances is not None
        await reader._rebalances.changed.wait()


@both
async def test_a_frozen_broker_delays_and_loses_nothing(
    lab: Any, config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Reading goes on where it stood when the broker answers again."""
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


async def test_without_a_group_there_is_nothing_to_subscribe_to(config: ClientConfig) -> None:
    """The mistake is told as one."""

    async def nothing(partitions: list[At]) -> None:
        pass

    with pytest.raises(UsageError, match="group"):
        await Reader(config).subscribe(topics=["t"], on_assigned=nothing, on_revoked=nothing)
