# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Digests of values: XXH64 with seed 0, a public hash that every language has, compiled."""

import sys

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

if sys.byteorder != "little":
    raise ImportError("mirrortest's compiled loops are for little-endian machines")

cdef extern from *:
    const char* SOURCE_DIGEST

SOURCE = SOURCE_DIGEST.decode()
"""SHA-256 of the source that this was compiled of."""

ctypedef const uint8_t* Bytes

cdef uint64_t P1 = 0x9E3779B185EBCA87ULL
cdef uint64_t P2 = 0xC2B2AE3D27D4EB4FULL
cdef uint64_t P3 = 0x165667B19E3779F9ULL
cdef uint64_t P4 = 0x85EBCA77C2B2AE63ULL
cdef uint64_t P5 = 0x27D4EB2F165667C5ULL


def digests(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] lengths):
    """The digest of each stretch of the bytes; one of a length below 0 counts as empty.

    Raises:
        IndexError: one lies outside the bytes, or there are not as many lengths as starts.
    """
    cdef int64_t row, length
    cdef int64_t count = starts.shape[0]
    cdef int64_t size = data.shape[0]
    cdef uint8_t nothing = 0
    cdef Bytes bytes_ = &data[0] if size else &nothing
    if lengths.shape[0] != count:
        raise IndexError("each stretch has a start and a length")
    found = np.empty(count, np.uint64)
    cdef uint64_t[::1] to = found
    for row in range(count):
        length = max(lengths[row], 0)
        if not (0 <= starts[row] <= size and length <= size - starts[row]):
            raise IndexError("a stretch lies outside the bytes")
        to[row] = _digest(bytes_ + starts[row], length)
    return found


def digest(const uint8_t[::1] data):
    """The digest of these bytes."""
    cdef uint8_t nothing = 0
    return _digest(&data[0] if data.shape[0] else &nothing, data.shape[0])


cdef inline uint64_t _digest(Bytes data, int64_t length) noexcept nogil:
    cdef Bytes end = data + length
    cdef uint64_t word, state = P5
    cdef uint64_t first, second, third, fourth
    cdef uint32_t half
    if length >= 32:
        first, second, third, fourth = P1 + P2, P2, 0, 0 - P1
        while end - data >= 32:
            first = _round(first, _word(data))
            second = _round(second, _word(data + 8))
            third = _round(third, _word(data + 16))
            fourth = _round(fourth, _word(data + 24))
            data += 32
        state = _turned(first, 1) + _turned(second, 7) + _turned(third, 12) + _turned(fourth, 18)
        state = (state ^ _round(0, first)) * P1 + P4
        state = (state ^ _round(0, second)) * P1 + P4
        state = (state ^ _round(0, third)) * P1 + P4
        state = (state ^ _round(0, fourth)) * P1 + P4
    state += <uint64_t>length
    while end - data >= 8:
        state = _turned(state ^ _round(0, _word(data)), 27) * P1 + P4
        data += 8
    if end - data >= 4:
        memcpy(&half, data, 4)
        state = _turned(state ^ half * P1, 23) * P2 + P3
        data += 4
    while data < end:
        state = _turned(state ^ data[0] * P5, 11) * P1
        data += 1
    state = (state ^ state >> 33) * P2
    state = (state ^ state >> 29) * P3
    return state ^ state >> 32


cdef inline uint64_t _word(Bytes data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline uint64_t _round(uint64_t state, uint64_t word) noexcept nogil:
    return _turned(state + word * P2, 31) * P1


cdef inline uint64_t _turned(uint64_t word, int bits) noexcept nogil:
    """Rotated to the left."""
    return word << bits | word >> (64 - bits)
