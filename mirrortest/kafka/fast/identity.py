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
    FetchPosition,
    FetchRequest,
)
from mirrortest.kafka.fetched import Diverged, OutOfRange, ReadPosition, Recreated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokafka.client import AIOKafkaClient

    from mirrortest.kafka.fast.requests import FetchResponse
    from mirrortest.model.topic_partition import TopicPartition

_OTHER_TOPIC = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
OTHER_LEADER = frozenset(
    {Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.OFFSET_NOT_AVAILABLE}
)

_METADATA_GROUP = "metadata"
"""The group of connections of all that is no fetch."""
_MOST_ASKED = 5
"""So many brokers are asked at most for leaders: of any two of them one is not cut off."""
_ANSWER_SECONDS = 2.0
"""How long brokers are waited for once half of them have answered."""


class Agreed(NamedTuple):
    """What most brokers report of topics, and the newest leader that any of them reports."""

    topic_ids: dict[str, str | None]
    """None where brokers have no ids. A topic is left out while they do not agree about it."""
    leaders: dict[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (leader epoch, leader's node)"""


class Identity:
    """One consumer's; it changes the requests and responses of its AIOKafkaClient."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self.backoff = client._retry_backoff
        """Seconds between two tries."""
        self.patience = client._request_timeout_ms / 1000
        """Seconds for all tries."""
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
            metadata = await self.ask(node, MetadataRequest([topic]))
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

    async def ask(self, node: int, request: Any) -> Any:
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

    async def agreed(self, topics: Iterable[str]) -> Agreed:
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
            asyncio.ensure_future(self.ask(node, request)) for node in nodes
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
        return Agreed(ids, leaders)

    async def _answers(self, asked: list[asyncio.Future[Any]]) -> list[Any]:
        deadline = time.monotonic() + self.patience
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
                at = topic, number  # as good a key as a KafkaPartition, and made at no cost
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
            (self.pins[topic, number], number): (topic, offset)
            for topic, partitions in request.topics
            for number, offset, _ in partitions
        }
        named: dict[str, list[Any]] = {}
        errors_found = wait = False
        for topic_id, partitions in response.topics:
            for number, code, *rest in partitions:
                if (topic_id, number) not in asked:
                    continue  # sought anew meanwhile, in another topic
                topic, offset = asked[topic_id, number]
                if self._asked[topic, number] is not request:
                    continue
                if code or (topic_id, number) in response.diverging:
                    errors_found = True
                    at = KafkaPartition(topic, number)
                    self._breaks.pop(at, None)
                    code, waits = await self._error_for_aiokafka(  # noqa: PLW2901
                        node_id, at, offset, topic_id, code, response
                    )
                    wait |= waits
                named.setdefault(topic, []).append((number, code, *rest))
        if wait:
            # Else it would be asked again at once, over and over.
            await asyncio.sleep(self.backoff)
        if not errors_found:
            response.topics = list(named.items())
            return response
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
        if code in OTHER_LEADER:
            return Code.NOT_LEADER_OR_FOLLOWER, True
        return code, False

    async def _other_id(self, topic: str, topic_id: str) -> str | None:
        """The id that most brokers report for a topic, where it is not this one."""
        try:
            now = (await self.agreed([topic])).topic_ids.get(topic)
        except (errors.KafkaError, OSError):
            return None
        return None if now == topic_id else now


def _by_name(answers: list[Any]) -> Agreed:
    """Of brokers without topic ids: what the oldest version of them reports."""
    first = min(answers, key=lambda answer: answer.API_VERSION)
    topics = {topic: parts for code, topic, _, parts in first.topics if not code}
    leaders = {
        (topic, number): (-1, leader)
        for topic, parts in topics.items()
        for _, number, leader, *_ in parts
    }
    return Agreed(dict.fromkeys(topics), leaders)
