"""The descriptor: 32 bytes by which a message proves its identity.

Little-endian, as four 64-bit words::

    word 0   version u8 = 0xD1 | generator u8 | source partition u16 | lane u32
    word 1   value size u25, compressibility u7 | destination partitions u16 | topic tag u8
             | mask u8
    word 2   time of the actual send, int64 ns
    word 3   check value u64

The check value mixes the hash of topic and id, words 0 to 2, the intended time, and the seq. Each
round of the mix is a bijection of its word. So changing any single word changes the state, and
other changes go undetected once in 2**64. Constants of a batch come first: messages of one lane
differ in the last two rounds only.

A user's payload (`payload.OWN`) has its digest (`digests`, u64) after the check value, which mixes
it after word 2. Such a descriptor has 40 bytes, and exists in header form only.

No byte of the four words is ``;``, at which the ancestor splits messages. The bytes of words 0 to
2, except version, generator and mask, are XORed with the mask. The mask is the smallest with which
neither these bytes nor the mask itself is ``;``. The check value is computed from the unmasked
words, and has ``:`` in place of each ``;``.

Producers write generators 2 to 4. Generator 1 is only read. Its word 1 is ``value size u32 |
destination partitions u16 | topic tag u16``. It has no mask, and may contain any bytes.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.wire.payload import (
    CURRENT,
    FIRST,
    GENERATORS,
    MAX_SIZE,
    MOST_COMPRESSIBLE,
    OWN,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SIZE = 32
DIGEST_SIZE = 8
VERSION = 0xD1
TAGS = {number: VERSION | number << 8 for number in (*GENERATORS, OWN.number)}
"""Generator -> the low 16 bits of word 0, for every descriptor that this version can read."""
OPENINGS = tuple(tag.to_bytes(2, "little") for tag in TAGS.values())
"""The same as bytes: the first two of such a descriptor."""
SIZE_BITS = 25
"""How many bits of word 1's low half are the value's size; the rest is its compressibility."""

_LAYOUT = struct.Struct("<BBHIIHHqQ")
_WORDS = struct.Struct("<QQQQ")
_MASK_AT = 15
_EACH_BYTE = 0x0101010101010101
_MASKED = (_EACH_BYTE - 0x0101, _EACH_BYTE, _EACH_BYTE)
"""1 in each masked byte of words 0 to 2, and in the byte of the mask, which is 0 before masking."""
_MASK = (1 << 64) - 1
_MASKS = tuple(
    mask * sum(each << 64 * at for at, each in enumerate(_MASKED)) for mask in range(256)
)
"""Each mask over words 0 to 2 as one number; a producer masks once per batch."""
# Odd constants with well spread bits, from the mixers of splitmix64 and xxHash.
ROUND = 0xBF58476D1CE4E5B9
FINAL = 0x9E3779B185EBCA87


class Descriptor(NamedTuple):
    """The fields of a descriptor, without mask and check value."""

    source_partition: int
    lane: int
    value_size: int
    """Bytes of the complete record value."""
    destination_partitions: int
    sent_ns: int
    compressibility: int = 0
    """The percentage of the fill that compresses away (`payload.zeros`)."""
    generator: int = CURRENT.number
    digest: int = 0
    """The digest of the value, if it is a user's payload."""


def size_of(raw: bytes) -> int | None:
    """The size in bytes of the descriptor at the start of `raw`; None if there is none."""
    if not raw.startswith(OPENINGS):
        return None
    return SIZE + DIGEST_SIZE if raw[1] == OWN.number else SIZE


@lru_cache(maxsize=4096)
def identity_hash(topic: str, producer_id: bytes) -> int:
    """The 64-bit hash of source topic name and producer id, which is the mix's first state."""
    name = topic.encode() + b"\0" + producer_id
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


@lru_cache(maxsize=4096)
def topic_tag(topic: str) -> int:
    """A 16-bit hash of the topic's name, by which a person can find a stray message's topic.

    A descriptor contains its low 8 bits, or all 16 with generator 1.
    """
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=2).digest(), "little")


def mix(state: int, words: Sequence[int]) -> int:
    """Mix words (64 bits each) into the state, one round per word."""
    for word in words:
        state = (state ^ word) * ROUND & _MASK
        state ^= state >> 32
    return state


def finish(state: int) -> int:
    """The check value of a state: every bit of it depends on every bit of the state."""
    state = (state ^ state >> 29) * FINAL & _MASK
    return state ^ state >> 32


def mix_arrays(
    state: int | NDArray[np.uint64], words: Sequence[NDArray[np.uint64]]
) -> NDArray[np.uint64]:
    """`mix` of many states at once; a single number is the state of all."""
    mixed: int | np.uint64 | NDArray[np.uint64]
    mixed = np.uint64(state) if isinstance(state, int) else state
    for word in words:
        mixed = (word ^ mixed) * np.uint64(ROUND)
        mixed ^= mixed >> np.uint64(32)
    return np.asarray(mixed)


def finish_arrays(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`finish` of many states at once."""
    state = (state ^ state >> np.uint64(29)) * np.uint64(FINAL)
    return state ^ state >> np.uint64(32)


def constant_words(descriptor: Descriptor, topic: str) -> tuple[int, int, int]:
    """Words 0 to 2, not masked. Raises ValueError if a number is out of its field's range."""
    of_value, tag = descriptor.value_size, topic_tag(topic)
    if (
        not 0 <= of_value <= MAX_SIZE
        or not 0 <= descriptor.compressibility <= MOST_COMPRESSIBLE
        or (descriptor.generator == FIRST.number and descriptor.compressibility)
    ):
        raise ValueError(f"{descriptor} does not fit a message")
    if descriptor.generator != FIRST.number:
        of_value |= descriptor.compressibility << SIZE_BITS
        tag &= 0xFF
    try:
        raw = _LAYOUT.pack(
            VERSION,
            descriptor.generator,
            descriptor.source_partition,
            descriptor.lane,
            of_value,
            descriptor.destination_partitions,
            tag,
            descriptor.sent_ns,
            0,
        )
    except struct.error as error:
        raise ValueError(f"{descriptor} does not fit a message: {error}") from None
    word0, word1, word2, _ = _WORDS.unpack(raw)
    return word0, word1, word2


def masked(words: Sequence[int]) -> tuple[int, int, int]:
    """Words 0 to 2 as they are written: with the smallest mask that leaves no byte `;`."""
    combined = words[0] | words[1] << 64 | words[2] << 128
    for mask in _MASKS:
        written = combined ^ mask
        if b";" not in written.to_bytes(24, "little"):
            return written & _MASK, written >> 64 & _MASK, written >> 128
    raise AssertionError("22 bytes rule out 22 of 256 masks")


def _with_mask(words: Sequence[int], mask: int) -> tuple[int, int, int]:
    word0, word1, word2 = (word ^ mask * each for word, each in zip(words, _MASKED, strict=True))
    return word0, word1, word2


def _has_semicolon(word: int) -> bool:
    return b";" in word.to_bytes(8, "little")


def masked_arrays(
    words: tuple[int, NDArray[np.uint64], int],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """`masked` for many messages at once that differ only in word 1."""
    word0, contents, word2 = words
    masks = np.zeros(len(contents), np.uint64)
    left = np.arange(len(contents))
    for mask in range(256):
        place, pattern, sent = _with_mask((word0, 0, word2), mask)
        if mask == 0x3B or _has_semicolon(place) or _has_semicolon(sent):
            continue
        masks[left] = mask
        left = left[_have_semicolon(contents[left] ^ np.uint64(pattern))]
        if not len(left):
            break
    first, second, third = (masks * np.uint64(each) for each in _MASKED)
    return first ^ np.uint64(word0), second ^ contents, third ^ np.uint64(word2)


def _have_semicolon(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of the words contain a `;`."""
    found: NDArray[np.bool_] = (words[:, None].view(np.uint8) == 0x3B).any(axis=1)
    return found


def sized(word1: int, value_sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Word 1 of messages that have these value sizes and are otherwise alike."""
    return value_sizes.astype(np.uint64) | np.uint64(word1 >> SIZE_BITS << SIZE_BITS)


def check_value(generator: int, state: int) -> int:
    """The check value for the state after all words of a message."""
    check = finish(state)
    if generator == FIRST.number:
        return check
    return int.from_bytes(check.to_bytes(8, "little").replace(b";", b":"), "little")


def pack(
    descriptor: Descriptor, topic: str, producer_id: bytes, intended_ns: int, seq: int
) -> bytes:
    """The descriptor's bytes. Raises ValueError if a number is out of range."""
    words = constant_words(descriptor, topic)
    own = descriptor.generator == OWN.number
    mixed = (*words, descriptor.digest) if own else words
    state = mix(identity_hash(topic, producer_id), (*mixed, intended_ns, seq))
    written = words if descriptor.generator == FIRST.number else masked(words)
    proof = _WORDS.pack(*written, check_value(descriptor.generator, state))
    return proof + descriptor.digest.to_bytes(DIGEST_SIZE, "little") if own else proof


def unpack(
    raw: bytes, topic: str, producer_id: bytes, intended_ns: int, seq: int
) -> Descriptor | None:
    """Read a descriptor; None if it does not prove this topic, id, time and seq."""
    if len(raw) != size_of(raw):
        return None
    *written, check = _WORDS.unpack_from(raw)
    digest = int.from_bytes(raw[SIZE:], "little")
    generator = raw[1]
    words = written if generator == FIRST.number else _with_mask(written, raw[_MASK_AT])
    mixed = (*words, digest) if generator == OWN.number else words
    state = mix(identity_hash(topic, producer_id), (*mixed, intended_ns, seq))
    if check_value(generator, state) != check:
        return None
    _, _, source, lane, of_value, destination, _, sent_ns, _ = _LAYOUT.unpack(
        _WORDS.pack(*words, check)
    )
    if generator == FIRST.number:
        return Descriptor(source, lane, of_value, destination, sent_ns, 0, generator)
    size, compressibility = of_value & (1 << SIZE_BITS) - 1, of_value >> SIZE_BITS
    return Descriptor(source, lane, size, destination, sent_ns, compressibility, generator, digest)
