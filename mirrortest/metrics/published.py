"""What a process tells of itself once a second, and a collector that gives it on from another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import prometheus_client
import structlog
from prometheus_client.registry import Collector

from mirrortest.metrics.health import Probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    from prometheus_client import Metric

    from mirrortest.metrics.health import Probed

_log = structlog.get_logger()

_TELL_SECONDS = 1.0
_FRESH_SECONDS = 10.0


class Published(NamedTuple):
    """All metrics of a process as of now, and its probes."""

    families: Sequence[Metric]
    probes: Probes


class Publisher:
    """Tells a collector's metrics, with those of this process, and what `health` answers."""

    def __init__(self, metrics: Collector, health: Probed) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(metrics)
        prometheus_client.ProcessCollector(registry=self._registry)
        self._health = health

    def tell(self, send: Callable[[Published], object], stopped: Event) -> None:
        """Tell all that there is now, and again each second until it is stopped.

        What could not be collected is told of in the log, and tried again a second later: metrics
        are read while they are written.
        """
        while not stopped.is_set():
            try:
                published = Published(list(self._registry.collect()), Probes.of(self._health))
            except Exception:  # noqa: BLE001  # whatever it was, it must not end all later telling
                _log.exception("the metrics could not be collected")
            else:
                send(published)
            stopped.wait(_TELL_SECONDS)


class Latest(Collector):
    """What was told last, for as long as it is fresh: a process that stands still is not well."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told: tuple[float, Published] | None = None

    def take(self, published: Published) -> None:
        """From now on this is the latest."""
        self._told = self._monotonic(), published

    def collect(self) -> Iterator[Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        yield from self._now.families

    @property
    def fresh(self) -> bool:
        """Whether it was told within ten seconds."""
        return self._told is not None and self._monotonic() - self._told[0] <= _FRESH_SECONDS

    @property
    def started(self) -> bool:
        """Whether it said so."""
        return self._now.probes.started

    @property
    def ready(self) -> bool:
        """Whether it said so."""
        return self._now.probes.ready

    @property
    def alive(self) -> bool:
        """Whether it said so."""
        return self._now.probes.alive

    @property
    def _now(self) -> Published:
        return self._told[1] if self._told and self.fresh else Published((), Probes())
