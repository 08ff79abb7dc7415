"""A log's rows as a Parquet file: how columns are written, and which need not be decoded.

Most columns of most row groups say the same in all rows, or what another column says. The footer
proves it: by each column's least and greatest value and its nulls, and by a note of ours on the
intervals that are one number long. A reader that asks for `marked` columns gets them from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrortest.seqlog.batches import conform
from mirrortest.seqlog.schema import ROWS, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

GROUP_ROWS = 1 << 17
"""Rows of a row group: bounds the memory of writing and of reading."""

_VERSION = {"mirrortest.schema_version": str(SCHEMA_VERSION)}
_ONE_LONG = "mirrortest.one_long"
"""The footer's entry with our note: for each column of `_ENDS`, the numbers of the row groups in
which it is one past its beginning, or null as that is, in all rows."""
_ENDS = {"seq_hi": "seq_lo", "offset_hi": "offset_lo"}
_SINGLE = b"mirrortest.single"

_TEXTS = [field.name for field in ROWS if pa.types.is_string(field.type)]
# Where each row has a number of its own, steps between them are the same again and again.
_STEPS = ("seq_lo", "seq_hi", "offset_lo", "offset_hi", "intended_first", "intended_last")
_DELTAS = dict.fromkeys(_STEPS, "DELTA_BINARY_PACKED")
# Else a few values stand in many rows; where they do not, the dictionary is given up for `plain`.
_DICTIONARIES = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in ROWS
    if field.name not in _DELTAS
]


def write_parquet(batches: Iterable[pa.RecordBatch], sink: Any) -> int:
    """Write a Parquet file to a path or an open file; returns its rows."""
    rows = 0
    one_long: dict[str, list[int]] = {name: [] for name in _ENDS}
    with pq.ParquetWriter(
        sink,
        ROWS.with_metadata(_VERSION),
        # A codec whose decompressor costs a reader more than what it saves of reading is none.
        compression="lz4",
        use_dictionary=_DICTIONARIES,
        column_encoding=_DELTAS,
        data_page_version="2.0",
    ) as writer:
        for number, group in enumerate(_groups(batches)):
            writer.write_table(group, row_group_size=GROUP_ROWS)
            rows += group.num_rows
            for end, beginning in _ENDS.items():
                if _is_one_long(group[beginning], group[end]):
                    one_long[end].append(number)
        writer.add_key_value_metadata({_ONE_LONG: json.dumps(one_long)})
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows of a row group at a time."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in map(conform, batches):
        held.append(batch)
        count += batch.num_rows
        while count >= GROUP_ROWS:
            table = pa.Table.from_batches(held)
            yield table.slice(0, GROUP_ROWS)
            held = table.slice(GROUP_ROWS).to_batches()
            count -= GROUP_ROWS
    if count:
        yield pa.Table.from_batches(held)


def _is_one_long(beginning: pa.ChunkedArray, end: pa.ChunkedArray) -> bool:
    return bool(pc.add(beginning, 1).equals(end))


def is_single(field: pa.Field) -> bool:
    """Whether a column that was read as `marked` is known to have one value in all its rows."""
    return field.metadata is not None and _SINGLE in field.metadata


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a file's footer tells of its row groups."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    places: dict[str, int]
    one_long: dict[str, frozenset[int]]
    repeated: dict[tuple[str, Any], pa.Array] = field(default_factory=dict)

    @classmethod
    def of(cls, file: pq.ParquetFile) -> _Footer:
        metadata = file.metadata
        paths = (metadata.schema.column(n).path for n in range(metadata.num_columns))
        return cls(
            metadata,
            file.schema_arrow,
            {path: number for number, path in enumerate(paths)},
            _noted((metadata.metadata or {}).get(_ONE_LONG.encode(), b"{}")),
        )

    def known(
        self, group: int, columns: Sequence[str], instead: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Those columns of a row group whose values need not be decoded, as `read_groups` says."""
        rows = self.metadata.row_group(group).num_rows
        found = {}
        needed = True
        for name in (each for each in instead if each in columns):
            if not needed:
                found[name] = self._repeated(name, None, rows)
            told = self._statistics(group, name)
            needed &= told is None or not told.has_null_count or told.null_count > 0
        for name in columns:
            if name not in found:
                values = self._single(group, name, rows)
                if values is not None:
                    found[name] = values
        return {name: found[name] for name in columns if name in found}

    def ends(self, group: int, columns: Collection[str]) -> dict[str, str]:
        """Which of the columns are another one plus one throughout, and which other."""
        return {
            end: beginning
            for end, beginning in _ENDS.items()
            if end in columns and beginning in columns and group in self.one_long.get(end, ())
        }

    def _single(self, group: int, name: str, rows: int) -> pa.Array | None:
        """A column all of whose rows have the same value, or none any; else None."""
        wanted = ROWS.field(name).type
        told = self._statistics(group, name)
        if told is None or not told.has_null_count:
            return None
        found = self.schema.field(name).type
        if wanted != (found.value_type if pa.types.is_dictionary(found) else found):
            return None
        if told.null_count == rows:
            return self._repeated(name, None, rows)
        if told.null_count or not told.has_min_max or told.min != told.max:
            return None
        return self._repeated(name, told.min, rows)

    def _repeated(self, name: str, value: Any, rows: int) -> pa.Array:
        """One value for all rows; the same memory for all groups."""
        made = self.repeated.get((name, value))
        if made is None or len(made) < rows:
            made = _repeat(value, ROWS.field(name).type, rows)
            self.repeated[name, value] = made
        return made.slice(0, rows)

    def _statistics(self, group: int, name: str) -> pq.Statistics | None:
        at = self.places.get(name)
        return None if at is None else self.metadata.row_group(group).column(at).statistics


def _noted(text: bytes) -> dict[str, frozenset[int]]:
    """The note; none where it cannot be read, as nothing is lost without it."""
    try:
        return {name: frozenset(groups) for name, groups in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _repeat(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if not pa.types.is_string(kind):
        return pa.repeat(pa.scalar(value, kind), rows)
    zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(zeros, pa.array([value], kind))


def open_parquet(source: pa.NativeFile, *, marked: bool) -> pq.ParquetFile:
    """Open a log's Parquet file for `read_groups`. Raises pyarrow's errors."""
    if not marked:
        return pq.ParquetFile(source)
    metadata = pq.read_metadata(source)
    texts = [name for name in _TEXTS if name in metadata.schema.names]
    return pq.ParquetFile(source, metadata=metadata, read_dictionary=texts)


def read_groups(
    file: pq.ParquetFile,
    columns: Sequence[str],
    *,
    marked: bool,
    instead: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """A file's rows as batches of these columns; those that it does not have are null.

    `marked`: texts may come as codes of a dictionary, what the footer proves is not decoded, and
    columns of one value are marked (`is_single`); of the columns `instead`, each is there for the
    nulls of those before it alone, and comes as null where these have none. Raises pyarrow's
    errors.
    """
    footer = _Footer.of(file)
    there = frozenset(file.schema_arrow.names)
    for group in range(file.num_row_groups):
        known = footer.known(group, columns, instead) if marked else {}
        ends = footer.ends(group, {*columns} - {*known}) if marked else {}
        read = [
            name for name in columns if name in there and name not in known and name not in ends
        ]
        table = file.read_row_group(group, columns=read, use_threads=not marked)
        done = 0
        for batch in table.combine_chunks().to_batches(max_chunksize=GROUP_ROWS):
            part = {name: values.slice(done, batch.num_rows) for name, values in known.items()}
            done += batch.num_rows
            yield _whole(batch, part, ends, columns, marked=marked)


def _whole(
    read: pa.RecordBatch,
    known: dict[str, pa.Array],
    ends: dict[str, str],
    columns: Sequence[str],
    *,
    marked: bool,
) -> pa.RecordBatch:
    """What was read and what is known, as a batch of all columns."""
    rest = [name for name in columns if name not in known and name not in ends]
    found = conform(read, rest, coded=marked)
    arrays, fields = [], []
    for name in columns:
        if name in known:
            array = known[name]
        elif name in ends:
            array = pc.add(found[ends[name]], 1)
        else:
            array = found[name]
        arrays.append(array)
        kept = ROWS.field(name).with_type(array.type)
        fields.append(kept.with_metadata({_SINGLE: b""}) if name in known else kept)
    return pa.record_batch(arrays, schema=pa.schema(fields))
