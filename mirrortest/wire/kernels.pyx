# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The loops over single records, compiled; what they mean is written where they are called.

`data` and the like are any contiguous bytes. No function trusts a position: whatever lies outside
the bytes is an error, never a read.
"""

import sys

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

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
    MOST_RECORDS = 1 << 27
    MOST_BYTES = 1 << 30
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


# -- writing --------------------------------------------------------------------------------------


def encode_records(
    int64_t header_size,
    const uint8_t[::1] key,
    const uint8_t[::1] head,
    const uint8_t[::1] after,
    const int64_t[::1] sizes,
    int64_t count,
    list columns,
    const uint8_t[::1] block,
    const int64_t[::1] starts,
    int64_t step,
    int64_t period,
    int64_t compressibility,
):
    """A buffer of `count` records, one behind the other, after `header_size` bytes for a header.

    A record's index is its offset delta, and its timestamp delta is 0. `key` is the key with its
    length, `after` the header section. `sizes` has the bytes of each value, or one number for all.
    A value begins with `head`. The rest of it is the part of `block` from its place in `starts` on;
    with a `period` there is one place, and each later record's is `step` bytes further on, modulo
    `period`. Then there are `payload.zeros`. A smaller value has the beginning of `head` alone.
    Of each column (offset in `head` and `after`, digits, values) the element at the record's index
    is written there: so many ASCII digits, or with 0 digits a little-endian 64-bit word; not where
    it is beyond the end of a smaller value.

    Raises:
        IndexError: something lies outside the bytes, or a column ends before the records.
    """
    cdef int64_t head_size = head.shape[0]
    cdef int64_t least = 0
    cdef int64_t most = 0
    cdef int64_t index
    cdef int at[MOST_NUMBERS]
    cdef int digits[MOST_NUMBERS]
    cdef int places[MOST_NUMBERS]
    cdef const uint64_t* values[MOST_NUMBERS]
    cdef const uint64_t[::1] column
    cdef int filled = len(columns)
    cdef int each, width
    cdef bint alike = sizes.shape[0] == 1
    cdef int64_t size
    if sizes.shape[0]:
        least = most = sizes[0]
    for index in range(1, sizes.shape[0]):
        least, most = min(least, sizes[index]), max(most, sizes[index])
    if (
        min(least, header_size) < 0
        or not 1 <= count <= MOST_RECORDS
        or (sizes.shape[0] != count and not alike)
        or max(head_size, after.shape[0], key.shape[0]) > MOST_BYTES
        or max(most, header_size) > MOST_BYTES
        or (most > head_size and (
            starts.shape[0] != (1 if period else count)
            or (period and (
                not 0 <= starts[0] < period
                or not 0 <= step < period
                or most - head_size > block.shape[0] - period + 1
            ))
        ))
        or not 0 <= compressibility <= 100
        or filled > MOST_NUMBERS
    ):
        raise IndexError("records lie outside the bytes")
    if most > head_size and not period:
        for index in range(count):
            size = sizes[0] if alike else sizes[index]
            if not 0 <= starts[index] <= block.shape[0] - max(size - head_size, 0):
                raise IndexError("a value's part lies outside the block")
    columns = [tuple(one) for one in columns]  # held: their memory is written from below
    for each in range(filled):
        at[each], digits[each], column = columns[each]
        width = digits[each] or 8
        if (
            column.shape[0] < count
            or min(at[each], digits[each]) < 0
            or width > head_size + after.shape[0] - at[each]
            or at[each] < head_size < at[each] + width
        ):
            raise IndexError("a column lies outside the records")
        values[each] = &column[0]

    # What records of one size and one width of the delta begin with.
    opening_bytes = bytearray(3 * MOST_VARINT + 2 + key.shape[0] + head_size)
    cdef uint8_t[::1] opening_view = opening_bytes
    cdef uint8_t* opening = &opening_view[0]
    cdef int64_t body
    cdef int64_t limit = 0
    cdef int64_t total = header_size
    cdef int64_t length = 0
    cdef int64_t delta_width = 0
    cdef int64_t fixed = key.shape[0] + after.shape[0]
    size = -1
    for index in range(count):
        if index == limit or (not alike and sizes[index] != size):
            if index == limit:
                delta_width += 1
                limit = <int64_t>1 << (7 * delta_width - 1)
            size = sizes[0] if alike else sizes[index]
            body = 2 + delta_width + fixed + _width(size) + size
            length = _width(body) + body
        total += length
    buffer = np.empty(total, np.uint8)  # every byte behind the header is written below
    cdef uint8_t[::1] out = buffer
    cdef uint8_t* to = &out[0] + header_size
    cdef int64_t delta_at = 0
    cdef int64_t opened = 0
    cdef int64_t window = 0
    cdef int64_t zeros = 0
    cdef int64_t start = starts[0] if starts.shape[0] else 0
    cdef int64_t cut, byte
    cdef uint64_t zigzag
    size, limit, delta_width = -1, 0, 0
    for index in range(count):
        if index == limit or (not alike and sizes[index] != size):
            if index == limit:
                delta_width += 1
                limit = <int64_t>1 << (7 * delta_width - 1)
            size = sizes[0] if alike else sizes[index]
            cut = min(size, head_size)
            zeros = min(size - cut, ((size - cut) * compressibility * 101 + 5000) // 10_000)
            window = size - cut - zeros
            opened = _put(opening, 2 + delta_width + fixed + _width(size) + size)
            opening[opened] = opening[opened + 1] = 0  # attributes, and the timestamp's delta
            delta_at = opened + 2
            opened = delta_at + delta_width
            if key.shape[0]:
                memcpy(opening + opened, &key[0], key.shape[0])
            opened += key.shape[0]
            opened += _put(opening + opened, size)
            if cut:
                memcpy(opening + opened, &head[0], cut)
            for each in range(filled):
                if at[each] >= head_size:
                    places[each] = <int>(opened + size + at[each] - head_size)
                elif at[each] + (digits[each] or 8) <= cut:
                    places[each] = <int>(opened + at[each])
                else:
                    places[each] = -1
            opened += cut
        memcpy(to, opening, opened)
        zigzag = <uint64_t>index << 1
        for byte in range(delta_at, delta_at + delta_width - 1):
            to[byte] = (zigzag & 0x7F) | 0x80
            zigzag >>= 7
        to[delta_at + delta_width - 1] = zigzag & 0x7F
        if window:
            memcpy(to + opened, &block[0] + (start if period else starts[index]), window)
        start += step
        if start >= period:
            start -= period
        if zeros:
            memset(to + opened + window, 0, zeros)
        if after.shape[0]:
            memcpy(to + opened + window + zeros, &after[0], after.shape[0])
        for each in range(filled):
            if places[each] < 0:
                continue
            if digits[each]:
                _write_digits(to + places[each], digits[each], values[each][index])
            else:
                memcpy(to + places[each], &values[each][index], 8)
        to += opened + window + zeros + after.shape[0]
    return buffer.data


cdef inline int64_t _width(int64_t number) noexcept nogil:
    """Bytes of the zigzag varint of a number from 0 on."""
    cdef int64_t width = 1
    number >>= 6
    while number:
        number >>= 7
        width += 1
    return width


cdef inline int64_t _put(uint8_t* to, int64_t number) noexcept nogil:
    """Write the zigzag varint of a number from 0 on; its bytes."""
    cdef uint64_t rest = <uint64_t>number << 1
    cdef int64_t width = 0
    while rest > 0x7F:
        to[width] = (rest & 0x7F) | 0x80
        rest >>= 7
        width += 1
    to[width] = <uint8_t>rest
    return width + 1


cdef inline void _write_digits(uint8_t* to, int width, uint64_t number) noexcept nogil:
    """Write the lowest `width` decimal digits of a number."""
    cdef uint64_t above, eight
    cdef int place = width
    while place >= 8:
        above = number // 100_000_000
        eight = _eight_digits(number - above * 100_000_000)
        place -= 8
        memcpy(to + place, &eight, 8)
        number = above
    eight = _eight_digits(number % 100_000_000)
    while place:
        place -= 1
        to[place] = <uint8_t>(eight >> 56)
        eight <<= 8


cdef inline uint64_t _eight_digits(uint64_t number) noexcept nogil:
    """A number below 10^8 as eight ASCII digits, the first as the lowest byte.

    Divided by 10,000, its halves by 100 and their halves by 10, each two or four at once: by
    reciprocals that are exact for numbers so small. No digit waits for the one behind it.
    """
    cdef uint64_t tops = number // 10_000
    cdef uint64_t parts = tops | (number - 10_000 * tops) << 32
    tops = (parts * 10_486 >> 20) & <uint64_t>0x7F0000007F
    parts = tops | (parts - 100 * tops) << 16
    tops = (parts * 103 >> 10) & <uint64_t>0x000F000F000F000F
    return (tops | (parts - 10 * tops) << 8) + <uint64_t>0x3030303030303030
