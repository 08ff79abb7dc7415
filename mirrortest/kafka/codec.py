"""The codecs of a record batch's records section, as Kafka writes and reads them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Name in `compression.type` -> the low three bits of a batch's attributes."""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9


def _by_name(name: str, *arguments: int) -> Callable[[bytes], bytes]:
    """A function of `aiokafka.codec`, looked up when it is called: not everybody calls it."""

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
_DECOMPRESS = {
    1: _by_name("gzip_decode"),
    2: _by_name("snappy_decode"),
    3: _by_name("lz4_decode"),
    4: _by_name("zstd_decode"),
}


def compressor(name: str) -> tuple[int, Callable[[bytes], bytes]] | None:
    """A codec's id and its function for a whole records section; None for `none`."""
    return (CODEC_IDS[name], _COMPRESS[name]) if name != "none" else None


def decompress(codec_id: int, data: bytes) -> bytes:
    """Undo what `compressor` does.

    Raises:
        ValueError: the codec is unknown, or the bytes are none of its.
    """
    function = _DECOMPRESS.get(codec_id)
    if function is None:
        raise ValueError(f"unknown compression codec {codec_id}")
    try:
        return function(data)
    except Exception as error:  # each codec has errors of its own
        raise ValueError(f"a records section is damaged: {error}") from error
