"""The contenders, and the commands that start them as their users do."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.lab import jars
from mirrortest.lab.process.runtime import lab_java

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab import Lab

OURS = "mirrortest"
JAVA = "kafka-*-perf-test"
CONFLUENT = "confluent-kafka"
AIOKAFKA = "aiokafka"
PORTABLE = "portable"
"""mirrortest with `--portable`: with aiokafka's public API only."""
PEERS = (JAVA, CONFLUENT, AIOKAFKA)

SHARE = {OURS: 1.0, JAVA: 0.25, CONFLUENT: 0.25, AIOKAFKA: 0.1, PORTABLE: 0.1}
"""The share of a case's messages that each gets: for slower ones fewer messages are enough."""

FINDINGS = 99
"""mirrortest's exit code if the copy differs from what was sent."""


@dataclass(frozen=True)
class Place:
    """The bootstrap addresses of a lab, and the directory of mirrortest's logs."""

    source: str
    destination: str
    logs: Path

    @classmethod
    def of(cls, lab: Lab, folder: Path) -> Place:
        """The addresses of a lab; also sets the class path of Kafka's tools."""
        # The class path only, not the lab's JVM flags: a peer runs as its users run it.
        os.environ["CLASSPATH"] = jars.class_path()
        return cls(lab.source.bootstrap_servers, lab.destination.bootstrap_servers, folder / "logs")


def run_of(topic: str) -> str:
    """The id of mirrortest's run in a topic."""
    return "b" + hashlib.blake2b(topic.encode(), digest_size=7).hexdigest()


def producer(
    contender: str, place: Place, topic: str, count: int, size: int, *options: str, rate: float = -1
) -> list[str]:
    """The command that writes `count` messages of `size` bytes; `options` are mirrortest's.

    `rate` is in messages/s, -1 is unlimited; the loops of this package are always unlimited.
    """
    if contender in {OURS, PORTABLE}:
        options += ("--portable",) if contender == PORTABLE else ()
        return [
            *(sys.executable, "-m", "mirrortest", "produce"),
            *("--bootstrap-server", place.source, "--run", run_of(topic), "--id", "bench"),
            *("--topics", topic, "--num-records", str(count), "--message-size", str(size)),
            *("--throughput", str(rate), "--log-dir", str(place.logs), *options),
        ]
    if contender == JAVA:
        return [
            *(str(lab_java().executable), "-Xmx512m"),
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic),
            *("--num-records", str(count), "--record-size", str(size), "--throughput", str(rate)),
            *("--command-property", f"bootstrap.servers={place.source}", "acks=all"),
        ]
    return _loop(contender, "produce", place.source, topic, count, size)


def consumer(contender: str, place: Place, topic: str, count: int, *options: str) -> list[str]:
    """The command that reads `count` messages of a source topic; mirrortest reads all of it."""
    if contender in {OURS, PORTABLE}:
        # With its own state topic: it reads again what mirrortest has read.
        options += (
            ("--portable", "--state-topic", "portable.state") if contender == PORTABLE else ()
        )
        return [
            *(sys.executable, "-m", "mirrortest", "consume", "--role", "source"),
            *("--bootstrap-server", place.source, "--run", run_of(topic), "--id", "bench"),
            *("--topics", topic, "--settle-time", "1s", "--log-dir", str(place.logs), *options),
        ]
    if contender == JAVA:
        return [
            *(str(lab_java().executable), "-Xmx512m"),
            *("org.apache.kafka.tools.ConsumerPerformance", "--topic", topic),
            *("--num-records", str(count), "--bootstrap-server", place.source),
            *("--timeout", "30000"),
        ]
    return _loop(contender, "consume", place.source, topic, count, 0)


def verifier(place: Place, topic: str, alias: str, *options: str) -> list[str]:
    """The command with which mirrortest verifies a mirror's copy of a topic."""
    return [
        *(sys.executable, "-m", "mirrortest", "consume", "--bootstrap-server", place.destination),
        *("--run", run_of(topic), "--id", "bench", "--topics", f"{alias}.{topic}"),
        *("--source-alias", alias, "--ledger-bootstrap-server", place.source),
        *("--settle-time", "1s", "--log-dir", str(place.logs), *options),
    ]


def _loop(contender: str, verb: str, servers: str, topic: str, count: int, size: int) -> list[str]:
    module = {CONFLUENT: "confluent_loop", AIOKAFKA: "aiokafka_loop"}[contender]
    path = os.path.join(os.path.dirname(__file__), f"{module}.py")  # noqa: PTH118, PTH120  # a string
    return [sys.executable, path, verb, servers, topic, str(count), str(size)]
