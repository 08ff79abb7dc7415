"""The program of a link: relays TCP connections to a cluster's brokers, under a condition.

``python -m mirrortest.lab.link.relay FILE PORT=TARGET...`` relays connections to a port to its
target, on the loopback interface. `FILE` has the condition; the relay reads it again at the signal
`CHANGED`, and logs a line once it is applied. Connections are established without delay; their
bytes are delayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvloop

from mirrortest.lab.free_ports import ADDRESS
from mirrortest.lab.link.condition import CHANGED, Condition, applied_prefix
from mirrortest.timing.passage import Line, Passage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_CHUNK = 1 << 16
_MAX_PENDING = 1 << 22
"""Bytes pending in one direction of a connection; at this limit TCP slows its sender down."""
_QUEUE_SECONDS = 0.1
"""The length of the queue before a limited rate, in seconds, as in a router."""
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Relays the connections to several targets.

    Args:
        routes: port -> target.
    """

    def __init__(self, routes: Mapping[int, int]) -> None:
        self.condition = Condition()
        self.lines = (Line(), Line())
        self.directions = set[_Direction]()
        self.healed = asyncio.Event()
        self._routes = routes
        self._servers: list[asyncio.Server] = []
        self._connections = set[asyncio.Task[None]]()
        self._random = random.Random()

    async def apply(self, condition: Condition) -> None:
        """Apply another condition from now on."""
        self.condition = condition
        now_ns = time.monotonic_ns()
        for line in self.lines:
            line.change(now_ns, condition.rate, is_cut=condition.cut)
        for direction in self.directions:
            direction.passage.change(now_ns + round(condition.delay * 1e9))
            direction.wake()
        (self.healed.clear if condition.cut else self.healed.set)()
        if condition.reset:
            await self._reset()
        elif not self._servers:
            self._servers = [
                await asyncio.start_server(self._accept(target), ADDRESS, port, limit=_CHUNK)
                for port, target in self._routes.items()
            ]

    def due_ns(self) -> int:
        """The earliest time at which bytes that are received now can pass."""
        condition = self.condition
        delay = condition.delay + self._random.uniform(-condition.jitter, condition.jitter)
        return time.monotonic_ns() + round(max(0.0, delay) * 1e9)

    @property
    def max_pending(self) -> int:
        """The maximum number of bytes pending in one direction of a connection."""
        condition = self.condition
        if condition.rate is None:
            return _MAX_PENDING
        queue = round(condition.rate * (condition.delay + condition.jitter + _QUEUE_SECONDS))
        return min(_MAX_PENDING, max(_CHUNK, queue))

    async def _reset(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []
        ended = list(self._connections)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def _accept(self, target: int) -> Callable[..., Awaitable[None]]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.condition.reset:  # this task had not run yet when the reset ended the others
                _break(writer)
                return
            task = cast("asyncio.Task[None]", asyncio.current_task())
            self._connections.add(task)
            try:
                await self._relay(reader, writer, target)
            except* (OSError, asyncio.CancelledError):  # it broke, or is reset
                pass
            finally:
                self._connections.discard(task)

        return accept

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int
    ) -> None:
        """Relay one connection until both of its directions have ended."""
        writers = [writer]
        directions: list[_Direction] = []
        try:
            await self.healed.wait()
            far_reader, far_writer = await asyncio.open_connection(ADDRESS, target, limit=_CHUNK)
            writers.append(far_writer)
            forth, back = self.lines
            directions += [
                _Direction(self, forth, reader, far_writer),
                _Direction(self, back, far_reader, writer),
            ]
            self.directions.update(directions)
            async with asyncio.TaskGroup() as group:
                for direction in directions:
                    group.create_task(direction.read())
                    group.create_task(direction.write())
        except BaseException:
            for each in writers:
                _break(each)
            raise
        finally:
            self.directions.difference_update(directions)
            for each in writers:
                each.close()


class _Direction:
    """One direction of a connection."""

    def __init__(
        self, relay: Relay, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.passage = Passage(line)
        self._relay = relay
        self._reader = reader
        self._writer = writer
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()

    def wake(self) -> None:
        """Wake both tasks, since the condition has changed."""
        self._changed.set()
        self._has_room.set()

    async def read(self) -> None:
        """Read to the end of the stream; a broken connection counts as its end."""
        data = b"more"
        while data:
            while self.passage.size >= self._relay.max_pending:
                self._has_room.clear()
                await self._has_room.wait()
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                data = b""
            self.passage.put(data, self._relay.due_ns())
            self._changed.set()

    async def write(self) -> None:
        """Write the bytes that are due, to the end of the stream.

        Raises:
            OSError: the connection is broken.
        """
        loop = asyncio.get_running_loop()
        while True:
            now_ns = time.monotonic_ns()
            at_ns = self.passage.next_ns(now_ns)
            if at_ns is None or at_ns > now_ns:
                self._changed.clear()
                if at_ns is None:
                    await self._changed.wait()
                    continue
                # uvloop rounds to milliseconds: round up, or it wakes too early, and then again.
                wait = math.ceil((at_ns - now_ns) / 1e6) / 1e3
                timer = loop.call_later(wait, self._changed.set)
                try:
                    await self._changed.wait()
                finally:
                    timer.cancel()
                continue
            data = self.passage.take()
            self._has_room.set()
            if self._writer.is_closing():
                raise ConnectionResetError
            if not data:
                self._writer.write_eof()
                return
            self._writer.write(data)
            await self._writer.drain()


def _break(writer: asyncio.StreamWriter) -> None:
    """Reset a connection (RST)."""
    if not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()


async def _main(file: Path, routes: Mapping[int, int]) -> None:
    changed = asyncio.Event()
    changed.set()
    asyncio.get_running_loop().add_signal_handler(CHANGED, changed.set)
    relay = Relay(routes)
    while True:
        await changed.wait()
        changed.clear()
        number, condition = _read(file)
        await relay.apply(condition)
        sys.stdout.write(f"{applied_prefix(number)}{condition}\n")
        sys.stdout.flush()


def _read(file: Path) -> tuple[int, Condition]:
    number, _, text = file.read_text().partition(" ")
    return int(number), Condition.from_json(text)


if __name__ == "__main__":
    _pairs = (route.split("=") for route in sys.argv[2:])
    uvloop.run(_main(Path(sys.argv[1]), {int(port): int(target) for port, target in _pairs}))
