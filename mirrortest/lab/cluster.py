"""A KRaft cluster in which each broker is also a controller."""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from typing import TYPE_CHECKING

from mirrortest.errors import LabError, MirrortestError
from mirrortest.lab import reassignment
from mirrortest.lab.cluster_client import ClusterClient
from mirrortest.lab.free_ports import ADDRESS, free_ports, reserve_ports
from mirrortest.lab.part import Part
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.properties_file import write_properties
from mirrortest.lab.runtime import broker_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from mirrortest.lab.runtime import Runtime

_STARTED = "Kafka Server started"
"""The log line of a started broker: Docker accepts connections to its port before it does."""

START_TIMEOUT = 180.0
"""Seconds; a cold start takes 3 to 10 on two cores, more on a busy machine."""

# For tests: few threads, and retention, compaction and deletion happen within seconds.
_SETTINGS = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # A killed broker can register again once its former session has expired.
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
    """A broker that is also a controller; its port and data stay the same over restarts."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        directory: Path,
        *,
        port: int,
        cluster_id: str,
        properties: Mapping[str, str],
    ) -> None:
        self.port = port
        self.data = directory / "data" / name
        self.properties_file = directory / "config" / f"{name}.properties"
        self.properties = {**properties, "log.dirs": runtime.log_dirs(self.data)}
        self._runtime = runtime
        self._cluster_id = cluster_id
        command, environment, program = runtime.broker(
            name, self.properties_file, data=self.data, port=port, cluster_id=cluster_id
        )
        log = directory / "logs" / f"{name}.log"
        super().__init__(name, command, log, environment=environment, program=program)

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{ADDRESS}:{self.port}"

    def spawn(self) -> None:
        """Write its properties file, format its data if it is new, and start it; do not wait."""
        write_properties(self.properties_file, self.properties)
        self._runtime.format(self.properties_file, self.data, self._cluster_id)
        super().spawn()

    def start(self) -> None:
        """Start it and wait until it answers a request for metadata.

        Raises:
            LabError: it died or did not answer; the text ends with its log's last lines.
        """
        self.spawn()
        self.wait_ready()

    def remove(self) -> None:
        """Decommission it: move its partitions to the other brokers, then terminate it.

        Raises:
            LabError: the other brokers would have no majority of controllers, it is a container,
                or its partitions could not be moved.
        """
        leaving = int(self.properties["node.id"])
        runtime = self._runtime
        if not isinstance(runtime, Jvm):
            raise LabError(f"{self.name} is a container: remove needs a lab of processes")
        voters = len(self.properties["controller.quorum.voters"].split(","))
        others = ClusterClient(self.address).broker_ids() - {leaving}
        if len(others) <= voters // 2:
            raise LabError(
                f"cannot remove {self.name}: the controllers would lose their majority "
                f"({len(others)} of {voters} would be left)"
            )
        plan = self.properties_file.with_name(f"{self.name}-leaves.json")
        server = ("--bootstrap-server", self.address)

        def partitions() -> list[reassignment.Replicas]:
            return reassignment.parse_description(
                runtime.run(reassignment.DESCRIBE, *server, "--describe")
            )

        plan.write_text(reassignment.plan_without(leaving, partitions(), others))
        execute = ("--execute", "--reassignment-json-file", str(plan))
        runtime.run(reassignment.REASSIGN, *server, *execute)
        self.wait_until(
            lambda: reassignment.is_done(leaving, partitions()),
            START_TIMEOUT,
            lambda: "did not move its partitions",
        )
        self.terminate()

    def wait_ready(self, timeout: float = START_TIMEOUT, *, brokers: int = 1) -> None:
        """Wait until it answers, and its metadata lists at least `brokers` brokers.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        problem = "did not answer"

        def answers() -> bool:
            nonlocal problem
            if _STARTED not in self.log_since_start():
                return False
            try:
                found = ClusterClient(self.address, timeout=2).broker_count()
            except MirrortestError:
                return False
            problem = f"listed only {found} of {brokers} brokers"
            return found >= brokers

        self.wait_until(answers, timeout, lambda: problem)

    def drop_page_cache(self) -> None:
        """Sync its segments to disk, then drop them from the page cache; not those in a volume."""
        for segment in self.data.rglob("*.log"):
            with contextlib.suppress(FileNotFoundError), segment.open("rb") as file:
                os.fsync(file.fileno())  # dirty pages cannot be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Cluster(ClusterClient):
    """Brokers that form one cluster, and a client of it.

    Attributes:
        alias: the mirror's name for it.
        cluster_id: Kafka's id of it.
        runtime: where its brokers run.
        ports: two for each broker: for clients and for controllers.
        link_ports: two more for each broker if there is a link to the mirror: the port of the link,
            and the broker's port for connections over the link.
        brokers: its brokers, in the order of their ids.
    """

    def __init__(
        self,
        alias: str,
        runtime: Runtime,
        directory: Path,
        *,
        brokers: int = 1,
        cluster_id: str | None = None,
        ports: Iterable[int] | None = None,
        link_ports: Iterable[int] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.alias = alias
        self.cluster_id = cluster_id or _new_cluster_id()
        self.ports = tuple(ports or free_ports(2 * brokers))
        if len(self.ports) != 2 * brokers:
            raise LabError(
                f"cluster {alias} was created with {len(self.ports) // 2} brokers, not {brokers}"
            )
        self.link_ports = tuple(link_ports)
        reserve_ports([*self.ports, *self.link_ports])
        self.runtime = runtime
        names = broker_names(alias, brokers)
        copies = str(min(brokers, 3))
        self.brokers = [
            Broker(
                name,
                runtime,
                directory,
                port=self.ports[2 * number - 2],
                cluster_id=self.cluster_id,
                properties={
                    "process.roles": "broker,controller",
                    "node.id": str(number),
                    **runtime.listeners(names, number, self.ports),
                    **self._link_listener(number),
                    "default.replication.factor": copies,
                    "offsets.topic.replication.factor": copies,
                    "transaction.state.log.replication.factor": copies,
                    "share.coordinator.state.topic.replication.factor": copies,
                    "min.insync.replicas": "1",
                    "transaction.state.log.min.isr": "1",
                    "share.coordinator.state.topic.min.isr": "1",
                    **_SETTINGS,
                    **(properties or {}),
                },
            )
            for number, name in enumerate(names, 1)
        ]
        super().__init__(",".join(broker.address for broker in self.brokers))

    @property
    def bootstrap_servers_for_parts(self) -> str:
        """The bootstrap servers for other parts of the lab, over the link if there is one."""
        if self.routes:
            return self.bootstrap_servers_over_link
        return self.runtime.bootstrap_servers(
            {broker.name: broker.address for broker in self.brokers}
        )

    @property
    def bootstrap_servers_over_link(self) -> str:
        """The bootstrap servers for a mirror on this machine; without a link those for clients."""
        return ",".join(f"{ADDRESS}:{port}" for port in self.routes) or self.bootstrap_servers

    @property
    def routes(self) -> dict[int, int]:
        """The link's routes: its port -> the broker's port; empty without a link."""
        return dict(zip(self.link_ports[::2], self.link_ports[1::2], strict=True))

    def _link_listener(self, number: int) -> dict[str, str]:
        """The listener properties by which a broker's metadata leads the mirror over the link."""
        if not self.routes:
            return {}
        port, controller = self.ports[2 * number - 2 : 2 * number]
        link, own = self.link_ports[2 * number - 2 : 2 * number]
        clients = f"PLAINTEXT://{ADDRESS}:{port}"
        return {
            "listeners": f"{clients},LINK://{ADDRESS}:{own},CONTROLLER://{ADDRESS}:{controller}",
            "advertised.listeners": f"{clients},LINK://{ADDRESS}:{link}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
        }

    def spawn(self) -> None:
        """Start every broker, without waiting for any."""
        for broker in self.brokers:
            broker.spawn()

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until each broker answers, and its metadata lists all of them.

        Raises:
            LabError: one died, or `timeout` seconds have passed.
        """
        for broker in self.brokers:
            broker.wait_ready(brokers=len(self.brokers), timeout=timeout)

    def start(self) -> None:
        """Start every broker and wait until they are ready."""
        self.spawn()
        self.wait_ready()


def _new_cluster_id() -> str:
    """A random id in Kafka's format; one that begins with "-" would look like an option."""
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    return cluster_id
