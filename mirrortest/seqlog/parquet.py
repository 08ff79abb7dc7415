"""A log's rows as a Parquet file: how columns are written, and which need not be decoded.

In most row groups most columns have one value, or follow from another column. The footer proves it
by each column's minimum, maximum and null count, and by a note of ours. The note lists the
intervals of length one, the times that no message lacks, and the sums of all latencies. A reader
that asks for `Marked` columns gets them from the footer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, TypeAdapter

from mirrortest.seqlog.batches import conform
from mirrortest.seqlog.schema import ROWS, SCHEMA_VERSION, TOTALLED, Kind
from mirrortest.seqlog.totals import Total, totals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mirrortest.seqlog.session import DigestingFile

GROUP_ROWS = 1 << 17
GROUP_BYTES = 2 << 20
"""The most rows of a row group, and bytes of its latencies: they bound the memory of writing and
of reading."""

_VERSION = {"mirrortest.schema_version": str(SCHEMA_VERSION)}
_NOTE = "mirrortest.groups"
"""The key of our note in the footer."""
_TOTALS = b"mirrortest.totals"
_ENDS = {"seq_hi": "seq_lo", "offset_hi": "offset_lo"}
_SINGLE = b"mirrortest.single"
_WORTH = 8
"""The fewest list elements that an element of the note must replace."""
_TOTAL_LIST = TypeAdapter(list[Total])

_LISTS = [field.name for field in ROWS if pa.types.is_list(field.type)]
_TEXTS = [field.name for field in ROWS if pa.types.is_string(field.type)]
# Each row has numbers of its own, but the steps between rows repeat.
_TIMES = [f"{what}_{end}" for what in ("intended", "sent", "arrived") for end in ("first", "last")]
_WITH_TIMES = (Kind.SENT.value, Kind.SEEN.value, Kind.UNREAD.value)
"""Kinds of rows whose times, and missing times, matter."""
_STEPS = ("seq_lo", "seq_hi", "offset_lo", "offset_hi", *_TIMES)
_DELTAS = dict.fromkeys(_STEPS, "DELTA_BINARY_PACKED")
# The other columns have few distinct values.
_DICTIONARIES = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in ROWS
    if field.name not in _DELTAS
]


class _Note(BaseModel):
    """Facts of a file's row groups beyond Parquet's own statistics."""

    one_long: dict[str, list[int]] = Field(default_factory=dict)
    """For columns of `_ENDS`, the numbers of the groups in which each row's end is its beginning
    plus one, or both are null."""
    dated: dict[str, list[int]] = Field(default_factory=dict)
    """For columns of times, the numbers of the groups in which it is null in some rows, but not in
    those `_WITH_TIMES`. (`timed` of earlier versions ignored unread rows.)"""
    totals: list[list[Total] | None] = Field(default_factory=list)
    """The sums of each group's latencies; None if they are invalid, or hardly shorter."""
    bounds: list[int] = Field(default_factory=list)
    """Where each group ends in the file, as a program that rewrites rows may copy the note."""

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> _Note:
        """A footer's note; empty if it cannot be read or is another file's."""
        try:
            note = cls.model_validate_json((metadata.metadata or {}).get(_NOTE.encode(), b"{}"))
        except ValueError:
            return cls()
        return note if note.bounds == _bounds(metadata) else cls()


@dataclass(frozen=True, slots=True)
class Marked:
    """What a reader takes from the footer. Columns of one value are marked (`is_single`).

    Attributes:
        instead: columns of which each matters only in rows where those before it are null. If one
            has no nulls, those after it come as null.
        alike: by column of times, a non-decreasing function. Only its result matters, and only in
            rows `_WITH_TIMES`: if that is one value, the column comes as one value.
        totals: if the sums of latencies are noted (`noted_totals`), their columns come as null.
    """

    instead: Sequence[str] = ()
    alike: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    totals: bool = False


def write_parquet(
    batches: Iterable[pa.RecordBatch], sink: IO[bytes] | DigestingFile | pa.NativeFile
) -> int:
    """Write rows as Parquet to an open file; return their number."""
    rows, note = 0, _Note()
    with pq.ParquetWriter(
        sink,
        ROWS.with_metadata(_VERSION),
        # Other codecs cost a reader more time than they save.
        compression="lz4",
        use_dictionary=_DICTIONARIES,
        column_encoding=_DELTAS,
        data_page_version="2.0",
        # For other programs, which do not check session.json's digest.
        write_page_checksum=True,
    ) as writer:
        for number, group in enumerate(_groups(batches)):
            writer.write_table(pa.Table.from_batches([group]), row_group_size=GROUP_ROWS)
            rows += group.num_rows
            for end, beginning in _ENDS.items():
                if pc.add(group[beginning], 1).equals(group[end]):
                    note.one_long.setdefault(end, []).append(number)
            for name in _TIMES:
                if _dated(group["kind"], group[name]):
                    note.dated.setdefault(name, []).append(number)
            note.totals.append(_sums(group))
            note.bounds.append(sink.tell())
            del group  # free it before the next one is built
        writer.add_key_value_metadata({_NOTE: note.model_dump_json()})
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row group at a time; to save memory, the caller must drop it before the next."""
    pending: list[pa.RecordBatch] = []
    count, room = 0, GROUP_BYTES
    for batch in map(conform, batches):
        rest = batch
        while rest.num_rows:
            each = max(1, _latencies(rest) // rest.num_rows)
            piece = rest.slice(0, min(GROUP_ROWS - count, max(1, room // each)))
            rest = rest.slice(piece.num_rows)
            pending.append(piece)
            count, room = count + piece.num_rows, room - _latencies(piece)
            if count == GROUP_ROWS or room < each:
                yield _combined(pending)
                count, room = 0, GROUP_BYTES
    if pending:
        yield _combined(pending)


def _latencies(batch: pa.RecordBatch) -> int:
    """Bytes of the list columns."""
    return sum(batch[name].nbytes for name in _LISTS)


def _combined(pending: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Combine the batches into one, and empty the list."""
    (batch,) = pa.Table.from_batches(pending).combine_chunks().to_batches()
    pending.clear()
    return batch


def _dated(kind: pa.Array, times: pa.Array) -> bool:
    """Whether the time is null in some rows, but not in those `_WITH_TIMES`."""
    if not 0 < times.null_count < len(times):
        return False
    lacking = set(kind.filter(pc.is_null(times)).unique().to_pylist())
    return lacking.isdisjoint(_WITH_TIMES)


def _sums(batch: pa.RecordBatch) -> list[Total] | None:
    try:
        found = totals(batch)
    except ValueError:
        return None  # a reader reports it
    # With many minutes or topics the sums are as long as the rows: then a note saves nothing.
    noted = sum(len(each.buckets) + 1 for each in found)
    worth = len(batch["latency_bucket"].flatten()) >= _WORTH * noted
    return found if worth or not found else None


def _bounds(metadata: pq.FileMetaData) -> list[int]:
    """Where each row group ends in its file."""
    found = []
    for number in range(metadata.num_row_groups):
        last = metadata.row_group(number).column(metadata.num_columns - 1)
        starts = (last.dictionary_page_offset, last.data_page_offset)
        found.append(min(at for at in starts if at is not None) + last.total_compressed_size)
    return found


def is_single(field: pa.Field) -> bool:
    """Whether a column that was read as `Marked` has one value in all its rows.

    For times that are `alike`, it is any time with their result.
    """
    return field.metadata is not None and _SINGLE in field.metadata


def noted_totals(rows: pa.RecordBatch) -> list[Total] | None:
    """The sums of a batch's latencies if they come from the footer, else None."""
    text = (rows.schema.metadata or {}).get(_TOTALS)
    return None if text is None else _TOTAL_LIST.validate_json(text)


@dataclass(frozen=True, slots=True)
class _Footer:
    """A file's footer, and what it proves of the row groups."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    places: dict[str, int]
    note: _Note
    taken: dict[str, int] = field(default_factory=dict)
    """By column of times that are alike, the value that represents the previous group."""

    @classmethod
    def of(cls, file: pq.ParquetFile) -> _Footer:
        metadata = file.metadata
        paths = (metadata.schema.column(n).path for n in range(metadata.num_columns))
        return cls(
            metadata,
            file.schema_arrow,
            {path: number for number, path in enumerate(paths)},
            _Note.of(metadata),
        )

    def proven(
        self, group: int, columns: Sequence[str], marked: Marked, *, noted: bool
    ) -> dict[str, pa.Array]:
        """The columns of a row group that need not be decoded.

        `noted`: the sums of latencies are noted, so their columns need not be decoded either.
        """
        rows = self.metadata.row_group(group).num_rows
        found = {name: self._repeated(name, None, rows) for name in TOTALLED} if noted else {}
        needed = True
        for name in (each for each in marked.instead if each in columns):
            if not needed:
                found[name] = self._repeated(name, None, rows)
            needed &= not self._has_all(group, name, dated=name in marked.alike)
        for name in columns:
            if name not in found:
                values = self._single(group, name, rows)
                if values is None and name in marked.alike:
                    values = self._alike(group, name, marked.alike[name], rows)
                if values is not None:
                    found[name] = values
        return {name: found[name] for name in columns if name in found}

    def ends(self, group: int, columns: Collection[str]) -> dict[str, str]:
        """Columns that equal another column plus one in all rows, and that column."""
        return {
            end: beginning
            for end, beginning in _ENDS.items()
            if end in columns and beginning in columns and group in self.note.one_long.get(end, ())
        }

    def totals(self, group: int) -> bytes | None:
        """The sums of a row group's latencies, as `noted_totals` reads them; None: not noted."""
        noted = self.note.totals[group] if group < len(self.note.totals) else None
        return None if noted is None else _TOTAL_LIST.dump_json(noted)

    def _has_all(self, group: int, name: str, *, dated: bool) -> bool:
        """Whether a column has no nulls; `dated`: no nulls in rows `_WITH_TIMES` are enough."""
        statistics = self._statistics(group, name)
        if statistics is not None and statistics.has_null_count and not statistics.null_count:
            return True
        return dated and group in self.note.dated.get(name, ())

    def _alike(
        self, group: int, name: str, rising: Callable[[int], int], rows: int
    ) -> pa.Array | None:
        """One time for all rows if the function has one result for all times; else None."""
        statistics = self._statistics(group, name)
        if statistics is None or not statistics.has_min_max or not self._has_our_type(name):
            return None
        result = rising(statistics.max)
        if rising(statistics.min) != result or not self._has_all(group, name, dated=True):
            return None
        # If the previous group's time is alike, use that: equal arrays share memory.
        last = self.taken.get(name)
        if last is None or rising(last) != result:
            last = self.taken[name] = statistics.max
        return self._repeated(name, last, rows)

    def _single(self, group: int, name: str, rows: int) -> pa.Array | None:
        """A column with one value, or null, in all rows; else None."""
        statistics = self._statistics(group, name)
        if statistics is None or not statistics.has_null_count or not self._has_our_type(name):
            return None
        if statistics.null_count == rows:
            return self._repeated(name, None, rows)
        if statistics.null_count or not statistics.has_min_max or statistics.min != statistics.max:
            return None
        return self._repeated(name, statistics.min, rows)

    def _has_our_type(self, name: str) -> bool:
        """Whether a column has the schema's type."""
        found = self.schema.field(name).type
        return bool(
            ROWS.field(name).type == (found.value_type if pa.types.is_dictionary(found) else found)
        )

    def _repeated(self, name: str, value: Any, rows: int) -> pa.Array:
        """One value for all rows; equal ones share memory."""
        # Rounded up to a power of two, the last groups of files, of any length, share arrays.
        return _repeat(value, ROWS.field(name).type, 1 << (rows - 1).bit_length()).slice(0, rows)

    def _statistics(self, group: int, name: str) -> pq.Statistics | None:
        at = self.places.get(name)
        return None if at is None else self.metadata.row_group(group).column(at).statistics


@functools.lru_cache(maxsize=32)
def _repeat(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if not pa.types.is_string(kind):
        return pa.repeat(pa.scalar(value, kind), rows)
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(zeros, pa.array([value], kind))


def open_parquet(
    data: pa.Buffer, marked: Marked | None = None, *, unproven: bool = False
) -> pq.ParquetFile:
    """Open a log's Parquet file for `read_groups`; raises pyarrow's errors.

    `unproven`: there was no digest to check, so the pages' checksums are checked, if the file has
    any.
    """
    source = pa.BufferReader(data)
    if marked is None:
        return pq.ParquetFile(source, page_checksum_verification=unproven)
    metadata = pq.read_metadata(source)
    texts = [name for name in _TEXTS if name in metadata.schema.names]
    return pq.ParquetFile(
        source, metadata=metadata, read_dictionary=texts, page_checksum_verification=unproven
    )


def read_groups(
    file: pq.ParquetFile, columns: Sequence[str], marked: Marked | None = None
) -> Iterator[pa.RecordBatch]:
    """A file's rows as batches of these columns; missing ones are null.

    `marked`: what the footer proves is not decoded, and texts may be dictionary-encoded.
    Raises pyarrow's errors.
    """
    present = frozenset(file.schema_arrow.names)
    if marked is None:
        read = [name for name in columns if name in present]
        for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=read):
            yield conform(batch, columns)
        return
    footer = _Footer.of(file)
    for group in range(file.num_row_groups):
        noted = footer.totals(group) if marked.totals else None
        proven = footer.proven(group, columns, marked, noted=noted is not None)
        ends = footer.ends(group, {*columns} - {*proven})
        to_decode = present - {*proven, *ends}
        table = file.read_row_group(
            group, columns=[name for name in columns if name in to_decode], use_threads=False
        )
        done = 0
        for batch in table.combine_chunks().to_batches(max_chunksize=GROUP_ROWS):
            part = {name: values.slice(done, batch.num_rows) for name, values in proven.items()}
            complete = _complete(batch, part, ends, columns)
            # The sums are of the group: its first batch gets them.
            yield (
                complete
                if noted is None
                else complete.replace_schema_metadata({_TOTALS: b"[]" if done else noted})
            )
            done += batch.num_rows


def _complete(
    read: pa.RecordBatch, proven: dict[str, pa.Array], ends: dict[str, str], columns: Sequence[str]
) -> pa.RecordBatch:
    """The columns that were read and those from the footer, as one batch."""
    rest = [name for name in columns if name not in proven and name not in ends]
    found = conform(read, rest, coded=True)
    arrays, fields = [], []
    for name in columns:
        if name in proven:
            array = proven[name]
        elif name in ends:
            array = pc.add(found[ends[name]], 1)
        else:
            array = found[name]
        arrays.append(array)
        kept = ROWS.field(name).with_type(array.type)
        fields.append(kept.with_metadata({_SINGLE: b""}) if name in proven else kept)
    return pa.record_batch(arrays, schema=pa.schema(fields))
