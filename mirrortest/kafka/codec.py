"""The codecs of a record batch's records section, as Kafka writes and reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import codec as _codec

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Name in `compression.type` -> the low three bits of a batch's attributes."""

_GZIP_LEVEL = 6
_LZ4_LEVEL = 9


def _gzip(data: bytes) -> bytes:
    return bytes(_codec.gzip_encode(data, _GZIP_LEVEL))


def _lz4(data: bytes) -> bytes:
    return bytes(_codec.lz4_encode(data, _LZ4_LEVEL))


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "snappy": _codec.snappy_encode,
    "lz4": _lz4,
    "zstd": _codec.zstd_encode,
}
_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: _codec.gzip_decode,
    2: _codec.snappy_decode,
    3: _codec.lz4_decode,
    4: _codec.zstd_decode,
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
