"""Brokers: what `mirrortest observe` sees of machines, JVMs, brokers and logs.

A figure is that of the observer's last interval; an endpoint's is as old as its last scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana.frame import framed
from grafana.panels import Query, lines, number
from grafana.promql import DASHBOARD
from mirrortest.metrics import names
from mirrortest.model.observed import (
    BROKER,
    DEVICE,
    HOST,
    INTERFACE,
    MIRROR,
    PROCESS,
    REQUEST,
    STAGES,
)

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.frame import Row
    from grafana.panels import Panel
    from mirrortest.model.observed import Observed


def brokers() -> Dashboard:
    """The dashboard."""
    sections: list[Row] = [
        ("Brokers and mirror", _brokers()),
        ("Requests", _requests()),
        ("JVMs and logs", _jvms()),
        ("Machines", _machines()),
    ]
    return framed(
        "brokers",
        "Brokers",
        "What mirrortest observe records of brokers, JVMs, logs and machines.",
        sections,
        known_by=f"{names.OBSERVED[HOST]['cpu_ratio'].full_name}|{names.RUN_INFO.full_name}",
    )


def _query(table: Observed, figure: str, word: str = "", how: str = "sum") -> Query:
    """A figure by observer and by what it is of, called by that and a word for the figure."""
    # Machines may have the same devices, paths, matches and names of endpoints, and those of two
    # sites the same addresses.
    labels = ", ".join(["job", "instance", *(each.name for each in table.keys[:1])])
    shown = " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
    expression = f"{how} by ({labels}) ({DASHBOARD.one(names.OBSERVED[table][figure])})"
    return Query(expression, f"{shown} {word}".strip())


def _brokers() -> list[Panel]:
    return [
        number(
            "Partitions in trouble",
            "That miss a replica, over all brokers that are observed.",
            "none",
            Query(
                f"sum({DASHBOARD.one(names.OBSERVED[BROKER]['under_replicated_partitions'])})", ""
            ),
            span=6,
        ),
        number(
            "Changes of in-sync replicas",
            "Replicas that left or came back, per second.",
            "none",
            Query(
                " + ".join(
                    f"sum({DASHBOARD.one(names.OBSERVED[BROKER][figure])})"
                    for figure in ("isr_shrinks_per_second", "isr_expands_per_second")
                ),
                "",
            ),
            span=6,
        ),
        number(
            "Least idle request handlers",
            "The share of time in which the request handlers of the busiest broker had nothing to "
            "do.",
            "percentunit",
            Query(f"min({DASHBOARD.one(names.OBSERVED[BROKER]['handler_idle_ratio'])})", ""),
            span=6,
        ),
        number(
            "Slowest flush",
            "Of a log to its disk: 99 % are faster, as the broker estimates.",
            "s",
            Query(f"max({DASHBOARD.one(names.OBSERVED[BROKER]['flush_p99_seconds'])})", ""),
            span=6,
        ),
        lines(
            "Messages written",
            "By clients, to each broker.",
            "mps",
            _query(BROKER, "messages_in_per_second"),
            span=8,
        ),
        lines(
            "Bytes written and read",
            "By clients.",
            "Bps",
            _query(BROKER, "bytes_in_per_second", "in"),
            _query(BROKER, "bytes_out_per_second", "out"),
            span=8,
        ),
        lines(
            "Threads idle",
            "Request handlers, and network threads.",
            "percentunit",
            _query(BROKER, "handler_idle_ratio", "handlers"),
            _query(BROKER, "network_idle_ratio", "network"),
            span=8,
        ),
        lines(
            "In purgatory",
            "Produce requests wait there for replicas, fetch requests for data.",
            "short",
            _query(BROKER, "produce_purgatory", "produce"),
            _query(BROKER, "fetch_purgatory", "fetch"),
            span=8,
        ),
        lines(
            "Leaders",
            "Partitions that each broker leads.",
            "short",
            _query(BROKER, "leaders"),
            span=8,
        ),
        lines(
            "MirrorMaker 2's latency",
            "From a record's time to its copy, mean of the worst partition.",
            "s",
            _query(MIRROR, "replication_latency_seconds", how="max"),
            span=8,
        ),
    ]


def _requests() -> list[Panel]:
    def of(figure: str) -> str:
        return DASHBOARD.one(names.OBSERVED[REQUEST][figure])

    return [
        lines(
            "Requests",
            "Of each kind, over all brokers.",
            "ops",
            Query(f"sum by (request) ({of('requests_per_second')})", "{{request}}"),
            span=8,
        ),
        lines(
            "Time of a request",
            "Mean of the slowest broker.",
            "s",
            Query(f"max by (request) ({of('total_seconds')})", "{{request}}"),
            span=8,
        ),
        lines(
            "Time of a produce request, by stage",
            "Means of the slowest broker: waiting for a handler, at the log, waiting for replicas, "
            "waiting for a network thread, being sent, held back by a quota.",
            "s",
            *(
                Query(
                    "max(" + DASHBOARD.one(names.OBSERVED[REQUEST][f"{stage.name}_seconds"],
                                           request="Produce") + ")",
                    stage.title,
                )
                for stage in STAGES
            ),
            span=8,
        ),
    ]  # fmt: skip


def _jvms() -> list[Panel]:
    pauses = DASHBOARD.rate(names.OBSERVED_PAUSES)
    collections = DASHBOARD.rate(names.OBSERVED_COLLECTIONS)
    # No rate: each type's series begins with its first entries, which a rate leaves out.
    entries = DASHBOARD.one(names.OBSERVED_LINES)
    return [
        lines(
            "Time in pauses",
            "The share of time in which garbage collections stopped a JVM.",
            "percentunit",
            Query(f"sum by (job, instance, log) ({pauses})", "{{job}} {{instance}} {{log}}"),
            span=8,
        ),
        lines(
            "Collections",
            "Events of the logs of garbage collections, by kind.",
            "ops",
            Query(
                f"sum by (job, instance, log, kind) ({collections})",
                "{{kind}} {{job}} {{instance}} {{log}}",
            ),
            span=8,
        ),
        lines(
            "Exceptions, errors and warnings",
            "In the observed logs since their observation began, by class, or by logger where no "
            "exception is named.",
            "short",
            Query(f"sum by (kind, type) ({entries})", "{{kind}} {{type}}"),
            span=8,
        ),
    ]


def _machines() -> list[Panel]:
    return [
        lines(
            "CPU",
            "Of all CPUs: at work, and idle while a disk was awaited.",
            "percentunit",
            _query(HOST, "cpu_ratio", "at work"),
            _query(HOST, "io_wait_ratio", "waiting for I/O"),
            span=6,
        ),
        lines(
            "Context switches",
            "Per second.",
            "ops",
            _query(HOST, "context_switches_per_second"),
            span=6,
        ),
        lines("CPU of processes", "In CPUs.", "short", _query(PROCESS, "cpus"), span=6),
        lines("Memory of processes", "In use.", "bytes", _query(PROCESS, "resident_bytes"), span=6),
        lines(
            "Network",
            "Received and sent.",
            "Bps",
            _query(INTERFACE, "received_bytes_per_second", "received"),
            _query(INTERFACE, "sent_bytes_per_second", "sent"),
            span=6,
        ),
        lines(
            "Disks",
            "Read and written.",
            "Bps",
            _query(DEVICE, "read_bytes_per_second", "read"),
            _query(DEVICE, "written_bytes_per_second", "written"),
            span=6,
        ),
        lines("Disks busy", "Share of time.", "percentunit", _query(DEVICE, "busy_ratio"), span=6),
        lines(
            "Page cache",
            "Files' pages in memory, and those of them that no disk has yet.",
            "bytes",
            _query(HOST, "page_cache_bytes", "cached"),
            _query(HOST, "dirty_bytes", "dirty"),
            span=6,
        ),
    ]
