"""Records written one by one: aiokafka and we read what was written."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.record_batch import decode_records, seal
from mirrortest.wire.single_records import parse_headers, write_records

if TYPE_CHECKING:
    from mirrortest.wire.single_records import Row

contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), contents), max_size=3).map(tuple)
rows = st.lists(
    st.tuples(st.integers(1, 1 << 20), st.integers(-1, 1 << 41), contents, contents, headers),
    min_size=1,
    max_size=20,
)


@given(rows, st.integers(0, 1 << 50))
def test_records_stand_where_they_stood(steps: list[Row], begin: int) -> None:
    """They have any content, times in any order, and offsets with gaps."""
    offsets = accumulate((step for step, *_ in steps[1:]), initial=begin)
    wanted: list[Row] = [
        (offset, stamp, key, value, names)
        for offset, (_, stamp, key, value, names) in zip(offsets, steps, strict=True)
    ]
    batch = write_records(wanted)
    seal(batch, -1, -1, -1)
    made = DefaultRecordBatch(bytes(batch))
    assert made.validate_crc()
    assert made.next_offset == wanted[-1][0] + 1
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in made] == wanted
    records = decode_records(batch)
    ours = [
        (
            int(records.offsets[row]),
            int(records.timestamps[row]),
            records.key(row),
            records.value(row),
            parse_headers(records.raw_headers(row)),
        )
        for row in range(len(records))
    ]
    assert ours == wanted


def test_the_brokers_time_stands_for_all() -> None:
    """The batch is marked as a broker marks its own time."""
    batch = write_records([(7, 9, b"k", b"v", ()), (8, 11, b"k", b"v", ())], log_append_time=True)
    seal(batch, -1, -1, -1)
    assert DefaultRecordBatch(bytes(batch)).timestamp_type == 1
    assert decode_records(batch).timestamps.tolist() == [11, 11]


def test_there_is_no_batch_of_nothing() -> None:
    """A batch without records would have no offset."""
    with pytest.raises(ValueError, match="at least one record"):
        write_records([])
