# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The loops over single records, compiled; what they mean is written where they are called.

`data` and the like are any contiguous bytes, `starts` positions in them, one for each record. `kept`
is a column of booleans as bytes: where something does not hold it is set to 0, elsewhere it stays as
it was. No function trusts a position: whatever lies outside the bytes is an answer or an error,
never a read. Lengths of columns that belong together are compared: ValueError.
"""

import sys

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mirrortest.wire.varint import MalformedBatchError

if sys.byteorder != "little":
    raise ImportError("mirrortest's compiled loops are for little-endian machines")

cdef extern from *:
    const char* SOURCE_DIGEST

SOURCE = SOURCE_DIGEST.decode()
"""SHA-256 of the source that this was compiled of."""

ctypedef const uint8_t* Bytes

cdef enum:
    MOST_VARINT = 10
    MOST_NUMBERS = 8
    BEYOND = -1
    TOO_LONG = -2

cdef str _BEHIND = "a number goes beyond the end"
cdef str _WITHIN = "a record ends within its fields"


# -- reading --------------------------------------------------------------------------------------


cdef inline int64_t varint(Bytes data, int64_t at, int64_t end, int64_t* number) noexcept nogil:
    """The position after the zigzag varint at `at`; BEYOND or TOO_LONG where there is none."""
    cdef uint64_t result = 0
    cdef uint64_t byte
    cdef int shift = 0
    while shift < 7 * MOST_VARINT:
        if at >= end:
            return BEYOND
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int64_t>(result >> 1) ^ -<int64_t>(result & 1)
            return at
        shift += 7
    return TOO_LONG


cdef struct Header:
    int64_t size, base_offset, last_delta, first_ms, max_ms, producer_id, records
    uint64_t crc
    int attributes


cdef enum:
    HEADER_SIZE = 61
    LENGTH_FROM = 12
    MAGIC = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08


cdef inline uint64_t _big(Bytes data, int width) noexcept nogil:
    """A big-endian number of so many bytes."""
    cdef uint64_t number = 0
    cdef int byte
    for byte in range(width):
        number = number << 8 | data[byte]
    return number


cdef str _header(Bytes data, int64_t left, Header* header):
    """Read the header of a batch that is whole; None, or why there is none (batch_header)."""
    if left < HEADER_SIZE:
        return f"a batch of {left} bytes has no header"
    header.base_offset = <int64_t>_big(data, 8)
    header.size = <int32_t>_big(data + 8, 4)
    header.size += LENGTH_FROM
    if not HEADER_SIZE <= header.size <= left:
        return f"a batch of {header.size} bytes, where {left} are left"
    if data[16] != MAGIC:
        return f"batch format {data[16]} is not {MAGIC}"
    header.crc = _big(data + 17, 4)
    header.attributes = <int>_big(data + 21, 2)
    header.last_delta = <int32_t>_big(data + 23, 4)
    header.first_ms = <int64_t>_big(data + 27, 8)
    header.max_ms = <int64_t>_big(data + 35, 8)
    header.producer_id = <int64_t>_big(data + 43, 8)
    header.records = <int32_t>_big(data + 57, 4)
    if header.records < 0:
        return f"a batch of {header.records} records"
    return None


def headers(const uint8_t[::1] data):
    """The batches that stand one behind another from the first byte on, each a tuple.

    Its beginning and end, base offset, last offset delta, attributes, CRC, producer's id and count
    of records. They end before what is no whole batch of format v2; no CRC is compared.
    """
    cdef int64_t at = 0
    cdef int64_t size = data.shape[0]
    cdef Header header
    found = []
    while at < size and _header(&data[at], size - at, &header) is None:
        found.append((
            at, at + header.size, header.base_offset, header.last_delta, header.attributes,
            header.crc, header.producer_id, header.records,
        ))
        at += header.size
    return found


def walk(const uint8_t[::1] data, const int64_t[::1] begins, const int64_t[::1] ends):
    """Where the fields of each record stand, of stretches [begin, end) of whole batches.

    An (8, records) array: offset, timestamp in ms (the broker's, where the batch says so), key's
    start and length, value's start and length, the header section's start and length; lengths are
    -1 for null.

    Raises:
        MalformedBatchError: a stretch is no batches one behind another, records are compressed or
            do not fill their batch exactly, or their fields do not fill them.
    """
    cdef int64_t total = 0
    cdef int64_t stretch, at, end, length, number, row = 0
    cdef int64_t size = data.shape[0]
    cdef Header header
    if begins.shape[0] != ends.shape[0]:
        raise ValueError("a stretch has a beginning and an end")
    for stretch in range(begins.shape[0]):
        at, end = begins[stretch], ends[stretch]
        if not 0 <= at <= end <= size:
            raise ValueError("a stretch lies outside the bytes")
        while True:
            why = _header(&data[0] + at if size else NULL, end - at, &header)
            if why is None and header.attributes & CODEC_MASK:
                why = "the records are still compressed"
            elif why is None and header.records > header.size - HEADER_SIZE:
                why = f"{header.size - HEADER_SIZE} bytes cannot hold {header.records} records"
            if why is not None:
                raise MalformedBatchError(why)
            total += header.records
            at += header.size
            if at == end:
                break
    fields = np.empty((8, total), np.int64)
    cdef int64_t[:, ::1] found = fields
    cdef Bytes raw = &data[0] if size else NULL
    cdef int64_t batch, stop
    for stretch in range(begins.shape[0]):
        batch, stop = begins[stretch], ends[stretch]
        while batch < stop:
            _header(raw + batch, stop - batch, &header)
            at, end = batch + HEADER_SIZE, batch + header.size
            for number in range(header.records):
                at = _checked(varint(raw, at, end, &length), _BEHIND)
                if length < 1 or length > end - at:
                    raise MalformedBatchError(
                        f"record {number} of {length} bytes does not fit its batch"
                    )
                at = _record(raw, at, at + length, found, row)
                # Unsigned, since what overflows wraps there.
                found[0, row] = <int64_t>(<uint64_t>found[0, row] + <uint64_t>header.base_offset)
                if header.attributes & LOG_APPEND_TIME:
                    found[1, row] = header.max_ms
                else:
                    found[1, row] = <int64_t>(<uint64_t>found[1, row] + <uint64_t>header.first_ms)
                row += 1
            if at != end:
                raise MalformedBatchError(f"{end - at} bytes after the last record")
            batch = end
    return fields


cdef inline int64_t _record(
    Bytes raw, int64_t at, int64_t end, int64_t[:, ::1] found, int64_t row
) except -1:
    """Note the deltas of the record's body [at, end), and where its fields stand; its end."""
    cdef int64_t length = 0
    cdef int part
    at += 1  # attributes, which mean nothing
    at = _checked(varint(raw, at, end, &found[1, row]), _WITHIN)
    at = _checked(varint(raw, at, end, &found[0, row]), _WITHIN)
    for part in range(2):
        at = _checked(varint(raw, at, end, &length), _WITHIN)
        if length > end - at:
            raise MalformedBatchError("a key or value goes beyond its record")
        found[2 + 2 * part, row] = at
        found[3 + 2 * part, row] = length if length > -1 else -1
        if length > 0:
            at += length
    if at >= end:
        raise MalformedBatchError("a record ends before its headers")
    found[6, row] = at
    found[7, row] = end - at
    return end


cdef inline int64_t _checked(int64_t at, str beyond) except -1:
    """A position that `varint` gave, or the error that it stands for."""
    if at == BEYOND:
        raise MalformedBatchError(beyond)
    if at == TOO_LONG:
        raise MalformedBatchError("a number of more than ten bytes")
    return at


def places(const uint8_t[::1] data, list parts):
    """Where in the bytes each of these parts of them begins.

    Raises:
        IndexError: one is no part of them.
    """
    cdef int64_t index, at
    cdef const uint8_t[::1] part
    column = np.zeros(len(parts), np.int64)
    cdef int64_t[::1] found = column
    for index in range(found.shape[0]):
        part = parts[index]
        if not part.shape[0]:
            continue
        if not data.shape[0]:
            raise IndexError("a part lies outside the bytes")
        at = &part[0] - &data[0]
        if at < 0 or at > data.shape[0] - part.shape[0]:
            raise IndexError("a part lies outside the bytes")
        found[index] = at
    return column


def keep_equal(
    const uint8_t[::1] data,
    const int64_t[::1] starts,
    int64_t offset,
    const uint8_t[::1] expected,
    uint8_t[::1] kept,
):
    """Keep the records where exactly these bytes stand at an offset from their start."""
    cdef int64_t width = expected.shape[0]
    cdef int64_t last = data.shape[0] - width
    cdef int64_t row, at
    _as_long(starts.shape[0], kept.shape[0])
    if not width:
        return
    for row in range(starts.shape[0]):
        at = starts[row] + offset
        if at < 0 or at > last or memcmp(&data[at], &expected[0], width):
            kept[row] = 0


def numbers(
    const uint8_t[::1] data,
    const int64_t[::1] starts,
    int64_t offset,
    int64_t width,
    uint8_t[::1] kept,
):
    """The decimals of `width` ASCII digits, 1 to 19, at an offset; keep the records that have one.

    Elsewhere the number is 0.
    """
    cdef int64_t last = data.shape[0] - width
    cdef int64_t row, at, place
    cdef uint64_t number, digit
    cdef bint sound
    _as_long(starts.shape[0], kept.shape[0])
    if not 1 <= width <= 19:
        raise ValueError(f"a number has 1 to 19 digits, not {width}")
    column = np.zeros(starts.shape[0], np.uint64)
    cdef uint64_t[::1] found = column
    for row in range(starts.shape[0]):
        at = starts[row] + offset
        if at < 0 or at > last:
            kept[row] = 0
            continue
        number = 0
        sound = True
        place = at
        while place + 8 <= at + width:
            sound &= _eight_digits(&data[place], &number)
            place += 8
        while place < at + width:
            digit = <uint64_t>data[place] - 48  # wraps: what is below is no digit either
            sound &= digit < 10
            number = number * 10 + digit
            place += 1
        if sound:
            found[row] = number
        else:
            kept[row] = 0
    return column


cdef inline bint _eight_digits(Bytes text, uint64_t* number) noexcept nogil:
    """Put eight digits behind a number; whether they were digits. The first is the lowest byte."""
    cdef uint64_t word
    memcpy(&word, text, 8)
    # 0x30..0x39 keep their high nibble when six is added; a carry needs a byte that fails anyway.
    cdef bint sound = (
        (word & 0xF0F0F0F0F0F0F0F0ULL) == 0x3030303030303030ULL
        and ((word + 0x0606060606060606ULL) & 0xF0F0F0F0F0F0F0F0ULL) == 0x3030303030303030ULL
    )
    word = ((word - 0x3030303030303030ULL) * 2561ULL) >> 8
    word = ((word & 0x00FF00FF00FF00FFULL) * 6553601ULL) >> 16
    word = ((word & 0x0000FFFF0000FFFFULL) * 42949672960001ULL) >> 32
    number[0] = number[0] * 100000000ULL + word
    return sound


def words(
    const uint8_t[::1] data, const int64_t[::1] starts, int64_t offset, int64_t count
):
    """The little-endian 64-bit words at an offset and behind it: (count, records).

    Raises:
        IndexError: a word lies outside the bytes.
    """
    cdef int64_t last = data.shape[0] - 8 * count
    cdef int64_t row, word, at
    columns = np.empty((count, starts.shape[0]), np.dtype("<u8"))
    cdef uint64_t[:, ::1] found = columns
    for row in range(starts.shape[0]):
        at = starts[row] + offset
        if at < 0 or at > last:
            raise IndexError("a word lies outside the bytes")
        for word in range(count):
            memcpy(&found[word, row], &data[at + 8 * word], 8)
    return columns


def differing(
    const uint8_t[::1] data,
    const int64_t[::1] starts,
    const uint8_t[::1] expected,
    const int64_t[::1] expected_starts,
    int64_t size,
):
    """Where the `size` bytes from a start on are not those at its place in `expected`.

    Raises:
        IndexError: a stretch lies outside the bytes.
    """
    cdef int64_t last = data.shape[0] - size
    cdef int64_t last_expected = expected.shape[0] - size
    cdef int64_t row, at, other
    _as_long(starts.shape[0], expected_starts.shape[0])
    column = np.zeros(starts.shape[0], np.bool_)
    cdef uint8_t[::1] found = column.view(np.uint8)
    if size <= 0:
        return column
    for row in range(starts.shape[0]):
        at, other = starts[row], expected_starts[row]
        if at < 0 or at > last or other < 0 or other > last_expected:
            raise IndexError("a stretch lies outside the bytes")
        found[row] = memcmp(&data[at], &expected[other], size) != 0
    return column


# -- writing --------------------------------------------------------------------------------------


def write_records(
    uint8_t[::1] out,
    int64_t position,
    int64_t first,
    int64_t count,
    const uint8_t[::1] row,
    int64_t delta_at,
    int64_t delta_width,
    int64_t window_at,
    const uint8_t[::1] block,
    int64_t window_start,
    int64_t window_size,
    list columns,
):
    """Write records `first`, `first` + 1, ..., one behind the other, from `position` on.

    Each is `row` with a window of `block` put in at `window_at`, which slides on by a byte a
    record; the record's index as a zigzag varint of `delta_width` bytes at `delta_at`, before the
    window; and then of each column (offset in the record, digits, values) its element at the
    record's index: so many ASCII digits, or with 0 digits a little-endian 64-bit word.

    Raises:
        IndexError: something lies outside the bytes, or a column ends before the records.
    """
    cdef int64_t length = row.shape[0]
    cdef int64_t stride
    cdef int64_t index, place, byte
    cdef uint64_t zigzag
    cdef uint8_t* to
    cdef int at[MOST_NUMBERS]
    cdef int digits[MOST_NUMBERS]
    cdef const uint64_t* values[MOST_NUMBERS]
    cdef const uint64_t[::1] column
    cdef int filled = len(columns)
    cdef int each
    stride = length + min(window_size, block.shape[0])  # beyond that it is refused
    if (
        min(position, first, count, delta_at, window_at, window_start, window_size) < 0
        or position > out.shape[0]
        or window_size > block.shape[0]
        or (stride and count > (out.shape[0] - position) // stride)
        or window_at > length
        or delta_width < 1
        or delta_width > window_at - delta_at
        or (window_size and window_start > block.shape[0] - window_size - count + 1)
        or filled > MOST_NUMBERS
    ):
        raise IndexError("records lie outside the bytes")
    columns = [tuple(one) for one in columns]  # held: their memory is written from below
    for each in range(filled):
        at[each], digits[each], column = columns[each]
        if (
            column.shape[0] < count
            or first > column.shape[0] - count
            or min(at[each], digits[each]) < 0
            or at[each] + (digits[each] or 8) > stride
        ):
            raise IndexError("a column lies outside the records")
        values[each] = &column[0] if column.shape[0] else NULL
    if not count or not length:
        return
    to = &out[0] + position
    for index in range(first, first + count):
        memcpy(to, &row[0], window_at)
        if window_size:
            memcpy(to + window_at, &block[0] + window_start, window_size)
            window_start += 1
        if length > window_at:
            memcpy(to + window_at + window_size, &row[0] + window_at, length - window_at)
        zigzag = <uint64_t>index << 1
        for byte in range(delta_at, delta_at + delta_width - 1):
            to[byte] = (zigzag & 0x7F) | 0x80
            zigzag >>= 7
        to[delta_at + delta_width - 1] = zigzag & 0x7F
        for each in range(filled):
            if digits[each]:
                _write_digits(to + at[each], digits[each], values[each][index])
            else:
                memcpy(to + at[each], &values[each][index], 8)
        to += stride


cdef inline void _write_digits(uint8_t* to, int width, uint64_t number) noexcept nogil:
    cdef int place = width
    cdef uint64_t above
    while place:
        place -= 1
        above = number // 10
        to[place] = <uint8_t>(48 + number - 10 * above)
        number = above


cdef _as_long(int64_t one, int64_t other):
    if one != other:
        raise ValueError(f"columns of {one} and {other} records")
