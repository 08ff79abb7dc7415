"""Finds messages in partitions where they do not belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirrortest.verify.placement import ExpectPartition, homes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def misrouted(
    policy: ExpectPartition,
    *,
    lanes: NDArray[np.int64],
    source_partitions: NDArray[np.int32],
    counted: NDArray[np.int32],
    partition: int,
    counts: Sequence[int],
) -> NDArray[np.bool_]:
    """Which of these messages are in a partition where they do not belong.

    Args:
        policy: what is expected; under `ANY` a single message is never misrouted.
        lanes: each message's lane; those without one (-1) are never misrouted.
        source_partitions: each message's source partition; -1: unknown.
        counted: the destination's partition count when each message was sent, as its producer saw
            it; 0: not recorded.
        partition: the partition in which all of them are.
        counts: the destination's partition counts that were certainly in force; a message may be
            where any of them puts it.
    """
    wrong = np.zeros(len(lanes), np.bool_)
    if policy is ExpectPartition.ANY or not len(lanes):
        return wrong
    # Most batches have one lane from one partition: look up homes once per run of equal values.
    changes = np.diff(lanes) != 0
    changes |= (np.diff(source_partitions) != 0) | (np.diff(counted) != 0)
    bounds = (np.flatnonzero(changes) + 1).tolist()
    for lo, hi in zip((0, *bounds), (*bounds, len(lanes)), strict=True):
        lane, source = int(lanes[lo]), int(source_partitions[lo])
        if lane < 0:
            continue
        homes = homes_of(policy, lane, source, {*counts, int(counted[lo])})
        wrong[lo:hi] = bool(homes) and partition not in homes
    return wrong
