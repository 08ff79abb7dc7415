"""Two Kafka clusters and MirrorMaker 2 on this machine; pods reach them by one of its addresses."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrortest.lab.cluster import Cluster
from mirrortest.lab.free_ports import free_ports
from mirrortest.lab.mirrors import MirrorMaker2, MirrorSettings
from mirrortest.lab.process.runtime import Jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.kubernetes.secured import Door


class Outside:
    """The clusters, the mirror between them, and the clusters' addresses for pods.

    `doors` has the security of `source` and `destination` for pods; without it both are plaintext.
    The mirror, on this machine, always connects in plaintext.
    """

    def __init__(self, directory: Path, host: str, doors: Mapping[str, Door] | None = None) -> None:
        jvm = Jvm.find()
        self.doors = doors or {}
        self.source, self._source_port = _cluster(
            "A", jvm, directory, host, self.doors.get("source")
        )
        self.destination, self._destination_port = _cluster(
            "B", jvm, directory, host, self.doors.get("destination")
        )
        self.mirror = MirrorMaker2(
            jvm,
            directory,
            source=self.source,
            destination=self.destination,
            settings=MirrorSettings(topics="orders,clicks\\.eu,mirrortest\\.ledger"),
        )
        self.source_for_pods = f"{host}:{self._source_port}"
        self.destination_for_pods = f"{host}:{self._destination_port}"

    @contextmanager
    def running(self) -> Iterator[Outside]:
        """Start everything and wait until it is ready; kill it at the end."""
        parts = [*self.source.brokers, *self.destination.brokers, self.mirror]
        try:
            for cluster in (self.source, self.destination):
                cluster.spawn()
            for cluster in (self.source, self.destination):
                cluster.wait_ready()
            self.mirror.start()
            self.mirror.wait_ready()
            yield self
        finally:
            for part in reversed(parts):
                part.kill()


def _cluster(
    alias: str, jvm: Jvm, directory: Path, host: str, door: Door | None
) -> tuple[Cluster, int]:
    """A cluster of one broker with a listener for pods, and that listener's port."""
    broker, controller, pods = free_ports(3)
    with socket.socket() as trial:
        trial.bind((host, pods))  # fails at once if the address is not this machine's
    local = "127.0.0.1"
    protocol = door.protocol if door else "PLAINTEXT"
    listeners = f"PLAINTEXT://{local}:{broker},CONTROLLER://{local}:{controller}"
    properties = {
        "listeners": f"{listeners},PODS://{host}:{pods}",
        "listener.security.protocol.map": (
            f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PODS:{protocol}"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        **(door.broker if door else {}),
    }
    cluster = Cluster(alias, jvm, directory, ports=(broker, controller), properties=properties)
    return cluster, pods
