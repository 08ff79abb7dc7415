"""A broker's responses, cut out of the byte stream without a copy.

Kafka sends responses one after the other, each preceded by its length in four bytes. asyncio's
streams would copy the bytes three times. Here a large response is received directly into its own
buffer. Its timestamp is taken when its last byte arrives, not when a task processes it.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np

_LENGTH = 4
_SCRATCH = 16 << 10
"""Bytes read at once while the next response's length is unknown."""
_LARGE = 4 << 10
"""Bytes from which a part of a response is returned as a view, not as a copy."""
_TRUNCATED = "a broker's answer ends too early"
_CONTINUES, _MAX_SHIFT = 0x80, 28
"""The bit of a varint byte that another byte follows; the last shift of a 32-bit number."""


class Frame(NamedTuple):
    """One response: its bytes, read-only, and the wall time when it was complete."""

    data: memoryview
    arrived_ns: int


class Section(NamedTuple):
    """A long part of a response, as a view."""

    data: memoryview
    arrived_ns: int

    def __len__(self) -> int:
        return len(self.data)


class Cursor:
    """A file-like reader of a frame, from a byte on; it returns long parts as views.

    All methods but `read` raise ValueError if the frame ends too early.
    """

    def __init__(self, frame: Frame, at: int = 0) -> None:
        self._frame = frame
        self._at = at

    def read(self, size: int) -> bytes | Section:
        """The next `size` bytes, or what is left of them; a `Section` if `size` is large."""
        piece = self._frame.data[self._at : self._at + size]
        self._at += len(piece)
        if size >= _LARGE:
            return Section(piece, self._frame.arrived_ns)
        return piece.tobytes()

    def section(self, size: int) -> Section:
        """The next `size` bytes, as a view."""
        piece = self._frame.data[self._at : self._at + size]
        if len(piece) != size:
            raise ValueError(_TRUNCATED)
        self._at += size
        return Section(piece, self._frame.arrived_ns)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next values of this layout."""
        try:
            values = layout.unpack_from(self._frame.data, self._at)
        except struct.error:
            raise ValueError(_TRUNCATED) from None
        self._at += layout.size
        return values

    def varint(self) -> int:
        """The next unsigned varint."""
        value = shift = 0
        try:
            while True:
                byte = self._frame.data[self._at]
                self._at += 1
                value |= (byte & 0x7F) << shift
                if byte < _CONTINUES:
                    return value
                shift += 7
                if shift > _MAX_SHIFT:
                    raise ValueError("a number in a broker's answer is too long")
        except IndexError:
            raise ValueError(_TRUNCATED) from None

    def tags(self) -> dict[int, bytes]:
        """The next tagged fields (KIP-482); mostly there are none."""
        found = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found[tag] = bytes(self.section(size).data)
        return found


class FrameCutter:
    """A cutter of a byte stream into frames: receive into `room()`, then call `received`."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._scratch_used = 0
        """Bytes in the scratch buffer that belong to no frame yet."""
        self._frame: memoryview | None = None
        self._filled = 0
        self.frames: deque[Frame] = deque()
        """Complete frames that were not taken yet."""

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._scratch_used :]

    def received(self, count: int) -> None:
        """Process `count` bytes that were received into `room()`.

        Raises:
            ValueError: a length is negative, so the peer is not a Kafka broker.
        """
        if self._frame is not None:
            self._filled += count
            self._complete()
            return
        end, at = self._scratch_used + count, 0
        while end - at >= _LENGTH:
            size = int.from_bytes(self._scratch[at : at + _LENGTH], "big", signed=True)
            if size < 0:
                raise ValueError(f"a broker's answer cannot have {size} bytes")
            at += _LENGTH
            taken = min(size, end - at)
            # Not filled with zeros: every byte of it will be received.
            self._frame = np.empty(size, np.uint8).data
            self._frame[:taken] = self._scratch[at : at + taken]
            self._filled = taken
            at += taken
            if not self._complete():
                break
        rest = bytes(self._scratch[at:end])
        self._scratch_used = len(rest)
        self._scratch[: self._scratch_used] = rest

    def _complete(self) -> bool:
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return False
        self.frames.append(Frame(frame.toreadonly(), time.time_ns()))
        self._frame = None
        return True


class FrameProtocol(asyncio.BufferedProtocol):
    """The receiving side of a connection: frames for `next_frame`.

    Sending and the connection's events are delegated to `streams`, an
    `asyncio.StreamReaderProtocol` that never gets a byte.
    """

    def __init__(self, streams: asyncio.StreamReaderProtocol) -> None:
        self._streams = streams
        self._cutter = FrameCutter()
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    async def next_frame(self) -> Frame:
        """The next response, in order of arrival.

        Raises:
            EOFError: the broker has closed the connection.
            OSError: the connection broke.
            ValueError: the bytes are not a response of a Kafka broker.
        """
        while not self._cutter.frames:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._cutter.frames.popleft()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's name for it
        """See `asyncio.BufferedProtocol`."""
        return self._cutter.room()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        try:
            self._cutter.received(nbytes)
        except ValueError as error:
            self._end(error)
        if self._cutter.frames:
            self._wake()

    def eof_received(self) -> bool | None:
        """See `asyncio.BufferedProtocol`."""
        self._end(EOFError("the broker has closed the connection"))
        return self._streams.eof_received()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._streams.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._end(exc or EOFError("the connection is closed"))
        self._streams.connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._streams.resume_writing()

    def __getattr__(self, name: str) -> object:
        # asyncio.StreamWriter uses more attributes of its protocol.
        return getattr(self._streams, name)

    def _end(self, why: Exception) -> None:
        self._error = self._error or why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
