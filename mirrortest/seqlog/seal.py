"""From a finished journal to a Parquet file under its final name, without a moment of doubt.

At every instant the rows are in a readable journal, or in a whole Parquet file, or in both (then
a reader takes the Parquet file). Local directories get theirs by an atomic rename; other file
systems by an upload whose size is checked before the journal goes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import fs

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.digest import DigestingFile
from mirrortest.seqlog.journal import read_frames, sync_directory
from mirrortest.seqlog.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.location import Location

JOURNAL = ".journal"
PARQUET = ".parquet"


def file_name(number: int, suffix: str) -> str:
    """The name of a log's file; numbers count from 1."""
    return f"{number:06d}{suffix}"


class Sealed(NamedTuple):
    """What session.json notes of a finished file: the number of its rows, and its digest."""

    rows: int
    digest: str


def write_synced(batches: Iterable[pa.RecordBatch], path: Path) -> Sealed:
    """Write a new Parquet file and make it durable."""
    with path.open("wb") as file:
        sink = DigestingFile(file)
        rows = write_parquet(batches, sink)
        file.flush()
        os.fsync(file.fileno())
    return Sealed(rows, sink.digest)


def seal(journal: Path, damage: list[Damage]) -> tuple[Path, Sealed]:
    """Create the Parquet file next to a finished journal; the journal stays.

    What could not be read is appended to `damage`. Raises OSError or pyarrow's errors.
    """
    final = journal.with_suffix(PARQUET)
    draft = journal.with_suffix(".draft")
    with pa.memory_map(str(journal)) if journal.stat().st_size else pa.BufferReader(b"") as source:
        sealed = write_synced(read_frames(source.read_buffer(), journal.name, damage), draft)
    draft.rename(final)
    sync_directory(final.parent)
    return final, sealed


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
