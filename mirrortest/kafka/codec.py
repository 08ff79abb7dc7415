"""Compression codecs for a record batch's records section, compatible with Kafka's.

Decompression writes into a buffer of fixed size, whatever size a frame claims: a few kilobytes can
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

MAX_DECOMPRESSED_BYTES = 128 << 20
"""Maximum bytes of a batch's records section, decompressed.

Brokers limit the compressed size, to 1 MiB by default (`message.max.bytes`), but not the
decompressed size: our messages and text expand to some MiB. A batch that grows a hundredfold is
still read.
"""
_KEPT_BYTES = 4 << 20
"""Bytes of the buffer whose pages are kept from one batch to the next."""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
"""Bytes of snappy-java's own framing header: magic, version, minimum compatible version."""
_LENGTH = 4
_TOO_MUCH = f"its records are more than {MAX_DECOMPRESSED_BYTES >> 20} MiB, decompressed"
_FULL = "failed to write whole buffer"
"""cramjam's error if the output buffer is full."""


def _aiokafka_function(name: str, *arguments: int) -> Callable[[bytes], bytes]:
    """Wrap a function of `aiokafka.codec`, imported when it is called: few programs call it."""

    def function(data: bytes) -> bytes:
        done: bytes = getattr(importlib.import_module("aiokafka.codec"), name)(data, *arguments)
        return done

    return function


_COMPRESS = {
    "gzip": _aiokafka_function("gzip_encode", _GZIP_LEVEL),
    "snappy": _aiokafka_function("snappy_encode"),
    "lz4": _aiokafka_function("lz4_encode", _LZ4_LEVEL),
    "zstd": _aiokafka_function("zstd_encode"),
}
_FRAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = CODEC_IDS["snappy"]


class _Scratch(threading.local):
    """A thread's output buffer; the kernel allocates only the pages that are written to."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, MAX_DECOMPRESSED_BYTES)

    def release(self) -> None:
        """Free all pages but those that most batches need."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED, _KEPT_BYTES)


_scratch = functools.cache(_Scratch)
"""The only instance; created at first use, since few programs read compressed batches."""


def compressor(name: str) -> tuple[int, Callable[[bytes], bytes]] | None:
    """A codec's id and its compression function for a complete records section; None for `none`."""
    return (CODEC_IDS[name], _COMPRESS[name]) if name != "none" else None


def decompress(codec_id: int, data: bytes | memoryview) -> bytes:
    """Decompress a complete records section.

    Raises:
        ValueError: the codec is unknown, the bytes are not valid for it, or they expand to more
            than `MAX_DECOMPRESSED_BYTES`.
    """
    if codec_id != _SNAPPY and codec_id not in _FRAMED:
        raise ValueError(f"unknown compression codec {codec_id}")
    scratch, cramjam = _scratch(), importlib.import_module("cramjam")
    size = MAX_DECOMPRESSED_BYTES
    try:
        if codec_id == _SNAPPY:
            size = _decompress_snappy(cramjam.snappy, memoryview(data), scratch.memory)
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
            scratch.release()


def _decompress_snappy(snappy: Any, data: memoryview, memory: mmap.mmap) -> int:
    """Decompress snappy, with or without snappy-java's framing; return the number of bytes.

    Raises ValueError, or cramjam's own error.
    """
    if bytes(data[: len(_XERIAL)]) != _XERIAL or len(data) <= _XERIAL_HEADER:
        return _decompress_block(snappy, data, memoryview(memory))
    at, size = _XERIAL_HEADER, 0
    with memoryview(memory) as free:
        while at < len(data):
            length = int.from_bytes(data[at : at + _LENGTH], "big")
            at += _LENGTH
            if not 0 < length <= len(data) - at:
                raise ValueError("a records section is damaged: snappy: a block beyond its end")
            size += _decompress_block(snappy, data[at : at + length], free[size:])
            at += length
    return size


def _decompress_block(snappy: Any, data: memoryview, free: memoryview) -> int:
    # This is the size that the block claims; decompression verifies it.
    if snappy.decompress_raw_len(data) > len(free):
        raise ValueError(_TOO_MUCH)
    return int(snappy.decompress_raw_into(data, free))
