"""A broker's answers, cut out of the connection without a copy.

Kafka's answers come one after the other, each behind its length in four bytes. asyncio's streams
would copy their bytes three times; here a large answer is received straight into memory of its
own, and is stamped when its last byte arrives, not when somebody gets around to it.
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
"""Bytes read at once before the next answer's length has come."""
_LONG = 4 << 10
"""Bytes from which a part of an answer is not copied any more."""
_TOO_EARLY = "a broker's answer ends too early"
_MORE, _MOST_BITS = 0x80, 28
"""What a byte of a number is at least where another one follows; of 32 bits it has five bytes."""


class Frame(NamedTuple):
    """One answer: its bytes, never to be written to, and the wall time when it was complete."""

    data: memoryview
    arrived_ns: int


class Section(NamedTuple):
    """A long part of an answer, as a view."""

    data: memoryview
    arrived_ns: int

    def __len__(self) -> int:
        return len(self.data)


class Cursor:
    """Reads a frame from a byte on, as if it were a file; its long parts come uncopied.

    All but `read` raise ValueError where the frame ends too early.
    """

    def __init__(self, frame: Frame, at: int = 0) -> None:
        self._frame = frame
        self._at = at

    def read(self, size: int) -> bytes | Section:
        """The next `size` bytes, or what is left of them; many as a `Section`."""
        piece = self._frame.data[self._at : self._at + size]
        self._at += len(piece)
        if size >= _LONG:
            return Section(piece, self._frame.arrived_ns)
        return piece.tobytes()

    def section(self, size: int) -> Section:
        """The next `size` bytes, uncopied."""
        piece = self._frame.data[self._at : self._at + size]
        if len(piece) != size:
            raise ValueError(_TOO_EARLY)
        self._at += size
        return Section(piece, self._frame.arrived_ns)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next values of this layout."""
        try:
            values = layout.unpack_from(self._frame.data, self._at)
        except struct.error:
            raise ValueError(_TOO_EARLY) from None
        self._at += layout.size
        return values

    def varint(self) -> int:
        """The next unsigned number of variable length."""
        value = shift = 0
        try:
            while True:
                byte = self._frame.data[self._at]
                self._at += 1
                value |= (byte & 0x7F) << shift
                if byte < _MORE:
                    return value
                shift += 7
                if shift > _MOST_BITS:
                    raise ValueError("a number in a broker's answer is too long")
        except IndexError:
            raise ValueError(_TOO_EARLY) from None

    def tags(self) -> dict[int, bytes]:
        """The next tagged fields (KIP-482), of which there are mostly none."""
        found = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            found[tag] = bytes(self.section(size).data)
        return found


class FrameCutter:
    """Cuts a byte stream into frames; bytes are received into `room()`, then counted."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._held = 0
        """Bytes in the scratch that belong to no frame yet."""
        self._frame: memoryview | None = None
        self._filled = 0
        self.frames: deque[Frame] = deque()
        """Those that are complete and not taken."""

    def room(self) -> memoryview:
        """Where the next bytes are to be received."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._held :]

    def received(self, count: int) -> None:
        """So many bytes have come into `room()`.

        Raises:
            ValueError: a length is negative, so that this is no Kafka broker.
        """
        if self._frame is not None:
            self._filled += count
            self._complete()
            return
        end, at = self._held + count, 0
        while end - at >= _LENGTH:
            size = int.from_bytes(self._scratch[at : at + _LENGTH], "big", signed=True)
            if size < 0:
                raise ValueError(f"a broker's answer cannot have {size} bytes")
            at += _LENGTH
            taken = min(size, end - at)
            # Never filled with zeros: every byte of it will be received.
            self._frame = np.empty(size, np.uint8).data
            self._frame[:taken] = self._scratch[at : at + taken]
            self._filled = taken
            at += taken
            if not self._complete():
                break
        rest = bytes(self._scratch[at:end])
        self._held = len(rest)
        self._scratch[: self._held] = rest

    def _complete(self) -> bool:
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return False
        self.frames.append(Frame(frame.toreadonly(), time.time_ns()))
        self._frame = None
        return True


class FrameProtocol(asyncio.BufferedProtocol):
    """The receiving end of a connection: frames for `next_frame`.

    What concerns sending and the connection's life is left to `streams`, an
    `asyncio.StreamReaderProtocol` that never gets a byte.
    """

    def __init__(self, streams: asyncio.StreamReaderProtocol) -> None:
        self._streams = streams
        self._cutter = FrameCutter()
        self._waiter: asyncio.Future[None] | None = None
        self._over: Exception | None = None

    async def next_frame(self) -> Frame:
        """The next answer, in their order.

        Raises:
            EOFError: the broker has closed the connection.
            OSError: the connection broke.
            ValueError: what came is no answer of a Kafka broker.
        """
        while not self._cutter.frames:
            if self._over is not None:
                raise self._over
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
        # What asyncio.StreamWriter asks of its protocol besides.
        return getattr(self._streams, name)

    def _end(self, why: Exception) -> None:
        self._over = self._over or why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
