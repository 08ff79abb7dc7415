"""The lab in containers: the same clusters, mirror and faults, on a Docker Engine.

Clients on this machine reach the brokers at 127.0.0.1, as in a lab of processes; the containers
reach each other by name, over a network of the lab's own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.host.java import Java
from mirrortest.lab.cluster import START_TIMEOUT, Broker, Cluster
from mirrortest.lab.docker_engine import KAFKA_IMAGE, Engine, host_name
from mirrortest.lab.docker_part import Contained
from mirrortest.lab.faulty_mirror import FaultyMirror, FaultyMirrorSettings
from mirrortest.lab.jvm import Jvm
from mirrortest.lab.lab import Lab
from mirrortest.lab.mirror import Mirror
from mirrortest.lab.properties import write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BIN = "/opt/kafka/bin"
_CONFIG = "/opt/mirrortest/config"
_DATA = "/var/lib/kafka/data"
"""Where Apache's image has a directory of its user's own; a volume there is the user's, too."""
_STARTED = "Kafka Server started"
_INSIDE, _CONTROLLER = 19092, 19093
_SCRIPTS = {
    "kafka.Kafka": "kafka-server-start.sh",
    "org.apache.kafka.connect.mirror.MirrorMaker": "connect-mirror-maker.sh",
}


@dataclass(frozen=True)
class ImageJvm(Jvm):
    """Java and Kafka as an image has them: commands for within a container."""

    engine: Engine = field(kw_only=True)
    kept: bool = field(kw_only=True)

    @property
    def environment(self) -> dict[str, str]:
        """As Kafka's own scripts read it."""
        return {"KAFKA_HEAP_OPTS": f"-Xmx{self.heap}", "KAFKA_OPTS": shlex.join(self.options)}

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """The command line by Kafka's own script; its log goes to stdout."""
        del options  # JMX exporters listen on the host's loopback interface alone
        return [f"{_BIN}/{_SCRIPTS[main]}", *map(_within, arguments)]

    def run(self, main: str, *arguments: str) -> None:
        """Run one of Kafka's programs to its end, in a container of its own. Raises LabError."""
        self.engine.run([f"{_BIN}/kafka-run-class.sh", main, *arguments])


class ContainedBroker(Broker, Contained):
    """A broker in a container."""

    def __init__(
        self, name: str, jvm: ImageJvm, directory: Path, *, port: int, properties: Mapping[str, str]
    ) -> None:
        super().__init__(name, jvm, directory, port=port, properties=properties)
        self.engine = jvm.engine
        self.ports = {port: port}
        self.mounts = {self.properties_file.parent: _CONFIG}
        self.properties["log.dirs"] = _DATA
        if jvm.kept:
            self.mounts[self.data] = _DATA
        else:
            self.volume = _DATA
        self._start_command = self._command

    def format(self, cluster_id: str) -> None:
        """Have its next start make its data, unless there is some."""
        write_properties(self.properties_file, self.properties)
        if _DATA in self.mounts.values():
            self.data.mkdir(parents=True, exist_ok=True)
            self.data.chmod(0o777)  # the image's user is another one
        made = shlex.join(
            [
                f"{_BIN}/kafka-storage.sh",
                *("format", "--ignore-formatted", "--cluster-id", cluster_id),
                *("--config", _within(str(self.properties_file))),
            ]
        )
        self._command = ("sh", "-c", f"{made} && exec {shlex.join(self._start_command)}")

    def wait_ready(self, timeout: float = START_TIMEOUT, *, brokers: int = 1) -> None:
        """As any broker; but Docker itself listens on its port before it does.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        self.wait_until(
            lambda: _STARTED in self.log_since_start(), timeout, lambda: "did not start"
        )
        super().wait_ready(timeout, brokers=brokers)


class ContainedCluster(Cluster):
    """A cluster of brokers in containers."""

    @property
    def inside(self) -> str:
        """Where the lab's other containers reach its brokers."""
        return ",".join(f"{host_name(broker.name)}:{_INSIDE}" for broker in self.brokers)

    def _broker(
        self, name: str, jvm: Jvm, directory: Path, *, port: int, properties: Mapping[str, str]
    ) -> Broker:
        if not isinstance(jvm, ImageJvm):
            raise TypeError
        return ContainedBroker(name, jvm, directory, port=port, properties=properties)

    def _network(self, number: int, brokers: int) -> dict[str, str]:
        port = self.ports[2 * number - 2]
        here = host_name(f"{self.alias}{number}")
        voters = (
            f"{n}@{host_name(f'{self.alias}{n}')}:{_CONTROLLER}" for n in range(1, brokers + 1)
        )
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


class ContainedMirror(Mirror, Contained):
    """MirrorMaker 2 in a container."""

    def __init__(self, jvm: ImageJvm, directory: Path, **rest: Any) -> None:
        super().__init__(jvm, directory, **rest)
        self.engine = jvm.engine
        self.ports = {}
        self.mounts = {self.properties_file.parent: _CONFIG}

    def properties(self) -> dict[str, str]:
        """What its properties file says: as elsewhere, with the brokers' names within."""
        found = super().properties()
        for cluster in (self.source, self.destination):
            key = f"{cluster.alias}.bootstrap.servers"
            if isinstance(cluster, ContainedCluster) and key not in self.settings.properties:
                found[key] = cluster.inside
        return found


class DockerLab(Lab):
    """The lab in containers; as `Lab`, but for where it runs.

    What it makes is labelled `mirrortest.lab`; a killed owner's containers are found by that:
    `mirrortest lab down --all`. Its parts can also be paused and cut off the network.

    Args:
        directory: as `Lab`'s; a kept one holds the brokers' data, else they lie in volumes.
        image: with Kafka in it, laid out as Apache's.
        settings: as `Lab` takes them.
    """

    _cluster = ContainedCluster

    def __init__(
        self, directory: Path | None = None, *, image: str = KAFKA_IMAGE, **settings: Any
    ) -> None:
        if settings.get("metrics"):
            raise LabError("parts in containers serve no metrics: leave --runtime docker out")
        super().__init__(directory, **settings)
        self._image = image
        self._engine: Engine | None = None

    def down(self) -> None:
        """End every part, and remove all that Docker holds of this lab."""
        super().down()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _runtime(self) -> Jvm:
        self._tell(f"Docker: image {self._image}")
        self._engine = Engine(self._image)
        return ImageJvm(
            Java(Path("java"), 0, self._image),
            "",
            self._heap,
            self._jvm_options,
            engine=self._engine,
            kept=self._keep,
        )

    def _make_mirror(self, jvm: Jvm) -> Mirror | FaultyMirror:
        settings = self._mirror_settings
        if isinstance(settings, FaultyMirrorSettings) or not isinstance(jvm, ImageJvm):
            return super()._make_mirror(jvm)
        return ContainedMirror(
            jvm,
            self.directory,
            source=self.source,
            destination=self.destination,
            settings=settings,
        )


def _within(argument: str) -> str:
    """A file of the lab's configuration as containers see it."""
    path = Path(argument)
    return f"{_CONFIG}/{path.name}" if path.parent.name == "config" else argument
