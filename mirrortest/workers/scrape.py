"""One endpoint for all workers: their series side by side, told apart by the label `worker`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.registry import Collector

from mirrortest.metrics.endpoint import serve_metrics
from mirrortest.metrics.health import Probes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.workers.crew import Crew
    from mirrortest.workers.messages import Metrics

LABEL = "worker"


class CrewMetrics(Collector):
    """Asks every worker at each scrape, all at once; one that does not answer is left out.

    For the probes one that does not answer counts as dead, and one that is through not at all.

    Nothing is added up: what may be summed and what may not is for the query to say, as it is
    where each process has an endpoint of its own.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def collect(self) -> Iterator[Metric]:
        """What a scrape reads; see `prometheus_client.registry.Collector`."""
        yield from together(self._answers())

    @property
    def started(self) -> bool:
        """Whether every worker is."""
        return all(probes.started for probes in self._probes())

    @property
    def ready(self) -> bool:
        """Whether every worker is."""
        return all(probes.ready for probes in self._probes())

    @property
    def alive(self) -> bool:
        """Whether every worker is."""
        return all(probes.alive for probes in self._probes())

    def _probes(self) -> list[Probes]:
        return [answer.published.probes if answer else Probes() for _, answer in self._answers()]

    def _answers(self) -> list[tuple[int, Metrics | None]]:
        there = [worker for worker in self._crew.workers if not worker.gone]
        asked = [(worker, worker.ask()) for worker in there]
        return [(worker.number, worker.answer(number)) for worker, number in asked]


def together(answers: Iterable[tuple[int, Metrics | None]]) -> Iterator[Metric]:
    """One family for each name, with the samples of all workers (number, answer)."""
    families: dict[str, Metric] = {}
    for number, answer in answers:
        for family in answer.published.families if answer is not None else ():
            whole = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            whole.samples += [
                sample._replace(labels={**sample.labels, LABEL: str(number)})
                for sample in family.samples
            ]
    yield from families.values()


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
