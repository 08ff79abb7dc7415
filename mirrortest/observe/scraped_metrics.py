"""Parses metrics of brokers and mirrors in Prometheus' text format, under their usual names.

The JMX exporter names Kafka's metrics by rules, and there are many sets of rules. Two forms are
usual, in any letter case. The lab has the first for most metrics, and names of its own for some::

    kafka_server_replicamanager_count{name="IsrShrinksPerSec"} 3      the exporter's own
    kafka_server_replicamanager_isrshrinks_total 3                    Strimzi's, and others'

Both become the key ``kafka_server_replicamanager_isrshrinks`` and the attribute ``count``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

_ATTRIBUTES = {
    "count": "count", "total": "count", "value": "value", "mean": "mean",
    "99thpercentile": "p99", "oneminuterate": "rate",
}  # fmt: skip
_P99 = {"0.99", "0.990"}


_KAFKA = "kafka_"


class _Name(NamedTuple):
    key: str
    attribute: str
    labels: Mapping[str, str]


class Series(NamedTuple):
    """One value of a scrape; label names are lower case, and without those in the key."""

    key: str
    attribute: str
    labels: Mapping[str, str]
    value: float


class Parser:
    """Parses an endpoint's scrapes, one after the other.

    Little but the values changes between scrapes, so the name of each series is parsed only once.
    Only the series with `wanted` keys are returned.
    """

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self._names: dict[str, _Name | None] = {}

    def parse(self, text: str) -> list[Series]:
        """The wanted series of a scrape; NaN values are left out.

        Raises ValueError if the text is not in the format, or has no metrics of Kafka.
        """
        found: list[Series] = []
        before, names = self._names, dict[str, "_Name | None"]()
        for line in text.split("\n"):
            head, _, value = line.rpartition(" ")
            if head not in before:
                if line[:6].lower() != _KAFKA:
                    continue
                head, value = _split(line)
            name = before[head] if head in before else self._name_of(head)
            names[head] = name
            if name is not None and not math.isnan(number := float(value)):
                found.append(Series(*name, number))
        if not names:
            raise ValueError
        self._names = names
        return found

    def _name_of(self, head: str) -> _Name | None:
        """The name for the beginning of a line; None if it is not wanted. Raises ValueError."""
        (family,) = text_string_to_metric_families(f"{head} 0\n")
        (sample,) = family.samples
        labels = {name.lower(): value for name, value in sample.labels.items()}
        key, attribute = sample.name.lower(), "value"
        start, _, last = key.rpartition("_")
        if last in _ATTRIBUTES:
            key, attribute = start, _ATTRIBUTES[last]
        if (name := labels.pop("name", None)) is not None:
            key = f"{key}_{name.lower()}"
        if labels.pop("quantile", None) in _P99:
            attribute = "p99"
        key = key.removesuffix("persec")
        return _Name(key, attribute, labels) if key in self._wanted else None


def _split(line: str) -> tuple[str, str]:
    """A line's series with its labels, up to the last brace, and its value, without the time."""
    end = line.rfind("}") + 1
    head, *rest = (line[:end], *line[end:].split()) if end else line.split()
    if not rest:
        raise ValueError
    return head, rest[0]
