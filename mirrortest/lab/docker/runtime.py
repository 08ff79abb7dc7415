"""Kafka's own programs in containers.

Clients on this machine reach the brokers at 127.0.0.1, as in a lab of processes; the containers
reach each other by name, over a network of the lab's own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.lab.docker.engine import host_name
from mirrortest.lab.docker.program import Container
from mirrortest.lab.runtime import Launch, Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.docker.engine import Engine

_BIN = "/opt/kafka/bin"
_CONFIG = "/opt/mirrortest/config"
_DATA = "/var/lib/kafka/data"
"""A directory that the user of Apache's image owns; a volume mounted there belongs to that user."""
_INSIDE, _CONTROLLER = 19092, 19093


@dataclass(frozen=True)
class ContainerRuntime(Runtime):
    """Containers of one image.

    Attributes:
        engine: where the containers run.
        heap: the largest heap of each, as -Xmx takes it.
        options: further options of Java.
        keeps_data: whether data is kept, in the lab's directory; else it is in volumes.
    """

    engine: Engine
    heap: str
    options: tuple[str, ...]
    keeps_data: bool

    def broker(
        self, name: str, properties_file: Path, *, data: Path, port: int, cluster_id: str
    ) -> Launch:
        """The launch of a broker, whose container formats its data first, if it is new."""
        config = _inside(properties_file)
        format_data = [
            f"{_BIN}/kafka-storage.sh",
            *("format", "--ignore-formatted", "--cluster-id", cluster_id, "--config", config),
        ]
        start = [f"{_BIN}/kafka-server-start.sh", config]
        mounts = {properties_file.parent: _CONFIG}
        if self.keeps_data:
            mounts[data] = _DATA
        volume = None if self.keeps_data else _DATA
        return Launch(
            ("sh", "-c", f"{shlex.join(format_data)} && exec {shlex.join(start)}"),
            self._environment,
            Container(self.engine, name, port=port, mounts=mounts, volume=volume),
        )

    def mirror_maker(self, name: str, properties_file: Path, *arguments: str) -> Launch:
        """The launch of MirrorMaker 2."""
        return Launch(
            (f"{_BIN}/connect-mirror-maker.sh", _inside(properties_file), *arguments),
            self._environment,
            Container(self.engine, name, mounts={properties_file.parent: _CONFIG}),
        )

    def format(self, properties_file: Path, data: Path, cluster_id: str) -> None:
        """Let the image's user write to a kept directory; the container itself formats it."""
        del properties_file, cluster_id
        if self.keeps_data:
            data.mkdir(parents=True, exist_ok=True)
            data.chmod(0o777)

    def log_dirs(self, data: Path) -> str:
        """The path of the data in the container."""
        del data
        return _DATA

    def listeners(
        self, brokers: Sequence[str], number: int, ports: Sequence[int]
    ) -> dict[str, str]:
        """Listeners for clients on this machine, for other containers, and for controllers."""
        port, here = ports[2 * number - 2], host_name(brokers[number - 1])
        voters = (f"{n}@{host_name(broker)}:{_CONTROLLER}" for n, broker in enumerate(brokers, 1))
        return {
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "listeners": (
                f"PLAINTEXT://0.0.0.0:{port},INSIDE://0.0.0.0:{_INSIDE},"
                f"CONTROLLER://0.0.0.0:{_CONTROLLER}"
            ),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},INSIDE://{here}:{_INSIDE}",
        }

    def bootstrap_servers(self, brokers: Mapping[str, str]) -> str:
        """The brokers' addresses on the lab's network."""
        return ",".join(f"{host_name(name)}:{_INSIDE}" for name in brokers)

    @property
    def _environment(self) -> dict[str, str]:
        """The variables that Kafka's own scripts read."""
        return {"KAFKA_HEAP_OPTS": f"-Xmx{self.heap}", "KAFKA_OPTS": shlex.join(self.options)}


def _inside(properties_file: Path) -> str:
    """The path in containers of a file of the lab's configuration."""
    return f"{_CONFIG}/{properties_file.name}"
