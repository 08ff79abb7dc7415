"""Of the overview: whether the figures can be trusted, and who takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.links import from_row
from grafana.panels import Link, Query, lines, number, rows
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana.panels import Panel
    from grafana.promql import Scope


def trust() -> list[Panel]:
    """Clock skew and its bounds, the ledger's silence."""
    scope = DASHBOARD
    least = scope.one(names.CONSUMER_LEAST_LATENCY)
    error = scope.one(names.CLOCK_ERROR)
    by_role = [
        (
            role,
            (
                f"max by (run) ({error} * on (job, instance, worker) group_left (run) "
                f"{scope.info(role=role)})"
            ),
        )
        for role in ("producer", "consumer")
    ]
    both = " + ".join(expression for _, expression in by_role)
    return [
        lines(
            "Clock skew: kernels' bound",
            "The error bar of every latency, from the clock errors that the two kernels report, "
            "added up: 16 s each where nothing sets the clock.",
            "s",
            Query(both, "both sides {{run}}"),
            span=6,
            runbook="MirrortestClockSkew",
        ),
        lines(
            "Clock skew: least latency",
            "The destination's clock is ahead of the producers' by at most this; below zero it is "
            "behind by at least as much.",
            "s",
            Query(scope.by("min", "run, topic, since", least), "since {{since}} {{run}} {{topic}}"),
            span=6,
            negative=True,
            runbook="MirrortestClockSkew",
        ),
        lines(
            "Arrived before they were sent",
            "Messages per second: proof that the clocks disagree.",
            "mps",
            Query(
                scope.by("sum", "run, topic, since", scope.rate(names.CONSUMER_NEGATIVE)),
                "since {{since}} {{run}} {{topic}}",
            ),
            span=6,
            runbook="MirrortestClockSkew",
        ),
        lines(
            "Ledger's silence",
            "Since the producers last wrote to it (producer), and since a consumer last read it. "
            "Without the ledger no loss can be proven.",
            "s",
            Query(
                scope.by("max", "run, name, role", scope.one(names.LEDGER_AGE)), "{{role}} {{name}}"
            ),
            span=6,
            runbook="MirrortestLedgerSilent",
        ),
    ]


def set_up() -> list[Panel]:
    """Producers, consumers, topics, partitions."""
    scope = DASHBOARD
    read = scope.one(names.CONSUMER_PARTITIONS)
    return [
        rows(
            "Who takes part",
            "Processes, the runs they take part in, their roles and versions.",
            {
                "there": scope.info(),
                "version": f"{scope.one(names.BUILD_INFO)}",
            },
            hidden=("there", "worker"),
            links={
                "name": [
                    Link(f"This process in {name.title()}", from_row(name, "run", "instance"))
                    for name in ("producer", "consumer")
                ]
            },
            span=12,
        ),
        number(
            "Producers",
            "That run now.",
            "none",
            Query(_of_role(scope, "producer"), "{{run}}"),
            span=3,
        ),
        number(
            "Consumers",
            "That judge the destination now.",
            "none",
            Query(_of_role(scope, "consumer"), "{{run}}"),
            span=3,
        ),
        number(
            "Topics",
            "That are consumed.",
            "none",
            Query(
                f"count by (run) ({scope.by('sum', 'run, topic', read)})",
                "{{run}}",
            ),
            span=3,
        ),
        number(
            "Partitions",
            "Of the destination that are read now.",
            "none",
            Query(scope.by("sum", "run", scope.one(names.CONSUMER_PARTITIONS)), "{{run}}"),
            span=3,
        ),
    ]


def _of_role(scope: Scope, role: str) -> str:
    """How many have this role; 0, and not the number of before, while only others go on."""
    return f"count by (run) ({scope.info(role=role)}) or 0 * count by (run) ({scope.info()})"
