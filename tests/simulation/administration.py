"""The admin client of the simulated clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.ports import Configuration, TopicDescription

from .connection import SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.model.topic_partition import TopicPartition

    from .cluster import Topic


class SimulatedAdmin(SimulatedClient):
    """See `ports.AdminPort`."""

    async def describe_cluster(self) -> tuple[str, int]:
        """See `ports.AdminPort`."""
        found: tuple[str, int] = await self.ask("cluster", lambda: (self.cluster.name, 3))
        return found

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        """See `ports.AdminPort`."""
        cluster, world = self.cluster, self.world

        def describe(name: str) -> TopicDescription:
            topic = cluster.known(name, world.now_ns)
            if topic is None:
                missing = RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION, name)
                return TopicDescription(name, missing, False, 0, [])
            leaders = [-1 if partition.leaderless else 1 for partition in topic.partitions]
            return TopicDescription(name, None, False, len(topic.partitions), leaders)

        described: list[TopicDescription] = await self.ask(
            "topics",
            lambda: [
                describe(name) for name in (sorted(cluster.topics) if topics is None else topics)
            ],
        )
        return described

    async def create_topics(
        self, topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, str]
    ) -> set[str]:
        """See `ports.AdminPort`."""
        cluster, world = self.cluster, self.world

        def serve() -> set[str]:
            created = set()
            for name, partitions in topics.items():
                try:
                    lag = int(world.random.random() * 5e8)
                    cluster.create(
                        name,
                        partitions,
                        compacted=configs.get("cleanup.policy") == "compact",
                        now_ns=world.now_ns,
                        lag_ns=lag,
                    )
                except RequestError:
                    continue  # it exists
                created.add(name)
                world.note("topic created", self.process.name, cluster.name, name)
            return created

        made: set[str] = await self.ask("create", serve)
        return made

    async def create_partitions(self, topic: str, total: int) -> None:
        """No application calls this."""
        raise NotImplementedError

    async def delete_topic(self, topic: str) -> None:
        """No application calls this."""
        raise NotImplementedError

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """No application calls this."""
        raise NotImplementedError

    async def configurations(
        self, topics: list[str], *, brokers: bool = True
    ) -> list[Configuration]:
        """See `ports.AdminPort`."""
        assert not brokers, "no application asks for them"
        cluster, world = self.cluster, self.world

        def serve() -> list[Configuration]:
            return [_described(topic, cluster.known(topic, world.now_ns)) for topic in topics]

        found: list[Configuration] = await self.ask("configs", serve)
        return found


def _described(name: str, topic: Topic | None) -> Configuration:
    """A topic's configuration; None: there is no such topic."""
    if topic is None:
        error = RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION, name)
        return Configuration("topics", name, error, {})
    policy = "compact" if topic.compacted else "delete"
    stamps = "LogAppendTime" if topic.stamps else "CreateTime"
    values = {"cleanup.policy": policy, "message.timestamp.type": stamps}
    return Configuration("topics", name, None, values)
