"""Which brokers have which partitions once one of them is removed; by Kafka's own tools."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

DESCRIBE = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_PARTITION = re.compile(
    r"^\s*Topic: (?P<topic>\S+)\s+Partition: (?P<partition>\d+)\s+Leader: \S+\s+"
    r"Replicas: (?P<replicas>[\d,]+)\s+Isr: (?P<isr>[\d,]*)",
    re.MULTILINE,
)


class Replicas(NamedTuple):
    """The brokers that have a partition, the preferred leader first; `in_sync` are up to date."""

    topic: str
    partition: int
    brokers: tuple[int, ...]
    in_sync: frozenset[int]


def described(text: str) -> list[Replicas]:
    """What Kafka's tool for topics prints of all partitions."""
    return [
        Replicas(
            found["topic"],
            int(found["partition"]),
            tuple(map(int, found["replicas"].split(","))),
            frozenset(map(int, filter(None, found["isr"].split(",")))),
        )
        for found in _PARTITION.finditer(text)
    ]


def without(leaving: int, partitions: Iterable[Replicas], others: Collection[int]) -> str:
    """The plan by which a broker has no partition any more, as Kafka's tool reads it.

    Another broker takes its place; if all of them have the partition, it has one replica less.
    """
    moved = []
    for number, (topic, partition, brokers, _) in enumerate(partitions):
        if leaving not in brokers:
            continue
        free = sorted(set(others) - set(brokers))
        heirs = free[number % len(free) :][:1] if free else []
        replicas = [new for old in brokers for new in (heirs if old == leaving else [old])]
        moved.append({"topic": topic, "partition": partition, "replicas": replicas})
    return json.dumps({"version": 1, "partitions": moved})


def is_done(leaving: int, partitions: Collection[Replicas]) -> bool:
    """Whether the broker has no partition, and all others are up to date."""
    return all(
        leaving not in each.brokers and set(each.brokers) <= each.in_sync for each in partitions
    )
