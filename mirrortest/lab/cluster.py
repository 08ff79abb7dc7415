"""A KRaft cluster of brokers that are controllers, too."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from mirrortest.errors import LabError, MirrortestError
from mirrortest.lab.ports import ADDRESS, free_ports
from mirrortest.lab.probe import Probe
from mirrortest.lab.process import Part
from mirrortest.lab.properties import write_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mirrortest.lab.jvm import Jvm

START_TIMEOUT = 90.0
"""Seconds; a cold start takes 3 to 10 on two cores, more on a busy machine."""

# A cluster for tests: nothing waits for a fleet that is not there, and retention, compaction and
# deletion happen within seconds.
_SETTINGS = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # A killed broker is let in again once its former session has run out.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.segment.delete.delay.ms": "1000",
    "auto.create.topics.enable": "false",
}


class Broker(Part):
    """One broker, controller as well; its port and data stay the same over restarts."""

    def __init__(
        self, name: str, jvm: Jvm, directory: Path, *, port: int, properties: Mapping[str, str]
    ) -> None:
        self.port = port
        self.data = directory / "data" / name
        self.properties_file = directory / "config" / f"{name}.properties"
        self.properties = {**properties, "log.dirs": str(self.data)}
        self._jvm = jvm
        super().__init__(
            name,
            jvm.command("kafka.Kafka", str(self.properties_file), options=jvm.exporting(name)),
            directory / "logs" / f"{name}.log",
            environment=jvm.environment,
        )

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{ADDRESS}:{self.port}"

    def format(self, cluster_id: str) -> None:
        """Make its data directory, unless there is one."""
        write_properties(self.properties_file, self.properties)
        if not (self.data / "meta.properties").exists():
            self._jvm.run(
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", cluster_id, "--config", str(self.properties_file)),
            )

    def start(self) -> None:
        """Start it and wait until it answers a request for metadata.

        Raises:
            LabError: it died or did not answer; the text ends with its log's last lines.
        """
        self.spawn()
        self.wait_ready()

    def wait_ready(self, timeout: float = START_TIMEOUT, *, brokers: int = 1) -> None:
        """Wait until it answers, and knows at least `brokers` brokers.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        answer = "nothing"

        def answers() -> bool:
            nonlocal answer
            try:
                known = Probe(self.address, timeout=2).broker_count()
            except MirrortestError:
                return False
            answer = f"{known} of {brokers} brokers"
            return known >= brokers

        self.wait_until(answers, timeout, lambda: f"answered with {answer}")


class Cluster:
    """Brokers that form one cluster.

    Attributes:
        alias: what the mirror calls it.
        cluster_id: Kafka's id of it.
        brokers: its parts, by number.
    """

    def __init__(
        self,
        alias: str,
        jvm: Jvm,
        directory: Path,
        *,
        brokers: int = 1,
        cluster_id: str | None = None,
        ports: Iterable[int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.alias = alias
        self.cluster_id = cluster_id or _new_cluster_id()
        self.ports = tuple(ports or free_ports(2 * brokers))
        if len(self.ports) != 2 * brokers:
            raise LabError(f"cluster {alias} was made with another number of brokers")
        numbers = range(1, brokers + 1)
        copies = str(min(brokers, 3))
        self.brokers: list[Broker] = []
        for number in numbers:
            port = self.ports[2 * number - 2]
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                **self._network(number, brokers),
                "default.replication.factor": copies,
                "offsets.topic.replication.factor": copies,
                "transaction.state.log.replication.factor": copies,
                "share.coordinator.state.topic.replication.factor": copies,
                "min.insync.replicas": "1",
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.min.isr": "1",
                **_SETTINGS,
                **(properties or {}),
            }
            name = f"{alias}{number}"
            made = self._broker(name, jvm, directory, port=port, properties=settings)
            self.brokers.append(made)

    def _broker(
        self, name: str, jvm: Jvm, directory: Path, *, port: int, properties: Mapping[str, str]
    ) -> Broker:
        return Broker(name, jvm, directory, port=port, properties=properties)

    def _network(self, number: int, brokers: int) -> dict[str, str]:
        """Where a broker listens and finds the others."""
        port, controller_port = self.ports[2 * number - 2 : 2 * number]
        voters = (f"{n}@{ADDRESS}:{self.ports[2 * n - 1]}" for n in range(1, brokers + 1))
        return {
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{ADDRESS}:{port},CONTROLLER://{ADDRESS}:{controller_port}",
        }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all its brokers, separated by commas."""
        return ",".join(broker.address for broker in self.brokers)

    def spawn(self) -> None:
        """Format what is not, and start every broker, without waiting for any."""
        for broker in self.brokers:
            broker.format(self.cluster_id)
            broker.spawn()

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until each broker answers and knows all of them.

        Raises:
            LabError: one died, or `timeout` seconds have passed.
        """
        for broker in self.brokers:
            broker.wait_ready(brokers=len(self.brokers), timeout=timeout)

    def start(self) -> None:
        """Start every broker and wait until they are ready."""
        self.spawn()
        self.wait_ready()

    @property
    def probe(self) -> Probe:
        """What asks this cluster: topics, offsets, deletion of records."""
        return Probe(self.bootstrap_servers)

    def create_topic(
        self, topic: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it can be used; it may be there already, as it is asked.

        Raises:
            ClusterError: the cluster does not answer, or refuses.
            PartitionCountError: it is there with another number of partitions.
        """
        self.probe.create_topic(topic, partitions, configs)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        return self.probe.partitions(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The end offset of each partition of a topic; empty if there is no such topic."""
        return self.probe.end_offsets(topic)

    def beginning_offsets(self, topic: str) -> dict[int, int]:
        """The first offset that each partition of a topic still holds; empty without it."""
        return self.probe.beginning_offsets(topic)

    def delete_records(self, topic: str, before: Mapping[int, int] | int) -> None:
        """Delete records below an offset: one for each partition, or one for all; -1: the end.

        Raises:
            ClusterError: the cluster does not answer, or refuses.
        """
        if isinstance(before, int):
            before = dict.fromkeys(range(self.partitions(topic)), before)
        self.probe.delete_records(topic, before)


def _new_cluster_id() -> str:
    """A random id in Kafka's form; like Kafka's own, none that looks like an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not made.startswith("-"):
            return made
