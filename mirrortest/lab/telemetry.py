"""What a lab publishes of itself: which of its parts run, so that faults show on time lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.lab.process import PartState
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics

if TYPE_CHECKING:
    from mirrortest.lab.lab import Lab
    from mirrortest.lab.process import Part


def part_metrics(lab: Lab) -> Metrics:
    """The metrics of a lab that is up; each scrape asks the parts themselves."""
    metrics = Metrics()
    for name, part in lab.parts.items():

        def runs(part: Part = part) -> float:
            return float(part.state is PartState.RUNNING)

        metrics.gauge(names.LAB_PART_UP, part=name).read_by(runs)
    return metrics
