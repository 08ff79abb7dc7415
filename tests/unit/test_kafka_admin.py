"""What the admin client waits for, where a broker's answers lag behind each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.config.client import ClientConfig
from mirrortest.kafka.admin import Admin

if TYPE_CHECKING:
    from aiokafka.admin.new_partitions import NewPartitions


class Lagging:
    """A broker that agrees at once, and whose metadata is older than that for two requests."""

    def __init__(self) -> None:
        self.asked = 0

    async def create_partitions(self, _: dict[str, NewPartitions]) -> None:
        """Agreed."""

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.asked += 1
        partition = {"leader": 1, "error_code": 0}
        count = 3 if self.asked <= 2 else 5
        return [
            {
                "topic": topic,
                "error_code": 0,
                "is_internal": False,
                "partitions": [partition] * count,
            }
            for topic in topics
        ]


async def test_a_topic_has_grown_when_the_brokers_say_so() -> None:
    """`add_partitions` returns once the metadata has the new partitions, not the old ones."""
    config = ClientConfig.from_properties(
        {"bootstrap.servers": "nowhere:1", "retry.backoff.ms": "1"}
    )
    admin = Admin(config)
    admin._client = Lagging()
    await admin.add_partitions("t", 5)
    assert await admin.partition_counts(["t"]) == {"t": 5}
