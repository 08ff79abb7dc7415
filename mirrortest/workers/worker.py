"""A worker's side: it runs an application, obeys the command's process, and ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import uvloop

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.metrics.snapshot import SnapshotSender
from mirrortest.workers.messages import Ended, Progress, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from multiprocessing.connection import Connection

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed

_ORPHANED = 128 + signal.SIGKILL


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
        """Run until it is enough, or `stop` is set; the report. `serve` takes the metrics."""


def work(
    connection: Connection, number: int, prepare: Callable[[], None], job: Job, options: Any
) -> None:
    """Run a job; the body of a worker's process, whose end is its last message.

    SIGINT and SIGTERM are blocked here: a terminal and a supervisor send them to every process of
    a command, and the one that the user started says what is to be done.
    """
    prepare()
    gc.freeze()  # as `cli.console.run_application` does
    structlog.contextvars.bind_contextvars(worker=number)
    line = _Line(connection)
    uvloop.run(_run(line, job, options))


async def _run(line: _Line, job: Job, options: Any) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    line.obey(lambda: loop.call_soon_threadsafe(stop.set))
    try:
        report = await job(
            options,
            stop=stop,
            on_progress=lambda progress: line.send(Progress(progress)),
            serve=line.serve,
        )
    except MirrortestError as error:
        line.send(Ended(error=error))
    except asyncio.CancelledError:
        # Nobody cancels a worker: the client library's own tasks were cancelled under it.
        line.send(Ended(error=ClusterError("it broke off while it was waiting for a broker")))
    else:
        line.send(Ended(report))


class _Line:
    """The worker's end of the pipe; a thread listens, so that no busy loop delays an answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = Lock()

    def send(self, message: object) -> None:
        """Tell the command's process; that it is gone is seen by who listens."""
        with self._sending, contextlib.suppress(BrokenPipeError):
            self._connection.send(message)

    def serve(self, metrics: Collector, *, address: str, port: int, health: Probed) -> None:
        """Take the place of `metrics.server_process.serve_apart`: the command's process serves."""
        del address
        if port:
            sender = SnapshotSender(metrics, health)
            until_exit = (self.send, Event())
            Thread(target=sender.run, args=until_exit, name="metrics", daemon=True).start()

    def obey(self, stop: Callable[[], object]) -> None:
        """Listen from now on."""
        Thread(target=self._listen, args=(stop,), name="obey", daemon=True).start()

    def _listen(self, stop: Callable[[], object]) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                # The command's process was killed: so is what it had done.
                os._exit(_ORPHANED)
            if isinstance(message, Stop):
                stop()
