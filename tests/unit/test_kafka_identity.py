"""Topic ids, leaders and end offsets, combined from the reports of several brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors
from aiokafka.client import AIOKafkaClient

from mirrortest.kafka.fast.ends import Ends
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.metadata import MetadataRequest
from mirrortest.kafka.fast.requests import (
    EndsRequest,
    EpochEnd,
    LeaderEpochRequest,
)
from mirrortest.kafka.fetched import End, ReadPosition
from mirrortest.model.topic_partition import TopicPartition

AT = TopicPartition("t", 0)
THERE = KafkaPartition("t", 0)
FENCED = 74


class Broker:
    """One broker's view: the topic's id, partition 0's leader epoch and leader, and its log."""

    def __init__(self, topic_id: str = "X", epoch: int = 5, leader: int = 1, end: int = 10) -> None:
        self.topic_id, self.epoch, self.leader = topic_id, epoch, leader
        self.end = self.stable = end
        self.epoch_end = EpochEnd(epoch, end)
        self.away = False
        self.version = 12
        self.added: list[int] = []
        """Further partitions in its metadata; each has the values of partition 0."""


class Played:
    """A simulated cluster: brokers by node id, as one consumer's client reaches them."""

    def __init__(self, *brokers: Broker, committed: bool = False) -> None:
        self.brokers = dict(enumerate(brokers, 1))
        self.asked: list[tuple[int, Any]] = []
        client = AIOKafkaClient(
            bootstrap_servers="127.0.0.1:9", retry_backoff_ms=1, request_timeout_ms=200
        )
        client.send = self.send
        client.cluster.brokers = lambda: [SimpleNamespace(nodeId=node) for node in self.brokers]
        client.get_random_node = lambda: 1
        self.client = client
        self.identity = Identity(client)
        self.ends_of = Ends(self.identity, committed=committed).of

    async def send(self, node: int, request: Any, *, group: Any = None) -> Any:
        self.asked.append((node, request))
        broker = self.brokers[node]
        if broker.away:
            raise errors.KafkaConnectionError("away")
        if isinstance(request, MetadataRequest):
            return metadata(broker)
        if isinstance(request, EndsRequest):
            return self.ends(broker, request)
        if isinstance(request, LeaderEpochRequest):
            [(topic, [(number, _, _)])] = request._topics
            return SimpleNamespace(topics=[(topic, [(0, number, *broker.epoch_end)])])
        raise AssertionError(request)

    def ends(self, broker: Broker, request: EndsRequest) -> Any:
        [(topic, asked)] = request._with_epochs
        end = broker.stable if request._isolation_level else broker.end
        found = []
        for number, epoch, _ in asked:
            code = FENCED if epoch < broker.epoch else 75 if epoch > broker.epoch else 0
            found.append((number, code, -1, end, broker.epoch))
        return SimpleNamespace(topics=[(topic, found)])


def metadata(broker: Broker) -> Any:
    numbers = [0, *broker.added]
    partitions: Any = [(0, number, broker.leader, [1], [1], []) for number in numbers]
    missing = not broker.topic_id
    return SimpleNamespace(
        API_VERSION=broker.version,
        brokers=[(1, "h", 1, None)],
        controller_id=1,
        topics=[(3, "t", False, [])] if missing else [(0, "t", False, partitions)],
        topic_ids={} if missing else {"t": broker.topic_id},
        leaders={} if missing else {("t", n): (broker.epoch, broker.leader) for n in numbers},
    )


async def test_no_older_leader_replaces_a_newer_one() -> None:
    """A broker that is cut off keeps reporting itself as the leader."""
    played = Played(Broker(epoch=6, leader=2), Broker(epoch=5, leader=1))
    for node in (1, 2):
        played.identity._update(metadata(played.brokers[node]))
    assert played.client.cluster.leader_for_partition(THERE) == 2


async def test_ends_come_from_the_newest_leader_that_any_broker_knows() -> None:
    """A partitioned old leader answers consistently, but its end offset is stale."""
    old, new = Broker(epoch=5, leader=1, end=10), Broker(epoch=6, leader=2, end=14)
    new.epoch_end = EpochEnd(5, 10)
    played = Played(old, new)
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(14, 14, "X")}


async def test_a_leader_that_was_replaced_meanwhile_tells_no_end() -> None:
    """The request with the old leader epoch is fenced, and the brokers are asked again."""
    played = Played(Broker(epoch=5, leader=1, end=10))
    asked = 0

    async def changes(node: int, request: Any, *, group: Any = None) -> Any:
        nonlocal asked
        answer = await played.send(node, request, group=group)
        if isinstance(request, MetadataRequest):
            asked += 1
            if asked == 1:
                played.brokers[1].epoch, played.brokers[1].end = 6, 12
        return answer

    played.client.send = changes
    assert await played.ends_of({AT: ReadPosition(0)}) == {AT: End(12, 12, "X")}
    assert asked == 3  # once in vain, then before and after the end offsets


async def test_ends_come_of_partitions_of_which_any_broker_has_heard() -> None:
    """The caller may have asked a broker that is cut off; a new partition may have messages."""
    played = Played(Broker(), Broker(), Broker())
    played.brokers[3].added = [1]
    found = await played.ends_of({AT: ReadPosition(10, 5, "X")})
    assert found == {AT: End(10, 10, "X"), TopicPartition("t", 1): End(10, 10, "X")}
    played.brokers[3].topic_id = "Y"  # this broker reports another topic
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(10, 10, "X")}


async def test_while_brokers_are_upgraded_one_by_one_ends_are_told() -> None:
    """One broker has no topic ids yet, so no id is used; the leader already has them."""
    played = Played(*(Broker(epoch=-1, leader=2) for _ in range(3)))
    played.brokers[1].version = 5
    assert await played.ends_of({AT: ReadPosition(10)}) == {AT: End(10, 10, None)}


async def test_no_end_is_told_where_most_brokers_are_silent() -> None:
    """A client that reaches one of three brokers may be asking the one that is cut off."""
    played = Played(Broker(), Broker(), Broker())
    for node in (2, 3):
        played.brokers[node].away = True
    with pytest.raises(errors.NodeNotReadyError, match="1 of 3 brokers answered"):
        await played.ends_of({AT: ReadPosition(10, 5, "X")})
    played.brokers[3].away = False
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(10, 10, "X")}


async def test_no_end_is_told_of_a_topic_that_is_another_by_then() -> None:
    """End offsets are requested by name, so the topic id is checked before and after."""
    played = Played(Broker("X", end=10))

    async def changes(node: int, request: Any, *, group: Any = None) -> Any:
        answer = await played.send(node, request, group=group)
        if isinstance(request, EndsRequest) and played.brokers[1].topic_id == "X":
            played.brokers[1].topic_id = "Y"
        return answer

    played.client.send = changes
    assert (await played.ends_of({AT: ReadPosition(10, 5, "X")}))[AT].topic_id == "Y"
    played.brokers[1].topic_id = ""
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await played.ends_of({AT: ReadPosition(10, 5, "X")})


@pytest.mark.parametrize(
    ("end", "agrees"), [((5, 10), True), ((5, 9), False), ((4, 10), False), ((5, 12), True)]
)
async def test_a_log_that_was_cut_back_and_grew_again_is_another(
    end: tuple[int, int], agrees: bool
) -> None:
    """Leader epochs show it, even if the log ends exactly at the read position."""
    played = Played(Broker(epoch=6))
    played.brokers[1].epoch_end = EpochEnd(*end)
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(10, 10, "X", agrees)}


async def test_while_the_leader_is_the_same_nothing_was_cut_back() -> None:
    """While the leader epoch is unchanged, no LeaderEpochRequest is sent."""
    played = Played(Broker(epoch=5))
    played.brokers[1].epoch_end = EpochEnd(0, 0)
    assert (await played.ends_of({AT: ReadPosition(10, 5, "X")}))[AT].agrees
    assert not any(isinstance(request, LeaderEpochRequest) for _, request in played.asked)


async def test_an_open_transaction_ends_nothing_for_a_reader_of_committed_records() -> None:
    """The end is the high watermark; the last stable offset is returned with it."""
    broker = Broker(end=10)
    broker.stable = 7
    for committed, stable in ((True, 7), (False, 10)):
        played = Played(broker, committed=committed)
        assert await played.ends_of({AT: ReadPosition(0)}) == {AT: End(10, stable, "X")}


async def test_a_topic_that_is_not_there_has_no_id() -> None:
    """An error makes the consumer wait for the topic; None would mean reading it by name."""
    played = Played(Broker(""))
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await played.identity.topic_id("t")
    played.brokers[1].topic_id = "X"
    assert await played.identity.topic_id("t") == "X"


async def test_of_a_topic_that_was_recreated_most_brokers_know_the_new_id() -> None:
    """A broker that is cut off may report an older id, or not know the new one yet."""
    played = Played(Broker("X"), Broker("X"), Broker("W"))
    assert await played.identity.other_id("t", "X") is None
    for node in (1, 2):
        played.brokers[node].topic_id = "Y"
    assert await played.identity.other_id("t", "X") == "Y"
    for node in (1, 2):
        played.brokers[node].away = True
    assert await played.identity.other_id("t", "X") is None


async def test_what_was_heard_of_a_topic_is_kept() -> None:
    """Topic ids and the newest leader epochs are cached; -1 if no broker reported one."""
    played = Played(Broker("X", epoch=5))
    assert played.identity.cached_id("t") is None
    await played.identity.topic_id("t")
    assert played.identity.cached_id("t") == "X"
    assert played.identity.leader_epoch("X", 0) == 5
    assert played.identity.leader_epoch("Y", 0) == played.identity.leader_epoch(None, 0) == -1


async def test_brokers_without_ids_are_no_error() -> None:
    """`topic_id` returns None, and the topic is read by name."""
    played = Played(Broker())
    played.brokers[1].version = 5
    assert await played.identity.topic_id("t") is None
