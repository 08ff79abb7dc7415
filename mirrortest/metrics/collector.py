"""The published numbers, and the collector through which a scrape reads them.

The applications update numbers and `timing.histogram.Histogram`s, a batch at a time; only a scrape
converts them. It runs in another thread while the application continues. It reads each number once,
so a histogram's count is always the sum of its buckets.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

import mirrortest
from mirrortest.metrics import names
from mirrortest.metrics.kernel_clock import clock_error_bound
from mirrortest.metrics.names import Kind, Metric
from mirrortest.timing.histogram import PROMETHEUS_NS, PROMETHEUS_SECONDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import prometheus_client

_BOUNDS = (*PROMETHEUS_NS, 1 << 64)
_LABELS = (*(str(float(bound)) for bound in PROMETHEUS_SECONDS), "+Inf")


class Counter:
    """A number that only rises; one thread writes it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Add an amount; ValueError for less than 0."""
        if amount < 0:
            raise ValueError("a counter only rises")
        self.value += amount

    def raise_to(self, total: float) -> None:
        """Set a total that is counted elsewhere; a lower one is ignored."""
        self.value = max(self.value, total)


class Gauge:
    """A number that goes up and down, or a function that each scrape calls."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: float = 0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Publish a value from now on."""
        self._value = value
        self._read = None

    def read_by(self, function: Callable[[], float]) -> None:
        """Call `function` at each scrape, in the scrape's thread: for ages, which grow."""
        self._read = function

    @property
    def value(self) -> float:
        """The value that a scrape would read now."""
        return self._value if self._read is None else self._read()


Child = TypeVar("Child", Counter, Gauge, Histogram)


class Metrics(Collector):
    """All metrics of one process, by the names of `names.TABLE`.

    The first call for a child creates it, at zero; later ones return it. Labels are keyword
    arguments, exactly those of the metric's row; else ValueError. `common` are labels that have one
    value in this process; callers leave them out.
    """

    def __init__(self, **common: str) -> None:
        self._lock = Lock()
        self._common = common
        self._children: dict[Metric, dict[tuple[str, ...], Counter | Gauge | Histogram]] = {}
        self.gauge(names.BUILD_INFO, version=mirrortest.__version__).set(1)
        if clock_error_bound() is not None:
            self.gauge(names.CLOCK_ERROR).read_by(lambda: clock_error_bound() or 0.0)

    def counter(self, metric: Metric, **labels: str) -> Counter:
        """A counter of the table."""
        return self._child(metric, Kind.COUNTER, labels, Counter())

    def gauge(self, metric: Metric, **labels: str) -> Gauge:
        """A gauge of the table."""
        return self._child(metric, Kind.GAUGE, labels, Gauge())

    def histogram(
        self, metric: Metric, histogram: Histogram | None = None, **labels: str
    ) -> Histogram:
        """A histogram of the table; a given one replaces the child, and scrapes read it."""
        if histogram is not None:
            self.remove(metric, **labels)
        fresh = Histogram() if histogram is None else histogram
        return self._child(metric, Kind.HISTOGRAM, labels, fresh)

    def remove(self, metric: Metric, **labels: str) -> None:
        """Stop publishing a child, as for a partition that went to another consumer."""
        with self._lock:
            self._children.get(metric, {}).pop(self._key(metric, labels), None)

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        with self._lock:
            families = [(metric, list(found.items())) for metric, found in self._children.items()]
        for metric, children in families:
            if children:
                yield _family(metric, children)

    def _child(self, metric: Metric, kind: Kind, labels: Mapping[str, str], fresh: Child) -> Child:
        if metric.kind is not kind:
            raise ValueError(f"{metric.name} is a {metric.kind}, not a {kind}")
        with self._lock:
            child = self._children.setdefault(metric, {}).setdefault(
                self._key(metric, labels), fresh
            )
        if not isinstance(child, type(fresh)):
            raise TypeError(f"{metric.name} is published as {type(child).__name__}")
        return child

    def _key(self, metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
        given = {name: self._common[name] for name in metric.labels if name in self._common}
        given |= labels
        if set(given) != set(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(given)}")
        return tuple(given[name] for name in metric.labels)


def _family(
    metric: Metric, children: list[tuple[tuple[str, ...], Counter | Gauge | Histogram]]
) -> prometheus_client.Metric:
    family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if metric.kind is Kind.HISTOGRAM:
        family = HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
        for labels, child in children:
            if isinstance(child, Histogram):
                buckets = list(zip(_LABELS, child.cumulative(_BOUNDS), strict=True))
                seconds = (child.total - child.negative_total) / 1e9
                family.add_metric(labels, buckets, seconds)
        return family
    if metric.kind is Kind.COUNTER:
        family = CounterMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    for labels, child in children:
        if not isinstance(child, Histogram):
            family.add_metric(labels, child.value)
    return family
