"""Wire types of Kafka requests that are newer than aiokafka's."""

from __future__ import annotations

import base64
import functools
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_UUID = 16
_NO_ID = bytes(_UUID)
_CONTINUES = 0x80
"""This bit of a varint's byte means that another byte follows."""
_MAX_SHIFT = 28


class Uuid:
    """A topic id: 16 bytes on the wire, here in Kafka's spelling (URL-safe base64, 22 letters)."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        """The 16 bytes; zeros for the empty string."""
        return _raw(value)

    @classmethod
    def decode(cls, data: Any) -> str:
        """The id; empty if a broker has none for the topic."""
        return _spelled(bytes(exactly(data, _UUID)))

    @classmethod
    def repr(cls, value: str) -> str:
        """See aiokafka's types."""
        return value


@functools.lru_cache
def _raw(topic_id: str) -> bytes:
    return base64.urlsafe_b64decode(f"{topic_id}==") if topic_id else _NO_ID


@functools.lru_cache
def _spelled(raw: bytes) -> str:
    return "" if raw == _NO_ID else base64.urlsafe_b64encode(raw).decode().rstrip("=")


def supported(versions: Mapping[int, tuple[int, int]], api: int, version: int) -> bool:
    """Whether a broker supports a version of a request (`api` is the API key)."""
    lowest, highest = versions.get(api, (0, -1))
    return lowest <= version <= highest


def exactly(data: Any, size: int) -> Any:
    """Read `size` bytes; raises ValueError if there are fewer."""
    piece = data.read(size)
    if len(piece) != size:
        raise ValueError(f"a broker's answer ends {size - len(piece)} bytes too early")
    return piece


def varint(data: Any) -> int:
    """An unsigned varint; raises ValueError if it ends too early or is too long."""
    byte: int
    value = shift = 0
    while shift <= _MAX_SHIFT:
        byte = exactly(data, 1)[0]
        if byte < _CONTINUES:
            return value | byte << shift
        value |= (byte - _CONTINUES) << shift
        shift += 7
    raise ValueError("a number in a broker's answer is too long")


def length(data: Any) -> int:
    """The length of a compact type; -1 for null."""
    return varint(data) - 1


def string(data: Any) -> str | None:
    """A compact string, or null."""
    size = length(data)
    return None if size < 0 else bytes(exactly(data, size)).decode()


def nodes(data: Any) -> list[int]:
    """A compact array of broker ids."""
    count = max(varint(data) - 1, 0)
    return list(_ids(count).unpack(exactly(data, 4 * count)))


@functools.lru_cache
def _ids(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


def skip_tags(data: Any) -> None:
    """Skip tagged fields (KIP-482)."""
    for _ in range(varint(data)):
        varint(data)
        exactly(data, varint(data))
