"""The codecs of a record batch's records section, as Kafka writes and reads them.

Decompressing goes into memory of a fixed size, whatever size a frame claims: some kilobytes may
expand to gigabytes.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Name in `compression.type` -> the low three bits of a batch's attributes."""

MOST_BYTES = 128 << 20
"""The most bytes of a batch, decompressed.

Brokers limit batches as they are sent, to 1 MiB by default (`message.max.bytes`), and nothing
limits what is in them: our messages and text come to some MiB. A batch that grows a hundredfold is
still read.
"""
_KEPT_BYTES = 4 << 20
"""Memory that is kept from one batch to the next."""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
"""The Java library's own framing of snappy: magic, version, least compatible version."""
_LENGTH = 4
_TOO_MUCH = f"its records are more than {MOST_BYTES >> 20} MiB, decompressed"
_FULL = "failed to write whole buffer"
"""cramjam's error where the memory to write to is full."""


def _by_name(name: str, *arguments: int) -> Callable[[bytes], bytes]:
    """A function of `aiokafka.codec`, looked up when it is called: few programs call it."""

    def function(data: bytes) -> bytes:
        done: bytes = getattr(importlib.import_module("aiokafka.codec"), name)(data, *arguments)
        return done

    return function


_COMPRESS = {
    "gzip": _by_name("gzip_encode", _GZIP_LEVEL),
    "snappy": _by_name("snappy_encode"),
    "lz4": _by_name("lz4_encode", _LZ4_LEVEL),
    "zstd": _by_name("zstd_encode"),
}
_FRAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = CODEC_IDS["snappy"]


class _Scratch(threading.local):
    """A thread's memory to decompress to: the system gives of it what is written to."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, MOST_BYTES)

    def give_back(self) -> None:
        """Keep no more than most batches need."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED, _KEPT_BYTES)


_scratch = functools.cache(_Scratch)
"""The one; created when it is first needed, for few programs read what is compressed."""


def compressor(name: str) -> tuple[int, Callable[[bytes], bytes]] | None:
    """A codec's id and its function for a complete records section; None for `none`."""
    return (CODEC_IDS[name], _COMPRESS[name]) if name != "none" else None


def decompress(codec_id: int, data: bytes | memoryview) -> bytes:
    """Undo what `compressor` does.

    Raises:
        ValueError: the codec is unknown, or the bytes are none of its, or expand to more than
            `MOST_BYTES`.
    """
    if codec_id != _SNAPPY and codec_id not in _FRAMED:
        raise ValueError(f"unknown compression codec {codec_id}")
    scratch, cramjam = _scratch(), importlib.import_module("cramjam")
    size = MOST_BYTES
    try:
        if codec_id == _SNAPPY:
            size = _from_snappy(cramjam.snappy, memoryview(data), scratch.memory)
        else:
            into = getattr(cramjam, _FRAMED[codec_id]).decompress_into
            size = int(into(data, scratch.memory))
        return scratch.memory[:size]
    except cramjam.DecompressionError as error:
        if str(error) == _FULL:
            raise ValueError(_TOO_MUCH) from None
        raise ValueError(f"a records section is damaged: {error}") from error
    finally:
        if size > _KEPT_BYTES:
            scratch.give_back()


def _from_snappy(snappy: Any, data: memoryview, memory: mmap.mmap) -> int:
    """Decompress snappy, with or without the Java library's framing; returns how many bytes.

    Raises ValueError, or cramjam's own error.
    """
    if bytes(data[: len(_XERIAL)]) != _XERIAL or len(data) <= _XERIAL_HEADER:
        return _block(snappy, data, memoryview(memory))
    at, size = _XERIAL_HEADER, 0
    with memoryview(memory) as free:
        while at < len(data):
            length = int.from_bytes(data[at : at + _LENGTH], "big")
            at += _LENGTH
            if not 0 < length <= len(data) - at:
                raise ValueError("a records section is damaged: snappy: a block beyond its end")
            size += _block(snappy, data[at : at + length], free[size:])
            at += length
    return size


def _block(snappy: Any, data: memoryview, free: memoryview) -> int:
    # The size that the block claims; decompressing checks it.
    if snappy.decompress_raw_len(data) > len(free):
        raise ValueError(_TOO_MUCH)
    return int(snappy.decompress_raw_into(data, free))
