"""Series of Prometheus, and cases of them, for promtool's unit tests of the alerts.

Values are in promtool's notation, every 15 s: ``0x9 3x10`` is ten times 0, then eleven times 3.
"""

from __future__ import annotations

from typing import NamedTuple

from mirrortest.metrics import names
from mirrortest.metrics.names import Metric, Side

RUN, TOPIC = "r", "orders"
INTERVAL = "15s"
ALWAYS = "1x80"


class Series(NamedTuple):
    """A series by its selector, and its values."""

    series: str
    values: str


class Case(NamedTuple):
    """One alert on some series: at each time the labels of those that fire, with commas between."""

    what: str
    alert: str
    series: tuple[Series, ...]
    firing: dict[str, list[str]]


def of(metric: Metric | str, instance: str, values: str, **labels: str) -> Series:
    """A series of a metric, or of a name, by an instance."""
    name = metric if isinstance(metric, str) else metric.full_name
    if not isinstance(metric, str) and metric.side is Side.CONSUMER:
        labels.setdefault("role", "consumer")
    every = {"job": "m", "instance": instance, **labels}
    matchers = ", ".join(f'{label}="{value}"' for label, value in every.items())
    return Series(f"{name}{{{matchers}}}", values)


def process(role: str, name: str, instance: str, values: str = ALWAYS, **labels: str) -> Series:
    """That a process takes part in the run."""
    return of(names.RUN_INFO, instance, values, run=RUN, role=role, name=name, **labels)


CARL, ANN = process("consumer", "carl", "c"), process("producer", "ann", "p")
OF_TOPIC = f'run="{RUN}", topic="{TOPIC}"'
OF_RUN = f'run="{RUN}"'
OF_CARL = f'run="{RUN}", name="carl"'


def findings(finding: str, values: str, instance: str = "c", role: str = "consumer") -> Series:
    """The number of messages with a finding."""
    return of(names.CONSUMER_FINDINGS, instance, values, topic=TOPIC, finding=finding, role=role)


def late(le: str, values: str) -> Series:
    """A bucket of the latency from the intended time."""
    bucket = f"{names.CONSUMER_LATENCY.full_name}_bucket"
    return of(bucket, "c", values, role="consumer", topic=TOPIC, since="intended", le=le)


def acked(values: str) -> Series:
    """Acknowledged messages."""
    return of(names.PRODUCER_MESSAGES, "p", values, topic=TOPIC, outcome="acked")


def reading(values: str, **labels: str) -> Series:
    """Messages that the consumer read, of whatever kind."""
    return of(names.CONSUMER_MESSAGES, "c", values, topic=TOPIC, **labels)


def first_copies(values: str) -> Series:
    """First copies of the run's messages."""
    counted = f"{names.CONSUMER_LATENCY.full_name}_count"
    return of(counted, "c", values, role="consumer", topic=TOPIC, since="intended")


def arrive(values: str) -> tuple[Series, Series]:
    """Messages of the run arrive, and nothing else."""
    return reading(values), first_copies(values)


def delivered(values: str) -> Series:
    """Messages that the consumer counts as delivered."""
    return of(names.CONSUMER_DELIVERED, "c", values, topic=TOPIC)


def lag(values: str, **labels: str) -> Series:
    """Offsets that the consumer has left to judge."""
    return of(names.CONSUMER_LAG, "c", values, topic=TOPIC, partition="0", **labels)


def complete(values: str, instance: str = "c", role: str = "consumer") -> Series:
    """Whether the run is complete for a consumer."""
    return of(names.CONSUMER_COMPLETE, instance, values, role=role)


def ledger_ended(values: str) -> Series:
    """Whether producers have recorded their ends."""
    return of(names.CONSUMER_LEDGER_ENDED, "c", values)


def away(values: str) -> Series:
    """Whether the cluster that the consumer reads is unreachable."""
    return of(names.CONSUMER_UNREACHABLE, "c", values)


def silent(values: str, instance: str = "c") -> Series:
    """The age of the ledger's last record, in seconds."""
    return of(names.LEDGER_AGE, instance, values)


def least_latency(values: str) -> Series:
    """The least latency from the actual send."""
    return of(names.CONSUMER_LEAST_LATENCY, "c", values, topic=TOPIC, since="sent")


def negative(values: str) -> Series:
    """Latencies below zero."""
    return of(names.CONSUMER_NEGATIVE, "c", values, topic=TOPIC, since="sent")


def clock_bound(instance: str, values: str) -> Series:
    """The bound of a clock's error, in seconds."""
    return of(names.CLOCK_ERROR, instance, values)


def fullness(values: str) -> Series:
    """How much of its memory bound the fullest checker uses."""
    return of(names.CONSUMER_FULLNESS, "c", values, topic=TOPIC)


def up(instance: str, values: str, **labels: str) -> Series:
    """Whether a target answers."""
    return of("up", instance, values, **labels)
