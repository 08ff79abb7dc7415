"""Cutting fetch responses into batches: codecs, markers, aborted transactions, damage."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrortest.kafka.codec import CODEC_IDS, compressor, decompress
from mirrortest.kafka.fetched import FetchedBatch, Unreadable, batches
from mirrortest.wire.record_batch import decode_records

CONTROL = 0x20
LOG_APPEND_TIME = 0x08
ABORT, COMMIT = 0, 1


def batch(
    base_offset: int,
    count: int = 1,
    *,
    codec: int = 0,
    producer: int = -1,
    attributes: int = 0,
    key: bytes = b"k",
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, codec, is_transactional=producer >= 0, producer_id=producer, producer_epoch=0,
        base_sequence=0, batch_size=1 << 20,
    )  # fmt: skip
    for delta in range(count):
        builder.append(delta, 1000, key, b"value" * 50, [("h", b"1")])
    raw = bytearray(builder.build())
    raw[:8] = base_offset.to_bytes(8, "big")
    raw[22] |= attributes
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def marker(base_offset: int, producer: int, kind: int) -> bytes:
    return batch(
        base_offset, producer=producer, attributes=CONTROL, key=struct.pack(">hh", 0, kind)
    )


def cut(
    data: bytes, fetch_offset: int = 0, aborted: list[tuple[int, int]] | None = None
) -> list[Any]:
    return list(
        batches(
            memoryview(data),
            topic="t",
            partition=3,
            fetch_offset=fetch_offset,
            arrived_ns=9,
            aborted=aborted,
        )
    )


def test_a_batch_that_was_cut_off_is_left_out() -> None:
    """Brokers cut the last batch where the size limit falls; what is whole is delivered."""
    whole = batch(0, 2)
    for length in (0, 5, 11, 60, len(whole) - 1):
        (item,) = cut(whole + batch(2, 2)[:length])
        assert (item.next_offset, item.count) == (2, 2)


def test_batches_below_the_fetch_offset_are_passed_over() -> None:
    """Only the batch that holds the offset asked for comes, whole."""
    (item,) = cut(batch(0, 2) + batch(2, 3), fetch_offset=3)
    assert (item.base_offset, item.fetched_from, item.next_offset) == (2, 3, 5)


def test_a_gap_is_seen_from_where_reading_stood() -> None:
    """Offsets that compaction has taken lie between fetched_from and base_offset."""
    first, second = cut(batch(0, 1) + batch(7, 1))
    assert (first.next_offset, second.fetched_from, second.base_offset) == (1, 1, 7)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_decompressed(name: str) -> None:
    """The buffer is what the same batch would be uncompressed, but for the CRC."""
    codec = CODEC_IDS[name]
    (item,) = cut(batch(5, 20, codec=codec))
    plain = bytearray(batch(5, 20))
    plain[17:21] = item.buffer[17:21]
    assert bytes(item.buffer) == bytes(plain)
    assert item.codec == codec
    assert decode_records(item.buffer).offsets.tolist() == list(range(5, 25))


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_compressed_is_decompressed_to_the_same(name: str) -> None:
    """A codec's two directions fit, and its id is Kafka's."""
    codec, compress = compressor(name) or (0, bytes)
    data = bytes(range(256)) * 300
    assert decompress(codec, compress(data)) == data
    assert len(compress(data)) < len(data)


def test_no_compression_needs_no_compressor() -> None:
    """`none` is no codec."""
    assert compressor("none") is None


def test_a_records_section_that_does_not_decompress_is_named() -> None:
    """The CRC holds, the codec refuses: that will not heal by fetching again."""
    raw = bytearray(batch(0, 3))
    raw[22] |= CODEC_IDS["zstd"]
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    (item,) = cut(bytes(raw))
    assert isinstance(item, Unreadable)
    assert not item.torn


def test_an_old_message_format_is_named() -> None:
    """Formats before v2 are refused in words, not taken for damage."""
    raw = bytearray(batch(4))
    raw[16] = 1
    (item,) = cut(bytes(raw))
    assert isinstance(item, Unreadable)
    assert item.reason.startswith("message format v1")
    assert not item.torn


def test_markers_and_emptied_batches_move_the_position_alone() -> None:
    """They come as batches without a buffer, so that reading reaches the end offset."""
    emptied = bytearray(batch(0, 2)[:61])
    struct.pack_into(">i", emptied, 8, 49)
    struct.pack_into(">i", emptied, 57, 0)
    emptied[17:21] = crc32c.crc32c(bytes(emptied[21:])).to_bytes(4, "big")
    first, second = cut(bytes(emptied) + marker(2, 7, COMMIT))
    assert (first.buffer, first.count, first.next_offset) == (None, 0, 2)
    assert (second.buffer, second.count, second.next_offset) == (None, 0, 3)


def test_aborted_transactions_are_left_out_where_only_committed_is_read() -> None:
    """A producer is shut out from its abort's first offset to its marker, the others are not."""
    data = (
        batch(0, 2, producer=7)
        + batch(2, 2, producer=8)
        + marker(4, 7, ABORT)
        + batch(5, 1, producer=7)
        + marker(6, 8, COMMIT)
    )
    committed = cut(data, aborted=[(7, 0)])
    assert [item.base_offset for item in committed if item.buffer is not None] == [2, 5]
    assert [item.next_offset for item in committed] == [2, 4, 5, 6, 7]
    everything = cut(data)
    assert [item.base_offset for item in everything if item.buffer is not None] == [0, 2, 5]


def test_log_append_time_is_told() -> None:
    """Where the broker stamps, its time comes along; else there is none."""
    (stamped,) = cut(batch(0, attributes=LOG_APPEND_TIME))
    (plain,) = cut(batch(0))
    assert isinstance(stamped, FetchedBatch)
    assert (stamped.log_append_ms, plain.log_append_ms) == (1000, -1)
