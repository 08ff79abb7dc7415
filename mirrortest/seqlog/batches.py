"""Rows as Arrow record batches of the columns of `schema.ROWS`; intervals split into messages.

In detail `messages` a log has one row per message. `explode` splits intervals into such rows: each
keeps the interval's first and last times, as its own time is unknown. `exact` splits an interval
whose messages' own times are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.schema import ROWS, TOTALLED, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.seqlog.rows import Row

_EXPLODED = pa.array([Kind.SENT.value, Kind.SEEN.value])


@dataclass(frozen=True, slots=True)
class Columns:
    """`count` rows of one kind; each column is an array, or a scalar for all rows.

    Names are those of `schema.ROWS`; columns not given are null. Arrays are not copied: they must
    not change until they are synced.
    """

    kind: Kind
    count: int
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        unknown = self.values.keys() - set(ROWS.names)
        if unknown or "kind" in self.values:
            raise ValueError(f"no columns of a log's rows: {sorted(unknown) or 'kind'}")
        if self.values.get("topic") is None:
            raise ValueError("a row needs its topic")
        for name, value in self.values.items():
            if isinstance(value, np.ndarray | pa.Array | list) and len(value) != self.count:
                raise ValueError(f"{len(value)} values of {name} for {self.count} rows")

    def batch(self) -> pa.RecordBatch:
        """The rows as a record batch."""
        return batch_with(ROWS, self.count, {**self.values, "kind": self.kind.value})


def batch_with(schema: pa.Schema, count: int, values: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of `count` rows; a column is an array, a list, one value for all, or else null."""
    columns = []
    for field in schema:
        value = values.get(field.name)
        if value is None:
            columns.append(pa.nulls(count, field.type))
        elif isinstance(value, np.ndarray | list):
            columns.append(pa.array(value, type=field.type))
        elif isinstance(value, pa.Array):
            columns.append(value.cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.record_batch(columns, schema=schema)


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows as a record batch, in their order."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(ROWS)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, ROWS, strict=True)
    ]
    return pa.record_batch(arrays, schema=ROWS)


def exact(
    row: Row,
    *,
    intended: NDArray[np.int64] | None = None,
    sent: NDArray[np.int64] | None = None,
    arrived: NDArray[np.int64] | None = None,
) -> Columns:
    """A `sent` or `seen` interval as one row per message, each with its own times (ns).

    Arrays have one value per message; without one, the interval's first and last times stay.
    Latencies are totals: only the first message's row has them.
    """
    if row.kind not in {Kind.SENT, Kind.SEEN}:
        raise ValueError(f"a row of kind {row.kind} has no messages")
    values: dict[str, Any] = row._asdict()
    count = length(row)
    if count is None:
        raise ValueError("an interval without seqs and offsets")
    for column in ("seq", "offset"):
        start = values[f"{column}_lo"]
        if start is not None:
            steps = np.arange(start, start + count, dtype=np.int64)
            values[f"{column}_lo"], values[f"{column}_hi"] = steps, steps + 1
    for name, times in (("intended", intended), ("sent", sent), ("arrived", arrived)):
        if times is not None:
            values[f"{name}_first"] = values[f"{name}_last"] = times
    for name in TOTALLED:
        if values[name] is not None:
            values[name] = [values[name], *([None] * (count - 1))]
    return Columns(Kind(values.pop("kind")), count, values)


def length(row: Row) -> int | None:
    """How many seqs a row has, or else how many offsets; None: it has neither."""
    lo, hi = (row.seq_lo, row.seq_hi) if row.seq_lo is not None else (row.offset_lo, row.offset_hi)
    return None if lo is None or hi is None else hi - lo


def explode(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Split `sent` and `seen` intervals into one row per message; other rows stay, all in order.

    `negative` and the latency histogram are totals: the first message's row has them, the others
    have null. Raises ValueError if a row's numbers of seqs and offsets differ.
    """
    seqs, offsets = _lengths(batch, "seq"), _lengths(batch, "offset")
    messages = pc.is_in(batch["kind"], _EXPLODED).to_numpy(zero_copy_only=False)
    if bool(np.any(messages & (seqs >= 0) & (offsets >= 0) & (seqs != offsets))):
        raise ValueError("an interval has not as many seqs as offsets")
    counts = np.where(messages, np.where(seqs >= 0, seqs, offsets), 1)
    if bool(np.all(counts == 1)):
        return batch
    counts = np.maximum(counts, 0)
    source, step = positions(counts)
    in_messages = messages[source]
    taken = batch.take(pa.array(source))
    columns = {name: taken[name] for name in ROWS.names}
    for name in ("seq", "offset"):
        lo = pc.add(columns[f"{name}_lo"], pa.array(step))
        columns[f"{name}_lo"] = lo
        ends = pc.if_else(pa.array(in_messages), pc.add(lo, 1), columns[f"{name}_hi"])
        columns[f"{name}_hi"] = ends
    repeated = pa.array(step > 0)
    for name in TOTALLED:
        columns[name] = pc.if_else(repeated, pa.scalar(None, ROWS.field(name).type), columns[name])
    return pa.record_batch(list(columns.values()), schema=ROWS)


def positions(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For groups of these sizes: each element's group number, and its position in the group."""
    group = np.repeat(np.arange(len(counts)), counts)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)


def _lengths(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Length of each row's interval, -1 without one."""
    difference = pc.subtract(batch[f"{name}_hi"], batch[f"{name}_lo"])
    return filled(difference, -1)


def filled(values: pa.Array | pa.ChunkedArray, null: int) -> NDArray[Any]:
    """A column of integers as an array, with `null` in place of nulls."""
    if values.null_count:
        values = pc.fill_null(values, null)
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def conform(
    batch: pa.RecordBatch, columns: Sequence[str] | None = None, *, coded: bool = False
) -> pa.RecordBatch:
    """Convert a log's rows, also another version's, to these columns; see `conformed`.

    `coded`: dictionary-encoded texts stay encoded.
    """
    fields = [ROWS.field(name) for name in (columns if columns is not None else ROWS.names)]
    if coded:
        encoded = {
            each.name: each.type for each in batch.schema if pa.types.is_dictionary(each.type)
        }
        fields = [field.with_type(encoded.get(field.name, field.type)) for field in fields]
    found: pa.RecordBatch = conformed(batch, pa.schema(fields))
    return found


def conformed(rows: Any, schema: pa.Schema) -> Any:
    """Convert a batch or table to these columns: drop others, and fill missing ones with null."""
    present = set(rows.schema.names)
    columns = [
        rows[each.name].cast(each.type)
        if each.name in present
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)
