"""The destination partitions where a lane's messages belong."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from mirrortest.wire.lanes import hashed, lane_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_MOST_ADDED = 1_000
"""Up to this many partitions may have been added in steps that no consumer saw."""


class ExpectPartition(StrEnum):
    """How the mirror under test is meant to choose a partition."""

    SOURCE = "source"
    """The same number as in the source."""
    MURMUR2 = "murmur2"
    """By the key, as Kafka's default partitioner does among the destination's partitions."""
    SOURCE_MODULO = "source-modulo"
    """The number in the source, modulo the destination's partition count."""
    ANY = "any"
    """Any partition, but only one per stream for each partition count in force."""


def homes_of(
    policy: ExpectPartition, lane: int, source_partition: int | None, counts: Iterable[int]
) -> frozenset[int]:
    """The destination partitions where a lane belongs; empty if the policy does not determine them.

    Each partition count that may have been in force adds a home. An unknown `source_partition` is
    None or negative, an unknown count 0.
    """
    if source_partition is not None and source_partition < 0:
        source_partition = None
    if policy is ExpectPartition.SOURCE and source_partition is not None:
        return frozenset((source_partition,))
    if policy is ExpectPartition.MURMUR2:
        spread = hashed(lane_key(lane))
    elif policy is ExpectPartition.SOURCE_MODULO and source_partition is not None:
        spread = source_partition
    else:
        return frozenset()
    return frozenset(spread % count for count in counts_in_force(counts))


def counts_in_force(counts: Iterable[int]) -> Collection[int]:
    """Every partition count that a destination may have had, given the known ones (0: unknown).

    Partitions may have been added in steps that no consumer saw. If the known counts are too far
    apart for that, as anyone can write them, only they are returned.
    """
    known = {count for count in counts if count > 0}
    if known and max(known) - min(known) <= _MOST_ADDED:
        return range(min(known), max(known) + 1)
    return known
