"""The ends of partitions, and whether their leaders' logs still contain what was read."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from aiokafka import errors

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.identity import OTHER_LEADER
from mirrortest.kafka.fast.metadata import METADATA, MetadataRequest
from mirrortest.kafka.fast.requests import EndsRequest, LeaderEpochRequest
from mirrortest.kafka.fetched import End, ReadPosition
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.kafka.fast.identity import Identity

_UNCOMMITTED, _COMMITTED = 0, 1


class Ends:
    """The ends of partitions, from the newest leaders that brokers report.

    Args:
        identity: of the consumer that reads the partitions.
        committed: whether that consumer reads with read_committed.
    """

    def __init__(self, identity: Identity, *, committed: bool = False) -> None:
        self._identity = identity
        self._committed = committed

    async def of(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """See `ports.ConsumerPort`."""
        deadline = time.monotonic() + self._identity.patience
        while True:
            try:
                return await self._ends_once(read)
            except errors.UnknownTopicOrPartitionError:
                raise
            except errors.KafkaError as error:
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(self._identity.backoff)

    async def _ends_once(
        self, read: Mapping[TopicPartition, ReadPosition]
    ) -> dict[TopicPartition, End]:
        agreed = await self._identity.agreed({at.topic for at in read})
        # The caller may have counted partitions at a broker that is cut off: add the others.
        added = {TopicPartition(*at): ReadPosition(0) for at in agreed.leaders if at not in read}
        read = {**read, **added}
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
        """The ends that one leader reports. Raises StaleMetadata if a topic was recreated."""
        topics: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, epoch in led:
            topics[at.topic].append((at.partition, epoch))
        high = await self._list_ends(node, _UNCOMMITTED, topics)
        stable = await self._list_ends(node, _COMMITTED, topics) if self._committed else high
        truncated = await self._truncated(node, led, read, topic_ids)
        after = await self._identity.ask(node, MetadataRequest(sorted(topics)))
        ids = after.topic_ids if after.API_VERSION >= METADATA else {}
        if any(topic_ids[topic] not in {None, ids.get(topic)} for topic in topics):
            raise errors.StaleMetadata(sorted(topics))
        return {
            at: End(high[at], min(stable[at], high[at]), topic_ids[at.topic], at not in truncated)
            for at, _ in led
        }

    async def _list_ends(
        self, node: int, isolation: int, topics: Mapping[str, list[tuple[int, int]]]
    ) -> dict[TopicPartition, int]:
        response = await self._identity.ask(node, EndsRequest(isolation, topics))
        found = {}
        for topic, partitions in response.topics:
            for number, code, _, offset, *_ in partitions:
                _raise_for(code, topic, number)
                found[TopicPartition(topic, number)] = int(offset)
        return found

    async def _truncated(
        self,
        node: int,
        led: list[tuple[TopicPartition, int]],
        read: Mapping[TopicPartition, ReadPosition],
        topic_ids: Mapping[str, str | None],
    ) -> set[TopicPartition]:
        """The partitions whose leader's log no longer contains what was read.

        While the leader that wrote the last batch read still leads, nothing was truncated.
        """
        topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for at, epoch in led:
            place = read[at]
            same_topic = place.topic_id is None or place.topic_id == topic_ids[at.topic]
            if same_topic and 0 <= place.leader_epoch < epoch:
                topics[at.topic].append((at.partition, epoch, place.leader_epoch))
        if not topics:
            return set()
        response = await self._identity.ask(node, LeaderEpochRequest(topics))
        found = set()
        for topic, partitions in response.topics:
            for code, number, epoch, end in partitions:
                _raise_for(code, topic, number)
                at = TopicPartition(topic, number)
                if epoch < read[at].leader_epoch or end < read[at].offset:
                    found.add(at)
        return found


def _raise_for(code: int, topic: str, partition: int) -> None:
    """Raise a broker's error; those that aiokafka does not define mean another leader."""
    if code in OTHER_LEADER:
        code = Code.NOT_LEADER_OR_FOLLOWER
    if code:
        raise errors.for_code(code)(f"{topic}-{partition}")
