"""Topics recreated and logs truncated while they are read, on a cluster of three brokers."""

from __future__ import annotations

import asyncio
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import TopicReplacedError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.fetched import Diverged, End, FetchedBatches, ReadPosition, Recreated
from mirrortest.kafka.reader import Reader
from mirrortest.kafka.sender import Sender
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.process.runtime import Jvm
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.lab.harness import Command, Scene, judged_alike, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


pytestmark = [pytest.mark.lab, pytest.mark.slow]

COMPACT = {"cleanup.policy": "compact"}
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    folder = tmp_path_factory.mktemp("cluster")
    made = Cluster("I", Jvm.find(), folder, brokers=3)
    try:
        made.start()
        yield made
    finally:
        for broker in made.brokers:
            broker.kill()


@pytest.fixture(autouse=True)
def _all_run(cluster: Cluster) -> Iterator[None]:
    """Restart the brokers that a test left dead, before the next one."""
    yield
    for broker in cluster.brokers:
        if not broker.alive:
            broker.spawn()
    cluster.wait_ready(timeout=240)


@pytest.fixture
def config(cluster: Cluster) -> ClientConfig:
    """A client that soon notices changes."""
    return ClientConfig(
        bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")), metadata_max_age_ms=500
    )


async def send(config: ClientConfig, topic: str, *counts: int) -> None:
    """Send batches with these counts of messages to partition 0."""
    async with Sender(config) as sender:
        encoder = LaneEncoder(topic, ProducerId("p", "r", 1), 0, 0, 1, Form.BODY, 100)
        for count in counts:
            now = time.time_ns()
            batch = encoder.encode(0, np.full(count, now), now)
            assert (await sender.send(topic, 0, batch)).error is None


async def read_to(reader: Reader, offset: int) -> FetchedBatches:
    """Read up to an offset; the last batches."""
    async with asyncio.timeout(60):
        while True:
            for item in await reader.next(1):
                assert isinstance(item, FetchedBatches), item
                if item.next_offset >= offset:
                    return item


async def broken_off(reader: Reader) -> Any:
    """The next item, which must not be batches."""
    async with asyncio.timeout(60):
        while True:
            for item in await reader.next(1):
                assert not isinstance(item, FetchedBatches), item
                return item


async def test_a_topic_recreated_behind_a_reader_is_told_by_its_id(
    cluster: Cluster, config: ClientConfig
) -> None:
    """The topic id shows it, though the new topic may end exactly at the position.

    Then no offset shows it, and nothing is fetched. The reader is paused until the new topic ends
    beyond its position, exactly there, or below. `ends` reports the new topic id each time.
    """
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
        read = ReadPosition(5, last.leader_epoch, first_id)
        assert await reader.ends({at: read}) == {at: End(5, 5, first_id)}
        for grown in (12, 12, 5):
            reader.pause([at])
            await admin.delete_topic(topic)
            await admin.create_topic(topic, 1, replication_factor=3)
            await send(config, topic, grown)
            reader.resume([at])
            reason = await broken_off(reader)
            assert isinstance(reason, Recreated)
            assert reason.offset == last.next_offset
            assert reason.topic_id not in {first_id, last.topic_id}
            assert (await broken_off(reader)).topic_id == reason.topic_id
            [end] = (await reader.ends({at: read})).values()
            assert end == End(grown, grown, reason.topic_id)
            reader.seek(at, 0, topic_id=reason.topic_id)
            last = await read_to(reader, grown)
            assert last.topic_id == reason.topic_id


async def leader_and_follower(admin: Admin, topic: str) -> tuple[int, int]:
    """Their indexes, for the only partition; waits until the cluster describes the topic."""
    port: Any = admin._client
    async with asyncio.timeout(60):
        while not (  # noqa: ASYNC110  # a cluster reports no event
            found := (await port.client.describe_topics([topic]))[0]["partitions"]
        ):
            await asyncio.sleep(0.1)
    [partition] = found
    leader: int = partition["leader"]
    [follower] = set(partition["replicas"]) - {leader}
    return leader - 1, follower - 1


async def test_a_log_cut_back_behind_a_reader_is_told_by_the_leaders_epoch(
    cluster: Cluster, config: ClientConfig
) -> None:
    """An unclean election; the log up to the common offset is unchanged."""
    topic, at = "cut-back", ("cut-back", 0)
    async with Admin(config) as admin, Reader(config) as reader:
        await admin.create_topic(topic, 1, replication_factor=2, configs=UNCLEAN)
        places = await leader_and_follower(admin, topic)
        leader, follower = (cluster.brokers[place] for place in places)
        await send(config, topic, 6)
        follower.kill()
        await send(config, topic, 2, 2)
        await reader.assign([at])
        reader.seek(at, 0)
        last = await read_to(reader, 10)
        read = ReadPosition(10, last.leader_epoch, last.topic_id)
        leader.kill()
        follower.start()
        await send(config, topic, 3, 3)
        reason = await broken_off(reader)
        assert isinstance(reason, Diverged)
        assert (reason.offset, reason.end_offset) == (10, 6)
        [end] = (await reader.ends({at: read})).values()
        assert (end.offset, end.topic_id, end.agrees) == (12, last.topic_id, False)
        [end] = (await reader.ends({at: read._replace(offset=6)})).values()
        assert end.agrees
        reader.seek(at, 6, topic_id=last.topic_id, leader_epoch=reason.leader_epoch)
        assert (await read_to(reader, 12)).leader_epoch > last.leader_epoch


async def test_a_compacted_topic_that_an_unclean_election_cuts_is_written_on(
    cluster: Cluster, config: ClientConfig
) -> None:
    """Writes go on, though the new leader has older sequence numbers of the writer.

    That used to end consumers when they wrote their states. A follower gets an error: the topic no
    longer contains what was read. It reads the topic from the beginning.
    """
    name = "cut-states"
    async with Admin(config) as admin, CompactedTopic(config, name) as topic:
        await admin.create_topic(name, 1, replication_factor=2, configs=COMPACT | UNCLEAN)
        places = await leader_and_follower(admin, name)
        leader, follower = (cluster.brokers[place] for place in places)
        assert await topic.write(b"a", b"1") == 0
        follower.kill()
        for key in (b"b", b"c"):
            await topic.write(key, b"1")
        tail = topic.tail()
        assert [key for _, key, _ in [await anext(tail) for _ in range(3)]] == [b"a", b"b", b"c"]
        leader.kill()
        follower.start()
        until(lambda: cluster.end_offsets(name) == {0: 1}, what="the log is cut back")
        assert await topic.write(b"d", b"1") == 1
        with pytest.raises(TopicReplacedError):
            async with asyncio.timeout(60):
                await anext(tail)
        tail = topic.tail()
        assert [await anext(tail) for _ in range(2)] == [(0, b"a", b"1"), (1, b"d", b"1")]
        await tail.aclose()  # type: ignore[attr-defined]  # what is declared has no close


@pytest.fixture
def make_scene(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Scene]]:
    """A run with one topic: the cluster is source and destination, without a mirror."""
    scenes: list[Scene] = []

    def make(name: str) -> Scene:
        scene = Scene(
            SimpleNamespace(source=cluster, destination=cluster),
            tmp_path,
            name,
            (name,),
            ledger=f"ledger-{name}",
            state=f"state-{name}",
            spark=lambda: request.getfixturevalue("spark"),
            alias="",
        )
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.close()


LOAD = ("--throughput", "2000", "--message-size", "200")
DUE = ("--deadline", "4s", "--expect-producers", "ann,amy,bob")


def delivered(consumer: Command, count: int) -> None:
    until(
        lambda: f"{count:,} delivered of {count:,}" in consumer.stderr,
        what=f"{count} are delivered",
    )


async def create(config: ClientConfig, topic: str) -> tuple[int, int]:
    """Create a topic that unclean elections truncate; the indexes of its leader and follower."""
    async with Admin(config) as admin:
        await admin.create_topic(topic, 1, replication_factor=2, configs=UNCLEAN)
        return await leader_and_follower(admin, topic)


async def test_a_topic_created_again_behind_a_stopped_consumer(
    cluster: Cluster, config: ClientConfig, make_scene: Callable[[str], Scene]
) -> None:
    """The new topic ends beyond the position at which the consumer goes on; nothing is lost."""
    scene = make_scene("stopped")
    [topic] = scene.topics
    await create(config, topic)
    consumer = scene.consume("carl", *DUE)
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "200").answer())
    delivered(consumer, 200)
    consumer.signal(signal.SIGSTOP)
    cluster.delete_topic(topic)
    await create(config, topic)
    for name in ("amy", "bob"):
        sent |= vouched(scene.produce(name, *LOAD, "--num-records", "300").answer())
    consumer.signal(signal.SIGCONT)
    answer = consumer.answer(code=3)
    assert wrong(answer) == {}
    assert answer["counts"]["delivered"] == len(sent) == 800
    [note] = [note for note in answer["notes"] if note.startswith(topic)]
    assert note.startswith(f"{topic}-0 was deleted and recreated after offset 200")
    assert answer["inconclusive"] == [note]
    judged_alike(scene.reconcile().answer(code=3), answer)


async def test_an_unclean_election_cuts_a_log_back_behind_its_consumers(
    cluster: Cluster, config: ClientConfig, make_scene: Callable[[str], Scene]
) -> None:
    """New records at offsets that had been read are read; what had been read stays seen.

    This applies to a consumer that reads all the time, and to one that gets SIGTERM and resumes at
    an offset that now has other records.
    """
    scene = make_scene("unclean")
    [topic] = scene.topics
    leader, follower = (cluster.brokers[number] for number in await create(config, topic))

    def consume(name: str, label: str = "") -> Command:
        own = ("--state-topic", f"state-{name}", "--log-dir", str(scene.folder / name))
        return scene.consume(name, *DUE, *own, label=label)

    kept, killed = consume("kept"), consume("killed")
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "200").answer())
    follower.kill()
    sent |= vouched(scene.produce("amy", *LOAD, "--num-records", "100").answer())
    for consumer in (kept, killed):
        delivered(consumer, 300)
    killed.signal(signal.SIGTERM)
    killed.answer(code=None)
    leader.kill()
    follower.start()
    until(lambda: cluster.end_offsets(topic) == {0: 200}, what="the log is cut back")
    sent |= vouched(scene.produce("bob", *LOAD, "--num-records", "400").answer())
    for consumer in (kept, consume("killed", label="killed-again")):
        answer = consumer.answer(code=3)
        assert wrong(answer) == {}
        assert answer["counts"]["delivered"] == len(sent) == 700
        [note] = [note for note in answer["notes"] if note.startswith(topic)]
        assert note.startswith(f"{topic}-0 was truncated after offset 300 was read")
        assert answer["inconclusive"] == [note]
        logs = scene.folder / consumer.name.removeprefix("consume-").removesuffix("-again")
        offline = scene.reconcile(str(logs), "--output", str(logs / "result"))
        judged_alike(offline.answer(code=3), answer)
