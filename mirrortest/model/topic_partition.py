"""A partition, as every room names it."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; a plain `(topic, number)` tuple serves as well."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """As Kafka's own tools and logs write it: ``orders-0``."""
        return f"{self.topic}-{self.partition}"
