"""aiokafka's connection without its copies of large data, and the client that opens it."""

# ruff: noqa: SLF001  # only this package may use aiokafka's private members

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aiokafka import conn as _conn
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, RequestTimedOutError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from mirrortest.kafka.fast import produce_request
from mirrortest.kafka.fast.frames import Cursor, FrameProtocol
from mirrortest.kafka.fast.metadata import MetadataRequest
from mirrortest.kafka.fast.rebinding import rebound

if TYPE_CHECKING:
    import asyncio

    from mirrortest.kafka.fast.frames import Frame


_CORRELATION = 4
"""Bytes of a correlation id."""


def frame_protocol(
    closed: asyncio.Future[None], reader: asyncio.StreamReader, *, loop: asyncio.AbstractEventLoop
) -> FrameProtocol:
    """Create the protocol that `AIOKafkaConnection.connect` uses as its AIOKafkaProtocol."""
    return FrameProtocol(_conn.AIOKafkaProtocol(closed, reader, loop=loop))


def _with_timeout(answer: asyncio.Future[Any], seconds: float) -> asyncio.Future[Any]:
    """Let the future of a response fail with a TimeoutError after `seconds`.

    This replaces aiokafka's `wait_for`, which creates two coroutines and two contexts, by a timer.
    """
    timer = answer.get_loop().call_later(seconds, _expire, answer)
    answer.add_done_callback(lambda _: timer.cancel())
    return answer


def _expire(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


class Connection(_conn.AIOKafkaConnection):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's connection, but produce requests and all responses are not copied."""

    _connect = rebound(_conn.AIOKafkaConnection.connect, AIOKafkaProtocol=frame_protocol)
    _send_joined = rebound(_conn.AIOKafkaConnection.send, wait_for=_with_timeout)

    async def connect(self) -> Any:
        """See `AIOKafkaConnection.connect`; any odd message is an error that aiokafka expects.

        Nothing catches the errors of a malformed SCRAM message, or of a host name with an empty
        part: they would end the fetcher.
        """
        try:
            return await self._connect()
        except (ValueError, KeyError, AssertionError) as error:
            raise KafkaConnectionError(f"{self._host}:{self._port}: {error}") from error

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """See `AIOKafkaConnection.send`; a produce request's batches are not copied."""
        if not isinstance(request, ProduceRequest) or self._writer is None:
            try:
                return self._send_joined(request, expect_response)
            except RuntimeError as error:
                raise self._broken(error) from error
        made = produce_request.prepared(request, self._versions)
        correlation_id = self._next_correlation_id()
        try:
            self._writer.writelines(produce_request.pieces(made, correlation_id, self._client_id))
        except (OSError, RuntimeError) as error:
            raise self._broken(error) from error
        if not expect_response:
            return self._writer.drain()
        future = self._loop.create_future()
        self._requests.append((correlation_id, made, future))
        return _with_timeout(future, self._request_timeout)

    def _broken(self, error: Exception) -> KafkaConnectionError:
        """Close a connection that cannot be written to; return the error that aiokafka expects.

        uvloop raises a RuntimeError for a transport that was just closed. aiokafka does not catch
        it: it would end the task that sends.
        """
        self.close(reason=_conn.CloseReason.CONNECTION_BROKEN)
        return KafkaConnectionError(f"Connection at {self._host}:{self._port} broken: {error}")

    @staticmethod
    async def _read(self_ref: Any) -> None:
        self = self_ref()
        if self is None:
            return
        protocol = self._protocol
        del self
        while True:
            frame = await protocol.next_frame()
            self = self_ref()
            if self is None:
                return
            self._handle_frame(frame)
            del self

    def _handle_frame(self, frame: Any) -> None:
        correlation_id, request, future = self._requests[0]
        decode = None if request is None else _DECODERS.get(request.API_KEY)
        if decode is None or int.from_bytes(frame.data[:_CORRELATION], "big") != correlation_id:
            super()._handle_frame(frame.data.tobytes())
            return
        if not future.done():
            future.set_result(decode(request, frame))
        self._last_action = time.monotonic()
        self._requests.popleft()


def _decode_fetch(request: Any, frame: Frame) -> Any:
    cursor = Cursor(frame, _CORRELATION)
    if request.FLEXIBLE_VERSION:
        cursor.tags()
    return request.RESPONSE_TYPE.decode(cursor)


def _decode_produce(request: Any, frame: Frame) -> Any:
    return produce_request.answer(request, frame.data)


_DECODERS = {FetchRequest.API_KEY: _decode_fetch, ProduceRequest.API_KEY: _decode_produce}
"""API key -> decoder, for responses that are frequent or large."""


create_connection = rebound(_conn.create_conn, AIOKafkaConnection=Connection)
"""Open a `Connection`."""


class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's client, with our `Connection`, and metadata requests that create no topic."""

    bootstrap = rebound(
        AIOKafkaClient.bootstrap, create_conn=create_connection, MetadataRequest=MetadataRequest
    )
    _metadata_update = rebound(AIOKafkaClient._metadata_update, MetadataRequest=MetadataRequest)
    _get_conn = rebound(AIOKafkaClient._get_conn, create_conn=create_connection)

    def connected(self, node_id: int) -> Connection | None:
        """The open connection to a broker, or None; `ready` opens one."""
        found = self._conns.get((node_id, ConnectionGroup.DEFAULT))
        return found if found is not None and found.connected() else None

    async def send(
        self, node_id: int, request: Any, *, group: Any = ConnectionGroup.DEFAULT
    ) -> Any:
        """See `AIOKafkaClient.send`; a connection that was closed meanwhile is a timeout.

        When a request times out, aiokafka closes its connection, and a reconnect removes it from
        aiokafka's table. When a second request on it times out, aiokafka looks it up there.
        Nothing catches the KeyError, which would end the fetcher or the sender.
        """
        try:
            return await super().send(node_id, request, group=group)
        except KeyError as error:
            if error.args != ((node_id, group),):
                raise
            raise RequestTimedOutError from error
