"""From a finished journal to a Parquet file under its final name, without a moment of doubt.

At every instant the rows are in a readable journal, or in a whole Parquet file, or in both (then
a reader takes the Parquet file). Local directories get theirs by an atomic rename; other file
systems by an upload whose size is checked before the journal goes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.batches import conform
from mirrortest.seqlog.journal import read_frames, sync_directory
from mirrortest.seqlog.schema import ROWS, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.location import Location

GROUP_ROWS = 1 << 17
"""Rows of a row group: bounds the memory of writing and of reading."""
JOURNAL = ".journal"
PARQUET = ".parquet"

_METADATA = {"mirrortest.schema_version": str(SCHEMA_VERSION)}
_TEXTS = [field.name for field in ROWS if pa.types.is_string(field.type)]
_INTEGERS = {field.name: "DELTA_BINARY_PACKED" for field in ROWS if pa.types.is_integer(field.type)}
_LISTS = {
    f"{field.name}.list.element": "DELTA_BINARY_PACKED"
    for field in ROWS
    if pa.types.is_list(field.type)
}
# Of columns that hardly change, encoding leaves little: there a reader would spend more on making
# a decompressor for each page than on the page.
_PLAIN = {"run", "kind", "topic", "producer", "topic_identity", "incarnation", "outcome",
          "findings", "negative"}  # fmt: skip
_CODECS = {name: "none" if name in _PLAIN else "zstd" for name in (*_TEXTS, *_INTEGERS, *_LISTS)}


def file_name(number: int, suffix: str) -> str:
    """The name of a log's file; numbers count from 1."""
    return f"{number:06d}{suffix}"


def write_parquet(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write a new, synced Parquet file; returns its rows. Integers are delta-encoded."""
    schema = ROWS.with_metadata(_METADATA)
    rows = 0
    with (
        path.open("wb") as file,
        pq.ParquetWriter(
            file,
            schema,
            compression=_CODECS,
            use_dictionary=_TEXTS,
            column_encoding=_INTEGERS | _LISTS,
            data_page_version="2.0",
        ) as writer,
    ):
        group: list[pa.RecordBatch] = []
        held = 0
        for batch in batches:
            group.append(conform(batch))
            held += batch.num_rows
            rows += batch.num_rows
            if held >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group), row_group_size=GROUP_ROWS)
                group, held = [], 0
        if group:
            writer.write_table(pa.Table.from_batches(group), row_group_size=GROUP_ROWS)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    return rows


def seal(journal: Path, damage: list[Damage]) -> tuple[Path, int]:
    """Make the Parquet file beside a finished journal; the journal stays.

    Returns the file and its rows; what could not be read is told in `damage`. Raises OSError or
    pyarrow's errors.
    """
    final = journal.with_suffix(PARQUET)
    draft = journal.with_suffix(".draft")
    with pa.memory_map(str(journal)) if journal.stat().st_size else pa.BufferReader(b"") as source:
        rows = write_parquet(read_frames(source.read_buffer(), journal.name, damage), draft)
    draft.rename(final)
    sync_directory(final.parent)
    return final, rows


def upload(file: Path, target: Location) -> None:
    """Copy a local file to its final place and make sure that it is whole there.

    Raises SequenceLogError that names the place.
    """
    size = file.stat().st_size
    try:
        target.filesystem.create_dir(target.parent.path, recursive=True)
        fs.copy_files(
            str(file),
            target.path,
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=target.filesystem,
            use_threads=False,
        )
        there = target.filesystem.get_file_info(target.path).size
    except (pa.ArrowException, OSError) as error:
        raise SequenceLogError(f"{target.shown}: cannot be written: {first_line(error)}") from error
    if there != size:
        raise SequenceLogError(f"{target.shown}: {there} of {size} bytes arrived")


def replace(path: Path, content: bytes) -> None:
    """Put a small local file in place, durably and in one step."""
    draft = path.with_name(path.name + ".draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)


def first_line(error: BaseException) -> str:
    """An error's first line, for a message of one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
