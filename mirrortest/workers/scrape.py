"""One endpoint for all workers: their series side by side, told apart by the label `worker`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.registry import Collector

from mirrortest.metrics.endpoint import serve_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.workers.crew import Crew, Worker

LABEL = "worker"


class CrewMetrics(Collector):
    """What every worker told last; one that stands still is left out.

    For the probes it counts as dead, and one that is through not at all.

    Nothing is added up: what may be summed and what may not is for the query to say, as it is
    where each process has an endpoint of its own.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def collect(self) -> Iterator[Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        yield from together((worker.number, worker.published.collect()) for worker in self._there())

    @property
    def started(self) -> bool:
        """Whether every worker is."""
        return all(worker.published.started for worker in self._there())

    @property
    def ready(self) -> bool:
        """Whether every worker is."""
        return all(worker.published.ready for worker in self._there())

    @property
    def alive(self) -> bool:
        """Whether every worker is."""
        return all(worker.published.alive for worker in self._there())

    def _there(self) -> list[Worker]:
        return [worker for worker in self._crew.workers if not worker.gone]


def together(told: Iterable[tuple[int, Iterable[Metric]]]) -> Iterator[Metric]:
    """One family for each name, with the samples of all workers (number, families)."""
    whole: dict[str, Metric] = {}
    for number, families in told:
        for family in families:
            into = whole.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            into.samples += [
                sample._replace(labels={**sample.labels, LABEL: str(number)})
                for sample in family.samples
            ]
    yield from whole.values()


@contextlib.contextmanager
def serving(crew: Crew, *, address: str, port: int) -> Iterator[None]:
    """Serve the workers' metrics where that is asked for; UsageError where the port is refused."""
    metrics = CrewMetrics(crew)
    endpoint = serve_metrics(
        metrics,
        address=address,
        port=port,
        health=metrics,
        own_process=False,
    )
    with endpoint or contextlib.nullcontext():
        yield
