"""Lanes: record keys chosen so that Kafka's default partitioner spreads them over all partitions.

A lane is a number, and its record key is that number in decimal. The lane of partition *p* in a
topic with *n* partitions is the smallest non-negative number whose key the default partitioner
(murmur2) maps to *p*. So every partition has exactly one lane, and none stays empty.
"""

from __future__ import annotations

from functools import cache

MAX_LANE = (1 << 32) - 1
"""The greatest lane in a message's descriptor."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, signed as Java's `Utils.murmur2` returns it."""
    length = len(data)
    hashed = _SEED ^ length
    words = length & ~3
    for start in range(0, words, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if length & 3:
        hashed ^= int.from_bytes(data[words:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def partition_of(key: bytes, partitions: int) -> int:
    """The partition, of `partitions`, that Kafka's default partitioner chooses for a record key."""
    return hashed(key) % partitions


def hashed(key: bytes) -> int:
    """The key's hash; modulo the number of partitions it is the default partitioner's choice."""
    return murmur2(key) & 0x7FFFFFFF


def lane_key(lane: int) -> bytes:
    """The record key of a lane: its number in decimal."""
    return b"%d" % lane


def parse_lane(key: bytes | None) -> int | None:
    """The lane with this record key; None if it is not a lane's (`07`, `+7`, too great, no key)."""
    if key is None or not 1 <= len(key) <= 10 or not key.isdigit():
        return None
    lane = int(key)
    return lane if lane <= MAX_LANE and lane_key(lane) == key else None


@cache
def lane_numbers(partitions: int) -> tuple[int, ...]:
    """The lanes of a topic: element *p* is the lane that belongs to partition *p*.

    Raises ValueError if there is no partition.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    lanes: dict[int, int] = {}
    number = 0
    while len(lanes) < partitions:
        lanes.setdefault(partition_of(lane_key(number), partitions), number)
        number += 1
    return tuple(lanes[partition] for partition in range(partitions))
