"""The compiled loops over records equal a simple reader, and trust no position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire import kernels
from mirrortest.wire.batch_header import HEADER, HEADER_SIZE, LENGTH_FROM, MAGIC
from mirrortest.wire.payload import zeros
from mirrortest.wire.varint import MalformedBatchError, read_varint, varint

RAW = st.binary(min_size=1, max_size=120)


def positions(starts: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(starts, np.int64)


def walked(raw: bytes, count: int) -> list[tuple[int, ...]]:
    """The definition: read field by field with `read_varint`, each within its record."""
    found, at = [], 0
    for _ in range(count):
        length, start = read_varint(raw, at)
        if length < 1 or start + length > len(raw):
            raise MalformedBatchError("record")
        end = at = start + length
        body = raw[:end]
        timestamp, place = read_varint(body, start + 1)
        offset, place = read_varint(body, place)
        spans = []
        for _ in range(2):
            size, place = read_varint(body, place)
            if size > end - place:
                raise MalformedBatchError("field")
            spans += [place, max(size, -1)]
            place += max(size, 0)
        if place >= end:
            raise MalformedBatchError("headers")
        found.append((timestamp, offset, *spans, place, end - place))
    if at != len(raw):
        raise MalformedBatchError("rest")
    return found


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FIELD = st.none() | st.binary(max_size=20)
RECORD = st.tuples(INT64, INT64, FIELD, FIELD)


def built(records: list[tuple[int, int, bytes | None, bytes | None]]) -> bytes:
    """A section of these records: timestamp delta, offset delta, key, value."""
    section = b""
    for timestamp, offset, *fields in records:
        body = b"\0" + varint(timestamp) + varint(offset)
        for field in fields:
            body += varint(-1) if field is None else varint(len(field)) + field
        body += varint(0)
        section += varint(len(body)) + body
    return section


def in_a_batch(
    section: bytes, count: int, base: int, first_ms: int, max_ms: int, bits: int
) -> bytes:
    """A batch of this section, with these values in its header."""
    header = HEADER.pack(
        base, HEADER_SIZE - LENGTH_FROM + len(section), 5, MAGIC, 6, bits, 7, first_ms, max_ms,
        8, 9, 10, count,
    )  # fmt: skip
    return header + section


def wrapped(number: int) -> int:
    """The number, wrapped to 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@given(
    st.lists(
        st.lists(st.tuples(st.lists(RECORD, max_size=4), INT64, INT64, INT64, st.booleans())),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_records_are_found_where_a_plain_walk_finds_them(
    stretches: list[list[tuple[list[Any], int, int, int, bool]]], data: st.DataObject
) -> None:
    """Several stretches, damaged or not, with any bytes between, give equal fields or an error."""
    raw, begins, ends, expected = bytearray(), [], [], []
    broken = not all(stretches)  # a stretch without a batch
    for batches in stretches:
        raw += data.draw(st.binary(max_size=3))
        begins.append(len(raw))
        for records, base, first_ms, max_ms, by_broker in batches:
            section = bytearray(built(records))
            for _ in range(data.draw(st.integers(0, 2)) if section else 0):
                section[data.draw(st.integers(0, len(section) - 1))] = data.draw(
                    st.integers(0, 255)
                )
            count = len(records) + data.draw(st.sampled_from([0, 0, 0, 0, 1]))
            raw += in_a_batch(bytes(section), count, base, first_ms, max_ms, 0x08 * by_broker)
            begin = len(raw) - len(section)
            try:
                found = walked(bytes(section), count)
            except MalformedBatchError:
                broken = True
                continue
            for stamp, offset, key, key_len, value, value_len, names, names_len in found:
                expected.append(
                    (
                        wrapped(base + offset),
                        max_ms if by_broker else wrapped(first_ms + stamp),
                        *(key + begin, key_len, value + begin, value_len),
                        *(names + begin, names_len),
                    )
                )
        ends.append(len(raw))
    if broken:
        with pytest.raises(MalformedBatchError):
            kernels.walk(bytes(raw), positions(begins), positions(ends))
        return
    rows = kernels.walk(bytes(raw), positions(begins), positions(ends))
    assert [tuple(row) for row in rows.T.tolist()] == expected


@given(st.lists(st.tuples(st.binary(max_size=9), INT64, st.integers(0, 1 << 31)), max_size=5))
def test_headers_are_read_as_far_as_whole_batches_stand(
    batches: list[tuple[bytes, int, int]],
) -> None:
    """Each batch has its position; the list ends before anything that is not a complete batch."""
    raw, expected = b"", []
    for section, base, count in batches:
        at = len(raw)
        raw += in_a_batch(section, count % (1 << 31), base, 1, 2, 0x2B)
        expected.append((at, len(raw), base, 7, 0x2B, 6, 8, count % (1 << 31)))
    other = bytearray(in_a_batch(b"abc", 1, 2, 3, 4, 0))
    assert kernels.headers(raw + other)[len(batches) :] == [
        (len(raw), len(raw) + 64, 2, 7, 0, 6, 8, 1)
    ]
    for what in (b"", bytes(other[:60]), bytes(other[:63])):
        assert kernels.headers(raw + what) == expected
    for place, byte in ((16, 1), (16, 3), (8, 0x7F), (8, 0xFF), (11, 48), (57, 0x80)):
        hurt = bytearray(other)
        hurt[place] = byte
        assert kernels.headers(raw + hurt) == expected
        with pytest.raises(MalformedBatchError):
            kernels.walk(hurt, positions([0]), positions([len(hurt)]))


@pytest.mark.parametrize(("begin", "end"), [(-1, 3), (0, 4), (2, 1), (1, -(1 << 63))])
def test_a_stretch_outside_the_bytes_is_refused(begin: int, end: int) -> None:
    """The error is raised before anything is read."""
    with pytest.raises(ValueError, match="outside"):
        kernels.walk(b"abc", positions([begin]), positions([end]))


def test_what_no_batch_can_hold_is_refused() -> None:
    """It is refused before memory is allocated; so are batches that are still compressed."""
    for count, bits, why in ((1 << 30, 0, "cannot hold"), (-1, 0, "-1 records"), (1, 3, "still")):
        raw = in_a_batch(b"abc", count, 0, 0, 0, bits)
        with pytest.raises(MalformedBatchError, match=why):
            kernels.walk(raw, positions([0]), positions([len(raw)]))
    for raw in (b"", b"abc"):
        with pytest.raises(MalformedBatchError, match="no header"):
            kernels.walk(raw, positions([0]), positions([len(raw)]))


@given(RAW, st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=9))
def test_parts_are_found_where_they_begin(raw: bytes, cuts: list[tuple[int, int]]) -> None:
    """They are found by address: equal bytes elsewhere are not a part."""
    parts = [memoryview(raw)[lo:hi] for lo, hi in cuts if lo < min(hi, len(raw))]
    begins = [lo for lo, hi in cuts if lo < min(hi, len(raw))]
    assert kernels.places(raw, parts).tolist() == begins
    assert kernels.places(raw, [memoryview(b"")]).tolist() == [0]
    for memory in (memoryview(raw)[1:], memoryview(b"")):
        with pytest.raises(IndexError):
            kernels.places(memory, [memoryview(raw)[:1]])


NUMBERS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 24), st.integers(0, (1 << 64) - 1)), max_size=3
)


@given(
    st.integers(0, 5),
    st.binary(max_size=3),
    st.binary(max_size=12),
    st.binary(max_size=12),
    st.integers(0, 40) | st.lists(st.sampled_from([0, 3, 11, 40, 63, 64]), min_size=1, max_size=99),
    st.integers(1, 70),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 100),
    NUMBERS,
)
def test_records_are_written_as_by_hand(
    header_size: int,
    key: bytes,
    head: bytes,
    after: bytes,
    sizes: int | list[int],
    count: int,
    start: int,
    step: int,
    compressibility: int,
    numbers: list[tuple[int, int, int]],
) -> None:
    """A value is head, part of the block and zeros, or a cut head; then numbers overwrite it."""
    period, block = 7, bytes(range(7)) * 11
    each = sizes if isinstance(sizes, list) else [sizes]
    count = len(each) if isinstance(sizes, list) else count
    columns = [
        (at, digits, np.array([(n + i) % (1 << 64) for i in range(count)], np.uint64))
        for at, digits, n in numbers
    ]

    def written() -> memoryview:
        return kernels.encode_records(
            header_size, key, head, after, np.array(each), count, columns,
            block, positions([start]), step, period, compressibility,
        )  # fmt: skip

    ends = [(at, at + (digits or 8)) for at, digits, _ in numbers]
    if any(hi > len(head) + len(after) or lo < len(head) < hi for lo, hi in ends):
        with pytest.raises(IndexError):
            written()
        return
    want = b""
    for i in range(count):
        size = each[i % len(each)]
        value, rest = bytearray(head[:size]), bytearray(after)
        for (lo, hi), (_, digits, column) in zip(ends, columns, strict=True):
            number = int(column[i])
            text = b"%0*d" % (digits, number) if digits else number.to_bytes(8, "little")
            if lo >= len(head):
                rest[lo - len(head) : hi - len(head)] = text[lo - hi :]
            elif hi <= len(value):
                value[lo:hi] = text[lo - hi :]
        first = (start + i * step) % period
        filled = size - len(value)
        run = zeros(filled, compressibility)
        value += block[first : first + filled - run] + bytes(run)
        body = bytes(2) + varint(i) + key + varint(size) + value + rest
        want += varint(len(body)) + body
    assert written()[header_size:] == want


LARGE = (1 << 63) - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"header_size": -1},
        {"header_size": LARGE},
        {"sizes": np.array([-1])},
        {"sizes": np.array([LARGE])},
        {"sizes": np.array([1 << 28] * 3)},
        {"sizes": np.array([9])},
        {"sizes": np.array([4, 4, 9])},
        {"sizes": np.array([4, -1, 4])},
        {"sizes": np.array([4, 4])},
        {"sizes": np.array([4] * 4)},
        {"sizes": np.array([], np.int64)},
        {"count": 0},
        {"count": -1},
        {"count": 4},
        {"count": LARGE},
        {"starts": positions([3])},
        {"starts": positions([-1])},
        {"starts": positions([LARGE])},
        {"starts": positions([])},
        {"starts": positions([0, 1, 2])},
        {"starts": positions([0, 1]), "period": 0},
        {"starts": positions([0, 1, 4]), "period": 0},
        {"starts": positions([0, -1, 1]), "period": 0},
        {"starts": positions([0, LARGE, 1]), "period": 0},
        {"starts": positions([0, 0, 0]), "period": 0, "sizes": np.array([4, 4, 8])},
        {"step": 3},
        {"step": -1},
        {"step": LARGE},
        {"period": 0},
        {"period": 5},
        {"period": -1},
        {"period": LARGE},
        {"compressibility": -1},
        {"compressibility": 101},
        {"columns": [(0, 0, np.zeros(3, np.uint64))]},
        {"columns": [(-1, 1, np.zeros(3, np.uint64))]},
        {"columns": [(0, 1, np.zeros(2, np.uint64))]},
        {"columns": [(0, -1, np.zeros(3, np.uint64))]},
        {"columns": [(1, 2, np.zeros(3, np.uint64))]},
        {"columns": [(3, 2, np.zeros(3, np.uint64))]},
        {"columns": [((1 << 31) - 1, 1, np.zeros(3, np.uint64))]},
        {"columns": [(0, (1 << 31) - 1, np.zeros(3, np.uint64))]},
        {"columns": [(0, 1, np.zeros(3, np.uint64))] * 9},
    ],
    ids=str,
)
def test_nothing_is_written_outside(wrong: dict[str, object]) -> None:
    """Each argument is checked by itself."""
    right: dict[str, object] = {
        "header_size": 2, "key": b"k", "head": b"ab", "after": b"cd", "sizes": np.array([4]),
        "count": 3, "columns": [(0, 1, np.zeros(3, np.uint64))], "block": b"01201",
        "starts": positions([0]), "step": 1, "period": 3, "compressibility": 50,
    }  # fmt: skip
    assert len(kernels.encode_records(*right.values())) == 2 + 3 * 12  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        kernels.encode_records(*(right | wrong).values())  # type: ignore[arg-type]


def test_columns_of_other_lengths_are_refused() -> None:
    """Each stretch has a beginning and an end."""
    with pytest.raises(ValueError, match="stretch"):
        kernels.walk(b"abc", positions([0, 1]), positions([0]))
