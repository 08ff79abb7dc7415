"""Which topic and which log a consumer reads: what it asks brokers, and what their answers mean."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest as PlainFetch

from mirrortest.kafka.fast.ends import Ends
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.metadata import MetadataRequest
from mirrortest.kafka.fast.requests import (
    EndsRequest,
    EpochEnd,
    FetchRequest,
    LeaderEpochRequest,
)
from mirrortest.kafka.fetched import Diverged, End, OutOfRange, ReadPosition, Recreated
from mirrortest.model.topic_partition import TopicPartition

AT = TopicPartition("t", 0)
THERE = KafkaPartition("t", 0)
OUT_OF_RANGE, NOT_LEADER, UNKNOWN_TOPIC_ID, FENCED = 1, 6, 100, 74


class Broker:
    """What one broker knows: the topic's id, partition 0's leader epoch and leader, and its log."""

    def __init__(self, topic_id: str = "X", epoch: int = 5, leader: int = 1, end: int = 10) -> None:
        self.topic_id, self.epoch, self.leader = topic_id, epoch, leader
        self.end = self.stable = end
        self.epoch_end = EpochEnd(epoch, end)
        self.away = False
        self.version = 12


class Played:
    """A cluster of brokers by node, as one consumer's client reaches it."""

    def __init__(self, *brokers: Broker, committed: bool = False) -> None:
        self.brokers = dict(enumerate(brokers, 1))
        self.fetched: Any = None
        self.asked: list[tuple[int, Any]] = []
        self.while_asked: Any = lambda: None
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
        self.while_asked()
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
        return self.fetched

    def ends(self, broker: Broker, request: EndsRequest) -> Any:
        [(topic, [(number, epoch, _)])] = request._with_epochs
        code = FENCED if epoch < broker.epoch else 75 if epoch > broker.epoch else 0
        end = broker.stable if request._isolation_level else broker.end
        return SimpleNamespace(topics=[(topic, [(number, code, -1, end, broker.epoch)])])

    async def fetch(self, *answers: tuple[str, int, int], diverging: EpochEnd | None = None) -> Any:
        """What aiokafka is told of a fetch at offset 10 by (topic id, partition, error) answers."""
        self.fetched = SimpleNamespace(
            API_VERSION=13,
            topics=[(topic_id, [(number, code, 0)]) for topic_id, number, code in answers],
            diverging={("X", 0): diverging} if diverging else {},
        )
        response = await self.client.send(1, PlainFetch(1, 1, 1, 0, [("t", [(0, 10, 99)])]))
        return response.topics

    def position(self) -> Any:
        """The only position of the last fetch."""
        fetches = [each for _, each in self.asked if isinstance(each, FetchRequest)]
        [(topic_id, [position])] = fetches[-1]._positions.items()
        return topic_id, position


def metadata(broker: Broker) -> Any:
    partition: Any = (0, 0, broker.leader, [1], [1], [])
    missing = not broker.topic_id
    return SimpleNamespace(
        API_VERSION=broker.version,
        brokers=[(1, "h", 1, None)],
        controller_id=1,
        topics=[(3, "t", False, [])] if missing else [(0, "t", False, [partition])],
        topic_ids={} if missing else {"t": broker.topic_id},
        leaders={} if missing else {("t", 0): (broker.epoch, broker.leader)},
    )


AT_TEN = ReadPosition(10, 4, "X")


async def placed(played: Played, place: ReadPosition = AT_TEN) -> Played:
    await played.identity.topic_id("t")
    played.identity.place(AT, place)
    return played


async def test_a_fetch_says_which_topic_leader_and_last_batch() -> None:
    """The last batch's epoch only where the position is still behind it."""
    played = await placed(Played(Broker(epoch=5)))
    await played.fetch(("X", 0, 0))
    topic_id, position = played.position()
    assert (topic_id, position.current_leader_epoch, position.last_fetched_epoch) == ("X", 5, 4)
    played.identity.epochs[THERE] = 9, 4
    await played.fetch(("X", 0, 0))
    assert played.position()[1].last_fetched_epoch == -1
    assert played.identity.by_id


async def test_a_position_without_an_id_is_of_the_topic_that_there_is() -> None:
    """And stays in it: whoever replaces it is told."""
    played = await placed(Played(Broker()), ReadPosition(10))
    await played.fetch(("X", 0, 0))
    assert played.identity.pins[THERE] == "X"
    played.brokers[1].topic_id = "Y"
    await played.fetch(("X", 0, UNKNOWN_TOPIC_ID))
    assert played.identity.broken_off({THERE: 10}) == [Recreated("t", 0, 10, "Y")]


async def test_where_the_log_was_cut_back_no_records_come() -> None:
    """The client is told of a position that does not exist, the reader why."""
    played = await placed(Played(Broker()))
    told = await played.fetch(("X", 0, 0), diverging=EpochEnd(3, 6))
    assert told == [("t", [(0, OUT_OF_RANGE, 0)])]
    assert played.identity.broken_off({THERE: 10}) == [Diverged("t", 0, 10, 3, 6)]
    assert played.identity.broken_off({THERE: 11}) == [OutOfRange("t", 0, 11)]
    await played.fetch(("X", 0, OUT_OF_RANGE))
    assert played.identity.broken_off({THERE: 10}) == [OutOfRange("t", 0, 10)]


async def test_a_follower_that_lags_behind_cuts_nothing_back() -> None:
    """Its log ends early: the leader is asked, and decides."""
    played = await placed(Played(Broker(leader=2)))
    told = await played.fetch(("X", 0, 0), diverging=EpochEnd(5, 6))
    assert told == [("t", [(0, NOT_LEADER, 0)])]
    assert played.identity.broken_off({THERE: 10}) == [OutOfRange("t", 0, 10)]


async def test_a_topic_is_recreated_once_most_brokers_say_so() -> None:
    """One that is cut off may know an older one, or not know it yet."""
    played = await placed(Played(Broker("X"), Broker("X"), Broker("W")))
    assert await played.fetch(("X", 0, UNKNOWN_TOPIC_ID)) == [("t", [(0, NOT_LEADER, 0)])]
    assert played.identity.broken_off({THERE: 10}) == [OutOfRange("t", 0, 10)]
    for node in (1, 2):
        played.brokers[node].topic_id = "Y"
    assert await played.fetch(("X", 0, UNKNOWN_TOPIC_ID)) == [("t", [(0, OUT_OF_RANGE, 0)])]
    assert played.identity.broken_off({THERE: 10}) == [Recreated("t", 0, 10, "Y")]


@pytest.mark.parametrize("code", [FENCED, 75, 78])
async def test_another_leader_is_looked_for(code: int) -> None:
    """The client does not know these errors, and would ask again at once."""
    played = await placed(Played(Broker()))
    assert await played.fetch(("X", 0, code)) == [("t", [(0, NOT_LEADER, 0)])]


async def test_what_was_fetched_of_another_topic_is_dropped() -> None:
    """The partition was sought in its successor while the answer was on its way."""
    played = await placed(Played(Broker()))
    played.while_asked = lambda: played.identity.place(AT, ReadPosition(10, -1, "Y"))
    assert await played.fetch(("X", 0, 0)) == []


async def test_of_a_partition_that_two_brokers_were_asked_for_one_answer_is_passed_on() -> None:
    """Its leader changed meanwhile; an error that is told twice ends aiokafka's fetching."""
    played = await placed(Played(Broker(), Broker()))
    answered, held_back = played.identity._plain_send, asyncio.Event()

    async def send(node: int, request: Any, *, group: Any = None) -> Any:
        response = await answered(node, request, group=group)
        if node == 2:
            await held_back.wait()
        return response

    played.identity._plain_send = send
    played.fetched = SimpleNamespace(
        API_VERSION=13, topics=[("X", [(0, OUT_OF_RANGE, 0)])], diverging={}
    )
    older = asyncio.ensure_future(
        played.client.send(2, PlainFetch(1, 1, 1, 0, [("t", [(0, 10, 99)])]))
    )
    await asyncio.sleep(0)
    assert await played.fetch(("X", 0, OUT_OF_RANGE)) == [("t", [(0, OUT_OF_RANGE, 0)])]
    held_back.set()
    assert (await older).topics == []


async def test_brokers_without_ids_are_asked_by_name_and_that_is_told() -> None:
    """What cannot be seen there decides how much a verdict is worth."""
    played = Played(Broker())
    played.brokers[1].version = 5
    assert await played.identity.topic_id("t") is None
    played.fetched = SimpleNamespace(API_VERSION=11)
    await played.client.send(1, PlainFetch(1, 1, 1, 0, [("t", [(0, 10, 99)])]))
    assert type(played.asked[-1][1]) is PlainFetch
    assert not played.identity.by_id


async def test_no_older_leader_replaces_a_newer_one() -> None:
    """A broker that is cut off goes on telling of itself."""
    played = Played(Broker(epoch=6, leader=2), Broker(epoch=5, leader=1))
    for node in (1, 2):
        played.identity._update(metadata(played.brokers[node]))
    assert played.client.cluster.leader_for_partition(THERE) == 2


async def test_ends_come_from_the_newest_leader_that_any_broker_knows() -> None:
    """A partitioned old leader answers consistently; its log's end says nothing."""
    old, new = Broker(epoch=5, leader=1, end=10), Broker(epoch=6, leader=2, end=14)
    new.epoch_end = EpochEnd(5, 10)
    played = Played(old, new)
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(14, 14, "X")}


async def test_a_leader_that_was_replaced_meanwhile_tells_no_end() -> None:
    """It is fenced, or does not know of itself yet: the brokers are asked again."""
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

    played.identity._plain_send = changes
    assert await played.ends_of({AT: ReadPosition(0)}) == {AT: End(12, 12, "X")}
    assert asked == 3  # in vain, and before and after the ends


async def test_while_brokers_are_upgraded_one_by_one_ends_are_told() -> None:
    """One of them has no topic ids yet, so that none counts; the leader has."""
    played = Played(*(Broker(epoch=-1, leader=2) for _ in range(3)))
    played.brokers[1].version = 5
    assert await played.ends_of({AT: ReadPosition(10)}) == {AT: End(10, 10, None)}


async def test_no_end_is_told_where_most_brokers_are_silent() -> None:
    """Whoever reaches one of three may have reached the one that is cut off."""
    played = Played(Broker(), Broker(), Broker())
    for node in (2, 3):
        played.brokers[node].away = True
    with pytest.raises(errors.NodeNotReadyError, match="1 of 3 brokers answered"):
        await played.ends_of({AT: ReadPosition(10, 5, "X")})
    played.brokers[3].away = False
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(10, 10, "X")}


async def test_no_end_is_told_of_a_topic_that_is_another_by_then() -> None:
    """Its ends are asked by name, between two looks at its id."""
    played = Played(Broker("X", end=10))

    async def changes(node: int, request: Any, *, group: Any = None) -> Any:
        answer = await played.send(node, request, group=group)
        if isinstance(request, EndsRequest) and played.brokers[1].topic_id == "X":
            played.brokers[1].topic_id = "Y"
        return answer

    played.identity._plain_send = changes
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
    """F2, F12: it may end exactly where reading stands."""
    played = Played(Broker(epoch=6))
    played.brokers[1].epoch_end = EpochEnd(*end)
    assert await played.ends_of({AT: ReadPosition(10, 5, "X")}) == {AT: End(10, 10, "X", agrees)}


async def test_while_the_leader_is_the_same_nothing_was_cut_back() -> None:
    """Then nothing more is asked."""
    played = Played(Broker(epoch=5))
    played.brokers[1].epoch_end = EpochEnd(0, 0)
    assert (await played.ends_of({AT: ReadPosition(10, 5, "X")}))[AT].agrees
    assert not any(isinstance(request, LeaderEpochRequest) for _, request in played.asked)


async def test_an_open_transaction_ends_nothing_for_a_reader_of_committed_records() -> None:
    """The end is the high watermark, and how far it may read is told beside it."""
    broker = Broker(end=10)
    broker.stable = 7
    for committed, stable in ((True, 7), (False, 10)):
        played = Played(broker, committed=committed)
        assert await played.ends_of({AT: ReadPosition(0)}) == {AT: End(10, stable, "X")}


async def test_a_topic_that_is_not_there_has_no_id() -> None:
    """Whoever was assigned it waits for it: to read it without an id would be another matter."""
    played = Played(Broker(""))
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await played.identity.topic_id("t")
    played.brokers[1].topic_id = "X"
    assert await played.identity.topic_id("t") == "X"
