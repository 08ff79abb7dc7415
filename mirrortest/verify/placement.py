"""Where in the destination a lane's messages belong."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from mirrortest.wire.lanes import lane_key, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExpectPartition(StrEnum):
    """How the mirror under test is meant to choose a partition."""

    SOURCE = "source"
    """The same number as in the source."""
    MURMUR2 = "murmur2"
    """By the key, as Kafka's default partitioner does among the destination's partitions."""
    SOURCE_MODULO = "source-modulo"
    """The number in the source, modulo the destination's partitions."""
    ANY = "any"
    """Whatever, but all of a lane in one partition."""


def expected_partition(
    policy: ExpectPartition, lane: int, source_partition: int | None, destination_partitions: int
) -> int | None:
    """A lane's partition in the destination; None where it does not follow from policy and message.

    `source_partition` is None (or negative) and `destination_partitions` 0 where unknown.
    """
    if policy is ExpectPartition.MURMUR2:
        if destination_partitions < 1:
            return None
        return partition_of(lane_key(lane), destination_partitions)
    if policy is ExpectPartition.ANY or source_partition is None or source_partition < 0:
        return None
    if policy is ExpectPartition.SOURCE:
        return source_partition
    return source_partition % destination_partitions if destination_partitions > 0 else None


def homes_of(
    policy: ExpectPartition, lane: int, source_partition: int | None, counts: Iterable[int]
) -> frozenset[int]:
    """A lane's partitions under each of the destination's partition counts; none: unknown."""
    found = {expected_partition(policy, lane, source_partition, count) for count in (*counts, 0)}
    return frozenset(number for number in found if number is not None)
