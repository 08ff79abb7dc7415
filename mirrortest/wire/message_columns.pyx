# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Messages that are laid out alike, read record by record into columns, compiled.

What a message says, and when it is corrupted, is specified by `message.decode`; this says the same
of records that share a layout (`batch_decoder.Layout`), in one pass over their bytes.
"""

import sys

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from mirrortest.model.findings import Finding
from mirrortest.wire import descriptor, digits, lanes, payload
from mirrortest.wire.message import NS_PER_MS

if sys.byteorder != "little":
    raise ImportError("mirrortest's compiled loops are for little-endian machines")

cdef extern from *:
    const char* SOURCE_DIGEST

SOURCE = SOURCE_DIGEST.decode()
"""SHA-256 of the source that this was compiled of."""

ctypedef const uint8_t* Bytes

cdef uint32_t UNPROVEN = Finding.UNPROVEN
cdef uint32_t CORRUPTED = Finding.CORRUPTED
cdef uint32_t ALTERED_KEY = Finding.ALTERED_KEY
cdef uint32_t ALTERED_TIMESTAMP = Finding.ALTERED_TIMESTAMP
cdef int64_t SEQ_DIGITS, TIME_DIGITS, MS, MAX_LANE, FIRST
cdef uint64_t TIME_LIMIT, ROUND, FINAL, SIZE_BITS
try:
    SEQ_DIGITS, TIME_DIGITS = digits.SEQ_DIGITS, digits.TIME_DIGITS
    TIME_LIMIT, MS = digits.TIME_LIMIT, NS_PER_MS
    ROUND, FINAL, SIZE_BITS = descriptor.ROUND, descriptor.FINAL, descriptor.SIZE_BITS
    FIRST, MAX_LANE = payload.FIRST.number, lanes.MAX_LANE
    TAGS = descriptor.TAGS
    if (descriptor.SIZE, descriptor.DIGEST_SIZE) != (PROOF_SIZE, DIGEST_SIZE):
        raise AttributeError(f"a descriptor of {descriptor.SIZE} bytes")
except AttributeError as error:  # sources that are newer than what is compiled
    raise ImportError(str(error), name=__name__) from error

cdef enum:
    SEMICOLON = 59
    ZERO = 48
    LANE_DIGITS = 10
    PROOF_SIZE = 32
    DIGEST_SIZE = 8
    NO_LANE = -1


cdef uint64_t EACH_BYTE = 0x0101010101010101
cdef uint64_t SEMICOLONS = 0x3B * EACH_BYTE
cdef uint64_t LOW_BITS = 0x7F * EACH_BYTE


cdef struct Message:
    uint64_t seq, intended, place, content, sent, check, digest


def read(records, rows, like, layout, identity, phase_of, block, digests, index, messages):
    """Read those of the records at `rows` that are laid out as one of them.

    Of each the columns of `messages` are written at its row, all but its offset.

    Args:
        records: `RecordArrays`.
        rows: their rows, int64.
        like: the row of that one.
        layout: its `Layout`.
        identity: the hash of topic and producer's id, where the mix of check values starts.
        phase_of: tells of a lane where in the block its fill starts.
        block: the block of the layout's generator, a period and as much as the longest fill
            needs; a message that needs more is left, as is one of another generator.
        digests: of each record's value, uint64, where the layout's messages are `payload.OWN`.
        index: the id's place in the table of ids.
        messages: `MessageArrays`.

    Returns:
        The rows of the others.

    Raises:
        IndexError: something lies outside the bytes or the columns.
    """
    cdef const uint8_t[::1] buffer = records.buffer
    cdef const int64_t[::1] wanted = rows
    cdef const int64_t[::1] timestamps = records.timestamps
    cdef const int64_t[::1] key_start = records.key_start
    cdef const int64_t[::1] key_len = records.key_len
    cdef const int64_t[::1] value_start = records.value_start
    cdef const int64_t[::1] value_len = records.value_len
    cdef const int64_t[::1] headers_start = records.headers_start
    cdef const int64_t[::1] headers_len = records.headers_len
    cdef int32_t[::1] to_index = messages.id_index
    cdef int64_t[::1] to_lane = messages.lane
    cdef int64_t[::1] to_seq = messages.seq
    cdef int64_t[::1] to_intended = messages.intended_ns
    cdef int64_t[::1] to_sent = messages.sent_ns
    cdef int32_t[::1] to_source = messages.source_partition
    cdef int32_t[::1] to_destination = messages.destination_partitions
    cdef uint32_t[::1] to_findings = messages.findings
    cdef const int64_t[:, ::1] constants = np.array(layout.constants, np.int64).reshape(-1, 2)
    cdef const uint8_t[::1] fills = block
    cdef bint in_headers = layout.in_headers
    cdef bint proven = layout.generator is not None
    cdef uint64_t tag = TAGS[layout.generator.number] if proven else 0
    cdef bint first_kind = proven and layout.generator.number == FIRST
    cdef int64_t period = layout.generator.period if proven else 0
    cdef bint own = proven and not period
    cdef const uint64_t[::1] found_digests = digests
    cdef int64_t proof_size = PROOF_SIZE + (DIGEST_SIZE if own else 0)
    cdef uint64_t step = layout.generator.step if proven else 0
    cdef int64_t opening = layout.opening
    cdef int64_t seq_at = layout.seq_at
    cdef int64_t time_at = layout.time_at
    cdef int64_t proof_at = layout.proof_at if proven else 0
    cdef int64_t fill_at = layout.fill_at
    cdef uint32_t altered = layout.altered
    cdef int32_t at_index = index
    cdef uint64_t hashed = identity
    cdef int64_t first = like
    cdef int64_t count = timestamps.shape[0]
    cdef int64_t size = buffer.shape[0]
    if (
        min(key_start.shape[0], key_len.shape[0], value_start.shape[0], value_len.shape[0]) < count
        or min(headers_start.shape[0], headers_len.shape[0], to_index.shape[0]) < count
        or min(to_lane.shape[0], to_seq.shape[0], to_intended.shape[0], to_sent.shape[0]) < count
        or min(to_source.shape[0], to_destination.shape[0], to_findings.shape[0]) < count
        or not 0 <= first < count
        or (own and (found_digests is None or found_digests.shape[0] < count))
    ):
        raise IndexError("columns of unequal lengths, or no such record")

    # All that is looked at lies in the first `least` bytes of a value or of the headers.
    cdef int64_t span = headers_len[first]
    cdef int64_t least = span if in_headers else fill_at
    cdef int64_t longest = size if own else fills.shape[0] - period
    cdef int64_t each
    if (
        not _inside(0, opening, fill_at)
        or (in_headers and fill_at)
        or not _inside(seq_at, SEQ_DIGITS + (not in_headers), least)
        or not _inside(time_at, TIME_DIGITS + (not in_headers), least)
        or (proven and not _inside(proof_at, proof_size, least))
        or not _inside(headers_start[first], span, size)
        or not _inside(value_start[first], fill_at, size)
    ):
        raise IndexError("the layout lies outside its record")
    for each in range(constants.shape[0]):
        if not _inside(constants[each, 0], constants[each, 1], span):
            raise IndexError("the layout lies outside its record")

    cdef Bytes data = &buffer[0]
    cdef Bytes first_value = data + value_start[first]
    cdef Bytes first_headers = data + headers_start[first]
    cdef int64_t at, row, length, lane, known_lane = NO_LANE, key_lane, start, fill, zeros
    cdef uint64_t phase = 0
    cdef uint64_t size_mask = 0xFFFFFFFF if first_kind else (<uint64_t>1 << SIZE_BITS) - 1
    cdef uint64_t mask
    cdef int64_t left = 0
    cdef int64_t[::1] rest
    cdef Bytes value
    cdef Bytes headers
    cdef Bytes text
    cdef Message message
    cdef uint64_t check
    cdef uint32_t findings
    cdef bint alike, sound
    phases = {}
    others = None
    for at in range(wanted.shape[0]):
        row = wanted[at]
        if not 0 <= row < count:
            raise IndexError("a row lies outside the columns")
        length = value_len[row]
        if (
            not _inside(value_start[row], max(length, 0), size)
            or not _inside(headers_start[row], headers_len[row], size)
            or not _inside(key_start[row], max(key_len[row], 0), size)
        ):
            raise IndexError("a record lies outside the bytes")
        value, headers = data + value_start[row], data + headers_start[row]
        alike = headers_len[row] == span and (
            in_headers or (length >= fill_at if proven else length == fill_at)
        )
        alike = alike and length - fill_at <= longest
        if alike and opening:
            alike = not memcmp(value, first_value, opening)
        for each in range(constants.shape[0]):
            if not alike:
                break
            alike = not memcmp(
                headers + constants[each, 0], first_headers + constants[each, 0], constants[each, 1]
            )
        text = headers if in_headers else value
        if alike and proven:
            memcpy(&message.place, text + proof_at, proof_size)
            alike = (message.place & 0xFFFF) == tag
        if not alike:
            if others is None:
                others = np.empty(wanted.shape[0] - at, np.int64)
                rest = others
            rest[left] = row
            left += 1
            continue

        sound = _number(text + seq_at, SEQ_DIGITS, &message.seq)
        sound &= _number(text + time_at, TIME_DIGITS, &message.intended)
        sound &= message.intended < TIME_LIMIT
        if not in_headers:
            sound &= text[seq_at + SEQ_DIGITS] == SEMICOLON
            sound &= text[time_at + TIME_DIGITS] == SEMICOLON
        key_lane = _lane(data + key_start[row], key_len[row])
        if proven:
            if not first_kind:
                mask = (message.content >> 56) * EACH_BYTE
                message.place ^= mask & ~<uint64_t>0xFFFF
                message.content ^= mask
                message.sent ^= mask
            check = _check(hashed, &message, own)
            sound &= (check if first_kind else _without_semicolons(check)) == message.check
            lane = <int64_t>(message.place >> 32)
        else:
            lane = key_lane
            sound &= lane != NO_LANE
        if not sound:
            to_findings[row] = CORRUPTED
            continue

        findings = altered
        if proven:
            fill = length - fill_at
            if length != <int64_t>(message.content & size_mask):
                findings |= CORRUPTED
            elif own:
                if found_digests[row] != message.digest:
                    findings |= CORRUPTED
            elif fill > 0:
                if lane != known_lane:
                    if lane not in phases:
                        phases[lane] = phase_of(lane)
                    known_lane, phase = lane, phases[lane]
                zeros = 0 if first_kind else _zeros(message.content, fill)
                start = <int64_t>((message.seq * (step or <uint64_t>length | 1) + phase) & <uint64_t>(period - 1))
                if not _inside(start, fill, fills.shape[0]):
                    raise IndexError("the block is too short")
                if memcmp(value + fill_at, &fills[start], fill - zeros) or (
                    zeros and not _all_zero(value + length - zeros, zeros)
                ):
                    findings |= CORRUPTED
            if lane != key_lane:
                findings |= ALTERED_KEY
            if timestamps[row] != _floored(<int64_t>message.sent, MS):
                findings |= ALTERED_TIMESTAMP
            to_sent[row] = <int64_t>message.sent
            to_source[row] = (message.place >> 16) & 0xFFFF
            to_destination[row] = (message.content >> 32) & 0xFFFF
        else:
            findings |= UNPROVEN
        to_index[row] = at_index
        to_lane[row] = lane
        to_seq[row] = <int64_t>message.seq
        to_intended[row] = <int64_t>message.intended
        to_findings[row] = findings
    return rows[:0] if others is None else others[:left]


def check_values(
    const uint64_t[::1] states, const uint64_t[::1] intended, const uint64_t[::1] seqs
):
    """The check values of messages (`descriptor.check_value`), whose other words `states` have mixed.

    One state is that of all. Raises ValueError where there is not one seq for each intended time.
    """
    cdef int64_t row
    cdef int64_t count = intended.shape[0]
    cdef bint alike = states.shape[0] == 1
    values = np.empty(count, np.uint64)
    cdef uint64_t[::1] to = values
    if seqs.shape[0] != count or (states.shape[0] != count and not alike):
        raise ValueError("each message has one time and one seq")
    for row in range(count):
        to[row] = _without_semicolons(
            _finished(states[0] if alike else states[row], intended[row], seqs[row])
        )
    return values


cdef inline bint _inside(int64_t start, int64_t length, int64_t size) noexcept nogil:
    """Whether a stretch lies in so many bytes."""
    return 0 <= start <= size and 0 <= length <= size - start


cdef inline int64_t _zeros(uint64_t content, int64_t fill) noexcept nogil:
    """How much of a fill is zeros (`payload.zeros`), by the compressibility in the descriptor."""
    cdef int64_t compressibility = <uint32_t>content >> SIZE_BITS
    return min(fill, (fill * compressibility * 101 + 5000) // 10_000)


cdef inline int64_t _floored(int64_t number, int64_t by) noexcept nogil:
    """The quotient, rounded down."""
    return number // by - (number % by < 0)


cdef inline uint64_t _check(uint64_t state, Message* message, bint own) noexcept nogil:
    """The check value that belongs to the message (`descriptor.mix` and `finish`)."""
    state = _mixed(state, message.place)
    state = _mixed(state, message.content)
    state = _mixed(state, message.sent)
    if own:
        state = _mixed(state, message.digest)
    return _finished(state, message.intended, message.seq)


cdef inline uint64_t _finished(uint64_t state, uint64_t intended, uint64_t seq) noexcept nogil:
    """The check value, from the state behind all that a batch's messages have in common."""
    state = _mixed(_mixed(state, intended), seq)
    state = (state ^ state >> 29) * FINAL
    return state ^ state >> 32


cdef inline uint64_t _mixed(uint64_t state, uint64_t word) noexcept nogil:
    state = (state ^ word) * ROUND
    return state ^ state >> 32


cdef inline uint64_t _without_semicolons(uint64_t word) noexcept nogil:
    """The word with `:`, which differs in the lowest bit, for each byte that is `;`."""
    cdef uint64_t others = word ^ SEMICOLONS
    others |= (others & LOW_BITS) + LOW_BITS  # a byte's high bit, wherever it is another one
    return word ^ (~others & ~LOW_BITS) >> 7


cdef inline bint _all_zero(Bytes data, int64_t count) noexcept nogil:
    """Whether at least one byte are all 0: the first is, and each one's next is the same."""
    return not data[0] and not memcmp(data, data + 1, count - 1)


cdef inline int64_t _lane(Bytes key, int64_t length) noexcept nogil:
    """The lane whose key this is (`lanes.parse_lane`); NO_LANE where none has it."""
    cdef uint64_t number
    if not 1 <= length <= LANE_DIGITS or (key[0] == ZERO and length > 1):
        return NO_LANE
    if not _number(key, length, &number) or <int64_t>number > MAX_LANE:
        return NO_LANE
    return <int64_t>number


cdef inline bint _number(Bytes text, int64_t width, uint64_t* number) noexcept nogil:
    """Read a decimal of at most 19 digits; whether all of them were digits."""
    cdef int64_t place = 0
    cdef uint64_t digit
    cdef bint sound = True
    number[0] = 0
    while place + 8 <= width:
        sound &= _eight_digits(text + place, number)
        place += 8
    while place < width:
        digit = <uint64_t>text[place] - ZERO  # wraps: what is below is no digit either
        sound &= digit < 10
        number[0] = number[0] * 10 + digit
        place += 1
    return sound


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
