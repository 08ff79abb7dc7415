"""Lanes: Kafka's default partitioner, and the keys chosen for it."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.lanes import (
    MAX_LANE,
    lane_key,
    lane_numbers,
    murmur2,
    parse_lane,
    partition_of,
)


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, hashed: int) -> None:
    """The vectors of Kafka's own UtilsTest."""
    assert murmur2(data) == hashed


@given(st.binary(max_size=80))
def test_murmur2_equals_aiokafkas(data: bytes) -> None:
    """Any bytes have the hash of aiokafka's partitioner, which is unsigned."""
    assert murmur2(data) & 0xFFFFFFFF == aiokafka_murmur2(data)


@given(st.integers(1, 200))
def test_every_partition_has_the_smallest_lane(partitions: int) -> None:
    """Lane p maps to partition p, and no smaller number does."""
    lanes = lane_numbers(partitions)
    assert [partition_of(lane_key(lane), partitions) for lane in lanes] == list(range(partitions))
    smaller = {
        (number, partition_of(lane_key(number), partitions)) for number in range(max(lanes) + 1)
    }
    for partition, lane in enumerate(lanes):
        assert min(number for number, there in smaller if there == partition) == lane


def test_lane_numbers_golden() -> None:
    """Keys already written into topics must stay the keys of their lanes."""
    assert lane_numbers(1) == (0,)
    assert lane_numbers(3) == (1, 4, 0)
    assert lane_numbers(8) == (2, 4, 20, 7, 0, 16, 5, 1)


def test_no_partitions_is_an_error() -> None:
    """A topic without partitions has no lanes."""
    with pytest.raises(ValueError, match="at least one"):
        lane_numbers(0)


@given(st.integers(0, MAX_LANE))
def test_a_lane_is_read_from_its_key(lane: int) -> None:
    """Parsing a lane's key returns the lane."""
    assert parse_lane(lane_key(lane)) == lane


@pytest.mark.parametrize(
    "key", [None, b"", b"07", b"+7", b" 7", b"7a", b"-1", b"4294967296", b"9" * 40, "٣".encode()]
)
def test_other_keys_are_no_lanes(key: bytes | None) -> None:
    """Only the decimal form itself is a lane's key."""
    assert parse_lane(key) is None
