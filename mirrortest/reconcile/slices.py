"""Slices of a lane that lacks so much that it is judged slice by slice, to bound the memory.

A slice is a range of one stream's numbers. Its rows carry what it needs of the others: the highest
number before each chain, and the partition with most of the stream. A slice ends where a chain
ends, so that no range of missing numbers is cut.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.chain import codes
from mirrortest.reconcile.judgement import fullest
from mirrortest.reconcile.stream_rows import StreamRows, coded, is_of_stream
from mirrortest.reconcile.stretch import NONE, numbers
from mirrortest.reconcile.sweep import highest_before
from mirrortest.seqlog.schema import ENDLESS, STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]


def slices(lane: pa.Table, most: int) -> Iterator[StreamRows]:
    """The rows of a lane, in slices of about `most` rows, holes included."""
    lane = lane.filter(pa.array(is_of_stream(lane)))
    stream = codes(*(coded(lane[name]) for name in STREAM))
    for number in np.unique(stream).tolist():
        yield from _of_stream(lane.filter(pa.array(stream == number)).combine_chunks(), most)


def _of_stream(rows: pa.Table, most: int) -> Iterator[StreamRows]:
    seen = np.flatnonzero(pc.equal(rows["kind"], Kind.SEEN.value).to_numpy())
    lo, hi, partition, holes = (
        numbers(rows, name) for name in ("seq_lo", "seq_hi", "partition", "holes")
    )
    order = seen[
        np.lexsort(
            (numbers(rows, "offset_lo")[seen], numbers(rows, "identity")[seen], partition[seen])
        )
    ]
    above = np.zeros(rows.num_rows, dtype=np.int64)
    above[order] = highest_before(partition[order], hi[order])
    rows = rows.append_column("above", pa.array(above))
    home = _home(partition[seen], (hi - lo)[seen])
    # Slices end where the chains before have that many more holes.
    packed = seen[holes[seen] > 0]
    packed = packed[np.argsort(hi[packed], kind="stable")]
    filled = np.cumsum(holes[packed]) // most
    ends = hi[packed[np.flatnonzero(np.diff(filled, append=filled[-1:]) > 0)]]
    for begin, end in pairwise([0, *np.unique(ends).tolist(), ENDLESS]):
        here = (lo == NONE) | ((lo < end) & (hi > begin))
        some = rows.filter(pa.array(here)).combine_chunks()
        yield StreamRows.of_table(some, (begin, end), home)


def _home(partition: Longs, messages: Longs) -> int:
    """The partition with the most of the one stream; see `fullest`."""
    found, place = np.unique(partition, return_inverse=True)
    sums = np.bincount(place, messages, len(found)).astype(np.int64)
    return int(fullest(np.zeros(len(found), dtype=np.int64), found, sums, 1)[0])
