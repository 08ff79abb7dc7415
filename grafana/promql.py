"""PromQL over our own metrics, by their rows in the metrics' table.

Our series carry no run: `mirrortest_run_info` tells which run an instance takes part in. What is
asked for a run is joined with it by job, instance and worker (of `--workers`; absent elsewhere).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.metrics import names
from mirrortest.metrics.names import Kind, Side

if TYPE_CHECKING:
    from mirrortest.metrics.names import Metric

PROCESS = "job, instance, worker"
"""The labels that tell one process from another."""


@dataclass(frozen=True)
class Scope:
    """Which series a query looks at, and over which time it takes rates.

    Attributes:
        instances: matchers of every selector.
        runs: matchers of the run.
        topics: matchers of every selector whose metric has a topic.
        window: of rates.
    """

    instances: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    window: str = "2m"

    def one(self, metric: Metric, part: str = "", **labels: str) -> str:
        """A selector; `part` is a histogram's ``_bucket``, ``_count`` or ``_sum``.

        A value of `labels` that begins with ``~`` is a regular expression.
        """
        if metric.side is Side.CONSUMER:
            labels.setdefault("role", "consumer")
        if unknown := labels.keys() - {*metric.labels}:
            raise ValueError(f"{metric.full_name} has no label {', '.join(sorted(unknown))}")
        matchers = [*self.instances, *(self.topics if "topic" in metric.labels else ())]
        for label, value in labels.items():
            matchers.append(f'{label}=~"{value[1:]}"' if value[:1] == "~" else f'{label}="{value}"')
        return f"{metric.full_name}{part}{{{', '.join(matchers)}}}"

    def rate(self, metric: Metric, part: str = "", **labels: str) -> str:
        """Per second, over the window."""
        if metric.kind is Kind.GAUGE:
            raise ValueError(f"{metric.full_name} is no counter")
        return f"rate({self.one(metric, part, **labels)}[{self.window}])"

    def info(self, **labels: str) -> str:
        """Who takes part in which run."""
        matchers = [*self.instances, *self.runs]
        matchers += (f'{label}="{value}"' for label, value in labels.items())
        return f"{names.RUN_INFO.full_name}{{{', '.join(matchers)}}}"

    def of_run(self, expression: str) -> str:
        """The expression's series with the labels run, name and role."""
        return f"{expression} * on ({PROCESS}) group_left (run, name, role) {self.info()}"

    def by(self, how: str, labels: str, expression: str) -> str:
        """Aggregated over the processes of a run: ``sum by (run, topic) (...)``."""
        return f"{how} by ({labels}) ({self.of_run(expression)})"

    def quantile(self, share: float, labels: str, metric: Metric, **matching: str) -> str:
        """A histogram's quantile, over all processes."""
        buckets = self.by("sum", f"{labels}, le", self.rate(metric, "_bucket", **matching))
        return f"histogram_quantile({share:g}, {buckets})"


DASHBOARD = Scope(
    instances=('job=~"$job"', 'instance=~"$instance"'),
    runs=('run=~"$run"',),
    topics=('topic=~"$topic"',),
    window="$__rate_interval",
)
"""What a dashboard's variables select."""
