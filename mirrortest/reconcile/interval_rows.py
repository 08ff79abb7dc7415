"""What tasks give to Spark: intervals, as rows of one schema, and how such rows are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.sweep import changes, united
from mirrortest.seqlog.batches import batch_with, filled
from mirrortest.seqlog.schema import Kind
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.reconcile.stretch import Longs

DAMAGE = "damage"
"""The kind of a row whose `text` describes what could not be read; `outcome` is 1 where durable
rows are missing."""
LATENCY = "latency"
"""The kind of a row with a sum of latency histograms of `seen` rows."""
ACKED = "acked"
"""The kind of a row that counts acknowledged `messages` by topic and minute of intended time."""
RANGE = "range"
"""The kind of a row that names a range of offsets at which a task's rows saw messages; `turn` is
how often these rows went back to earlier offsets."""
MEASURED = "measured"
"""The kind of a row like a `RANGE`, of rows with latencies at offsets that were read twice."""

OVERVIEW = "overview"
"""The kind of a row that summarises, for the driver, rows of the kind in `text`."""

INTERVALS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("task", pa.int32()),
        pa.field("session", pa.int32()),
        pa.field("turn", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("producer", pa.string()),
        pa.field("incarnation", pa.int32()),
        pa.field("lane", pa.int64()),
        pa.field("seq_lo", pa.int64()),
        pa.field("seq_hi", pa.int64()),
        pa.field("partition", pa.int32()),
        pa.field("offset_lo", pa.int64()),
        pa.field("offset_hi", pa.int64()),
        pa.field("identity", pa.int64()),
        pa.field("outcome", pa.int32()),
        pa.field("findings", pa.int32()),
        pa.field("minute", pa.int64()),
        pa.field("messages", pa.int64()),
        pa.field("last_ns", pa.int64()),
        pa.field("negative", pa.int64()),
        pa.field("latency_bucket", pa.list_(pa.int32())),
        pa.field("latency_count", pa.list_(pa.int64())),
        pa.field("mark_seq", pa.list_(pa.int64())),
        pa.field("mark_minute", pa.list_(pa.int64())),
        pa.field("text", pa.string()),
        pa.field("holes", pa.int64()),
        pa.field("packed", pa.binary()),
    ]
)
"""`task` and `session` are numbers of the plan; `identity` counts a topic's incarnations from 0.

`reserved`, `sent` and `seen` rows are chains: their numbers have no gap, their offsets may have one
(`mark_minute`: the minutes of intended time since the epoch, -1: none; each from its `mark_seq`
on). `last_ns` is the last acknowledgement, or a time on the same side of each horizon. `minute` is
that of a sum; in `unread` rows it is the last one from which messages may have been there. A row
with `holes` is a `seen` chain without these, or as many claims (`holes.Packed`).
"""

MOST_HOLES = 1 << 16
"""The most `hole` rows that a task yields at once, beyond one for each partition."""
_KEPT_APART = (Kind.END.value, Kind.TAIL.value, Kind.UNREAD.value)
"""Kinds whose rows are not merged: the unread rest of a recreated topic is not what retention
deleted before it."""
_NULL = -(1 << 62)


def damage_row(text: str, *, harmless: bool, session: int, task: int) -> pa.RecordBatch:
    """A row of kind `DAMAGE`."""
    lost = 0 if harmless else 1
    columns = {"kind": DAMAGE, "session": session, "task": task, "text": text, "outcome": lost}
    return interval_batch(1, columns)


def merged(batches: Sequence[pa.RecordBatch], session: int, task: int) -> pa.RecordBatch:
    """Convert a log's rows to `INTERVALS`; merge those that overlap or continue each other."""
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    seq_lo, seq_hi = _ints(rows["seq_lo"]), _ints(rows["seq_hi"])
    offset_lo, offset_hi = _ints(rows["offset_lo"]), _ints(rows["offset_hi"])
    by_seq, by_offset = seq_lo != _NULL, offset_lo != _NULL
    lo = np.where(by_seq, seq_lo, np.where(by_offset, offset_lo, seq_hi))
    hi = np.where(by_seq, seq_hi, np.where(by_offset, offset_hi, seq_hi))
    # Rows that continue each other have the same distance of offset and seq; a `found` row, which
    # has no first offset, the same next offset.
    distance = np.where(by_offset, offset_lo - np.where(by_seq, seq_lo, offset_lo), offset_hi)
    keys = [
        _codes(rows["kind"]), _codes(rows["topic"]), _codes(rows["producer"]),
        _ints(rows["incarnation"]), _ints(rows["lane"]), _ints(rows["partition"]),
        _codes(rows["topic_identity"]), _ints(rows["outcome"]), _ints(rows["findings"]),
        distance, by_seq.astype(np.int64), by_offset.astype(np.int64),
    ]  # fmt: skip
    order = np.lexsort([hi, lo, *keys])
    starts = changes(*(key[order] for key in keys))
    starts[1:] |= lo[order][1:] > hi[order][:-1]
    apart = pc.is_in(rows["kind"], pa.array(_KEPT_APART)).to_numpy(zero_copy_only=False)
    starts |= apart[order]
    at = np.flatnonzero(starts)
    taken = rows.take(pa.array(order[at]))
    same = (
        "kind", "topic", "producer", "incarnation", "lane", "partition", "seq_lo", "offset_lo",
        "outcome", "findings",
    )  # fmt: skip
    return interval_batch(
        len(at),
        {
            "session": session,
            "task": task,
            **{name: taken[name] for name in same},
            "seq_hi": _highest(seq_hi, order, at),
            "offset_hi": _highest(offset_hi, order, at),
            "identity": pc.fill_null(taken["topic_identity"], "0").cast(pa.int64()),
            "minute": _minutes(taken),
        },
    )


def fewer_holes(rows: pa.RecordBatch, most: int = MOST_HOLES) -> pa.RecordBatch:
    """Limit the rows of kind `hole`, all of which go to the driver.

    Neighbours are joined, the closest ones first; `messages` is how many holes a row has.
    """
    is_hole = pc.equal(rows["kind"], Kind.HOLE.value)
    holes, others = rows.filter(is_hole), rows.filter(pc.invert(is_hole))
    if not holes.num_rows:
        return rows
    places = [_codes(holes["topic"]), _ints(holes["partition"]), _ints(holes["identity"])]
    _, found = np.unique(np.stack(places), axis=1, return_inverse=True)
    place = found.reshape(-1)
    # A session may have read the same offsets again.
    row, lo, hi = united(place, _ints(holes["offset_lo"]), _ints(holes["offset_hi"]))
    first = changes(place[row])
    between = np.zeros(len(row), dtype=np.int64)
    between[1:] = lo[1:] - hi[:-1]
    kept = np.argsort(np.where(first, -1, between), kind="stable")[::-1][:most]
    first[kept] = True
    at = np.flatnonzero(first)
    taken = holes.take(pa.array(row[at]))
    columns = {name: taken[name] for name in taken.schema.names}
    columns["offset_hi"] = np.maximum.reduceat(hi, at)
    columns["messages"] = np.add.reduceat(hi - lo, at)
    joined = interval_batch(len(at), columns)
    return pa.Table.from_batches([joined, others]).combine_chunks().to_batches()[0]


def _minutes(rows: pa.RecordBatch) -> pa.Array:
    """The minute of the intended time in `unread` rows; null in others."""
    unread = pc.equal(rows["kind"], Kind.UNREAD.value)
    minutes = pc.divide(rows["intended_first"], MINUTE_NS)
    return pc.if_else(unread, minutes, pa.scalar(None, pa.int64()))


def interval_batch(count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    """Rows of `INTERVALS`; see `batch_with`."""
    return batch_with(INTERVALS, count, columns)


def _ints(values: pa.Array) -> Longs:
    return filled(values.cast(pa.int64()), _NULL)


def _codes(values: pa.Array) -> Longs:
    return _ints(values.dictionary_encode().indices)


def _highest(values: Longs, order: Longs, at: Longs) -> pa.Array:
    highest = np.maximum.reduceat(values[order], at)
    return pa.array(highest, mask=highest == _NULL)
