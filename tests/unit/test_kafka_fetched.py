"""Cutting fetch responses into batches: codecs, markers, aborted transactions, damage."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.kafka import codec as codec_module
from mirrortest.kafka.codec import CODEC_IDS, compressor, decompress
from mirrortest.kafka.fetched import Unreadable, batches
from mirrortest.wire.record_batch import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_APPEND_TIME = 0x08
CONTROL = 0x20
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


def emptied(raw: bytes) -> bytes:
    """The batch as compaction keeps it, without records."""
    left = bytearray(raw[:61])
    struct.pack_into(">i", left, 8, 49)
    struct.pack_into(">i", left, 57, 0)
    left[17:21] = crc32c.crc32c(bytes(left[21:])).to_bytes(4, "big")
    return bytes(left)


def marker(base_offset: int, producer: int, kind: int) -> bytes:
    return batch(
        base_offset, producer=producer, attributes=CONTROL, key=struct.pack(">hh", 0, kind)
    )


def offsets(item: Any) -> list[int]:
    return [] if item.buffer is None else decode_records(item.buffer).offsets.tolist()


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
    """Brokers cut the last batch at the size limit; complete ones are delivered."""
    complete = batch(0, 2)
    for length in (0, 5, 11, 60, len(complete) - 1):
        (item,) = cut(complete + batch(2, 2)[:length])
        assert (item.next_offset, item.count) == (2, 2)


def test_batches_below_the_fetch_offset_are_passed_over() -> None:
    """The first one returned has the requested offset, and is complete."""
    (item,) = cut(batch(0, 2) + batch(2, 3), fetch_offset=3)
    assert (offsets(item), item.fetched_from, item.next_offset) == ([2, 3, 4], 3, 5)


def test_gaps_are_passed_with_what_follows_them() -> None:
    """Compaction removed offsets between the requested one and those that still have records."""
    (item,) = cut(batch(3, 1) + batch(7, 1))
    assert (item.fetched_from, offsets(item), item.next_offset) == (0, [3, 7], 8)


def test_what_is_read_as_it_stands_comes_together() -> None:
    """One buffer, not copied; a batch that must be decompressed is returned by itself."""
    uncompressed, packed = batch(0, 2) + batch(2, 3), batch(5, 4, codec=CODEC_IDS["gzip"])
    data = uncompressed + packed + batch(9)
    first, second, third = cut(data)
    assert (bytes(first.buffer), first.buffer.obj) == (uncompressed, data)
    assert [item.count for item in (first, second, third)] == [5, 4, 1]
    assert [item.fetched_from for item in (first, second, third)] == [0, 5, 9]
    assert [item.next_offset for item in (first, second, third)] == [5, 9, 10]


def test_many_records_come_in_portions() -> None:
    """A response may have hundreds of thousands: the caller can stop between portions."""
    found = cut(b"".join(batch(base, 1000) for base in range(0, 20_000, 1000)))
    assert [item.count for item in found] == [8000, 8000, 4000]
    assert [offset for item in found for offset in offsets(item)] == list(range(20_000))


@settings(max_examples=200)
@given(st.data())
def test_together_they_are_what_they_are_one_by_one(data: st.DataObject) -> None:
    """Of any kind, in any order, one perhaps damaged: records, positions, what is left out."""
    at = data.draw(st.integers(0, 3))
    parts: list[tuple[int, bytes]] = []
    for _ in range(data.draw(st.integers(0, 8))):
        count = data.draw(st.integers(1, 3))
        kind = data.draw(
            st.sampled_from(["plain", "plain", "gzip", "empty", "sent", "abort", "commit"])
        )
        producer = data.draw(st.sampled_from([7, 8]))
        if kind in {"abort", "commit"}:
            parts.append((at, marker(at, producer, ABORT if kind == "abort" else COMMIT)))
            count = 1
        elif kind == "empty":
            parts.append((at, emptied(batch(at, count))))
        elif kind == "sent":
            parts.append((at, batch(at, count, producer=producer)))
        else:
            parts.append((at, batch(at, count, codec=CODEC_IDS.get(kind, 0))))
        at += count + data.draw(st.sampled_from([0, 0, 2]))
    if data.draw(st.booleans()):
        hurt = data.draw(st.integers(0, len(parts)))
        for index, (base, raw) in enumerate(parts):
            if index == hurt:
                parts[index] = base, raw[:-1] + bytes([raw[-1] ^ 1])
    fetch_offset = data.draw(st.integers(0, at + 1))
    aborted = data.draw(
        st.none() | st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(0, at)), max_size=2)
    )
    items = cut(b"".join(raw for _, raw in parts), fetch_offset, aborted)
    assert seen(items, fetch_offset) == plainly(parts, fetch_offset, aborted)


def seen(items: list[Any], upto: int) -> tuple[list[int], int, Unreadable | None]:
    """The offsets that are returned, the next offset, and the batch that cannot be read."""
    came: list[int] = []
    for item in items:
        if isinstance(item, Unreadable):
            assert item is items[-1]
            return came, upto, item
        assert item.fetched_from == upto
        assert item.count == len(offsets(item))
        came += offsets(item)
        upto = item.next_offset
    return came, upto, None


def plainly(
    parts: list[tuple[int, bytes]], fetch_offset: int, aborted: list[tuple[int, int]] | None
) -> tuple[list[int], int, Unreadable | None]:
    """The same by definition, batch by batch, as aiokafka reads them."""
    came: list[int] = []
    upto = fetch_offset
    shut_out: set[int] = set()
    left = sorted(aborted or (), key=lambda one: one[1])
    for base, raw in parts:
        opened = DefaultRecordBatch(raw)
        if not opened.validate_crc():
            where = max(base, fetch_offset)
            return came, upto, Unreadable("t", 3, where, "the batch fails its CRC", torn=True)
        if opened.next_offset <= fetch_offset:
            continue
        upto = opened.next_offset
        while left and left[0][1] <= base:
            shut_out.add(left.pop(0)[0])
        if opened.is_control_batch:
            if next(iter(opened)).key == struct.pack(">hh", 0, ABORT):
                shut_out.discard(opened.producer_id)
            continue
        if aborted is not None and opened.is_transactional and opened.producer_id in shut_out:
            continue
        came += [record.offset for record in opened]
    return came, upto, None


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_decompressed(name: str) -> None:
    """The buffer equals that of the uncompressed batch, except for the CRC."""
    codec = CODEC_IDS[name]
    (item,) = cut(batch(5, 20, codec=codec))
    uncompressed = bytearray(batch(5, 20))
    uncompressed[17:21] = item.buffer[17:21]
    assert bytes(item.buffer) == bytes(uncompressed)
    assert offsets(item) == list(range(5, 25))


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_compressed_is_decompressed_to_the_same(name: str) -> None:
    """Decompression by the codec's id reverses its compression."""
    codec, compress = compressor(name) or (0, bytes)
    data = bytes(range(256)) * 300
    assert decompress(codec, compress(data)) == data
    assert len(compress(data)) < len(data)


def test_no_compression_needs_no_compressor() -> None:
    """`none` is no codec."""
    assert compressor("none") is None


def test_a_records_section_that_does_not_decompress_is_passed_over_by_name() -> None:
    """The CRC is right but the codec fails: fetching again is no use, and it ends no consumer.

    Its offsets are one item, with the reason; later batches are returned as usual.
    """
    raw = bytearray(batch(2, 3))
    raw[22] |= CODEC_IDS["zstd"]
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    before, item, behind = cut(batch(0, 2) + bytes(raw) + batch(5, 1))
    assert (item.fetched_from, item.next_offset, item.buffer, item.count) == (2, 5, None, 0)
    assert "a records section is damaged" in item.unread
    assert (before.unread, behind.unread, offsets(behind)) == (None, None, [5])


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Batches of 64 kB at most."""
    monkeypatch.setattr(codec_module, "MAX_DECOMPRESSED_BYTES", 1 << 16)
    codec_module._scratch.cache_clear()
    yield
    codec_module._scratch.cache_clear()


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_what_stands_for_too_much_is_given_up_at_the_limit(name: str) -> None:
    """The limit is exact; data of just that length is read, before and after."""
    codec, compress = compressor(name) or (0, bytes)
    longest = bytes(range(256)) * 256
    assert decompress(codec, compress(longest)) == longest
    with pytest.raises(ValueError, match="more than 128 MiB, decompressed"):
        decompress(codec, compress(longest + b"x"))
    assert decompress(codec, memoryview(compress(b"short"))) == b"short"
    assert decompress(codec, compress(longest)) == longest


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f",  # claims to have 4 GiB
        b"\x82SNAPPY\x00" + bytes(8) + b"\xff\xff\xff\xf0" + b"x" * 20,  # a negative block length
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x00" + b"x" * 20,
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x09" + b"x" * 8,
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x05" + b"\xff\xff\xff\xff\x0f",
        b"",
    ],
)
def test_forged_lengths_of_snappy_are_believed_by_nobody(data: bytes) -> None:
    """Nothing is allocated for them, and no loop runs for ever."""
    with pytest.raises(ValueError, match=r"damaged|more than"):
        decompress(CODEC_IDS["snappy"], data)


_BOMB = """
import resource, sys
import cramjam
from mirrortest.kafka.codec import decompress
made = cramjam.zstd.Compressor()
for _ in range(1024):
    made.compress(bytes(1 << 20))
bomb = bytes(made.finish())
assert len(bomb) < 1 << 16
def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before = resident()
for _ in range(2):
    try:
        decompress(4, bomb)
    except ValueError as error:
        print(error)
sys.exit(resident() - before > 200)
"""


def test_a_gigabyte_in_32_kb_takes_no_more_than_the_limit() -> None:
    """It took 2 GB; under a memory limit, a consumer never got past it."""
    run = subprocess.run([sys.executable, "-c", _BOMB], capture_output=True, text=True, check=True)
    assert run.stdout == "its records are more than 128 MiB, decompressed\n" * 2


def test_an_old_message_format_is_named() -> None:
    """Formats before v2 are refused by name, and not reported as damage."""
    raw = bytearray(batch(4))
    raw[16] = 1
    (item,) = cut(bytes(raw))
    assert isinstance(item, Unreadable)
    assert item.reason.startswith("message format v1")
    assert not item.torn


@pytest.mark.parametrize(
    ("at", "change", "reported"),
    [
        (8, struct.pack(">i", -70), ("the batch is shorter than its header", True)),
        (57, struct.pack(">i", -2), ("a batch of -2 records", False)),
        (16, b"\3", ("batch format 3 is not 2", False)),
    ],
)
def test_a_header_that_is_none_is_named(at: int, change: bytes, reported: tuple[str, bool]) -> None:
    """Batches before it are delivered; if its CRC is right, fetching again is no use."""
    raw = bytearray(batch(4))
    raw[at : at + len(change)] = change
    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    first, second = cut(batch(0, 4) + bytes(raw))
    assert offsets(first) == [0, 1, 2, 3]
    assert (second.offset, second.reason, second.torn) == (4, *reported)


def test_transactions_come_together_where_none_was_aborted() -> None:
    """If a mirror commits all that it copies, reading only committed records costs no more."""
    data = batch(0, 2, producer=7) + batch(2, 2, producer=8)
    assert [item.count for item in cut(data, aborted=[])] == [4]
    assert [item.count for item in cut(data, aborted=[(8, 2)])] == [2, 0]


def test_markers_and_emptied_batches_move_the_position_alone() -> None:
    """They are returned as batches without a buffer, so that reading reaches the end offset."""
    first, second = cut(emptied(batch(0, 2)) + marker(4, 7, COMMIT))
    assert (first.buffer, first.count, first.next_offset) == (None, 0, 2)
    assert (second.buffer, second.count, second.next_offset) == (None, 0, 5)
    # Offsets that compaction removed before the marker are not markers.
    assert (first.markers_from, second.fetched_from, second.markers_from) == (None, 2, 4)


def test_aborted_transactions_are_left_out_where_only_committed_is_read() -> None:
    """From its abort's first offset to its marker, a producer is left out; the others are not."""
    data = (
        batch(0, 2, producer=7)
        + batch(2, 2, producer=8)
        + marker(4, 7, ABORT)
        + batch(5, 1, producer=7)
        + marker(6, 8, COMMIT)
    )
    committed = cut(data, aborted=[(7, 0)])
    assert [offsets(item) for item in committed] == [[], [2, 3], [], [5], []]
    assert [item.next_offset for item in committed] == [2, 4, 5, 6, 7]
    assert [offsets(item) for item in cut(data)] == [[0, 1, 2, 3], [], [5], []]
    assert [item.markers_from for item in committed] == [0, None, 4, None, 6]
    assert [item.markers_from for item in cut(data)] == [None, 4, None, 6]


def test_transactions_are_told_apart_whether_they_were_aborted_or_not() -> None:
    """Transactional batches are joined with each other, but not with the rest."""
    data = b"".join(
        (
            batch(0),
            batch(1),
            batch(2, producer=7),
            batch(3, producer=8),
            marker(4, 7, COMMIT),
            batch(5, producer=7),
            batch(6, codec=1, producer=7),
            batch(7),
        )
    )
    found = [(offsets(item), item.transactional) for item in cut(data)]
    assert [(at, reported) for at, reported in found if at] == [
        ([0, 1], False),
        ([2, 3], True),
        ([5], True),
        ([6], True),
        ([7], False),
    ]


def test_what_a_broker_has_stamped_comes_apart() -> None:
    """The timestamps of such batches are the broker's, whatever else they are."""
    data = b"".join(
        (
            batch(0),
            batch(1, attributes=LOG_APPEND_TIME),
            batch(2, attributes=LOG_APPEND_TIME),
            batch(3, producer=7, attributes=LOG_APPEND_TIME),
            batch(4, codec=1, attributes=LOG_APPEND_TIME),
            batch(5, codec=1),
            batch(6),
        )
    )
    found = [(offsets(item), item.stamped, item.transactional) for item in cut(data)]
    assert found == [
        ([0], False, False),
        ([1, 2], True, False),
        ([3], True, True),
        ([4], True, False),
        ([5], False, False),
        ([6], False, False),
    ]
