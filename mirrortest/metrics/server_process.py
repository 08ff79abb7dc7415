"""Serves the metrics of a busy process from a child process.

If a busy process answered a scrape itself, each step would wait for its interpreter: tens of
milliseconds. Instead it sends a snapshot each second to an idle child, which answers. Idle
processes serve their own metrics (`endpoint`). Run as a program, this module is that child. Its
arguments are two descriptors: the listening socket, and the pipe with the snapshots. It ends when
the pipe closes.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import TYPE_CHECKING

import structlog

from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.metrics.endpoint import MetricsEndpoint, listening
from mirrortest.metrics.snapshot import LatestSnapshot, Snapshot, SnapshotPages, SnapshotSender

if TYPE_CHECKING:
    from typing import Self

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed

_log = structlog.get_logger()

_RETRY_SECONDS = 1.0


class ServerProcess:
    """Serves a collector's metrics, with those of this process, from a snapshot each second.

    Its arguments and errors are those of `endpoint.MetricsEndpoint`. A server that is killed is
    started again. When this process ends, in whatever way, so does the server.
    """

    def __init__(self, metrics: Collector, *, address: str, port: int, health: Probed) -> None:
        self._sender = SnapshotSender(metrics, health)
        self._listener = listening(address, port)
        self.port: int = self._listener.getsockname()[1]
        self._stopped = Event()
        self._process, self._pipe = self._start()
        self._thread = Thread(target=self._send, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port; it can be repeated."""
        self._stopped.set()
        # The thread's write to the pipe then fails instead of blocking.
        self._process.kill()
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection[Snapshot, None]]:
        reading, writing = Pipe(duplex=False)
        numbers = (self._listener.fileno(), reading.fileno())
        with reading:
            process = subprocess.Popen(
                [*RUN_MODULE, __name__, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                # A terminal's Ctrl-C must not stop it: scrapes go on until this process ends.
                start_new_session=True,
            )
        return process, writing

    def _send(self) -> None:
        while True:
            with self._pipe, contextlib.suppress(BrokenPipeError):
                self._sender.run(self._pipe.send, self._stopped)
            self._process.kill()
            self._process.wait()
            if self._stopped.is_set():
                return
            _log.warning("the metrics server was killed: it is started again")
            self._start_again()

    def _start_again(self) -> None:
        """Start the server; if the system cannot start a process now, try again."""
        while not self._stopped.is_set():
            try:
                self._process, self._pipe = self._start()
            except OSError as error:
                _log.warning(
                    "the metrics server cannot be started, trying again", reason=str(error)
                )
                self._stopped.wait(_RETRY_SECONDS)
            else:
                return


def serve_in_child(
    metrics: Collector, *, address: str, port: int, health: Probed
) -> ServerProcess | None:
    """Serve on `--metrics-address` and `--metrics-port` from a child; port 0 is off."""
    if not port:
        return None
    return ServerProcess(metrics, address=address, port=port, health=health)


def main() -> None:
    """Serve until the pipe closes; then raise EOFError."""
    listener, pipe = map(int, sys.argv[1:])
    snapshots: Connection[None, Snapshot] = Connection(pipe, writable=False)
    latest = LatestSnapshot()
    pages = SnapshotPages(latest)
    # Before the first answer: a process that has just started must not seem to have stopped.
    pages.take(snapshots.recv())
    with MetricsEndpoint(pages, listener=socket.socket(fileno=listener), health=latest):
        while True:
            pages.take(snapshots.recv())


if __name__ == "__main__":
    with contextlib.suppress(EOFError, ConnectionResetError):
        main()
