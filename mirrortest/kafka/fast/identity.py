"""Which topic and which log a consumer reads, by topic id and leader epoch.

Every fetch names the topic by id, the epoch of the leader that is asked, and the epoch of the
leader that wrote the last batch before the position. Where one of them is wrong, a broker answers
with an error and without records. These errors are distinguished here; aiokafka gets one that it
can handle.
"""

# ruff: noqa: SLF001  # private members are this package's business, and no other's

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import TopicPartition as KafkaPartition
from aiokafka import errors
from aiokafka.client import ConnectionGroup
from aiokafka.protocol.fetch import FetchRequest as PlainFetchRequest

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.metadata import METADATA, MetadataRequest
from mirrortest.kafka.fast.requests import (
    FETCH,
    EndsRequest,
    FetchPosition,
    FetchRequest,
    LeaderEpochRequest,
)
from mirrortest.kafka.fetched import Diverged, End, OutOfRange, ReadPosition, Recreated
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokafka.client import AIOKafkaClient

    from mirrortest.kafka.fast.requests import FetchResponse

_OTHER_TOPIC = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
_OTHER_LEADER = frozenset(
    {Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.OFFSET_NOT_AVAILABLE}
)
_UNCOMMITTED, _COMMITTED = 0, 1

_METADATA_GROUP = "metadata"
"""The group of connections of all that is no fetch."""
_MOST_ASKED = 5
"""So many brokers are asked at most for leaders: of any two of them one is not cut off."""
_ANSWER_SECONDS = 2.0
"""How long brokers are waited for once half of them have answered."""


class _Agreed(NamedTuple):
    """What most brokers report of topics, and the newest leader that any of them reports."""

    topic_ids: dict[str, str | None]
    """None where brokers have no ids. A topic is left out while they do not agree about it."""
    leaders: dict[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (leader epoch, leader's node)"""


class Identity:
    """One consumer's; it changes the requests and responses of its AIOKafkaClient."""

    def __init__(self, client: AIOKafkaClient, *, committed: bool = False) -> None:
        self._client = client
        self._committed = committed
        """Whether nothing is read of open transactions."""
        self._backoff = client._retry_backoff
        self._patience = client._request_timeout_ms / 1000
        self._plain_send = self._client.send
        self._plain_update = self._client.cluster.update_metadata
        self._client.send = self._send
        self._client.cluster.update_metadata = self._update
        self.by_id = True
        """Whether everything was fetched by topic id so far."""
        self.pins: dict[Any, str | None] = {}
        """partition -> the id of the topic that is read there"""
        self.epochs: dict[Any, tuple[int, int]] = {}
        """partition -> (next offset, leader epoch of the batch before it)"""
        self._ids: dict[str, str] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """(topic id, partition) -> the newest leader epoch of any broker, and its leader"""
        self._breaks: dict[Any, OutOfRange] = {}
        """partition -> why its position does not exist, where it is more than out of range"""
        self._asked: dict[Any, PlainFetchRequest] = {}
        """partition -> the last request for it"""

    # -- for the consumer port --------------------------------------------------------------------

    def place(self, at: TopicPartition, place: ReadPosition) -> None:
        """See `ports.ConsumerPort`."""
        there = KafkaPartition(*at)
        self.pins[there] = place.topic_id
        self.epochs[there] = place.offset, place.leader_epoch
        self._breaks.pop(there, None)

    async def topic_id(self, topic: str) -> str | None:
        """See `ports.ConsumerPort`."""
        if topic not in self._ids:
            node = self._client.get_random_node()
            if node is None:
                raise errors.NoBrokersAvailable
            metadata = await self._ask(node, MetadataRequest([topic]))
            self._learn(metadata)
            if topic not in self._ids and metadata.API_VERSION >= METADATA:
                raise errors.UnknownTopicOrPartitionError(topic)
        return self._ids.get(topic)

    def broken_off(self, offsets: Mapping[Any, int]) -> list[OutOfRange]:
        """The reasons of an OffsetOutOfRangeError for these positions."""
        found = []
        for at, offset in offsets.items():
            reason = self._breaks.get(at)
            if reason is None or reason.offset != offset:
                reason = OutOfRange(at.topic, at.partition, offset)
            found.append(reason)
        return found

    async def _ask(self, node: int, request: Any) -> Any:
        """Ask a broker on another connection: on that of the fetches an answer waits for theirs."""
        return await self._plain_send(node, request, group=_METADATA_GROUP)

    # -- metadata ---------------------------------------------------------------------------------

    def _update(self, metadata: Any) -> None:
        self._learn(metadata)
        self._plain_update(metadata)

    def _learn(self, metadata: Any) -> None:
        """Keep ids and leaders; a leader that is older than a kept one is replaced by that one."""
        if metadata.API_VERSION < METADATA:
            return
        for topic, topic_id in metadata.topic_ids.items():
            self._ids[topic] = topic_id
        for _, topic, _, partitions in metadata.topics:
            topic_id = metadata.topic_ids.get(topic)
            for index, (code, number, leader, *rest) in enumerate(partitions):
                reported = metadata.leaders[topic, number]
                newest = self._newer((topic_id or "", number), reported)
                if newest[0] > reported[0] and leader != newest[1]:
                    partitions[index] = (code, number, newest[1], *rest)

    def _newer(self, at: tuple[str, int], reported: tuple[int, int]) -> tuple[int, int]:
        """The newer of two leaders of a partition, which is kept."""
        kept = self._leaders.get(at)
        if at[0] and (kept is None or reported[0] >= kept[0]):
            self._leaders[at] = kept = reported
        return kept or reported

    async def _agreed(self, topics: Iterable[str]) -> _Agreed:
        """Ask several brokers for these topics.

        Raises:
            UnknownTopicOrPartitionError: no broker that answers has one of the topics.
            KafkaError: fewer than half of them answer. Brokers that are away are not named by
                those that have noticed; a client that reaches only a few may ask one that is cut
                off.
        """
        topics = set(topics)
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        if len(nodes) > _MOST_ASKED:
            nodes = random.sample(nodes, _MOST_ASKED)
        request = MetadataRequest(sorted(topics))
        asked: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._ask(node, request)) for node in nodes
        ]
        try:
            answers = await self._answers(asked)
        finally:
            for each in asked:
                each.cancel()
        if len(answers) * 2 < len(nodes) or not answers:
            raise errors.NodeNotReadyError(
                f"{len(answers)} of {len(nodes)} brokers answered: not enough to find the leaders"
            )
        found = {topic for answer in answers for code, topic, *_ in answer.topics if not code}
        if missing := topics - found:
            raise errors.UnknownTopicOrPartitionError(", ".join(sorted(missing)))
        if any(answer.API_VERSION < METADATA for answer in answers):
            return _by_name(answers)
        named: dict[str, Counter[str]] = defaultdict(Counter)
        for answer in answers:
            for topic, topic_id in answer.topic_ids.items():
                named[topic][topic_id] += 1
        ids: dict[str, str | None] = {}
        leaders = {}
        for topic, votes in named.items():
            topic_id, count = votes.most_common(1)[0]
            if count * 2 > len(answers):
                ids[topic] = self._ids[topic] = topic_id
        for answer in answers:
            for (topic, number), reported in answer.leaders.items():
                topic_id = answer.topic_ids.get(topic, "")
                if topic_id and ids.get(topic) == topic_id:
                    leaders[topic, number] = self._newer((topic_id, number), reported)
        return _Agreed(ids, leaders)

    async def _answers(self, asked: list[asyncio.Future[Any]]) -> list[Any]:
        deadline = time.monotonic() + self._patience
        pending = set(asked)
        while pending:
            half = (len(asked) - len(pending)) * 2 >= len(asked)
            left = deadline - time.monotonic()
            done, pending = await asyncio.wait(
                pending,
                timeout=min(_ANSWER_SECONDS, left) if half else left,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        return [
            each.result()
            for each in asked
            if each.done() and not each.cancelled() and each.exception() is None
        ]

    # -- fetching ---------------------------------------------------------------------------------

    async def _send(
        self, node_id: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT
    ) -> Any:
        """In place of the client's `send`: fetches are by topic id, where brokers have them."""
        if type(request) is not PlainFetchRequest:
            return await self._plain_send(node_id, request, group=group)
        positions = self._positions(request)
        if positions is None:
            self.by_id = False
            return await self._plain_send(node_id, request, group=group)
        response = await self._plain_send(node_id, FetchRequest(request, positions), group=group)
        if response.API_VERSION < FETCH:
            self.by_id = False
            return response
        return await self._examined(node_id, request, response)

    def _positions(self, request: PlainFetchRequest) -> dict[str, list[FetchPosition]] | None:
        """A request's positions by topic id; None where a topic has no id."""
        found: dict[str, list[FetchPosition]] = {}
        for topic, partitions in request.topics:
            for number, offset, most in partitions:
                at = KafkaPartition(topic, number)
                topic_id = self.pins.get(at) or self._ids.get(topic)
                if topic_id is None:
                    return None
                self.pins[at], self._asked[at] = topic_id, request
                reached, last_epoch = self.epochs.get(at, (-1, -1))
                leader_epoch, _ = self._leaders.get((topic_id, number), (-1, -1))
                found.setdefault(topic_id, []).append(
                    FetchPosition(
                        number, leader_epoch, offset, last_epoch if reached == offset else -1, most
                    )
                )
        return found

    async def _examined(
        self, node_id: int, request: PlainFetchRequest, response: FetchResponse
    ) -> Any:
        """The response by names, with errors that aiokafka can handle.

        While its leader changes a partition may be asked for at two brokers at once. Of such
        answers the last request's alone is passed on: an error that comes twice would end
        aiokafka's fetching.
        """
        asked = {
            (self.pins[KafkaPartition(topic, number)], number): (topic, offset)
            for topic, partitions in request.topics
            for number, offset, _ in partitions
        }
        named: dict[str, list[Any]] = {}
        wait = False
        for topic_id, partitions in response.topics:
            for number, code, *rest in partitions:
                if (topic_id, number) not in asked:
                    continue  # sought anew meanwhile, in another topic
                topic, offset = asked[topic_id, number]
                at = KafkaPartition(topic, number)
                if self._asked[at] is not request:
                    continue
                if code or (topic_id, number) in response.diverging:
                    self._breaks.pop(at, None)
                    code, waits = await self._error_for_aiokafka(  # noqa: PLW2901
                        node_id, at, offset, topic_id, code, response
                    )
                    wait |= waits
                named.setdefault(topic, []).append((number, code, *rest))
        if wait:
            # Else it would be asked again at once, over and over.
            await asyncio.sleep(self._backoff)
        # A partition that was sought in another topic meanwhile gets nothing of this answer.
        pinned = {KafkaPartition(topic, n): topic_id for (topic_id, n), (topic, _) in asked.items()}

        def is_current(at: Any) -> bool:
            return self.pins.get(at) == pinned[at] and self._asked[at] is request

        response.topics = [
            (topic, [each for each in partitions if is_current(KafkaPartition(topic, each[0]))])
            for topic, partitions in named.items()
        ]
        return response

    async def _error_for_aiokafka(
        self,
        node_id: int,
        at: Any,
        offset: int,
        topic_id: str,
        code: int,
        response: FetchResponse,
    ) -> tuple[int, bool]:
        """The error that aiokafka gets, and whether to wait before the next fetch."""
        end = response.diverging.get((topic_id, at.partition))
        if code == Code.NONE and end is not None:
            _, leader = self._leaders.get((topic_id, at.partition), (-1, node_id))
            if leader != node_id:
                return (
                    Code.NOT_LEADER_OR_FOLLOWER,
                    True,
                )  # a follower may only lag behind: the leader decides
            self._breaks[at] = Diverged(at.topic, at.partition, offset, *end)
            return Code.OFFSET_OUT_OF_RANGE, False
        if code in _OTHER_TOPIC:
            now = await self._other_id(at.topic, topic_id)
            if now is not None:
                self._breaks[at] = Recreated(at.topic, at.partition, offset, now)
                return Code.OFFSET_OUT_OF_RANGE, True
            return Code.NOT_LEADER_OR_FOLLOWER, True
        if code in _OTHER_LEADER:
            return Code.NOT_LEADER_OR_FOLLOWER, True
        return code, False

    async def _other_id(self, topic: str, topic_id: str) -> str | None:
        """The id that most brokers report for a topic, where it is not this one."""
        try:
            now = (await self._agreed([topic])).topic_ids.get(topic)
        except (errors.KafkaError, OSError):
            return None
        return None if now == topic_id else now

    # -- ends -------------------------------------------------------------------------------------

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """See `ports.ConsumerPort`."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return await self._ends_once(read)
            except errors.UnknownTopicOrPartitionError:
                raise
            except errors.KafkaError as error:
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(self._backoff)

    async def _ends_once(
        self, read: Mapping[TopicPartition, ReadPosition]
    ) -> dict[TopicPartition, End]:
        agreed = await self._agreed({at.topic for at in read})
        by_leader: dict[int, list[tuple[TopicPartition, int]]] = defaultdict(list)
        for at in read:
            if at.topic not in agreed.topic_ids:
                raise errors.StaleMetadata(at)
            epoch, leader = agreed.leaders.get(at, (-1, -1))
            if leader < 0:
                raise errors.LeaderNotAvailableError(at)
            by_leader[leader].append((at, epoch))
        found: dict[TopicPartition, End] = {}
        asked = (
            self._ends_at(node, led, read, agreed.topic_ids) for node, led in by_leader.items()
        )
        for ends in await asyncio.gather(*asked):
            found |= ends
        return found

    async def _ends_at(
        self,
        node: int,
        led: list[tuple[TopicPartition, int]],
        read: Mapping[TopicPartition, ReadPosition],
        topic_ids: Mapping[str, str | None],
    ) -> dict[TopicPartition, End]:
        """The ends that one leader reports. Raises StaleMetadata where a topic was replaced."""
        topics: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, epoch in led:
            topics[at.topic].append((at.partition, epoch))
        high = await self._list_ends(node, _UNCOMMITTED, topics)
        stable = await self._list_ends(node, _COMMITTED, topics) if self._committed else high
        cut_back = await self._cut_back(node, led, read, topic_ids)
        after = await self._ask(node, MetadataRequest(sorted(topics)))
        ids = after.topic_ids if after.API_VERSION >= METADATA else {}
        if any(topic_ids[topic] not in {None, ids.get(topic)} for topic in topics):
            raise errors.StaleMetadata(sorted(topics))
        return {
            at: End(high[at], min(stable[at], high[at]), topic_ids[at.topic], at not in cut_back)
            for at, _ in led
        }

    async def _list_ends(
        self, node: int, isolation: int, topics: Mapping[str, list[tuple[int, int]]]
    ) -> dict[TopicPartition, int]:
        response = await self._ask(node, EndsRequest(isolation, topics))
        found = {}
        for topic, partitions in response.topics:
            for number, code, _, offset, *_ in partitions:
                _raise_for(code, topic, number)
                found[TopicPartition(topic, number)] = int(offset)
        return found

    async def _cut_back(
        self,
        node: int,
        led: list[tuple[TopicPartition, int]],
        read: Mapping[TopicPartition, ReadPosition],
        topic_ids: Mapping[str, str | None],
    ) -> set[TopicPartition]:
        """The partitions of which the leader's log has lost what was read.

        While the leader is the one that wrote what was read last, nothing was cut back.
        """
        topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for at, epoch in led:
            place = read[at]
            same_topic = place.topic_id is None or place.topic_id == topic_ids[at.topic]
            if same_topic and 0 <= place.leader_epoch < epoch:
                topics[at.topic].append((at.partition, epoch, place.leader_epoch))
        if not topics:
            return set()
        response = await self._ask(node, LeaderEpochRequest(topics))
        found = set()
        for topic, partitions in response.topics:
            for code, number, epoch, end in partitions:
                _raise_for(code, topic, number)
                at = TopicPartition(topic, number)
                if epoch < read[at].leader_epoch or end < read[at].offset:
                    found.add(at)
        return found


def _by_name(answers: list[Any]) -> _Agreed:
    """Of brokers without topic ids: what the oldest version of them reports."""
    first = min(answers, key=lambda answer: answer.API_VERSION)
    topics = {topic: parts for code, topic, _, parts in first.topics if not code}
    leaders = {
        (topic, number): (-1, leader)
        for topic, parts in topics.items()
        for _, number, leader, *_ in parts
    }
    return _Agreed(dict.fromkeys(topics), leaders)


def _raise_for(code: int, topic: str, partition: int) -> None:
    """Raise a broker's error; those that aiokafka has not are of another leader."""
    if code in _OTHER_LEADER:
        code = Code.NOT_LEADER_OR_FOLLOWER
    if code:
        raise errors.for_code(code)(f"{topic}-{partition}")
