"""Metrics of brokers and mirrors in Prometheus's text format, by whichever names they have.

The JMX exporter names Kafka's metrics by its rules, and there are many sets of rules. Two forms are
usual, each in any case of letters; the lab has the first for most, and names of its own for some::

    kafka_server_replicamanager_count{name="IsrShrinksPerSec"} 3      the exporter's own
    kafka_server_replicamanager_isrshrinks_total 3                    Strimzi's, and others'

Both become the key ``kafka_server_replicamanager_isrshrinks`` and the attribute ``count``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ATTRIBUTES = {
    "count": "count", "total": "count", "value": "value", "mean": "mean",
    "99thpercentile": "p99", "oneminuterate": "value",
}  # fmt: skip
_P99 = {"0.99", "0.990"}


class Series(NamedTuple):
    """One value of a scrape; labels in lower case, without those that are part of the key."""

    key: str
    attribute: str
    labels: Mapping[str, str]
    value: float


def parse(text: str) -> list[Series]:
    """Kafka's series of a scrape; those that are not a number are left out.

    Raises ValueError for what is not of the format.
    """
    lines = (line for line in text.splitlines() if line.lower().startswith("kafka_"))
    return list(_series("\n".join(lines) + "\n"))


def _series(text: str) -> Iterator[Series]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if math.isnan(sample.value):
                continue
            labels = {name.lower(): value for name, value in sample.labels.items()}
            key, attribute = sample.name.lower(), "value"
            head, _, last = key.rpartition("_")
            if last in _ATTRIBUTES:
                key, attribute = head, _ATTRIBUTES[last]
            if (name := labels.pop("name", None)) is not None:
                key = f"{key}_{name.lower()}"
            if labels.pop("quantile", None) in _P99:
                attribute = "p99"
            yield Series(key.removesuffix("persec"), attribute, labels, sample.value)
