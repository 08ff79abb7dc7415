"""The reader on a real Kafka, in a group: what is assigned to it and revoked from it."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import UsageError
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.kafka.reader import Reader
from tests.lab.reading import At, both, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.kafka.admin import Admin

pytestmark = pytest.mark.lab


class Member:
    """A group member that seeks to the group's positions, as the consumer does with its state."""

    def __init__(self, config: ClientConfig, group: str, positions: dict[At, int]) -> None:
        self.reader = Reader(config, group=group)
        self.positions = positions
        self.mine: set[At] = set()
        self.batches: list[FetchedBatches] = []
        self.busy = False

    async def on_assigned(self, partitions: list[At]) -> None:
        assert not self.busy
        await asyncio.sleep(0.05)  # what arrives meanwhile must not be returned
        for at in partitions:
            self.reader.seek(at, self.positions.get(at, 0))
        self.mine = set(partitions)

    async def on_revoked(self, partitions: list[At]) -> None:
        assert not self.busy
        if partitions:
            await self.reader.commit({at: self.positions.get(at, 0) for at in partitions})
        self.mine -= set(partitions)

    async def turn(self) -> None:
        """Read once; check and record what arrived."""
        for item in await self.reader.next(0.1):
            assert isinstance(item, FetchedBatches)
            self.busy = True
            await asyncio.sleep(0)
            at = (item.topic, item.partition)
            assert at in self.mine
            assert item.fetched_from == self.positions.get(at, 0)
            self.positions[at] = item.next_offset
            self.batches.append(item)
            self.busy = False


async def turns(members: list[Member], until: Callable[[], bool]) -> None:
    """Let members read concurrently, each in its own task, until a condition is true."""

    async def run(member: Member) -> None:
        while not until():
            await member.turn()

    await asyncio.gather(*(run(member) for member in members))


@both
async def test_a_group_shares_partitions_without_loss_or_repetition(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str]
) -> None:
    """Members join and leave; positions passed on in the callbacks leave no gap."""
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
        consumer = AIOKafkaConsumer(
            bootstrap_servers=list(config.bootstrap_servers), group_id=group
        )
        await consumer.start()
        assert await consumer.committed(TopicPartition(topic, 0)) == 35
        await consumer.stop()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
async def test_a_pattern_takes_in_new_topics_and_partitions(
    config: ClientConfig, admin: Admin, send: Any, topic_name: Callable[[], str], assignor: str
) -> None:
    """New topics and added partitions are assigned while reading continues."""
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
    """An application that cannot take over a partition gets the error, and can still close."""
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
    """If `next` is not called any more, closing releases the rebalance."""
    topic = topic_name()
    await admin.create_topic(topic, 1)

    async def nothing(partitions: list[At]) -> None:
        raise AssertionError(partitions)

    async with asyncio.timeout(20), Reader(config, group=uuid.uuid4().hex) as reader:
        await reader.subscribe(topics=[topic], on_assigned=nothing, on_revoked=nothing)
        assert reader._rebalances is not None
        await reader._rebalances.changed.wait()


async def test_without_a_group_there_is_nothing_to_subscribe_to(config: ClientConfig) -> None:
    """To subscribe without a group is a usage error."""

    async def nothing(partitions: list[At]) -> None:
        pass

    with pytest.raises(UsageError, match="group"):
        await Reader(config).subscribe(topics=["t"], on_assigned=nothing, on_revoked=nothing)
