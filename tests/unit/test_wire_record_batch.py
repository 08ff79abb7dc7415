"""Record batches: aiokafka reads what we write, and we read what aiokafka writes."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.wire import kernels
from mirrortest.wire.batch_header import CRC_AT, CRC_FROM, HEADER_SIZE
from mirrortest.wire.payload import Window
from mirrortest.wire.record_batch import (
    RecordArrays,
    compress_records,
    decode_batches,
    decode_records,
    decompressed,
    encode_records,
    record_size,
    seal,
)
from mirrortest.wire.single_records import parse_headers
from mirrortest.wire.varint import MalformedBatchError, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = bytes(i * 7 % 251 for i in range(10_000))
fields = st.none() | st.binary(max_size=80) | st.binary(min_size=60, max_size=9000)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=4)
loose_records = st.lists(
    st.tuples(
        st.integers(0, 1 << 40), fields, fields, headers, st.integers(1, 12), st.integers(1, 90)
    ),
    min_size=1,
    max_size=12,
)


def built(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[object, object | None]]]],
) -> bytes:
    """The batch that aiokafka builds of (offset, timestamp, key, value, headers)."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, timestamp, key, value, record_headers in records:
        builder.append(offset, timestamp, key, value, record_headers)
    return bytes(builder.build())


def emptied(batch: bytes) -> bytes:
    """The batch as compaction keeps it without its records."""
    return bytes(decompressed(batch[:57] + bytes(4), b""))


def read(
    arrays: RecordArrays,
) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[object, object | None]]]]:
    """Records as (offset, timestamp, key, value, headers)."""
    return [
        (
            int(arrays.offsets[i]),
            int(arrays.timestamps[i]),
            arrays.key(i),
            arrays.value(i),
            list(parse_headers(arrays.raw_headers(i))),
        )
        for i in range(len(arrays))
    ]


def aiokafka_read(batch: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The same, as aiokafka reads them."""
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]


@given(loose_records)
def test_any_batch_of_aiokafka_is_read(
    loose: list[
        tuple[int, bytes | None, bytes | None, list[tuple[object, object | None]], int, int]
    ],
) -> None:
    """It may have nulls, headers, gaps in offsets, repeated and mixed lengths."""
    records, offset = [], 0
    for timestamp, key, value, record_headers, repeat, gap in loose:
        for _ in range(repeat):
            records.append((offset, timestamp, key, value, record_headers))
            offset += gap
    assert read(decode_records(built(records))) == records


def sealed(
    count: int, *, timestamp_ms: int = 1_700_000_000_123, transactional: bool = False
) -> memoryview:
    """A batch of ours: a value with its number, a word and a window, and a header."""
    indexes = np.arange(count, dtype=np.uint64)
    buffer = encode_records(
        b"k",
        b"......ab--------",
        Window(BLOCK, np.array([2]), 1, len(BLOCK) - 4, 0),
        varint(1) + varint(1) + b"h" + varint(-1),
        20,
        [(0, 6, indexes), (8, 0, indexes)],
        count,
        timestamp_ms,
    )
    seal(buffer, 77, 3, 1000, transactional=transactional)
    return buffer


def expected(count: int) -> list[tuple[int, int, bytes, bytes, list[tuple[object, None]]]]:
    """The records of `sealed`."""
    return [
        (
            i,
            1_700_000_000_123,
            b"k",
            b"%06dab" % i + i.to_bytes(8, "little") + BLOCK[2 + i : 6 + i],
            [("h", None)],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8192, 8193, 9000])
def test_aiokafka_reads_ours(count: int) -> None:
    """Offset deltas have one to three bytes; the CRC and the producer's state are right."""
    buffer = sealed(count)
    records = MemoryRecords(bytes(buffer))
    batch = records.next_batch()
    assert batch is not None
    assert not records.has_next()
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 1000)
    assert batch.next_offset == count
    assert not batch.is_transactional
    want = expected(count)
    assert aiokafka_read(batch) == want
    assert read(decode_records(buffer)) == want


def test_three_and_four_byte_offset_deltas() -> None:
    """More than a million records need every width that a batch can have."""
    count = (1 << 20) + 3
    buffer = encode_records(b"", b"", None, b"\0", 0, [], count, 5)
    arrays = decode_records(buffer)
    assert np.array_equal(arrays.offsets, np.arange(count))


def test_sealing_again_changes_only_the_state() -> None:
    """A batch can be sealed again, transactional or not."""
    buffer = sealed(3, transactional=True)
    batch = MemoryRecords(bytes(buffer)).next_batch()
    assert batch.is_transactional
    assert batch.validate_crc()
    seal(buffer, 77, 3, 1000)
    assert buffer == sealed(3)


def test_compression() -> None:
    """Only the records are compressed; if that saves nothing, the batch stays as it is."""
    uncompressed = sealed(500)
    small = compress_records(uncompressed, 1, gzip.compress)
    seal(small, 77, 3, 1000)
    batch = MemoryRecords(bytes(small)).next_batch()
    assert batch.validate_crc()
    assert batch.compression_type == 1
    assert aiokafka_read(batch) == expected(500)
    with pytest.raises(MalformedBatchError, match="compressed"):
        decode_records(small)
    restored = decompressed(small, gzip.decompress(bytes(small[HEADER_SIZE:])))
    assert read(decode_records(restored)) == expected(500)
    restored[CRC_AT:CRC_FROM] = uncompressed[CRC_AT:CRC_FROM]
    assert restored == uncompressed
    assert compress_records(uncompressed, 1, lambda records: records) is uncompressed


def test_log_append_time() -> None:
    """The broker's time is that of all records."""
    buffer = bytearray(built([(0, 5, b"k", b"v", []), (1, 9, b"k", b"v", [])]))
    buffer[22] |= 0x08
    arrays = decode_records(buffer)
    assert arrays.timestamps.tolist() == [9, 9]
    assert aiokafka_read(DefaultRecordBatch(bytes(buffer)))[0][1] == 9


def test_an_empty_batch() -> None:
    """Compaction keeps a producer's last batch without its records."""
    assert len(decode_records(emptied(built([(0, 5, b"k", b"v", [])])))) == 0


@given(st.lists(loose_records, min_size=1, max_size=4), st.data())
def test_batches_together_are_the_batches_one_by_one(
    loose: list[
        list[tuple[int, bytes | None, bytes | None, list[tuple[object, object]], int, int]]
    ],
    data: st.DataObject,
) -> None:
    """They have the broker's time or the producer's, and an empty one is among them."""
    batches = []
    for records in loose:
        rows = [(i, *record[:4]) for i, record in enumerate(records)]
        batch = bytearray(built(rows))
        batch[:8] = data.draw(st.integers(0, 1 << 60)).to_bytes(8, "big")
        batch[22] |= data.draw(st.sampled_from([0, 8]))
        batches.append(bytes(batch))
    batches.insert(data.draw(st.integers(0, len(batches))), emptied(batches[0]))
    together = decode_batches(batches)
    assert read(together) == [row for batch in batches for row in read(decode_records(batch))]
    assert read(decode_records(b"".join(batches))) == read(together)


def test_large_batches_of_one_memory_are_read_where_they_lie() -> None:
    """Batches of one response, with other bytes between, give the same records, uncopied."""
    batches = [
        built([(i, 5, b"k", bytes([turn]) * 1000, []) for i in range(70 + turn)]) for turn in (1, 2)
    ]
    memory = b"before" + batches[0] + b"between" + batches[1] + b"after"
    lo, hi = 6, 6 + len(batches[0])
    full_view = memoryview(memory)
    views = [full_view[lo:hi], full_view[hi + 7 : hi + 7 + len(batches[1])]]
    together = decode_batches(views)
    assert np.shares_memory(together.buffer, np.frombuffer(memory, np.uint8))
    apart = decode_batches([bytes(batch) for batch in batches])
    assert not np.shares_memory(apart.buffer, np.frombuffer(memory, np.uint8))
    assert read(together) == read(apart)
    damaged = bytearray(memory)
    damaged[lo + 60], damaged[hi + 7 + 60] = 70, 73  # the batches have 71 and 72 records
    both = [memoryview(damaged)[lo:hi], memoryview(damaged)[hi + 7 : hi + 7 + len(batches[1])]]
    with pytest.raises(MalformedBatchError):
        decode_batches(both)


def test_a_batch_borrows_no_record() -> None:
    """Counts that are wrong by batch and right in sum are refused."""
    batches = [bytearray(built([(i, 5, b"k", b"v", []) for i in range(3)])) for _ in range(2)]
    batches[0][60], batches[1][60] = 4, 2
    with pytest.raises(MalformedBatchError, match=r"fit its batch|beyond the end"):
        decode_batches([bytes(batch) for batch in batches])


def test_from_offset() -> None:
    """Records below the fetch offset are left out."""
    arrays = decode_records(built([(i, 5, b"k", b"%d" % i, []) for i in (0, 3, 4, 9)]))
    assert read(arrays.from_offset(4)) == read(arrays)[2:]
    assert arrays.from_offset(0) is arrays
    assert len(arrays.from_offset(10)) == 0


@settings(max_examples=300)
@given(st.data())
def test_damage_is_an_error_of_its_own(data: st.DataObject) -> None:
    """A changed or cut batch is read, or raises MalformedBatchError, and nothing else."""
    batch = bytearray(built([(i, 1000 + i, b"k", b"v" * (i % 3), [("h", b"x")]) for i in range(8)]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    batch = batch[: data.draw(st.integers(0, len(batch)))] if data.draw(st.booleans()) else batch
    try:
        arrays = decode_records(batch)
    except MalformedBatchError:
        return
    assert len(arrays) == sum(header[-1] for header in kernels.headers(batch))
    for i in range(len(arrays)):
        arrays.key(i)
        arrays.value(i)
        try:
            parse_headers(arrays.raw_headers(i))
        except MalformedBatchError:
            continue


@given(st.binary(max_size=40))
def test_any_bytes_as_headers(raw: bytes) -> None:
    """A header section is read or refused."""
    try:
        assert len(parse_headers(raw)) <= len(raw)
    except MalformedBatchError:
        return


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(number: int) -> None:
    """Every signed 64-bit number comes back."""
    raw = varint(number)
    assert read_varint(raw, 0) == (number, len(raw))


def test_record_size() -> None:
    """The size returned is the size written."""
    buffer = encode_records(b"key", bytes(27), None, b"\0", 27, [], 65, 5)
    sizes = [record_size(b"key", 27, 1, delta) for delta in range(65)]
    assert HEADER_SIZE + sum(sizes) == len(buffer)


def test_no_records_no_batch() -> None:
    """A batch without records is refused, and one with more than 2**27."""
    with pytest.raises(ValueError, match="at least one"):
        encode_records(b"", b"", None, b"\0", 0, [], 0, 5)

    with pytest.raises(ValueError, match="too many"):
        encode_records(b"", b"", None, b"\0", 0, [], (1 << 27) + 1, 5)
