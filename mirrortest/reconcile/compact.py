"""A log's rows as the fewest intervals that say the same, whatever detail they were written in.

This runs beside the files, on Spark's executors: what leaves here is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINUTE_NS = 60_000_000_000
NO_MINUTE = -1

DAMAGE = "damage"
"""The kind of a row that tells, in `text`, what could not be read; `outcome` is 1 where durable
rows are gone."""
LATENCY = "latency"
"""The kind of a row with a sum of latency histograms; `text` is the kind of the rows summed."""

INTERVALS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("session", pa.int32()),
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
        pa.field("first_ns", pa.int64()),
        pa.field("last_ns", pa.int64()),
        pa.field("negative", pa.int64()),
        pa.field("latency_bucket", pa.list_(pa.int32())),
        pa.field("latency_count", pa.list_(pa.int64())),
        pa.field("text", pa.string()),
    ]
)
"""`session` is the session's number in the plan; `identity` counts a topic's incarnations from 0;
`minute` is the intended time in minutes since the epoch (-1: none); `first_ns` is the first
intended time; `last_ns` the last arrival (of an acknowledgement, on the producer's side)."""

SPARK_SCHEMA = ", ".join(
    f"`{field.name}` "
    + {
        pa.string(): "string",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.list_(pa.int32()): "array<int>",
        pa.list_(pa.int64()): "array<long>",
    }[field.type]
    for field in INTERVALS
)

_KEPT_APART = (Kind.END.value, Kind.TAIL.value)
_NULL = -(1 << 62)
_LATE_NULL = (1 << 62) - 1


def compact(rows: pa.RecordBatch, run: str, session: int) -> list[pa.RecordBatch]:
    """Merge the rows of one run that continue each other; rows of other runs go.

    Gives batches of `INTERVALS`: the intervals, and the sums of their latency histograms.
    """
    ours = pc.or_kleene(pc.is_null(rows["run"]), pc.equal(rows["run"], run))
    rows = rows.filter(pc.fill_null(ours, False))
    if not rows.num_rows:
        return []
    # Readers deal in runs, so that this finds whole stretches before any sorting is needed.
    return [_merged(rows, session), *_latencies(rows, session)]


def damage_row(text: str, *, harmless: bool, session: int) -> pa.RecordBatch:
    """What could not be read, as a row."""
    values = {"kind": DAMAGE, "session": session, "text": text, "outcome": 0 if harmless else 1}
    return _batch(1, {name: [value] for name, value in values.items()})


def _merged(rows: pa.RecordBatch, session: int) -> pa.RecordBatch:
    seq_lo, seq_hi = _ints(rows["seq_lo"]), _ints(rows["seq_hi"])
    offset_lo, offset_hi = _ints(rows["offset_lo"]), _ints(rows["offset_hi"])
    by_seq, by_offset = seq_lo != _NULL, offset_lo != _NULL
    lo = np.where(by_seq, seq_lo, np.where(by_offset, offset_lo, seq_hi))
    hi = np.where(by_seq, seq_hi, np.where(by_offset, offset_hi, seq_hi))
    # Rows that continue each other have the same distance of offset and seq; a `found` row, which
    # has no first offset, the same next offset.
    distance = np.where(by_offset, offset_lo - np.where(by_seq, seq_lo, offset_lo), offset_hi)
    minute = _minutes(rows["intended_first"])
    keys = [
        _codes(rows["kind"]), _codes(rows["topic"]), _codes(rows["producer"]),
        _ints(rows["incarnation"]), _ints(rows["lane"]), _ints(rows["partition"]),
        _codes(rows["topic_identity"]), _ints(rows["outcome"]), _ints(rows["findings"]),
        minute, distance, by_seq.astype(np.int64), by_offset.astype(np.int64),
    ]  # fmt: skip
    order = np.lexsort([hi, lo, *keys])
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = lo[order][1:] > hi[order][:-1]
    for key in keys:
        sorted_key = key[order]
        starts[1:] |= sorted_key[1:] != sorted_key[:-1]
    apart = pc.is_in(rows["kind"], pa.array(_KEPT_APART)).to_numpy(zero_copy_only=False)
    starts |= apart[order]
    at = np.flatnonzero(starts)
    first = pa.array(order[at])
    ended = pc.coalesce(rows["arrived_last"], rows["sent_last"], rows["intended_last"])
    begun = _ints(rows["intended_first"], _LATE_NULL)
    taken = rows.take(first)
    return _batch(
        len(at),
        {
            "session": pa.repeat(pa.scalar(session, pa.int32()), len(at)),
            **{
                name: taken[name]
                for name in ("kind", "topic", "producer", "incarnation", "lane", "partition")
            },
            "seq_lo": taken["seq_lo"],
            "seq_hi": _highest(seq_hi, order, at),
            "offset_lo": taken["offset_lo"],
            "offset_hi": _highest(offset_hi, order, at),
            "identity": pc.fill_null(taken["topic_identity"], "0").cast(pa.int64()),
            "outcome": taken["outcome"].cast(pa.int32()),
            "findings": taken["findings"],
            "minute": pa.array(minute[order][at]),
            "first_ns": _nullable(np.minimum.reduceat(begun[order], at), _LATE_NULL),
            "last_ns": _highest(_ints(ended), order, at),
        },
    )


def _latencies(rows: pa.RecordBatch, session: int) -> list[pa.RecordBatch]:
    """Sum the latency histograms by kind, topic and minute."""
    told = pc.or_(pc.is_valid(rows["latency_bucket"]), pc.is_valid(rows["negative"]))
    rows = rows.filter(told)
    if not rows.num_rows:
        return []
    kinds, topics = rows["kind"].dictionary_encode(), rows["topic"].dictionary_encode()
    minutes = _minutes(rows["intended_first"])
    codes = np.stack([kinds.indices.to_numpy(), topics.indices.to_numpy(), minutes], axis=1)
    groups, member = np.unique(codes, axis=0, return_inverse=True)
    member = member.reshape(-1)
    negative = np.zeros(len(groups), dtype=np.int64)
    np.add.at(negative, member, _ints(rows["negative"], 0))
    parents = pc.list_parent_indices(rows["latency_bucket"]).to_numpy(zero_copy_only=False)
    buckets = pc.list_flatten(rows["latency_bucket"]).to_numpy(zero_copy_only=False)
    counts = pc.list_flatten(rows["latency_count"]).to_numpy(zero_copy_only=False)
    pairs, place = np.unique(
        np.stack([member[parents], buckets.astype(np.int64)], axis=1), axis=0, return_inverse=True
    )
    sums = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(sums, place.reshape(-1), counts)
    bounds = np.searchsorted(pairs[:, 0], np.arange(len(groups) + 1)).astype(np.int32)
    return [
        _batch(
            len(groups),
            {
                "kind": pa.repeat(LATENCY, len(groups)),
                "session": pa.repeat(pa.scalar(session, pa.int32()), len(groups)),
                "text": kinds.dictionary.take(pa.array(groups[:, 0])),
                "topic": topics.dictionary.take(pa.array(groups[:, 1])),
                "minute": pa.array(groups[:, 2]),
                "negative": pa.array(negative),
                "latency_bucket": pa.ListArray.from_arrays(
                    pa.array(bounds), pa.array(pairs[:, 1].astype(np.int32))
                ),
                "latency_count": pa.ListArray.from_arrays(pa.array(bounds), pa.array(sums)),
            },
        )
    ]


def _batch(count: int, columns: dict[str, object]) -> pa.RecordBatch:
    arrays = []
    for field in INTERVALS:
        value = columns.get(field.name)
        if value is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(value, list):
            arrays.append(pa.array(value, field.type))
        else:
            arrays.append(value.cast(field.type))  # type: ignore[attr-defined]
    return pa.record_batch(arrays, schema=INTERVALS)


def _ints(column: pa.Array, null: int = _NULL) -> NDArray[np.int64]:
    values: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), null).to_numpy(
        zero_copy_only=False
    )
    return values


def _codes(column: pa.Array) -> NDArray[np.int64]:
    return _ints(column.dictionary_encode().indices)


def _minutes(intended: pa.Array) -> NDArray[np.int64]:
    times = _ints(intended)
    minutes: NDArray[np.int64] = np.where(times == _NULL, NO_MINUTE, times // MINUTE_NS)
    return minutes


def _highest(
    values: NDArray[np.int64], order: NDArray[np.int64], at: NDArray[np.int64]
) -> pa.Array:
    return _nullable(np.maximum.reduceat(values[order], at), _NULL)


def _nullable(values: NDArray[np.int64], null: int) -> pa.Array:
    return pa.array(values, mask=values == null)
