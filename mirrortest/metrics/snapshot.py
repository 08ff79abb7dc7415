"""Snapshots of a process's metrics and probes, once a second, and pages rendered from them."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import prometheus_client
import structlog
from prometheus_client.registry import Collector

from mirrortest.metrics.health import Probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from threading import Event
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client import Metric

    from mirrortest.metrics.health import Probed, Status

_log = structlog.get_logger()

_SEND_SECONDS = 1.0
_FRESH_SECONDS = 10.0
_MOST_FORMS = 4


class Snapshot(NamedTuple):
    """All metrics of a process, and its probes, at one moment."""

    families: Sequence[Metric]
    probes: Probes


class SnapshotSender:
    """Sends snapshots of a collector, of this process's own metrics, and of `health`."""

    def __init__(self, metrics: Collector, health: Probed) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(metrics)
        prometheus_client.ProcessCollector(registry=self._registry)
        self._health = health

    def run(self, send: Callable[[Snapshot], object], stopped: Event) -> None:
        """Send a snapshot each second until `stopped` is set.

        A failure to collect is logged, and collecting is tried again a second later: metrics are
        read while they are written. Raises BrokenPipeError if the receiver has ended.
        """
        while not stopped.is_set():
            try:
                send(Snapshot(list(self._registry.collect()), Probes.of(self._health)))
            except BrokenPipeError:
                raise
            except Exception:  # noqa: BLE001  # whatever it was, later snapshots must be sent
                _log.exception("the metrics could not be collected")
            stopped.wait(_SEND_SECONDS)


class LatestSnapshot(Collector):
    """The latest snapshot while it is fresh; after that no metrics, and all probes fail."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._received: tuple[float, Snapshot] | None = None

    def take(self, snapshot: Snapshot) -> None:
        """Make this the latest snapshot."""
        self._received = self._monotonic(), snapshot

    def collect(self) -> Iterator[Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        yield from self._now.families

    @property
    def fresh(self) -> bool:
        """Whether the latest snapshot came within the last ten seconds."""
        received = self._received
        return received is not None and self._monotonic() - received[0] <= _FRESH_SECONDS

    @property
    def started(self) -> bool:
        """Whether it is fresh and reports so; see `Health`."""
        return self._now.probes.started

    @property
    def ready(self) -> bool:
        """Whether it is fresh and reports so; see `Health`."""
        return self._now.probes.ready

    @property
    def alive(self) -> bool:
        """Whether it is fresh and reports so; see `Health`."""
        return self._now.probes.alive

    @property
    def status(self) -> Status | None:
        """The process's status; None if the snapshot is not fresh."""
        return self._now.probes.status

    @property
    def _now(self) -> Snapshot:
        return self._received[1] if self._received and self.fresh else Snapshot((), Probes())


class _Form(NamedTuple):
    """The parts of a request that its answer depends on, by their WSGI names."""

    REQUEST_METHOD: str
    PATH_INFO: str
    QUERY_STRING: str
    HTTP_ACCEPT: str
    HTTP_ACCEPT_ENCODING: str


class _Page(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


class SnapshotPages:
    """A WSGI application that serves the latest snapshot while it is fresh.

    A scraper requests the same form (format, compression) each time. Forms requested before are
    rendered as soon as a snapshot comes, so a scrape only sends bytes.
    """

    def __init__(self, latest: LatestSnapshot) -> None:
        self._latest = latest
        registry = prometheus_client.CollectorRegistry()
        registry.register(latest)
        self._app = prometheus_client.make_wsgi_app(registry)
        self._pages: dict[_Form, _Page] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Make this the latest snapshot, and render it."""
        self._latest.take(snapshot)
        for form in list(self._pages):
            self._pages[form] = self._rendered(form)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a scrape; 503 if the latest snapshot is not fresh."""
        if not self._latest.fresh:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            start_response(f"{status.value} {status.phrase}", [("Content-Length", "0")])
            return []
        form = _Form._make(environ.get(name, "") for name in _Form._fields)
        page = self._pages.get(form)
        if page is None:
            # Limits what a scraper with ever new forms makes us render.
            for old in list(self._pages)[: 1 - _MOST_FORMS]:
                self._pages.pop(old, None)
            page = self._pages[form] = self._rendered(form)
        start_response(page.status, page.headers)
        return [page.body]

    def _rendered(self, form: _Form) -> _Page:
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._app(form._asdict(), lambda *head: heads.append(head)))
        return _Page(*heads[0], body)
