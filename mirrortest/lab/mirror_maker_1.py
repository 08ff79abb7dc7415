"""MirrorMaker 1: keeps topics' names, and chooses each record's partition anew by its key.

Kafka 4 has it no more; the last one that does, of Kafka 3.9, speaks to brokers of today. Its own
three jars stand in a lock of their own, the others are the lab's.
"""

from __future__ import annotations

import importlib.resources
import os
from typing import TYPE_CHECKING

from mirrortest.host.cache import cache_directory
from mirrortest.lab import jars
from mirrortest.lab.jvm import Jvm, lab_java
from mirrortest.lab.process import Part
from mirrortest.lab.properties import write_properties

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab.cluster import Cluster

LOCK = "mirrormaker1.lock"
COORDINATES = (
    "org.apache.kafka:kafka_2.13:3.9.2",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.kafka:kafka-server-common:3.9.2",
)
_KAFKA = "org.apache.kafka"


def class_path() -> str:
    """Its class path; what is missing is downloaded. Raises LabError."""
    text = importlib.resources.files("mirrortest.lab").joinpath(LOCK).read_text()
    others = [jar for jar in jars.read_lock() if jar.group != _KAFKA]
    paths = jars.fetch([*jars.read_lock(text), *others], cache_directory() / "jars")
    return os.pathsep.join(map(str, paths))


class MirrorMaker1(Part):
    """One process that copies the topics that match `include`, a regular expression.

    `start` returns at once: what it does is seen in the destination, whose topics must exist.
    """

    def __init__(
        self, directory: Path, *, source: Cluster, destination: Cluster, include: str
    ) -> None:
        self._source = source
        self._destination = destination
        self._files = {
            side: directory / "config" / f"mirrormaker1-{side}.properties"
            for side in ("consumer", "producer")
        }
        jvm = Jvm(lab_java(), class_path(), "256m")
        super().__init__(
            "mirrormaker1",
            jvm.command(
                "kafka.tools.MirrorMaker",
                *("--consumer.config", str(self._files["consumer"])),
                *("--producer.config", str(self._files["producer"])),
                *("--include", include),
                *("--num.streams", "1"),
                *("--offset.commit.interval.ms", "1000"),
            ),
            directory / "logs" / "mirrormaker1.log",
            environment=jvm.environment,
        )

    def spawn(self) -> None:
        """Write its two files, start it, and return at once."""
        write_properties(
            self._files["consumer"],
            {
                "bootstrap.servers": self._source.bootstrap_servers,
                "group.id": "mirrormaker1",
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": "1000",
            },
        )
        write_properties(
            self._files["producer"], {"bootstrap.servers": self._destination.bootstrap_servers}
        )
        super().spawn()
