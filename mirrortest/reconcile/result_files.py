"""Result tables as Parquet, in every place where logs can be.

A table of usual size is one file. A larger one is a directory of that name with a file for each
part of the judgement, which pyarrow, Spark and DuckDB read as one table: its rows never come to the
driver.
"""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.steps import Bundles

_IDS = ("seq_lo", "seq_hi")
"""Ascending numbers: encoded as deltas they take a third of the space, and half of the time."""
MOST_ROWS = 100_000
"""Rows that pass through the driver at most."""


def write_table(table: pa.Table, place: Location) -> None:
    """Write a table, replacing what was there. Raises SequenceLogError."""
    with place.checked("written"):
        _remove(place)
        _write([table], table.schema, place)


def write_parts(bundles: Bundles, schema: pa.Schema, place: Location) -> None:
    """Write tables as a directory, replacing what was there. Raises SequenceLogError."""
    with place.checked("written"):
        _remove(place)
        place.filesystem.create_dir(place.path, recursive=True)
    bundles.write(schema, place)


def write_part(
    tables: Iterator[pa.Table], schema: pa.Schema, uri: str, part: int
) -> Iterator[pa.RecordBatch]:
    """Write a file with the tables of one part, in a worker; none where there are none."""
    first = next(tables, None)
    if first is not None:
        _write(
            chain([first], tables), schema, Location.parse(uri).child(f"part-{part:05d}.parquet")
        )
    yield pa.record_batch([pa.array([part], pa.int64())], names=["part"])


def _write(tables: Iterable[pa.Table], schema: pa.Schema, place: Location) -> None:
    encodings: dict[str, Any] = {}
    if schema.get_field_index(_IDS[0]) >= 0:
        encodings["use_dictionary"] = [name for name in schema.names if name not in _IDS]
        encodings["column_encoding"] = dict.fromkeys(_IDS, "DELTA_BINARY_PACKED")
    with (
        place.filesystem.open_output_stream(place.path) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd", **encodings) as writer,
    ):
        for table in tables:
            writer.write_table(table.select(schema.names).cast(schema))


def _remove(place: Location) -> None:
    """Delete the file or directory of that name."""
    with contextlib.suppress(FileNotFoundError):
        if place.filesystem.get_file_info(place.path).type is fs.FileType.Directory:
            place.filesystem.delete_dir(place.path)
        else:
            place.filesystem.delete_file(place.path)
