"""A worker process: it runs an application, and ends if the command's process does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import uvloop

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.metrics.snapshot import SnapshotSender

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from multiprocessing.connection import Connection

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed

_ORPHANED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Stop:
    """Sent to a worker: drain, report, end."""


@dataclass(frozen=True)
class Progress:
    """Sent by a worker: its progress."""

    progress: Any


@dataclass(frozen=True)
class Ended:
    """The last message of a worker: its report, or the error that ended it."""

    report: Any = None
    error: MirrortestError | None = None


class Job(Protocol):
    """An application: `produce.producer.run`, `consume.consumer.run`; it must be picklable."""

    def __call__(
        self,
        options: Any,
        /,
        *,
        stop: asyncio.Event,
        on_progress: Callable[[Any], None],
        serve: Callable[..., Any],
    ) -> Coroutine[Any, Any, Any]:
        """Run to the end, or until `stop` is set; returns the report. `serve` gets the metrics."""


def work(
    connection: Connection, number: int, prepare: Callable[[], None], job: Job, options: Any
) -> None:
    """Run a job: the body of a worker process, which sends `Ended` as its last message.

    SIGINT and SIGTERM are blocked here. A terminal and a supervisor send them to every process of
    a command; the command's own process sends `Stop`.
    """
    prepare()
    gc.freeze()  # as `cli.console.run_application` does
    structlog.contextvars.bind_contextvars(worker=number)
    pipe = _Pipe(connection)
    uvloop.run(_run(pipe, job, options))


async def _run(pipe: _Pipe, job: Job, options: Any) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    pipe.receive(lambda: loop.call_soon_threadsafe(stop.set))
    try:
        report = await job(
            options,
            stop=stop,
            on_progress=lambda progress: pipe.send(Progress(progress)),
            serve=pipe.serve,
        )
    except MirrortestError as error:
        pipe.send(Ended(error=error))
    except asyncio.CancelledError:
        # Workers are not cancelled: this came from a task of the client library.
        pipe.send(Ended(error=ClusterError("the client library cancelled a request to a broker")))
    else:
        pipe.send(Ended(report))


class _Pipe:
    """The worker's end of the pipe; a thread receives, so a busy event loop delays no message."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = Lock()

    def send(self, message: object) -> None:
        """Send a message; the receiving thread notices when the command's process has ended."""
        with self._sending, contextlib.suppress(BrokenPipeError):
            self._connection.send(message)

    def serve(self, metrics: Collector, *, address: str, port: int, health: Probed) -> None:
        """Replace `metrics.server_process.serve_in_child`: the command's process serves metrics."""
        del address
        if port:
            sender = SnapshotSender(metrics, health)
            until_exit = (self.send, Event())
            Thread(target=sender.run, args=until_exit, name="metrics", daemon=True).start()

    def receive(self, stop: Callable[[], object]) -> None:
        """Start the thread that receives messages."""
        Thread(target=self._receive, args=(stop,), name="receive", daemon=True).start()

    def _receive(self, stop: Callable[[], object]) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                # The command's process was killed.
                os._exit(_ORPHANED)
            if isinstance(message, Stop):
                stop()
