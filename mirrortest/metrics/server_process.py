"""Metrics of a busy process, served by a process of its own.

A scrape that a busy process answers itself waits for its interpreter at each step, turn by turn:
tens of milliseconds. So another process answers, which has nothing else to do, and is told once a
second all that there is. Whoever is idle serves itself (`endpoint`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from multiprocessing import Pipe
from threading import Event, Thread
from typing import TYPE_CHECKING

import structlog

from mirrortest.metrics.endpoint import listening
from mirrortest.metrics.published import Publisher

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType
    from typing import Self

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed
    from mirrortest.metrics.published import Published

_log = structlog.get_logger()


class ServerProcess:
    """Serves a collector's metrics, with those of this process, at most a second old.

    Takes the arguments of `endpoint.MetricsEndpoint`, and raises as it does. A server that is
    killed is started anew; where this process ends, in whatever way, so does the server.
    """

    def __init__(self, metrics: Collector, *, address: str, port: int, health: Probed) -> None:
        self._publisher = Publisher(metrics, health)
        self._listener = listening(address, port)
        self.address = address
        self.port: int = self._listener.getsockname()[1]
        self._stopped = Event()
        self._process, self._server = self._start()
        self._thread = Thread(target=self._tell, name="metrics", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the process that serves now."""
        return self._process.pid

    def stop(self) -> None:
        """Stop serving and free the port; more than once does no harm."""
        self._stopped.set()
        # What is being written to it fails then, and holds nobody up.
        self._process.kill()
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection[Published, None]]:
        told, server = Pipe(duplex=False)
        numbers = (self._listener.fileno(), told.fileno())
        with told:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mirrortest.metrics.server", *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                # A terminal's Ctrl-C is for us alone: we are scraped until we are through.
                start_new_session=True,
            )
        return process, server

    def _tell(self) -> None:
        while True:
            with self._server, contextlib.suppress(BrokenPipeError):
                self._publisher.tell(self._server.send, self._stopped)
            self._process.kill()
            self._process.wait()
            if self._stopped.is_set():
                return
            _log.warning("the server of the metrics was killed: it is started again")
            self._process, self._server = self._start()


def serve_apart(
    metrics: Collector, *, address: str, port: int, health: Probed
) -> ServerProcess | None:
    """Serve as `--metrics-address` and `--metrics-port` say; port 0 is off."""
    if not port:
        return None
    return ServerProcess(metrics, address=address, port=port, health=health)
