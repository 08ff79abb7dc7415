"""The ids of topics, and the leaders and leader epochs of their partitions.

Every fetch carries the topic id, the epoch of the leader that is asked, and the epoch of the leader
that wrote the last batch before the position. If one of them is wrong, the broker returns an error
and no records (`fetcher`).
"""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import errors

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.metadata import METADATA, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka.client import AIOKafkaClient


OTHER_LEADER = frozenset(
    {Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.OFFSET_NOT_AVAILABLE}
)

_METADATA_GROUP = "metadata"
"""The connection group of metadata and offset requests, apart from fetches."""
_MAX_ASKED = 5
"""How many brokers are asked for leaders at most: of any two, one is assumed not cut off."""
_ANSWER_SECONDS = 2.0
"""How long to wait for more brokers once half of them have answered."""


class Agreed(NamedTuple):
    """The topic ids that most brokers report, and the newest leaders that any of them reports."""

    topic_ids: dict[str, str | None]
    """Topic -> id; None if brokers have no ids. A topic without a majority is left out."""
    leaders: dict[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (leader epoch, leader's node)"""


class Identity:
    """The topic ids and leaders that brokers reported to one consumer's AIOKafkaClient."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self.backoff = client._retry_backoff
        """Seconds between two tries."""
        self.patience = client._request_timeout_ms / 1000
        """Seconds for all tries."""
        self._original_update = self._client.cluster.update_metadata
        self._client.cluster.update_metadata = self._update
        self._ids: dict[str, str] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """(topic id, partition) -> the newest leader epoch of any broker, and its leader"""

    def cached_id(self, topic: str) -> str | None:
        """A topic's id, as it was last reported; None if it was not."""
        return self._ids.get(topic)

    def leader_epoch(self, topic_id: str | None, partition: int) -> int:
        """The newest leader epoch that any broker has reported; -1 if none has."""
        return self._leaders.get((topic_id or "", partition), (-1, -1))[0]

    def leader(self, topic_id: str | None, partition: int) -> int | None:
        """The leader of the newest epoch; None if no broker has reported one."""
        kept = self._leaders.get((topic_id or "", partition))
        return None if kept is None else kept[1]

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

    async def ask(self, node: int, request: Any) -> Any:
        """Ask a broker on a separate connection: here responses do not wait for fetches."""
        return await self._client.send(node, request, group=_METADATA_GROUP)

    # -- metadata ---------------------------------------------------------------------------------

    def _update(self, metadata: Any) -> None:
        self._learn(metadata)
        self._original_update(metadata)

    def _learn(self, metadata: Any) -> None:
        """Keep ids and leaders; replace leaders in `metadata` that are older than kept ones."""
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
        """The newer of the kept and the reported leader of a partition; keep that one."""
        kept = self._leaders.get(at)
        if at[0] and (kept is None or reported[0] >= kept[0]):
            self._leaders[at] = kept = reported
        return kept or reported

    async def agreed(self, topics: Iterable[str]) -> Agreed:
        """Ask several brokers for these topics.

        Raises:
            UnknownTopicOrPartitionError: one of the topics is missing in every response.
            KafkaError: fewer than half of them answer. Metadata does not list brokers that are
                known to have failed, so a client that reaches only a few may be asking one that
                is cut off.
        """
        topics = set(topics)
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        if len(nodes) > _MAX_ASKED:
            nodes = random.sample(nodes, _MAX_ASKED)
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
        id_votes: dict[str, Counter[str]] = defaultdict(Counter)
        for answer in answers:
            for topic, topic_id in answer.topic_ids.items():
                id_votes[topic][topic_id] += 1
        ids: dict[str, str | None] = {}
        leaders = {}
        for topic, votes in id_votes.items():
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

    async def other_id(self, topic: str, topic_id: str | None) -> str | None:
        """The id that most brokers report for a topic if it differs from `topic_id`, else None."""
        try:
            now = (await self.agreed([topic])).topic_ids.get(topic)
        except (errors.KafkaError, OSError):
            return None
        return None if now == topic_id else now


def _by_name(answers: list[Any]) -> Agreed:
    """For brokers without topic ids: the response of the oldest version among them."""
    first = min(answers, key=lambda answer: answer.API_VERSION)
    topics = {topic: parts for code, topic, _, parts in first.topics if not code}
    leaders = {
        (topic, number): (-1, leader)
        for topic, parts in topics.items()
        for _, number, leader, *_ in parts
    }
    return Agreed(dict.fromkeys(topics), leaders)
