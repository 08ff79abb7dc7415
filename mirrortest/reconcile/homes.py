"""Where streams belong in the destination, or did under earlier partition counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.reconcile.chain import codes
from mirrortest.reconcile.stretch import NONE
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.placement import homes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.reconcile.given import Given
    from mirrortest.reconcile.stream_rows import StreamRows
    from mirrortest.reconcile.stretch import Flags, Longs


class Homes(NamedTuple):
    """Where streams belong in the destination, or did: `of` is each one's index in `each`."""

    each: Sequence[frozenset[int]]
    of: Longs

    @property
    def known(self) -> Flags:
        """Which streams have a known home."""
        return np.array([bool(homes) for homes in self.each], dtype=bool)[self.of]

    def has(self, partition: int) -> Flags:
        """Which streams belong in a partition."""
        return np.array([partition in homes for homes in self.each], dtype=bool)[self.of]

    def admit(self, stream: Longs, partition: Longs) -> Flags:
        """For pairs of stream and partition: whether it may belong there; true where unknown."""
        pairs = zip(self.of[stream].tolist(), partition.tolist(), strict=True)
        return np.array([not self.each[of] or at in self.each[of] for of, at in pairs], dtype=bool)


def homes_by_stream(rows: StreamRows, given: Given) -> Homes:
    """Where streams belong, by their producers' rows; unknown for streams without such rows.

    A lane's number stands for another partition under another partition count of the source.
    """
    streams = rows.streams
    source = np.full(len(streams), NONE - 1, dtype=np.int64)
    for kind in (Kind.RESERVED, Kind.SENT):
        at = rows.of(kind)
        np.maximum.at(source, rows.stream[at], rows.partition[at])
    group = codes(streams.group, source).astype(np.int64)
    _, first = np.unique(group, return_index=True)
    return Homes(
        [
            frozenset()
            if name not in given.policies or where < NONE  # no producer's row names this stream
            else homes_of(given.policies[name], lane, where, given.counts.get(name, ()))
            for where, lane, name in zip(
                source[first].tolist(),
                streams.lane[first].tolist(),
                streams.names(streams.topic[first]),
                strict=True,
            )
        ],
        group,
    )


def anywhere(rows: StreamRows, given: Given) -> Flags:
    """Which streams may be in any partition, if all of the stream is in one (policy `any`)."""
    topics = rows.streams.topics
    flags: Flags = np.array([given.policies.get(t) == "any" for t in topics], dtype=bool)
    return flags[rows.streams.topic]
