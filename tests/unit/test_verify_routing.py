"""Where messages belong, one by one and as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.verify.placement import ExpectPartition, homes_of
from mirrortest.verify.routing import misrouted
from mirrortest.wire.lanes import lane_key, lane_numbers, partition_of


@pytest.mark.parametrize(
    ("policy", "source", "count", "expected"),
    [
        (ExpectPartition.SOURCE, 2, 5, 2),
        (ExpectPartition.SOURCE, None, 5, None),
        (ExpectPartition.SOURCE, -1, 5, None),
        (ExpectPartition.SOURCE_MODULO, 7, 5, 2),
        (ExpectPartition.SOURCE_MODULO, 7, 0, None),
        (ExpectPartition.MURMUR2, 0, 0, None),
        (ExpectPartition.ANY, 2, 5, None),
    ],
)
def test_policies(
    policy: ExpectPartition, source: int | None, count: int, expected: int | None
) -> None:
    """Each policy returns its partition, or no partition if it cannot determine one."""
    assert homes_of(policy, 3, source, [count]) == {expected} - {None}


def test_lanes_belong_where_murmur2_puts_them() -> None:
    """Lane p of a topic belongs in partition p under murmur2."""
    homes = [homes_of(ExpectPartition.MURMUR2, lane, None, [7]) for lane in lane_numbers(7)]
    assert homes == [{partition} for partition in range(7)]


@given(st.integers(0, 1000), st.lists(st.integers(0, 30), max_size=4))
def test_a_lane_is_at_home_under_each_count_that_may_have_been_in_force(
    lane: int, counts: list[int]
) -> None:
    """Counts between two known ones are included: in long/66025, a topic grew twice unseen.

    What was mirrored in between was `misrouted`, and a healthy mirror failed.
    """
    known = [count for count in counts if count]
    between = range(min(known, default=1), max(known, default=0) + 1)
    for policy, home in (
        (ExpectPartition.MURMUR2, lambda count: partition_of(lane_key(lane), count)),
        (ExpectPartition.SOURCE_MODULO, lambda count: lane % count),
    ):
        assert homes_of(policy, lane, lane, counts) == {home(count) for count in between}


def test_counts_that_anybody_may_have_written_cost_nothing() -> None:
    """A message or a ledger record can claim two billion partitions."""
    homes = homes_of(ExpectPartition.SOURCE_MODULO, 0, 7, [3, (1 << 31) - 1])
    assert homes == {7 % 3, 7}


@given(
    st.sampled_from(ExpectPartition),
    st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5), st.integers(0, 4)), max_size=12),
    st.integers(0, 5),
    st.lists(st.integers(1, 6), max_size=2),
)
def test_arrays_agree_with_single_messages(
    policy: ExpectPartition,
    messages: list[tuple[int, int, int]],
    partition: int,
    counts: list[int],
) -> None:
    """It is misrouted unless a count in force, or its own, puts it there, or it has no home."""
    wrong = misrouted(
        policy,
        lanes=np.array([lane for lane, _, _ in messages], np.int64),
        source_partitions=np.array([source for _, source, _ in messages], np.int32),
        counted=np.array([count for _, _, count in messages], np.int32),
        partition=partition,
        counts=counts,
    )
    expected = []
    for lane, source, own in messages:
        homes = homes_of(policy, lane, source, (*counts, own)) if lane >= 0 else ()
        expected.append(bool(homes) and partition not in homes)
    assert wrong.tolist() == expected


@given(
    st.sampled_from(ExpectPartition),
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
    st.lists(st.integers(1, 6), max_size=3),
    st.lists(st.integers(0, 6), max_size=3),
)
def test_what_is_at_home_under_no_count_is_misrouted_by_the_counts_of_its_time(
    policy: ExpectPartition,
    message: tuple[int, int, int],
    then: list[int],
    since: list[int],
) -> None:
    """So judging streams by all counts finds nothing that rows under the same policy lack."""
    lane, source, partition = message
    wrong = misrouted(
        policy,
        lanes=np.array([lane], np.int64),
        source_partitions=np.array([source], np.int32),
        counted=np.zeros(1, np.int32),
        partition=partition,
        counts=then,
    )
    homes = homes_of(policy, lane, source, (*then, *since))
    if homes_of(policy, lane, source, then) and partition not in homes:
        assert wrong.all()


def test_three_source_partitions_copied_onto_five_are_not_misrouted() -> None:
    """MirrorMaker 2 keeps partition numbers: correct under `source`, wrong under `murmur2`."""
    lanes = np.array(lane_numbers(5), np.int64)
    about: dict[str, Any] = {
        "lanes": lanes,
        "source_partitions": np.full(5, 1, np.int32),
        "counted": np.zeros(5, np.int32),
        "partition": 1,
        "counts": [5],
    }
    assert not misrouted(ExpectPartition.SOURCE, **about).any()
    assert misrouted(ExpectPartition.MURMUR2, **about).sum() == 4
