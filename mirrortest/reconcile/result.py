"""Result tables as Parquet files, wherever the logs can be."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from mirrortest.seqlog.location import Location

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ROWS = 1 << 16


def write_table(table: Any, place: Location) -> None:
    """Write a DataFrame to one Parquet file, replacing what was there.

    The rows pass through the driver a partition at a time: it need not hold the table.
    """
    schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in table.dtypes])
    with (
        place.filesystem.open_output_stream(place.path) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd") as writer,
    ):
        found = table.toLocalIterator()
        while rows := list(islice(found, _ROWS)):
            columns = zip(*rows, strict=True)
            arrays = [
                pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
