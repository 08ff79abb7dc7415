"""The name of a partition."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the tuple `(topic, number)`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The name in Kafka's tools and logs, for example ``orders-0``."""
        return f"{self.topic}-{self.partition}"
