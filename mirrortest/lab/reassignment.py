"""Moves the partitions of a broker to the others: input and output of Kafka's own tools."""

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
    """The brokers with replicas of a partition, the preferred leader first; `in_sync`: the ISR."""

    topic: str
    partition: int
    brokers: tuple[int, ...]
    in_sync: frozenset[int]


def parse_description(text: str) -> list[Replicas]:
    """Parse how Kafka's tool for topics describes all partitions."""
    return [
        Replicas(
            found["topic"],
            int(found["partition"]),
            tuple(map(int, found["replicas"].split(","))),
            frozenset(map(int, filter(None, found["isr"].split(",")))),
        )
        for found in _PARTITION.finditer(text)
    ]


def plan_without(leaving: int, partitions: Iterable[Replicas], others: Collection[int]) -> str:
    """The reassignment that leaves a broker without partitions, as JSON for Kafka's tool.

    Another broker gets each of its replicas. If all others have one already, the partition has one
    replica less.
    """
    moved = []
    for number, (topic, partition, brokers, _) in enumerate(partitions):
        if leaving not in brokers:
            continue
        free = sorted(set(others) - set(brokers))
        replacement = free[number % len(free) :][:1] if free else []
        replicas = [new for old in brokers for new in (replacement if old == leaving else [old])]
        moved.append({"topic": topic, "partition": partition, "replicas": replicas})
    return json.dumps({"version": 1, "partitions": moved})


def is_done(leaving: int, partitions: Collection[Replicas]) -> bool:
    """Whether the broker has no replicas, and those of all others are in sync."""
    return all(
        leaving not in each.brokers and set(each.brokers) <= each.in_sync for each in partitions
    )
