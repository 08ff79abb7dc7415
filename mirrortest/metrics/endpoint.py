"""The HTTP server that Prometheus and Kubernetes ask: /metrics; /startup, /ready, /live.

It runs in a thread of its own: a scrape of many histograms takes tens of milliseconds, which the
event loop does not have.
"""

from __future__ import annotations

import socket
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import prometheus_client

from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.registry import Collector

    from mirrortest.metrics.health import Probed

_CLIENT_TIMEOUT_S = 10
_STOP_POLL_S = 0.05


class MetricsEndpoint:
    """Serves a collector's metrics, with those of its own process, on an address and a port.

    Port 0 takes a free one; `port` tells which. `health` answers the probes, in the server's
    thread; without one they all pass.

    Raises:
        UsageError: the address does not exist here, or the port is taken or not allowed.
    """

    def __init__(
        self,
        metrics: Collector,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        health: Probed | None = None,
        own_process: bool = True,
    ) -> None:
        registry = prometheus_client.CollectorRegistry()
        registry.register(metrics)
        if own_process:
            prometheus_client.ProcessCollector(registry=registry)
        app = _routes(prometheus_client.make_wsgi_app(registry), health)
        try:
            family, host = _resolved(address, port)
            server_class: type[_Server] = type("_Server", (_Server,), {"address_family": family})
            self._server: _Server = make_server(host, port, app, server_class, _Handler)
        except OSError as error:
            raise UsageError(
                f"--metrics-port {port}: cannot listen on {address}: {error.strerror or error}"
            ) from error
        self.address = address
        self.port = self._server.server_port
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": _STOP_POLL_S},
            name="metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def stop(self) -> None:
        """Stop serving and free the port; more than once does no harm."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Serve(Protocol):
    """How an application's metrics come to be served: `serve_metrics`, or what takes its place."""

    def __call__(
        self, metrics: Collector, *, address: str, port: int, health: Probed | None = None
    ) -> MetricsEndpoint | None:
        """Serve until the endpoint that is returned is stopped; None where nobody asked."""


def serve_metrics(
    metrics: Collector,
    *,
    address: str,
    port: int,
    health: Probed | None = None,
    own_process: bool = True,
) -> MetricsEndpoint | None:
    """Serve as `--metrics-address` and `--metrics-port` say; port 0 is off."""
    if not port:
        return None
    return MetricsEndpoint(
        metrics, address=address, port=port, health=health, own_process=own_process
    )


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a request, none of which holds the process up."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which can take seconds where DNS is broken."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


class _Handler(WSGIRequestHandler):
    """Keeps no log of requests, and no client that does not speak."""

    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Say nothing: stderr belongs to the program's log."""


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
        if path in probes:
            status = HTTPStatus.OK if probes[path]() else HTTPStatus.SERVICE_UNAVAILABLE
        else:
            status = HTTPStatus.NOT_FOUND
        body = f"{status.phrase}\n".encode()
        headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    return route
