"""The load as the page shows it, in panels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirrortest.config.units import MIB, SECOND_NS
from mirrortest.report.html.charts import EVERY
from mirrortest.report.html.panels import (
    Line,
    Panel,
    columns,
    csv_rows,
    panels_data,
    times,
    with_values,
)
from mirrortest.results.summary import PERCENTILES
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirrortest.report.html.load import Load

_PROCESSES = {
    Role.PRODUCER: ("producers", "first"),
    Role.CONSUMER: ("consumers", "second"),
    Role.SOURCE: ("source observers", "third"),
}


def panels(load: Load, topic: str | None = None) -> list[Panel]:
    """The panels of one topic, or of all; a panel without any value is left out."""
    chosen = (
        list(range(len(load.topics)))
        if topic is None
        else [at for at, each in enumerate(load.topics) if each == topic]
    )
    producer, consumer, source = Role.PRODUCER, Role.CONSUMER, Role.SOURCE

    def rate(name: str, style: str, role: Role, figure: str, unit: float = 1) -> Line:
        return Line(name, style, load.mean(role, figure, chosen) / unit)

    def of_batch(figure: str) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            batches = load.total(producer, "batches", chosen)
            mean: NDArray[np.float64] = load.total(producer, figure, chosen) / batches
        return np.where(batches > 0, mean, np.nan)

    errors = [
        rate("failed", "first", producer, "failed"),
        rate("unknown", "second", producer, "unknown"),
    ]
    every = [
        Panel("messages/s", "", [
            rate("asked", "asked", producer, "asked"),
            rate("sent", "sent", producer, "sent"),
            rate("acknowledged", "first", producer, "acked"),
            rate("arrived", "second", consumer, "arrived"),
            rate("in the source", "third", source, "arrived"),
        ]),
        Panel("MiB/s", "", [
            rate("batches sent", "sent", producer, "batch_bytes", MIB),
            rate("values acknowledged", "first", producer, "value_bytes", MIB),
            rate("values arrived", "second", consumer, "value_bytes", MIB),
        ]),
        Panel("acknowledgement latency", "s", _latencies(load, chosen)),
        Panel("messages that wait", "", [
            rate("lag of consumers", "second", consumer, "lag"),
            rate("in flight", "first", producer, "in_flight"),
            rate("due and not sent", "asked", producer, "debt_messages"),
        ]),
        Panel("not acknowledged, messages/s", "", [
            line for line in errors if np.nansum(line.values) > 0
        ]),
        Panel("messages in a batch", "", [Line("mean", "first", of_batch("batch_messages"))]),
        Panel("kB of a batch, as sent", "", [
            Line("mean", "first", of_batch("batch_bytes") / 1000)
        ]),
        Panel("CPU, in cores", "", [
            Line(name, style, load.of_processes(role, "cpu_seconds"))
            for role, (name, style) in _PROCESSES.items()
        ]),
        Panel("memory, MiB", "", [
            Line(name, style, load.of_processes(role, "memory_bytes") / MIB)
            for role, (name, style) in _PROCESSES.items()
        ]),
    ]  # fmt: skip
    return with_values(every)


def _latencies(load: Load, topics: Sequence[int]) -> list[Line]:
    if load.acknowledgements is None or not topics:
        return []
    names = {"p50": "first", "p99": "sent"}
    found = load.acknowledgements.of_topics(topics).quantiles(PERCENTILES[name] for name in names)
    return [
        Line(name, style, np.array([np.nan if ns is None else ns / SECOND_NS for ns in values]))
        for (name, style), values in zip(names.items(), found, strict=True)
    ]


def load_data(load: Load, topics: Sequence[str]) -> dict[str, Any]:
    """The data for the page's script; `topics` can be chosen in addition to all."""
    chosen = [panels_data(panels(load, topic)) for topic in (None, *topics)]
    return {**times(load.slots), "topics": chosen}


def load_table(load: Load, topics: Sequence[str]) -> tuple[list[str], list[list[object]]]:
    """The header and rows of a CSV file: all topics together, then each of `topics`."""
    names = columns(panels(load))
    rows = [
        [at, topic or EVERY, *values]
        for topic in (None, *topics)
        for at, *values in csv_rows(load.slots, panels(load, topic), names)
    ]
    return ["from_utc", "topic", *names], rows
