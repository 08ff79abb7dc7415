"""What the processes themselves cost: CPU, memory, clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.panels import Query, lines
from grafana.promql import DASHBOARD
from mirrortest.metrics import names

if TYPE_CHECKING:
    from grafana.panels import Panel

_CPU, _MEMORY = "process_cpu_seconds_total", "process_resident_memory_bytes"
PROCESS_METRICS = frozenset({_CPU, _MEMORY})
"""What `prometheus_client` tells of a process beside our own metrics."""


def process_panels(role: str) -> list[Panel]:
    """Four panels on the processes that have this role."""
    scope = DASHBOARD
    there = f"max by (job, instance, run) ({scope.info(role=role)})"
    matchers = ", ".join(scope.instances)

    def of_role(expression: str, how: str = "sum") -> str:
        # By instance alone: the workers of one have one endpoint.
        of_instance = f"{how} by (job, instance) ({expression})"
        return f"{of_instance} * on (job, instance) group_left (run) {there}"

    def of_clock(expression: str) -> str:
        # Workers share one clock: what each of them sees of it is the same, and no sum.
        return of_role(expression, "max")

    steps = f"increase({scope.one(names.CLOCK_STEPPED)}[5m])"
    return [
        lines(
            "CPU",
            "Cores that each process takes. A tester that is short of CPU measures itself.",
            "none",
            Query(of_role(f"rate({_CPU}{{{matchers}}}[{scope.window}])"), "{{instance}}"),
            span=6,
        ),
        lines(
            "Memory",
            "Resident.",
            "bytes",
            Query(of_role(f"{_MEMORY}{{{matchers}}}"), "{{instance}}"),
            span=6,
        ),
        lines(
            "Clock: stepped, and the kernel's bound",
            "By how much the wall clock was set in the last 5 minutes, and how far off it may be. "
            "Latencies depend on it; verdicts do not.",
            "s",
            Query(of_clock(steps), "stepped {{instance}}"),
            Query(of_clock(scope.one(names.CLOCK_ERROR)), "bound {{instance}}"),
            span=6,
            runbook="MirrortestClockSkew",
        ),
        lines(
            "Clock steps",
            "How often the wall clock was set in the last 5 minutes, beyond what NTP slews.",
            "short",
            Query(of_clock(f"increase({scope.one(names.CLOCK_STEPS)}[5m])"), "{{instance}}"),
            span=6,
            runbook="MirrortestClockSkew",
        ),
    ]
