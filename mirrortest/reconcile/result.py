"""Result tables as Parquet, wherever the logs can be.

A table of usual size is one file. A larger one is a directory of that name with a file for each
task that wrote some of it, which pyarrow, Spark and DuckDB read as one table: its rows never come
to the driver.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mirrortest.errors import SequenceLogError
from mirrortest.reconcile.worker import map_batches
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.worker import OfBatches

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<int>": pa.list_(pa.int32()),
    "array<bigint>": pa.list_(pa.int64()),
}
_IDS = ("seq_lo", "seq_hi")
"""Numbers in order: their differences take a third of the place, and half of the time."""
MOST_ROWS = 100_000
"""Rows that pass through the driver at most."""


@contextlib.contextmanager
def written(place: Location) -> Iterator[None]:
    """Turn what a file system says into an error for the user."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SequenceLogError(f"{place.shown}: the result cannot be written: {error}") from error


def write_table(table: Any, place: Location) -> None:
    """Write a DataFrame, replacing what was there. Raises SequenceLogError."""
    schema = _schema(table)
    with written(place):
        _remove(place)
        found = table.limit(MOST_ROWS + 1).toArrow()
        if found.num_rows <= MOST_ROWS:
            _write(found.cast(schema).to_batches(), schema, place)
            return
    write_parts(table, place)


def write_parts(
    table: Any, place: Location, packed: Any = None, unpack: OfBatches | None = None
) -> None:
    """Write a DataFrame as a directory, replacing what was there. Raises SequenceLogError.

    Behind it come those rows that `unpack` gives in the workers for the batches of `packed`.
    """
    schema, uri = _schema(table), place.uri

    def parts(name: str, unpack: OfBatches | None) -> OfBatches:
        def write(part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            folder = Location.parse(uri)
            rows = unpack(part, batches) if unpack is not None else batches
            named = (pa.Table.from_batches([each]).select(schema.names) for each in rows)
            converted = (each.cast(schema).to_batches() for each in named)
            plain = (batch for several in converted for batch in several)
            number = _write(plain, schema, folder.child(f"{name}-{part:05d}.parquet"))
            yield pa.record_batch([pa.array([number], pa.int64())], names=["rows"])

        return write

    with written(place):
        _remove(place)
        place.filesystem.create_dir(place.path, recursive=True)
    map_batches(table, parts("part", None), "rows long").agg({"rows": "sum"}).collect()
    if packed is not None:
        map_batches(packed, parts("then", unpack), "rows long").agg({"rows": "sum"}).collect()


def _schema(table: Any) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in table.dtypes])


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, place: Location) -> int:
    rows = 0
    told: dict[str, Any] = {}
    if schema.get_field_index(_IDS[0]) >= 0:
        told["use_dictionary"] = [name for name in schema.names if name not in _IDS]
        told["column_encoding"] = dict.fromkeys(_IDS, "DELTA_BINARY_PACKED")
    with (
        place.filesystem.open_output_stream(place.path) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd", **told) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _remove(place: Location) -> None:
    """Take away a file or directory of that name."""
    with contextlib.suppress(FileNotFoundError):
        if place.filesystem.get_file_info(place.path).type is fs.FileType.Directory:
            place.filesystem.delete_dir(place.path)
        else:
            place.filesystem.delete_file(place.path)
