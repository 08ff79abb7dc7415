"""One metrics endpoint for all workers: their series have the label `worker`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.registry import Collector

from mirrortest.metrics.endpoint import serve_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirrortest.metrics.health import Status
    from mirrortest.workers.worker_pool import Worker, WorkerPool

LABEL = "worker"


class PoolMetrics(Collector):
    """The latest metrics of every worker, except of one that hangs or has ended.

    Probes count a worker that hangs as dead, and ignore one that has ended. No metric is summed:
    queries do that, as with one endpoint for each process. `status` merges the workers' statuses.
    """

    def __init__(self, pool: WorkerPool, status: Callable[[], Status | None]) -> None:
        self._pool = pool
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        yield from merged_families(
            (worker.number, worker.published.collect()) for worker in self._running()
        )

    @property
    def started(self) -> bool:
        """Whether every worker has started."""
        return all(worker.published.started for worker in self._running())

    @property
    def ready(self) -> bool:
        """Whether every worker is ready."""
        return all(worker.published.ready for worker in self._running())

    @property
    def alive(self) -> bool:
        """Whether every worker is alive."""
        return all(worker.published.alive for worker in self._running())

    @property
    def status(self) -> Status | None:
        """The merged status of all workers."""
        return self._status()

    def _running(self) -> list[Worker]:
        return [worker for worker in self._pool.workers if not worker.has_ended]


def merged_families(metrics: Iterable[tuple[int, Iterable[Metric]]]) -> Iterator[Metric]:
    """One family for each name, with the samples of all workers; `metrics` is by worker number."""
    merged: dict[str, Metric] = {}
    for number, families in metrics:
        for family in families:
            into = merged.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            into.samples += [
                sample._replace(labels={**sample.labels, LABEL: str(number)})
                for sample in family.samples
            ]
    yield from merged.values()


@contextlib.contextmanager
def serving(
    pool: WorkerPool, status: Callable[[], Status | None], *, address: str, port: int
) -> Iterator[None]:
    """Serve the workers' metrics if a port is given; raises UsageError if it cannot be used."""
    metrics = PoolMetrics(pool, status)
    endpoint = serve_metrics(metrics, address=address, port=port, health=metrics, own_process=False)
    with endpoint or contextlib.nullcontext():
        yield
