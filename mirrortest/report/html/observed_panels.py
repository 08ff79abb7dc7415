"""The observations of machines, JVMs, brokers and logs, as panels of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.config.units import MIB
from mirrortest.model.observed import (
    BROKER,
    DEVICE,
    GC,
    HOST,
    INTERFACE,
    LOG,
    MIRROR,
    PAUSES,
    PROCESS,
    REQUEST,
    STAGES,
    GcKind,
)
from mirrortest.report.html.observations import MACHINE, short_names
from mirrortest.report.html.panels import Line, Panel, with_values
from mirrortest.report.html.timeline import times_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.model.observed import Observed
    from mirrortest.report.html.observations import Observations
    from mirrortest.report.html.timeline import Steps

_STYLES = ("first", "second", "third", "fourth", "fifth", "sixth")
MOST_LINES = len(_STYLES)
_REQUESTS = ("Produce", "FetchConsumer", "FetchFollower")


class Drawn(NamedTuple):
    """Panels of a chart, and the titles of panels whose figures were 0 all the time."""

    panels: list[Panel]
    silent: list[str]


def machine_panels(found: Observations, machine: str) -> Drawn:
    """CPU, memory, network and disks of one machine, and its processes."""
    of_machine = {MACHINE: machine}

    def host(**figures: str) -> dict[str, Steps]:
        return _labelled(found, HOST, figures, of_machine)

    def several(table: Observed, most: str, **figures: str) -> dict[str, Steps]:
        """The figures of those devices or interfaces whose figure `most` is highest."""
        key = table.keys[0].name
        leading = _leading(found.of(table, most, key, of_machine))
        chosen = leading[: max(MOST_LINES // len(figures), 1)]
        return {
            label if len(chosen) == 1 else f"{name} {label}": values
            for name in chosen
            for label, values in _labelled(found, table, figures, {**of_machine, key: name}).items()
        }

    def disks(**figures: str) -> dict[str, Steps]:
        return several(DEVICE, "written_bytes_per_second", **figures)

    def processes(figure: str) -> dict[str, Steps]:
        by_name = found.of(PROCESS, figure, "process", of_machine)
        order = _leading(found.of(PROCESS, "cpus", "process", of_machine))
        short = short_names(by_name)
        return {short[name]: by_name[name] for name in order[:MOST_LINES]}

    written = found.of(DEVICE, "written_bytes_per_second", "device", of_machine)
    writes = found.of(DEVICE, "writes_per_second", "device", of_machine)
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = {
            name: np.where(writes[name] > 0, written[name] / writes[name], np.nan)
            for name in _leading(written)[:MOST_LINES]
        }
    always = [
        _panel("CPU, % of all CPUs", "%", host(
            **{"at work": "cpu_ratio", "in the kernel": "system_ratio"},
            **{"waiting for I/O": "io_wait_ratio", "stolen": "steal_ratio"},
        ), 100),
        _panel("context switches/s", "", host(switches="context_switches_per_second")),
        _panel("CPU of processes, in cores", "", processes("cpus")),
        _panel("memory, MiB", "", host(
            available="available_bytes", dirty="dirty_bytes", **{"page cache": "page_cache_bytes"}
        ), 1 / MIB),
        _panel("memory of processes, MiB", "", processes("resident_bytes"), 1 / MIB),
        _panel("reads that the page cache served, %", "%", _cache_hits(found, of_machine), 100),
        _panel("network, MiB/s", "", several(
            INTERFACE, "received_bytes_per_second",
            received="received_bytes_per_second", sent="sent_bytes_per_second",
        ), 1 / MIB),
        _panel("disk, MiB/s", "", disks(
            read="read_bytes_per_second", written="written_bytes_per_second"
        ), 1 / MIB),
        _panel("disk, requests/s", "", disks(
            reads="reads_per_second", writes="writes_per_second", flushes="flushes_per_second"
        )),
        _panel("disk, requests in the queue", "", disks(queue="queue")),
        _panel("disk, response time", "s", disks(
            reads="read_seconds", writes="write_seconds", flushes="flush_seconds"
        )),
        _panel("disk, % of time busy", "%", disks(busy="busy_ratio"), 100),
        _panel("writes merged before the disk, %", "%", disks(merged="write_merge_ratio"), 100),
        _panel("size of a write to the disk, KiB", "", sizes, 1 / 1024),
    ]  # fmt: skip
    trouble = [
        _panel("network trouble, packets/s", "", {
            **host(retransmitted="tcp_retransmits_per_second"),
            **_labelled(found, INTERFACE, {
                "errors": "errors_per_second", "dropped": "dropped_per_second"
            }, of_machine),
        }),
        _panel("swap, MiB/s", "", host(
            **{"read back": "swap_in_bytes_per_second", "written": "swap_out_bytes_per_second"}
        ), 1 / MIB),
    ]  # fmt: skip
    return _drawn(always, trouble)


def jvm_panels(found: Observations) -> Drawn:
    """Pauses and heap of each JVM, from its garbage collection log."""
    steps = found.slots.count
    longest, shares, heaps = {}, {}, {}
    for name, (slot, seconds) in found.events(GC, "seconds", "log", PAUSES).items():
        longest[name] = np.full(steps, np.nan)
        np.fmax.at(longest[name], slot, seconds)
        step = found.slots.step_ns / 1e9
        shares[name] = np.minimum(np.bincount(slot, seconds, steps) / step, 1)
    for name, (slot, after) in found.events(GC, "after_bytes", "log", _COLLECTIONS).items():
        heaps[name] = np.full(steps, np.nan)
        # The level until the next collection.
        for at, value in zip(slot.tolist(), after.tolist(), strict=True):
            heaps[name][at:] = value
    order = _leading(shares) or _leading(heaps)
    panels = [
        _panel("time in pauses, %", "%", _short(shares, order), 100),
        _panel("longest pause", "s", _short(longest, order)),
        _panel("heap after a collection, MiB", "", _short(heaps, order), 1 / MIB),
    ]
    return _drawn(panels)


_COLLECTIONS = frozenset({GcKind.YOUNG, GcKind.FULL, GcKind.COLLECTION, GcKind.CONCURRENT})


def broker_panels(found: Observations) -> Drawn:
    """The figures that brokers and the mirror export."""
    brokers = list(found.of(BROKER, "bytes_in_per_second", "endpoint"))
    first = sorted(brokers, key=lambda name: (len(name), name))[:MOST_LINES]

    def each(figure: str) -> dict[str, Steps]:
        values = found.of(BROKER, figure, "endpoint")
        return {name: values[name] for name in first if name in values}

    def highest(lines: dict[str, Steps]) -> dict[str, Steps]:
        return {name: lines[name] for name in sorted(_leading(lines)[:MOST_LINES])}

    def together(**figures: str) -> dict[str, Steps]:
        return {
            label: values
            for label, figure in figures.items()
            for values in [_sum(found.of(BROKER, figure, "endpoint"))]
            if values is not None
        }

    rate = "requests_per_second"

    def stages(request: str) -> dict[str, Steps]:
        """Means over all brokers, each by its number of requests."""
        return {
            stage.title: values[request]
            for stage in STAGES
            for values in [found.of(REQUEST, f"{stage.name}_seconds", "request", weight=rate)]
            if request in values and np.nansum(values[request]) > 0
        }

    always = [
        _panel("messages written/s", "", each("messages_in_per_second")),
        _panel("bytes in, MiB/s", "", each("bytes_in_per_second"), 1 / MIB),
        _panel("bytes out, MiB/s", "", each("bytes_out_per_second"), 1 / MIB),
        *(
            _panel(f"time of a request by stage, ms: {request}", "", stages(request), 1000)
            for request in _REQUESTS
        ),
        _panel("request handlers idle, %", "%", each("handler_idle_ratio"), 100),
        _panel("network threads idle, %", "%", each("network_idle_ratio"), 100),
        _panel("requests in purgatory", "", together(
            produce="produce_purgatory", fetch="fetch_purgatory"
        )),
        _panel("flush of a log, mean time", "s", each("flush_seconds")),
        _panel("flushes/s", "", each("flushes_per_second")),
        _panel("mirror: records/s", "", highest(found.of(
            MIRROR, "records_per_second", "endpoint"
        ))),
        _panel("mirror: MiB/s", "", highest(found.of(
            MIRROR, "bytes_per_second", "endpoint"
        )), 1 / MIB),
        _panel("mirror: replication latency, worst partition", "s", highest(found.of(
            MIRROR, "replication_latency_seconds", "endpoint", together=np.nanmax
        ))),
    ]  # fmt: skip
    trouble = [
        _panel("replication between brokers, MiB/s", "", together(
            **{"to followers": "replication_bytes_out_per_second"},
            **{"from leaders": "replication_bytes_in_per_second"},
        ), 1 / MIB),
        _panel("lag of followers, messages", "", highest(
            found.of(BROKER, "replica_lag", "endpoint")
        )),
        _panel("changes of in-sync replicas/s", "", together(
            shrinks="isr_shrinks_per_second", expands="isr_expands_per_second"
        )),
        _panel("elections/s", "", together(
            leaders="elections_per_second", unclean="unclean_elections_per_second",
            **{"of eligible replicas": "eligible_elections_per_second"},
        )),
        _panel("partitions in trouble", "", together(
            **{"miss a replica": "under_replicated_partitions"},
            **{"below min.insync.replicas": "under_min_isr_partitions"},
            **{"without a leader": "offline_partitions"},
        )),
        _panel("failed requests/s", "", together(
            produce="failed_produce_requests_per_second", fetch="failed_fetch_requests_per_second"
        )),
        _panel("expired fetch requests/s", "", together(
            expired="purgatory_expirations_per_second"
        )),
    ]  # fmt: skip
    return _drawn(always, trouble)


def log_panels(found: Observations) -> Drawn:
    """How many exceptions, errors and warnings there were in each step, in all logs."""
    rows = found.tables.get(LOG)
    if rows is None:
        return Drawn([], [])
    cuts = found.slots.cuts(*times_of(rows))
    kinds, counts = np.array(rows["kind"].to_pylist()), rows["count"].to_numpy()
    amounts = counts[cuts.row] * cuts.share
    entries: dict[str, Steps] = {
        kind: np.bincount(cuts.slot[its], amounts[its], found.slots.count).astype(float)
        for kind in np.unique(kinds).tolist()
        for its in [kinds[cuts.row] == kind]
    }
    return _drawn([_panel("entries", "", entries)])


def _panel(title: str, unit: str, lines: Mapping[str, Steps], factor: float = 1) -> Panel:
    return Panel(
        title,
        unit,
        [
            Line(name, style, values * factor)
            for (name, values), style in zip(lines.items(), _STYLES, strict=False)
        ],
    )


def _drawn(always: Iterable[Panel], trouble: Iterable[Panel] = ()) -> Drawn:
    """All panels with a value; those of `trouble` only if a value is above 0."""
    panels, silent = with_values(always), []
    for panel in with_values(trouble):
        if any(np.nansum(line.values) > 0 for line in panel.lines):
            panels.append(panel)
        else:
            silent.append(panel.title)
    return Drawn(panels, silent)


def _labelled(
    found: Observations, table: Observed, figures: Mapping[str, str], only: Mapping[str, str]
) -> dict[str, Steps]:
    """Figures of a machine, or of one of its parts, by their labels."""
    return {
        label: values
        for label, figure in figures.items()
        for values in found.of(table, figure, only=only).values()
    }


def _cache_hits(found: Observations, only: Mapping[str, str]) -> dict[str, Steps]:
    """The share of the processes' reads that needed no disk: by bytes, and by calls.

    Calls are compared with the disks' requests, which are those of all processes.
    """

    def share(asked: str, table: Observed, missed: str) -> Steps | None:
        of_all = _sum(found.of(PROCESS, asked, only=only))
        of_disk = _sum(found.of(table, missed, only=only))
        if of_all is None or of_disk is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(of_all > 0, np.maximum(1 - of_disk / of_all, 0), np.nan)

    shares = {
        "bytes": share("requested_read_bytes_per_second", PROCESS, "read_bytes_per_second"),
        "calls": share("read_calls_per_second", DEVICE, "reads_per_second"),
    }
    return {label: values for label, values in shares.items() if values is not None}


def _sum(lines: Mapping[str, Steps]) -> Steps | None:
    """The sum of all lines; None without any."""
    if not lines:
        return None
    every = np.array([*lines.values()])
    summed: Steps = np.where(np.isnan(every).all(axis=0), np.nan, np.nansum(every, axis=0))
    return summed


def _leading(lines: Mapping[str, Steps]) -> list[str]:
    """The names of lines with a value, highest mean first; means of 0 only if no mean is above."""
    means = {name: np.nanmean(v) for name, v in lines.items() if not np.isnan(v).all()}
    busy = {name: mean for name, mean in means.items() if mean > 0} or means
    return sorted(busy, key=lambda name: (-float(busy[name]), name))


def _short(lines: Mapping[str, Steps], order: Iterable[str]) -> dict[str, Steps]:
    """The lines in this order, by their short names."""
    short = short_names(lines)
    return {short[name]: lines[name] for name in order if name in lines}
