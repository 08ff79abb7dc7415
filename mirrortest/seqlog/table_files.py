"""Tables of intervals and observations: their schema, Parquet files and CSV lines."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.config.units import SECOND_NS
from mirrortest.host.error_text import reason_of
from mirrortest.model.load import COUNTS, INTS
from mirrortest.seqlog.batches import conformed
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.journal import read_frames
from mirrortest.seqlog.session import CHANGED, JOURNAL, PARQUET, digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mirrortest.seqlog.location import Location
    from mirrortest.seqlog.session import DigestingFile, FileNote, Note

_GROUP_ROWS = 1 << 16
LISTS = {INTS: pa.list_(pa.int32()), COUNTS: pa.list_(pa.int64())}


def schema_of(columns: Iterable[Any], never_null: Collection[str]) -> pa.Schema:
    """The Arrow schema of these columns; those named in `never_null` are not nullable."""
    return pa.schema(
        [
            pa.field(
                each.name,
                LISTS.get(each.type) or pa.type_for_alias(each.type),
                nullable=each.name not in never_null,
            )
            for each in columns
        ]
    )


def write_table(
    batches: Iterable[pa.RecordBatch],
    sink: IO[bytes] | DigestingFile | pa.NativeFile,
    schema: pa.Schema,
) -> int:
    """Write rows as Parquet with the columns of `schema` to an open file; return their number."""
    written = 0
    with pq.ParquetWriter(sink, schema, compression="lz4", write_page_checksum=True) as writer:
        for group in _groups(conformed(each, schema) for each in batches):
            writer.write_table(group)
            written += group.num_rows
    return written


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Merge batches into row groups: a batch covers one interval and has few rows."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending, rows = [], 0
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def read_table(
    folder: Location,
    name: str,
    note: Note | FileNote | None,
    schema: pa.Schema,
    damage: list[Damage],
) -> pa.Table:
    """The rows of a finished table, or of its journal if `note` is None.

    Files of other versions are converted to `schema`. Without a file the table is empty. What
    cannot be read is appended to `damage`.
    """
    place = folder.child(name + (JOURNAL if note is None else PARQUET))
    try:
        data = place.buffer()
        if note is None:
            batches = [conformed(each, schema) for each in read_frames(data, place.shown, damage)]
            return pa.Table.from_batches(batches, schema=schema)
        if digest(memoryview(data)) != note.digest:
            damage.append(Damage(DamageKind.CHANGED, place.shown, CHANGED, note.rows))
            return schema.empty_table()
        return conformed(pq.read_table(pa.BufferReader(data)), schema)
    except FileNotFoundError as error:
        if note is not None:
            damage.append(Damage(DamageKind.MISSING, place.shown, reason_of(error), note.rows))
    except (pa.ArrowException, OSError, ValueError) as error:
        damage.append(Damage(DamageKind.UNREADABLE, place.shown, reason_of(error)))
    return schema.empty_table()


def csv_line(values: Sequence[object]) -> str:
    """One line of a CSV file, with its line end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()


def utc(at_ns: int) -> str:
    """Format a time for a CSV file: ``2026-11-25T22:15:00.250Z``."""
    at = datetime.fromtimestamp(at_ns / SECOND_NS, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
