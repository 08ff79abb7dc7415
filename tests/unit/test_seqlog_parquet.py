"""Parquet files of a log: what their footers prove is correct, and is not decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.seqlog import parquet
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.parquet import (
    Marked,
    is_single,
    noted_totals,
    open_parquet,
    read_groups,
    write_parquet,
)
from mirrortest.seqlog.rows import Row
from mirrortest.seqlog.schema import ROWS, TOTALLED
from mirrortest.seqlog.session_directory import write_synced
from mirrortest.seqlog.totals import NO_MINUTE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

_MARKED = Marked()
_ENDED = ("arrived_last", "sent_last", "intended_last")


def row(**values: Any) -> Row:
    """A row with these values, a kind and a topic; the rest is null."""
    return Row(**{"kind": "seen", "topic": "t", **values})


def message(seq: int, *, offset: int | None = None, **values: Any) -> Row:
    """A row of one message."""
    placed = {} if offset is None else {"offset_lo": offset, "offset_hi": offset + 1}
    return row(seq_lo=seq, seq_hi=seq + 1, **placed, **values)


def written(*batches: Sequence[Row]) -> pa.Buffer:
    """A file of these rows."""
    sink = pa.BufferOutputStream()
    write_parquet(map(batch_of, batches), sink)
    return sink.getvalue()


def read(
    data: pa.Buffer | bytes,
    columns: Sequence[str] = ROWS.names,
    marked: Marked | None = _MARKED,
) -> list[pa.RecordBatch]:
    """A file's batches."""
    with open_parquet(pa.py_buffer(data), marked) as file:
        return list(read_groups(file, columns, marked))


def plainly(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of batches."""
    return [each for batch in batches for each in batch.to_pylist()]


@pytest.fixture
def groups_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of four rows."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 4)


_NUMBER = st.none() | st.integers(0, 2)
_TEXT = st.none() | st.sampled_from(["a", "b"])
_ROW = st.fixed_dictionaries(
    {
        "topic": st.sampled_from("tu"),
        "run": _TEXT,
        "incarnation": _NUMBER,
        "lane": _NUMBER,
        "topic_identity": _TEXT,
        "outcome": _NUMBER,
        "seq_lo": _NUMBER,
        "seq_hi": _NUMBER,
        "offset_lo": _NUMBER,
        "offset_hi": _NUMBER,
        "arrived_last": _NUMBER,
        "sent_last": _NUMBER,
        "intended_last": _NUMBER,
        "negative": _NUMBER,
        "latency_bucket": st.none() | st.lists(st.integers(0, 9), max_size=2),
    }
)


@given(st.lists(_ROW, max_size=13), st.integers(1, 5), st.permutations(ROWS.names))
def test_marked_or_not_the_rows_are_the_same(
    drawn: list[dict[str, Any]], group: int, columns: list[str]
) -> None:
    """Values from the footer are those that decoding gives, and a marked column has one value."""
    rows = [row(**each) for each in drawn]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", group)
        data = written(rows[:2], rows[2:])
        found = read(data, columns[:9])
        assert plainly(found) == plainly(read(data, columns[:9], None))
    assert plainly(found) == [{name: getattr(r, name) for name in columns[:9]} for r in rows]
    for batch in found:
        assert batch.num_rows == group or batch is found[-1]
        for field in batch.schema:
            values = {str(value) for value in batch[field.name].to_pylist()}
            assert not is_single(field) or len(values) == 1


@given(st.lists(st.tuples(_NUMBER, _NUMBER, _NUMBER), min_size=1, max_size=9), st.integers(1, 3))
def test_what_stands_in_for_nulls_tells_the_same(
    times: list[tuple[int | None, int | None, int | None]], group: int
) -> None:
    """The first value among the `instead` columns is the same, whether or not all are read."""
    rows = [row(**dict(zip(_ENDED, each, strict=True))) for each in times]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", group)
        found = plainly(read(written(rows), ["kind", *_ENDED], Marked(instead=_ENDED)))
    first = [next((each[n] for n in _ENDED if each[n] is not None), None) for each in found]
    assert first == [next((at for at in each if at is not None), None) for each in times]


@given(
    st.lists(
        st.tuples(st.sampled_from(["seen", "sent", "unread", "reserved", "end"]), _NUMBER, _NUMBER),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_times_that_are_alike_say_of_every_row_that_has_times_what_matters(
    drawn: list[tuple[str, int | None, int | None]], group: int
) -> None:
    """The function's results are the same, and null stays null; rows of other kinds do not matter.

    An unread range without the time at which it was found got that of adjacent messages.
    """
    rows = [
        row(kind=kind, arrived_last=arrived, intended_first=intended)
        for kind, arrived, intended in drawn
    ]
    timed = {"seen", "sent", "unread"}
    marked = Marked(alike={"arrived_last": _half, "intended_first": _half})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "GROUP_ROWS", group)
        found = plainly(read(written(rows), ["kind", *marked.alike], marked))
    assert [_made(each) for each in found if each["kind"] in timed] == [
        (_maybe_half(arrived), _maybe_half(intended))
        for kind, arrived, intended in drawn
        if kind in timed
    ]


def _half(number: int) -> int:
    return number // 2


def _maybe_half(number: int | None) -> int | None:
    return None if number is None else _half(number)


def _made(each: dict[str, Any]) -> tuple[int | None, int | None]:
    return _maybe_half(each["arrived_last"]), _maybe_half(each["intended_first"])


@pytest.mark.usefixtures("groups_of_four")
def test_what_the_footer_proves_is_not_decoded() -> None:
    """Columns of one value, ends of single messages and times that do not matter are not read."""
    rows = [
        message(seq, offset=9 * seq, run="r1", lane=seq % 2, arrived_last=seq, sent_last=7 - seq)
        for seq in range(8)
    ]
    data = written(rows)
    spoiled = bytearray(data)
    file = pq.ParquetFile(pa.BufferReader(data))
    unread = {"kind", "topic", "run", "seq_hi", "offset_hi", "sent_last"}
    for group in range(2):
        _spoil(spoiled, file.metadata, group, unread)
    columns = [
        "kind", "topic", "run", "lane", "seq_lo", "seq_hi", "offset_lo", "offset_hi", *_ENDED[:2]
    ]  # fmt: skip
    for name in unread:
        with pytest.raises((pa.ArrowException, OSError)):
            read(bytes(spoiled), [name], None)
    found = read(bytes(spoiled), columns, Marked(instead=_ENDED))
    assert plainly(found) == [
        {name: getattr(each, name) for name in columns} | {"sent_last": None} for each in rows
    ]


def _spoil(
    data: bytearray, metadata: pq.FileMetaData, group: int, columns: Collection[str]
) -> None:
    """Zero these columns of a row group."""
    for number in range(metadata.num_columns):
        chunk = metadata.row_group(group).column(number)
        if chunk.path_in_schema in columns:
            starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
            start = min(at for at in starts if at is not None)
            size = chunk.total_compressed_size
            data[start : start + size] = bytes(size)


@pytest.mark.usefixtures("groups_of_four")
def test_times_that_are_alike_are_not_decoded() -> None:
    """Nor if a `reserved` row lacks one; but they are if a message lacks one, or if they differ."""
    times = ((10, 11, 12, 13), (14, 15, 16, 17), (None, 22, 23, 24), (35, 36, 37, 38))
    rows = [
        row(
            kind="reserved" if at == (1, 0) else "sent", arrived_last=None if at == (1, 0) else time
        )
        for group, four in enumerate(times)
        for place, time in enumerate(four)
        for at in [(group, place)]
    ]
    data = written(rows)
    file = pq.ParquetFile(pa.BufferReader(data))
    marked = Marked(alike={"arrived_last": lambda time: time // 20})
    for group, as_good in enumerate(((13,) * 4, (13,) * 4, None, (38,) * 4)):
        spoiled = bytearray(data)
        _spoil(spoiled, file.metadata, group, ["arrived_last"])
        if as_good is None:
            with pytest.raises((pa.ArrowException, OSError)):
                read(bytes(spoiled), ["kind", "arrived_last"], marked)
            continue
        found = read(bytes(spoiled), ["kind", "arrived_last"], marked)[group]
        assert tuple(found["arrived_last"].to_pylist()) == as_good
        assert is_single(found.schema.field("arrived_last"))
    spoiled = bytearray(data)
    _spoil(spoiled, file.metadata, 0, ["arrived_last"])
    with pytest.raises((pa.ArrowException, OSError)):
        read(bytes(spoiled), ["arrived_last"], Marked(alike={"arrived_last": _half}))


@pytest.mark.usefixtures("groups_of_four")
def test_only_what_is_one_long_throughout_has_its_ends_left_out() -> None:
    """A group's ends are read if it has an interval of two messages, or one without an end."""
    rows = [message(seq) for seq in range(12)]
    rows[5] = row(seq_lo=5, seq_hi=7)
    rows[9] = row(seq_lo=9)
    found = plainly(read(written(rows), ["seq_lo", "seq_hi"]))
    assert [each["seq_hi"] for each in found] == [1, 2, 3, 4, 5, 7, 7, 8, 9, None, 11, 12]
    # Also if only the end is requested.
    assert plainly(read(written(rows[:4]), ["seq_hi"])) == [{"seq_hi": n} for n in (1, 2, 3, 4)]


@pytest.mark.usefixtures("groups_of_four")
@pytest.mark.parametrize("note", ["", "[]", "{", '{"one_long": 3}', "\x00"])
def test_a_note_that_cannot_be_read_is_done_without(note: str) -> None:
    """A garbled note in the footer costs time, but no rows."""
    rows = [row(seq_lo=0, seq_hi=3), message(4)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, ROWS) as writer:
        writer.write_table(pa.Table.from_batches([batch_of(rows)]))
        writer.add_key_value_metadata({"mirrortest.groups": note})
    assert [each["seq_hi"] for each in plainly(read(sink.getvalue()))] == [3, 5]


def test_what_was_noted_is_believed_of_the_file_as_it_was_written(tmp_path: Path) -> None:
    """The sums replace the lists, and no list is read."""
    lists: dict[str, Any] = {"latency_bucket": [0, 1, 2], "latency_count": [2, 2, 2]}
    rows = [message(n, negative=1, **lists) for n in range(40)]
    write_synced([batch_of(rows)], tmp_path / "000001.parquet")
    data = (tmp_path / "000001.parquet").read_bytes()
    (found,) = read(data, marked=Marked(totals=True))
    assert noted_totals(found) == [(None, "t", NO_MINUTE, 40, [0, 1, 2], [80, 80, 80])]
    assert {found[name].null_count for name in TOTALLED} == {40}
    (found,) = read(data)
    assert noted_totals(found) is None
    assert found["latency_bucket"].to_pylist() == [[0, 1, 2]] * 40


def test_sums_as_long_as_the_lists_are_not_noted() -> None:
    """With one row a minute each sum is of one row: the lists themselves are read."""
    minute = 60_000_000_000
    rows = [
        message(n, intended_first=n * minute, latency_bucket=[n], latency_count=[1])
        for n in range(40)
    ]
    (found,) = read(written(rows), marked=Marked(totals=True))
    assert noted_totals(found) is None
    assert found["latency_bucket"].to_pylist() == [[n] for n in range(40)]


def test_a_note_of_rows_that_were_written_anew_is_not_believed() -> None:
    """A program that changes a log's rows may copy the note, which is then wrong."""
    lists: dict[str, Any] = {"latency_bucket": [0, 1], "latency_count": [2, 2]}
    data = written([message(n, **lists) for n in range(40)])
    note = b"mirrortest.groups"
    carried = {note: pq.ParquetFile(pa.BufferReader(data)).metadata.metadata[note]}
    table = pq.read_table(pa.BufferReader(data)).replace_schema_metadata(carried)
    changed = table.set_column(7, table.schema.field("seq_hi"), pa.array([6] * 40))
    for same in (False, True):
        sink = pa.BufferOutputStream()
        pq.write_table(changed, sink, compression="lz4", use_dictionary=not same)
        (found,) = read(sink.getvalue(), marked=Marked(totals=True))
        assert found["seq_hi"].to_pylist() == [6] * 40
        assert found["latency_count"].to_pylist() == [[2, 2]] * 40
        assert noted_totals(found) is None


def test_latencies_that_make_no_sense_are_written_as_they_are() -> None:
    """Invalid latencies must not stop the writer: a reader that sums them reports it."""
    data = written([message(0, latency_bucket=[1], latency_count=[1, 2])])
    (found,) = read(data, marked=Marked(totals=True))
    assert noted_totals(found) is None
    assert plainly([found])[0]["latency_count"] == [1, 2]


def test_a_file_that_knows_other_types_and_no_statistics() -> None:
    """Files of other versions or programs are decoded, and give the schema's types."""
    table = pa.Table.from_batches([batch_of([message(0, lane=3), message(1, lane=3)])])
    table = table.set_column(5, "lane", table["lane"].cast(pa.int32())).drop_columns(["run"])
    for statistics in (True, False):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_statistics=statistics)
        (found,) = read(sink.getvalue(), ["kind", "run", "lane", "seq_hi"])
        assert found.schema.field("lane").type == pa.int64()
        assert plainly([found]) == [
            {"kind": "seen", "run": None, "lane": 3, "seq_hi": n} for n in (1, 2)
        ]


@pytest.mark.usefixtures("groups_of_four")
def test_row_groups_are_full_however_the_rows_came() -> None:
    """Rows are combined and split into groups of one size."""
    rows = [message(seq) for seq in range(11)]
    data = written(rows[:1], rows[1:2], [], rows[2:10], rows[10:])
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert counts == [4, 4, 3]
    assert read(written()) == []


def test_row_groups_hold_so_many_bytes_of_latencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the rows came; rows without latencies do not count."""
    monkeypatch.setattr(parquet, "GROUP_BYTES", 10_000)
    latencies: dict[str, Any] = {
        "latency_bucket": list(range(100)),
        "latency_count": [1] * 100,
        "run": "r",
    }
    rows = [message(seq, **latencies, intended_first=0, intended_last=0) for seq in range(50)]
    rows += [message(seq) for seq in range(50, 200)]
    for size in (1, 7, 25):
        data = written(*(rows[at : at + size] for at in range(0, 200, size)))
        metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
        counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        assert sum(counts) == 200
        assert max(counts[:-1]) < 20 < counts[-1]
        assert plainly(read(data, marked=None)) == plainly([batch_of(rows)])
        assert len(parquet._Note.of(metadata).bounds) == len(counts)  # the note is used
