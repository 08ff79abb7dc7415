"""The descriptor: 32 bytes by which a message proves its own identity.

Little-endian, as four 64-bit words::

    word 0   version u8 = 0xD1 | generator u8 = 1 | source partition u16 | lane u32
    word 1   value size u32 | destination partitions u16 | topic tag u16
    word 2   time of the actual send, int64 ns
    word 3   check value u64

The check value mixes the hash of topic and id, word 0, word 1, word 2, the intended time, and the
seq. Each round of the mix is a bijection of its word, so that a change of any single one is always
found; other changes escape once in 2**64. Constants of a batch come first: the messages of one lane
differ in the last two rounds only.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.wire.payload import GENERATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SIZE = 32
VERSION = 0xD1
TAG = VERSION | GENERATOR << 8
"""The low 16 bits of word 0 in every descriptor that this version can read."""

_LAYOUT = struct.Struct("<BBHIIHHqQ")
_WORDS = struct.Struct("<QQQQ")
_MASK = (1 << 64) - 1
# Odd constants with well spread bits: of splitmix64's and xxHash's mixers.
ROUND = 0xBF58476D1CE4E5B9
FINAL = 0x9E3779B185EBCA87


class Descriptor(NamedTuple):
    """The fields of a descriptor, without the check value."""

    source_partition: int
    lane: int
    value_size: int
    """Bytes of the whole record value."""
    destination_partitions: int
    sent_ns: int


@lru_cache(maxsize=4096)
def identity_hash(topic: str, producer_id: bytes) -> int:
    """The 64-bit hash of a source topic's name and a producer's id, where the mix starts."""
    name = topic.encode() + b"\0" + producer_id
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


@lru_cache(maxsize=4096)
def topic_tag(topic: str) -> int:
    """Sixteen bits of the topic's name, by which a person can find a stray message's topic."""
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=2).digest(), "little")


def mix(state: int, words: Sequence[int]) -> int:
    """Mix words (64 bits each) into the state, one round a word."""
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
    """`mix` of many states at once; a state that is one number is that of all."""
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
    """Words 0 to 2. Raises ValueError where a number is out of its field's range."""
    try:
        raw = _LAYOUT.pack(
            VERSION,
            GENERATOR,
            descriptor.source_partition,
            descriptor.lane,
            descriptor.value_size,
            descriptor.destination_partitions,
            topic_tag(topic),
            descriptor.sent_ns,
            0,
        )
    except struct.error as error:
        raise ValueError(f"{descriptor} does not fit a message: {error}") from None
    word0, word1, word2, _ = _WORDS.unpack(raw)
    return word0, word1, word2


def sized(word1: int, value_sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Word 1 of messages whose values have these sizes, and which are alike otherwise."""
    return value_sizes.astype(np.uint64) | np.uint64(word1 >> 32 << 32)


def pack(
    descriptor: Descriptor, topic: str, producer_id: bytes, intended_ns: int, seq: int
) -> bytes:
    """The descriptor's bytes. Raises ValueError where a number is out of range."""
    words = constant_words(descriptor, topic)
    check = finish(mix(identity_hash(topic, producer_id), (*words, intended_ns, seq)))
    return _WORDS.pack(*words, check)


def unpack(
    raw: bytes, topic: str, producer_id: bytes, intended_ns: int, seq: int
) -> Descriptor | None:
    """Read a descriptor; None where it does not prove this topic, id, time and seq."""
    if len(raw) != SIZE:
        return None
    *words, check = _WORDS.unpack(raw)
    if finish(mix(identity_hash(topic, producer_id), (*words, intended_ns, seq))) != check:
        return None
    version, generator, source, lane, size, destination, _, sent_ns, _ = _LAYOUT.unpack(raw)
    if version != VERSION or generator != GENERATOR:
        return None
    return Descriptor(source, lane, size, destination, sent_ns)
