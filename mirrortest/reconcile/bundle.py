"""What tasks give to Spark: bundles, each of many rows in Arrow's format, which Spark never opens.

A row in Spark costs more than all that is done with it here. All rows of a lane go into bundles for
one part of the judgement (`Parts`). The driver gets bundles of its own: rows of offsets, sums,
damage, and an overview of the others.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.interval_rows import (
    ACKED,
    DAMAGE,
    INTERVALS,
    LATENCY,
    MEASURED,
    OVERVIEW,
    RANGE,
    interval_batch,
)
from mirrortest.reconcile.stretch import NONE, numbers
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.stretch import Longs

BUNDLES = "name string, part int, task int, number long, packed binary"
"""Spark's schema of bundles: a name, for which part, of which task, how many rows, these rows."""
DRIVER = -1
"""The part number of bundles for the driver."""
SCANNED = "scanned"
"""The name of bundles of `INTERVALS` rows."""
_FOR_DRIVER = (
    Kind.READ.value, Kind.HOLE.value, Kind.UNREAD.value, Kind.TAIL.value, RANGE, MEASURED, DAMAGE,
    LATENCY, ACKED,
)  # fmt: skip
_BYTES = 16 << 20
"""About the largest size of a bundle, uncompressed."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""Compressed, because Spark writes bundles to disk and copies them between processes."""
_KEY = ("text", "topic", "producer", "incarnation", "session", "partition", "identity")
_HIGHEST = ("outcome", "offset_hi")


def bundles(name: str, part: int, task: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Pack rows into bundles, at least one; Java's heap has several copies of each at a time."""
    most = max(rows.num_rows * _BYTES // max(rows.nbytes, _BYTES), 1)
    for begin in range(0, max(rows.num_rows, 1), most):
        yield _bundle(name, part, task, rows.slice(begin, most))


def _bundle(name: str, part: int, task: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    return pa.record_batch(
        {
            "name": [name],
            "part": pa.array([part], pa.int32()),
            "task": pa.array([task], pa.int32()),
            "number": pa.array([rows.num_rows], pa.int64()),
            "packed": pa.array([sink.getvalue().to_pybytes()], pa.binary()),
        }
    )


def opened(packed: Iterable[pa.Scalar]) -> Iterator[pa.Table]:
    """Unpack bundles: a table for each."""
    for each in packed:
        with pa.ipc.open_stream(each.as_buffer()) as stream:
            yield stream.read_all()


class Parts(NamedTuple):
    """How rows are spread over the parts of the judgement.

    Attributes:
        number: how many parts there are.
        joined: topics whose lanes are all in one part: they compete for the holes of compaction.
    """

    number: int
    joined: frozenset[str] = frozenset()

    def of(self, rows: pa.Table) -> Longs:
        """The part for each row: by topic and lane; without a lane, by topic and partition."""
        if self.number == 1 or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.int64)
        topics = rows["topic"].combine_chunks().dictionary_encode()
        names = [*topics.dictionary.to_pylist(), None]
        # Unlike Python's own hash, this one is the same in all processes.
        hashes = np.array([zlib.crc32((name or "").encode()) for name in names], dtype=np.int64)
        joined = np.array([name in self.joined for name in names])
        topic = pc.fill_null(topics.indices, len(names) - 1).to_numpy(zero_copy_only=False)
        lane, partition = numbers(rows, "lane"), numbers(rows, "partition")
        within = np.where(joined[topic], 0, np.where(lane == NONE, partition, lane))
        part: Longs = (hashes[topic] + within) % self.number
        return part


def scanned(batches: Iterable[pa.RecordBatch], parts: Parts) -> Iterator[pa.RecordBatch]:
    """Pack a task's `INTERVALS` rows into bundles."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size > _BYTES:
            yield from _of_parts(pending, parts)
            pending, size = [], 0
    if pending:
        yield from _of_parts(pending, parts)


def _of_parts(pending: list[pa.RecordBatch], parts: Parts) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(pending).combine_chunks()
    if not rows.num_rows:
        return
    task = rows["task"][0].as_py()
    for_driver = pc.is_in(rows["kind"], pa.array(_FOR_DRIVER))
    others = rows.filter(pc.invert(for_driver))
    small = [rows.filter(for_driver), *([_overview(others)] if others.num_rows else [])]
    yield from bundles(SCANNED, DRIVER, task, pa.concat_tables(small))
    part = parts.of(others)
    for number in np.unique(part).tolist():
        yield from bundles(SCANNED, number, task, others.filter(pa.array(part == number)))


def _overview(rows: pa.Table) -> pa.Table:
    """What the driver needs of rows: of `found` ones also up to which offset; none of `seen`."""
    rows = rows.filter(pc.not_equal(rows["kind"], Kind.SEEN.value))
    kind = rows["kind"]
    found = pc.equal(kind, Kind.FOUND.value)
    columns = {"text": kind}
    for name in {*_KEY, *_HIGHEST} - {*columns}:
        values = rows[name]
        if name in {"partition", "identity", "offset_hi"}:
            values = pc.if_else(found, values, pa.scalar(None, values.type))
        columns[name] = values
    sums = pa.table(columns).group_by([*_KEY]).aggregate([(name, "max") for name in _HIGHEST])
    highest = {name: sums[f"{name}_max"].combine_chunks() for name in _HIGHEST}
    keys = {name: sums[name].combine_chunks() for name in _KEY}
    batch = interval_batch(sums.num_rows, {"kind": OVERVIEW, **keys, **highest})
    return pa.Table.from_batches([batch], INTERVALS)
