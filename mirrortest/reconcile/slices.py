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
from mirrortest.reconcile.sweep import highest_before, united
from mirrortest.seqlog.schema import ENDLESS, STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator


def slices(lane: pa.Table, most: int) -> Iterator[StreamRows]:
    """The rows of a lane, in slices of about `most` rows, holes included."""
    lane = lane.filter(pa.array(is_of_stream(lane)))
    stream = codes(*(coded(lane[name]) for name in STREAM))
    for number in np.unique(stream).tolist():
        yield from _of_stream(lane.filter(pa.array(stream == number)).combine_chunks(), most)


def _of_stream(rows: pa.Table, most: int) -> Iterator[StreamRows]:
    seen = np.flatnonzero(pc.equal(rows["kind"], Kind.SEEN.value).to_numpy())
    hi, partition, holes = (numbers(rows, name) for name in ("seq_hi", "partition", "holes"))
    order = seen[
        np.lexsort(
            (numbers(rows, "offset_lo")[seen], numbers(rows, "identity")[seen], partition[seen])
        )
    ]
    above = np.zeros(rows.num_rows, dtype=np.int64)
    above[order] = highest_before(partition[order], hi[order])
    rows = rows.append_column("above", pa.array(above))
    # Slices end where the chains before have that many more holes.
    packed = seen[holes[seen] > 0]
    packed = packed[np.argsort(hi[packed], kind="stable")]
    filled = np.cumsum(holes[packed]) // most
    ends = hi[packed[np.flatnonzero(np.diff(filled, append=filled[-1:]) > 0)]]
    bounds = list(pairwise([0, *np.unique(ends).tolist(), ENDLESS]))
    home = _home(rows.take(pa.array(seen)), bounds)
    for begin, end in bounds:
        yield StreamRows.of_table(_between(rows, begin, end), (begin, end), home)


def _between(rows: pa.Table, begin: int, end: int) -> pa.Table:
    """The rows with numbers in [begin, end), or without numbers."""
    lo, hi = numbers(rows, "seq_lo"), numbers(rows, "seq_hi")
    here = (lo == NONE) | ((lo < end) & (hi > begin))
    return rows.filter(pa.array(here)).combine_chunks()


def _home(seen: pa.Table, bounds: list[tuple[int, int]]) -> int:
    """The partition with the most messages of the one stream; see `fullest`."""
    found = np.unique(numbers(seen, "partition"))
    messages = np.ones(len(found), dtype=np.int64)
    if len(found) > 1:  # only then must they be counted, without holes and copies
        messages[:] = 0
        for begin, end in bounds:
            rows = StreamRows.of_table(_between(seen, begin, end), (begin, end))
            first, lo, hi = united(rows.partition, rows.seq_lo, rows.seq_hi)
            np.add.at(messages, np.searchsorted(found, rows.partition[first]), hi - lo)
    return int(fullest(np.zeros(len(found), dtype=np.int64), found, messages, 1)[0])
