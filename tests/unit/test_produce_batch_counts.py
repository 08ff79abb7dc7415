"""Exact batches: how many messages each has, and at which number it ends."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.shape import Gaussian
from mirrortest.errors import UsageError
from mirrortest.produce.batch_counts import BatchCounts, BatchShape, largest_batch
from mirrortest.produce.context import ProducerContext
from mirrortest.produce.incarnation_setup import check_batches
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.topic_plan import TopicPlan
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.stream import ProducerId

SHAPE = Gaussian(Fraction(16), Fraction(4), 1)


def batches(shape: BatchShape, *, lane: int = 0) -> BatchCounts:
    return BatchCounts(shape, seed=3, topic="t", lane=lane)


def counts(shape: BatchShape, batch_count: int, *, lane: int = 0) -> list[int]:
    """The message counts of the first batches."""
    found, position, sizes = batches(shape, lane=lane), 0, []
    for _ in range(batch_count):
        end = found.end(position)
        sizes.append(end - position)
        position = end
    return sizes


@given(st.integers(1, 1000), st.integers(0, 10**6))
def test_batches_of_one_count(count: int, position: int) -> None:
    """Each batch ends at a multiple of the count."""
    end = batches(count).end(position)
    assert end % count == 0
    assert position < end <= position + count


def test_gaussian_batches_are_gaussian() -> None:
    """68, 95 and 99.7 % are within one, two and three deviations; each has a message or more."""
    found = np.array(counts(SHAPE, 5000))
    away = np.abs(found - 16)
    # Counts are integers: k deviations are 4 k and a half.
    for most, share in ((4.5, 0.7394), (8.5, 0.9664), (12.5, 0.9982)):
        assert abs((away < most).mean() - share) < 0.025
    assert found.min() >= 1
    assert found.max() <= largest_batch(SHAPE) == 40
    assert min(counts(Gaussian(Fraction(1), Fraction(50), 1), 500)) == 1


def test_batches_are_the_same_in_any_life() -> None:
    """A position's batch is the same without earlier calls, and from a position in its middle."""
    ends = np.cumsum(counts(SHAPE, 3000)).tolist()
    assert batches(SHAPE).end(ends[2500]) == ends[2501]
    assert batches(SHAPE).end(ends[2500] - 1) == ends[2500]
    assert counts(SHAPE, 50, lane=1) != counts(SHAPE, 50)


def test_a_batch_that_was_not_sent_is_made_again() -> None:
    """A position may go back by a batch or two, even after new draws, but not to the start."""
    found = batches(SHAPE)
    ends = np.cumsum(counts(SHAPE, 1026)).tolist()
    assert found.end(ends[1024]) == ends[1025]
    assert found.end(ends[1022]) == ends[1023]
    assert found.end(ends[1020]) == ends[1021]
    found.end(ends[-1] * 3)
    with pytest.raises(ValueError, match="too long ago"):
        found.end(0)


def test_a_batch_that_is_taken_on_fits_in_each_lane_and_incarnation() -> None:
    """This holds for keys and ids of any length: a batch that does not fit is never sent."""
    plan = TopicPlan("t", 300, 300)
    client = ClientConfig(bootstrap_servers=("h:1",), batch_size=50_000)
    accepted = 0
    for count in range(300, 600):
        options = ProduceOptions(
            run="r", name="p", client=client, topics=("t",), message_size=100, batch_messages=count
        )
        try:
            check_batches(ProducerContext(options), [plan])
        except UsageError as error:
            assert f"at most {accepted} messages fit" in str(error)  # noqa: PT017
            break
        accepted = count
    assert accepted
    for lane, partition in zip(plan.lanes, plan.partitions, strict=True):
        for incarnation in (1, 12, 12_345):
            producer = ProducerId("p", "r", incarnation)
            encoder = LaneEncoder("t", producer, lane, partition, 300, options.form, 100)
            assert encoder.most_within(50_000) >= accepted
