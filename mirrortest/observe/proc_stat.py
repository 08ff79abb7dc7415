"""CPU, context switches and interrupts: /proc/stat and /proc/pressure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrortest.observe.counters import Change, ratio

if TYPE_CHECKING:
    from mirrortest.observe.counters import Counters

_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""In the order of the file; user and nice include the guests' time, which follows."""
_WORDS = {"ctxt", "intr", "processes", "procs_running", "procs_blocked"}
_PRESSURE = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)


def parse(text: str) -> Counters:
    """The counters of /proc/stat; CPU times in clock ticks, of all CPUs together."""
    found: Counters = {}
    for line in text.splitlines():
        name, *values = line.split()
        if name == "cpu":
            found |= dict(zip(_CPU, map(int, values), strict=False))
        elif name in _WORDS and values:
            found[name] = int(values[0])
    return found


def pressure(text: str) -> int | None:
    """Microseconds in which some thread was stalled, from a file of /proc/pressure."""
    found = _PRESSURE.search(text)
    return int(found[1]) if found else None


def figures(before: Counters, now: Counters, seconds: float) -> dict[str, float | None]:
    """The figures of `model.observed.HOST` that come from here."""
    change = Change(before, now, seconds)
    total = change.of(*_CPU)

    def share(*names: str) -> float | None:
        return ratio(change.of(*names), total)

    return {
        "cpu_ratio": share("user", "nice", "system", "irq", "softirq"),
        "user_ratio": share("user", "nice"),
        "system_ratio": share("system", "irq", "softirq"),
        "io_wait_ratio": share("iowait"),
        "steal_ratio": share("steal"),
        "idle_ratio": share("idle"),
        "context_switches_per_second": change.per_second("ctxt"),
        "interrupts_per_second": change.per_second("intr"),
        "forks_per_second": change.per_second("processes"),
        "running": now.get("procs_running"),
        "blocked": now.get("procs_blocked"),
        "cpu_pressure_ratio": change.share("pressure_cpu", unit=1e-6),
        "io_pressure_ratio": change.share("pressure_io", unit=1e-6),
        "memory_pressure_ratio": change.share("pressure_memory", unit=1e-6),
    }
