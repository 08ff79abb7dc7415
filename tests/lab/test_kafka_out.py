"""Admin, sender and compacted topics on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from mirrortest.config.client_config import ClientConfig, Compression
from mirrortest.errors import (
    ClusterError,
    PartitionCountError,
    TopicMissingError,
    TopicReplacedError,
    UnreachableError,
    UsageError,
)
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.codec import compressor
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.sender import Sender, SenderDeadError
from mirrortest.model.findings import Outcome
from mirrortest.wire.batch import EncodedBatch, LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.lab.reading import both, entries

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.lab


@pytest.fixture
def config(lab: Any, request: pytest.FixtureRequest) -> ClientConfig:
    return ClientConfig(
        bootstrap_servers=tuple(lab.destination.bootstrap_servers.split(",")),
        portable=getattr(request, "param", False),
    )


def messages(topic: str, seq_lo: int, count: int, size: int = 100) -> EncodedBatch:
    encoder = LaneEncoder(topic, ProducerId("p", "r", 1), 0, 0, 1, Form.BODY, size)
    now = time.time_ns()
    return encoder.encode(seq_lo, np.full(count, now), now)


async def values(config: ClientConfig, topic: str, end: int) -> list[bytes]:
    """The values that aiokafka's own consumer reads, decoded and checked by its own code."""
    at = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=list(config.bootstrap_servers), enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([at])
        consumer.seek(at, 0)
        found: list[bytes] = []
        while await consumer.position(at) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


async def frozen(broker: Any) -> None:
    """Wait until SIGSTOP has taken effect."""
    while psutil.Process(broker.pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110  # no event
        await asyncio.sleep(0.01)


# -- admin ---------------------------------------------------------------------------------------


@both
async def test_topics_are_made_counted_and_deleted(
    admin: Admin, topic_name: Callable[[], str]
) -> None:
    """A topic is created once; a missing one has no count, and is not created by the request."""
    topic, missing = topic_name(), topic_name()
    assert await admin.create_topic(topic, 3, configs={"cleanup.policy": "compact"})
    assert not await admin.create_topic(topic, 3)
    assert await admin.partition_counts([topic, missing]) == {topic: 3}
    assert await admin.partitions(topic) == [0, 1, 2]
    assert await admin.partitions(missing) is None
    assert await admin.cleanup_policy(topic) == {"compact"}
    assert len(await admin.cluster_id()) == 22
    await admin.add_partitions(topic, 5)
    assert await admin.partition_counts([topic]) == {topic: 5}
    with pytest.raises(PartitionCountError):
        await admin.add_partitions(topic, 4)
    await admin.delete_topic(topic)
    assert await admin.partition_counts([topic]) == {}


@both
async def test_a_pattern_matches_whole_names(admin: Admin, topic_name: Callable[[], str]) -> None:
    """As in Kafka's own tools, a pattern must match the whole name."""
    topic = topic_name()
    await admin.create_topic(topic, 2)
    await admin.create_topic(f"{topic}-more", 1)
    assert await admin.matching(topic.replace(".", r"\.")) == {topic: 2}
    assert len(await admin.matching(f"{topic}.*")) == 2
    with pytest.raises(UsageError, match="is not a regular expression"):
        await admin.matching("(")


async def test_what_does_not_exist_is_said_at_once(
    admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Missing topics and partitions are errors, without waiting for a timeout."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    with pytest.raises(TopicMissingError, match=f"{topic}-1"):
        await admin.end_offsets([(topic, 1)])
    with pytest.raises(TopicMissingError):
        await admin.topic_config(topic_name())
    with pytest.raises(TopicMissingError):
        await admin.delete_records(topic_name(), 0, 1)


async def test_an_address_where_nobody_answers_is_named() -> None:
    """The error names the address and the cause."""
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9: .*refused"):
        await Admin(ClientConfig(bootstrap_servers=("127.0.0.1:9",))).start()


# -- sender --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("acks", [-1, 1])
async def test_batches_stand_in_the_topic_as_they_were_sent(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str], acks: int
) -> None:
    """Each batch is acknowledged with its own offset, in the order of the calls."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    settings = replace(config, acks=acks, enable_idempotence=acks == -1)
    async with Sender(settings) as sender:
        ends = [sender.send(topic, 0, messages(topic, at, 50)) for at in range(0, 500, 50)]
        sent = [await end for end in ends]
        assert await sender.flush(10)
    assert [s.base_offset for s in sent] == list(range(0, 500, 50))
    assert {s.outcome for s in sent} == {Outcome.ACKED}
    read = await values(config, topic, 500)
    assert [int(value.split(b";")[1]) for value in read] == list(range(500))


@both
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_taken_by_the_broker(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str], codec: str
) -> None:
    """The broker acknowledges batches of every codec, and aiokafka reads all their records."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    uncompressed = messages(topic, 0, 100)
    by = compressor(codec)
    assert by is not None
    small = uncompressed if config.portable else uncompressed.compressed(*by)
    async with Sender(replace(config, compression_type=Compression(codec))) as sender:
        for batch in (small, messages(topic, 100, 100)):
            assert (await sender.send(topic, 0, batch)).outcome is Outcome.ACKED
    assert len(await values(config, topic, 200)) == 200


@both
async def test_nothing_is_known_without_acknowledgements(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """With acks=0 the outcome is unknown, though the messages are written."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    settings = replace(config, acks=0, enable_idempotence=False)
    async with Sender(settings) as sender:
        sent = await sender.send(topic, 0, messages(topic, 0, 10))
        assert (sent.outcome, sent.base_offset) == (Outcome.UNKNOWN, -1)
        assert len(await values(config, topic, 10)) == 10


@both
async def test_a_refused_batch_has_failed_and_ends_the_sender(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """A batch too large for the topic fails and is not written; the next sender begins at offset 0.

    The public API does not show whether that was the first attempt, so the outcome is unknown
    there.
    """
    topic = topic_name()
    await admin.create_topic(topic, 1, configs={"max.message.bytes": "1000"})
    async with Sender(config) as sender:
        sent = await sender.send(topic, 0, messages(topic, 0, 100))
        assert sent.outcome is (Outcome.UNKNOWN if config.portable else Outcome.FAILED)
        assert "MESSAGE_SIZE_TOO_LARGE" in (sent.error or "")
        with pytest.raises(SenderDeadError):
            sender.send(topic, 0, messages(topic, 100, 1))
    async with Sender(config) as sender:
        again = await sender.send(topic, 0, messages(topic, 0, 1))
        assert (again.outcome, again.base_offset) == (Outcome.ACKED, 0)


@both
async def test_outcomes_are_true_when_a_broker_freezes(
    lab: Any, config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """The batch in flight is unknown. The one behind it failed, and is never written, even later.

    The public API does not show which batches were held back, so both are unknown there.
    """
    topic = topic_name()
    await admin.create_topic(topic, 1)
    broker = lab.destination.brokers[0]
    sender = Sender(replace(config, delivery_timeout_ms=5000))
    await sender.start()
    acked = await sender.send(topic, 0, messages(topic, 0, 10))
    broker.stop()
    try:
        await frozen(broker)
        on_its_way = sender.send(topic, 0, messages(topic, 10, 10))
        await asyncio.wait({on_its_way}, timeout=0.2)
        behind = sender.send(topic, 0, messages(topic, 20, 10))
        assert (await on_its_way).outcome is Outcome.UNKNOWN
        kept_back = Outcome.UNKNOWN if config.portable else Outcome.FAILED
        assert (await behind).outcome is kept_back
        assert sender.dead is not None
    finally:
        await sender.stop()
        broker.cont()
    assert acked.outcome is Outcome.ACKED
    async with Sender(config) as fresh:
        last = await fresh.send(topic, 0, messages(topic, 30, 10))
    assert last.outcome is Outcome.ACKED
    read = await values(config, topic, last.base_offset + 10)
    seqs = [int(value.split(b";")[1]) for value in read]
    assert config.portable or not {*range(20, 30)} & {*seqs}
    assert {*range(10)} | {*range(30, 40)} <= {*seqs}


async def test_a_broker_that_comes_back_is_waited_for(
    lab: Any, config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Each batch is acked and written once if a broker restarts within the delivery timeout."""
    topic = topic_name()
    await admin.create_topic(topic, 1)
    broker = lab.destination.brokers[0]
    async with Sender(replace(config, retry_backoff_ms=200)) as sender:
        ends = [sender.send(topic, 0, messages(topic, 0, 10))]
        await ends[0]
        broker.kill()
        try:
            later = sender.send(topic, 0, messages(topic, 10, 10))
            await asyncio.wait({later}, timeout=0.5)
        finally:
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(broker.wait_ready)
        ends += [later, sender.send(topic, 0, messages(topic, 20, 10))]
        assert [(await end).outcome for end in ends] == [Outcome.ACKED] * 3
    read = await values(config, topic, 30)
    assert [int(value.split(b";")[1]) for value in read] == list(range(30))


# -- compacted -----------------------------------------------------------------------------------


@both
async def test_a_compacted_topic_is_made_written_read_and_followed(
    config: ClientConfig, topic_name: Callable[[], str]
) -> None:
    """A write returns its offset; a tail yields all from the beginning, then what follows."""
    async with CompactedTopic(config, topic_name()) as table:
        assert await table.create()
        assert not await table.create()
        assert await entries(config, table.topic) == []
        assert sorted(await asyncio.gather(*(table.write(b"k", b"%d" % n) for n in range(3)))) == [
            0, 1, 2,
        ]  # fmt: skip
        assert await table.write(b"k", None) == 3
        found = await entries(config, table.topic)
        assert [offset for offset, _, _ in found] == [0, 1, 2, 3]
        assert found[3] == (3, b"k", None)
        tail = table.tail()
        assert [await anext(tail) for _ in range(4)] == found
        big = b"x" * 500_000
        assert await table.write(b"big", big) == 4
        assert await anext(tail) == (4, b"big", big)
        await tail.aclose()  # type: ignore[attr-defined]  # it is a generator


@both
async def test_a_tail_ends_where_the_topic_was_created_again(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """A tail raises, as does the next one after an outage; the third one reads the new topic."""
    async with CompactedTopic(config, topic_name()) as table:
        await table.create()
        await table.write(b"old", b"1")
        await table.write(b"old", b"2")
        tail = table.tail()
        assert [(await anext(tail))[2] for _ in range(2)] == [b"1", b"2"]
        await admin.delete_topic(table.topic)
        await table.create()
        async with CompactedTopic(config, table.topic) as writer:
            await writer.write(b"new", b"3")
        with pytest.raises(TopicReplacedError, match="was recreated or truncated"):
            await anext(tail)
        table._reached = 2
        with pytest.raises(TopicReplacedError, match="was recreated or truncated"):
            await anext(table.tail())
        tail = table.tail()
        assert await anext(tail) == (0, b"new", b"3")
        await tail.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_topic_that_was_created_again_and_grew_is_another_one(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """The topic id shows it, to a running tail and to one that begins after an outage."""
    async with CompactedTopic(config, topic_name()) as table:
        for number in range(2):
            await table.create()
            async with CompactedTopic(config, table.topic) as writer:
                for _ in range(1 + number):
                    await writer.write(b"k", b"%d" % number)
            if not number:
                tail = table.tail()
                assert (await anext(tail))[2] == b"0"
                reading = asyncio.ensure_future(anext(tail))
                await asyncio.wait({reading}, timeout=0.5)
                topic_id = table._topic_id  # the tail forgets it once it has found out
                await admin.delete_topic(table.topic)
        with pytest.raises(TopicReplacedError, match="was recreated or truncated"):
            await reading
        table._topic_id = topic_id
        with pytest.raises(TopicReplacedError, match="was recreated or truncated"):
            await anext(table.tail())
        assert (await anext(table.tail()))[2] == b"1"


async def test_a_topic_of_the_wrong_form_is_refused(
    config: ClientConfig, admin: Admin, topic_name: Callable[[], str]
) -> None:
    """Several partitions, or records that expire, would mean silent loss of state."""
    wide, fleeting = topic_name(), topic_name()
    await admin.create_topic(wide, 2)
    await admin.create_topic(fleeting, 1)
    with pytest.raises(PartitionCountError, match="2 partitions"):
        await CompactedTopic(config, wide).create()
    with pytest.raises(ClusterError, match=r"cleanup\.policy=delete"):
        await CompactedTopic(config, fleeting).create()
    with pytest.raises(TopicMissingError):
        await anext(CompactedTopic(config, topic_name()).tail())
