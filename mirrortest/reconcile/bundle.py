"""A task's many rows of streams as few: in Arrow's own format, which Spark carries as it is.

Of thousands of streams each task leaves a chain, at least, and a row of Spark costs more than all
that is done with it beside. Beside a bundle goes what the driver must know of its rows: an
overview. `whole` opens the bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.intervals import INTERVALS, STREAM, interval_batch
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BUNDLE = "bundle"
"""The kind of a row whose `packed` is a bundle of rows."""
TOLD = "told"
"""The kind of a row of an overview: it stands for as many `messages` rows of a bundle, of the kind
in `text`, with the greatest of their `outcome` and `offset_hi`."""
OF_STREAM = (
    Kind.SEEN, Kind.SENT, Kind.RESERVED, Kind.VOUCHED, Kind.END, Kind.CLAIMED, Kind.EXPIRED,
    Kind.FOUND,
)  # fmt: skip
"""The kinds of rows that tell of a stream."""
_ROWS = 65_536
"""Rows of a bundle, at most, about: it takes some 10 MB."""
_KEY = (
    "text", "topic", "producer", "incarnation", "session", "task", "partition", "identity",
)  # fmt: skip
_SUMS = {"messages": "sum", "outcome": "max", "offset_hi": "max"}


def of_stream(rows: pa.RecordBatch) -> pa.Array:
    """Which rows tell of a stream, as booleans."""
    found = pc.is_in(rows["kind"], pa.array([kind.value for kind in OF_STREAM]))
    for name in STREAM:
        found = pc.and_(found, pc.is_valid(rows[name]))
    numbered = pc.or_(pc.is_valid(rows["seq_lo"]), pc.equal(rows["kind"], Kind.END.value))
    return pc.and_(found, numbered)


def _is_packed(rows: pa.RecordBatch) -> pa.Array:
    """Which rows are large for the holes that are packed in them, as if they were bundles."""
    return pc.fill_null(pc.greater(rows["holes"], 0), False)


def bundled(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.RecordBatch]:
    """Rows of a task's intervals: where at least so many tell of streams, bundles of these."""
    held: list[pa.RecordBatch] = []
    count, many = 0, False
    for batch in batches:
        mine = pc.and_not(of_stream(batch), _is_packed(batch))
        if mine.false_count:
            yield batch.filter(pc.invert(mine))
            batch = batch.filter(mine)  # noqa: PLW2901  # what is left of it
        held.append(batch)
        count += batch.num_rows
        if count >= (_ROWS if many else least):
            yield from _bundles(held)
            held, count, many = [], 0, True
    if many:
        yield from _bundles(held)
    else:
        yield from held


def opened(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows of bundles."""
    found: list[pa.RecordBatch] = []
    for each in rows["packed"]:
        with pa.ipc.open_stream(each.as_buffer()) as stream:
            found += stream
    return found


def _bundles(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not any(batch.num_rows for batch in held):
        return
    rows = pa.Table.from_batches(held).combine_chunks()
    yield _overview(rows)
    for at in range(0, rows.num_rows, _ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, INTERVALS) as stream:
            stream.write_table(rows.slice(at, _ROWS))
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield interval_batch(1, {"kind": BUNDLE, "task": rows["task"][0].as_py(), "packed": packed})


def _overview(rows: pa.Table) -> pa.RecordBatch:
    """What `facts` asks of rows: of those seen, how many; of those found, up to where, too."""
    kind = rows["kind"]
    unseen, found = pc.not_equal(kind, Kind.SEEN.value), pc.equal(kind, Kind.FOUND.value)
    only_where = {
        **dict.fromkeys(("partition", "identity", "offset_hi"), found),
        **dict.fromkeys(("topic", "producer", "incarnation", "session", "outcome"), unseen),
    }
    columns = {"text": kind, "messages": pa.array([1] * rows.num_rows, pa.int64())}
    for name in {*_KEY, *_SUMS} - {*columns}:
        values = rows[name]
        if name in only_where:
            values = pc.if_else(only_where[name], values, pa.scalar(None, values.type))
        columns[name] = values
    told = pa.table(columns).group_by([*_KEY]).aggregate([*_SUMS.items()])
    sums = {name: told[f"{name}_{how}"].combine_chunks() for name, how in _SUMS.items()}
    keys = {name: told[name].combine_chunks() for name in _KEY}
    return interval_batch(told.num_rows, {"kind": TOLD, **keys, **sums})
