"""Topics re-created and logs cut back behind a reader, on a cluster of three brokers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.config.client import ClientConfig
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.reader import Diverged, End, FetchedBatches, Place, Reader, Recreated
from mirrortest.kafka.sender import Sender
from mirrortest.lab import jars
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.jvm import Jvm, lab_java
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.message import Form
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.lab.cluster import Broker

pytestmark = [pytest.mark.lab, pytest.mark.slow]

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    folder = tmp_path_factory.mktemp("cluster")
    made = Cluster("I", Jvm(lab_java(), jars.class_path()), folder, brokers=3)
    try:
        made.start()
        yield made
    finally:
        for broker in made.brokers:
            broker.kill()


@pytest.fixture
def config(cluster: Cluster) -> ClientConfig:
    """A client that soon notices what changes."""
    return ClientConfig(
        bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")), metadata_max_age_ms=500
    )


async def send(config: ClientConfig, topic: str, *counts: int) -> None:
    """Send batches of so many messages to partition 0."""
    async with Sender(config) as sender:
        encoder = LaneEncoder(topic, ProducerId("p", "r", 1), 0, 0, 1, Form.BODY, 100)
        for count in counts:
            now = time.time_ns()
            batch = encoder.encode(0, np.full(count, now), now)
            assert (await (await sender.send(topic, 0, batch))).error is None


async def read_to(reader: Reader, offset: int) -> FetchedBatches:
    """Read up to an offset; the last that came."""
    async with asyncio.timeout(60):
        while True:
            for item in await reader.next(1):
                assert isinstance(item, FetchedBatches), item
                if item.next_offset >= offset:
                    return item


async def broken_off(reader: Reader) -> Any:
    """What is told next that is no batch."""
    async with asyncio.timeout(60):
        while True:
            for item in await reader.next(1):
                assert not isinstance(item, FetchedBatches), item
                return item


async def test_a_topic_recreated_behind_a_reader_is_told_by_its_id(
    cluster: Cluster, config: ClientConfig
) -> None:
    """F1, F12: though it has grown beyond the position, or ends exactly there."""
    topic, at = "recreated", ("recreated", 0)
    async with Admin(config) as admin, Reader(config) as reader:
        await admin.create_topic(topic, 1, replication_factor=3)
        await send(config, topic, 5)
        await reader.assign([at])
        reader.seek(at, 0)
        last = await read_to(reader, 5)
        first_id = await reader.topic_id(topic)
        assert first_id is not None
        assert (last.topic_id, reader.sees_topic_ids) == (first_id, True)
        read = Place(5, last.leader_epoch, first_id)
        assert await reader.ends({at: read}) == {at: End(5, 5, first_id)}
        for grown in (12, 5):
            await admin.delete_topic(topic)
            await admin.create_topic(topic, 1, replication_factor=3)
            await send(config, topic, grown)
            told = await broken_off(reader)
            assert isinstance(told, Recreated)
            assert told.offset == last.next_offset
            assert told.topic_id not in {first_id, last.topic_id}
            assert (await broken_off(reader)).topic_id == told.topic_id
            [end] = (await reader.ends({at: read})).values()
            assert end == End(grown, grown, told.topic_id)
            reader.seek(at, 0, topic_id=told.topic_id)
            last = await read_to(reader, grown)
            assert last.topic_id == told.topic_id


def leader_and_follower(cluster: Cluster, found: list[dict[str, Any]]) -> tuple[Broker, Broker]:
    """The brokers of a partition of two replicas."""
    [partition] = found[0]["partitions"]
    leader = partition["leader"]
    [follower] = set(partition["replicas"]) - {leader}
    return cluster.brokers[leader - 1], cluster.brokers[follower - 1]


async def test_a_log_cut_back_behind_a_reader_is_told_by_the_leaders_epoch(
    cluster: Cluster, config: ClientConfig
) -> None:
    """F2: an unclean election; what was read up to the common offset is the same."""
    topic, at = "cut-back", ("cut-back", 0)
    async with Admin(config) as admin, Reader(config) as reader:
        await admin.create_topic(topic, 1, replication_factor=2, configs=UNCLEAN)
        leader, follower = leader_and_follower(
            cluster, await admin._client.describe_topics([topic])
        )
        await send(config, topic, 6)
        follower.kill()
        await send(config, topic, 2, 2)
        await reader.assign([at])
        reader.seek(at, 0)
        last = await read_to(reader, 10)
        read = Place(10, last.leader_epoch, last.topic_id)
        leader.kill()
        follower.start()
        await send(config, topic, 3, 3)
        told = await broken_off(reader)
        assert isinstance(told, Diverged)
        assert (told.offset, told.end_offset) == (10, 6)
        [end] = (await reader.ends({at: read})).values()
        assert (end.offset, end.topic_id, end.agrees) == (12, last.topic_id, False)
        [end] = (await reader.ends({at: read._replace(offset=6)})).values()
        assert end.agrees
        reader.seek(at, 6, topic_id=last.topic_id, leader_epoch=told.leader_epoch)
        assert (await read_to(reader, 12)).leader_epoch > last.leader_epoch
        leader.start()
