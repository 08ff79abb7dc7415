"""The HTTP server: /metrics for Prometheus; /startup, /ready, /live for Kubernetes; /status.

It runs in a thread. A busy process uses a child process instead (`server_process`).
"""

from __future__ import annotations

import socket
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import prometheus_client

from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed

_CLIENT_TIMEOUT_S = 10
_STOP_POLL_S = 0.05


class MetricsEndpoint:
    """Serves a collector's metrics, with those of its own process, on an address and a port.

    `metrics` may also be a WSGI application that answers scrapes itself. Port 0 is a free port, see
    `port`. `health` answers the probes and has the status; each request reads it in a thread of its
    own. Without it all probes pass. A listening `listener` replaces address and port.
    `own_process=False` leaves out the metrics of this process.

    Raises:
        UsageError: the address does not exist here, or the port is in use or not allowed.
    """

    def __init__(
        self,
        metrics: Collector | WSGIApplication,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
        health: Probed | None = None,
        own_process: bool = True,
    ) -> None:
        if listener is None:
            listener = listening(address, port)
        if not callable(metrics):
            registry = prometheus_client.CollectorRegistry()
            registry.register(metrics)
            if own_process:
                prometheus_client.ProcessCollector(registry=registry)
            metrics = prometheus_client.make_wsgi_app(registry)
        self._server = _Server(listener, _routes(metrics, health))
        self.port = self._server.server_port
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _STOP_POLL_S},
            name="metrics",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port; it can be repeated."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Serve(Protocol):
    """How an application's metrics are served: by `serve_in_child`, or over a worker's pipe."""

    def __call__(
        self, metrics: Collector, *, address: str, port: int, health: Probed
    ) -> AbstractContextManager[object] | None:
        """Serve until the returned context ends; None: metrics are off."""


def serve_metrics(
    metrics: Collector,
    *,
    address: str,
    port: int,
    health: Probed | None = None,
    own_process: bool = True,
) -> MetricsEndpoint | None:
    """Serve on `--metrics-address` and `--metrics-port`; port 0 is off."""
    if not port:
        return None
    return MetricsEndpoint(
        metrics, address=address, port=port, health=health, own_process=own_process
    )


class _Server(ThreadingMixIn, WSGIServer):
    """Uses a thread for each request; none of them delays the process's end."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, app: WSGIApplication) -> None:
        self.address_family = listener.family
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        # The base class would look the host's name up: seconds if DNS is broken.
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(app)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the client disconnected."""


class _Handler(WSGIRequestHandler):
    """Logs no requests, and disconnects clients that send nothing."""

    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Log nothing: stderr belongs to the program's log."""


def listening(address: str, port: int) -> socket.socket:
    """A listening socket; port 0 is a free port. Raises UsageError as `MetricsEndpoint` does."""
    try:
        family, host = _resolved(address, port)
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen()
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UsageError(
            f"--metrics-port {port}: cannot listen on {address}: {error.strerror or error}"
        ) from error
    return listener


def _resolved(address: str, port: int) -> tuple[socket.AddressFamily, str]:
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, bound = found[0]
    return family, str(bound[0])


def _routes(metrics: WSGIApplication, health: Probed | None) -> WSGIApplication:
    probes: dict[str, Callable[[], bool]] = {
        "/startup": lambda: health is None or health.started,
        "/ready": lambda: health is None or health.ready,
        "/live": lambda: health is None or health.alive,
    }

    def route(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        text, kind = "", "text/plain"
        if path in probes:
            status = HTTPStatus.OK if probes[path]() else HTTPStatus.SERVICE_UNAVAILABLE
        elif path != "/status":
            status = HTTPStatus.NOT_FOUND
        elif health is None or (found := health.status) is None:
            status = HTTPStatus.SERVICE_UNAVAILABLE
        else:
            status, kind = HTTPStatus.OK, "application/json"
            text = found.document().model_dump_json()
        body = f"{text or status.phrase}\n".encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    return route
