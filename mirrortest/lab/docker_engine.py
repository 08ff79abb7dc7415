"""The Docker Engine as the lab uses it: one network for each lab, and everything labelled.

What a lab makes carries the labels `mirrortest.lab` and `mirrortest.owner`, so that it is found
after a crash, too: `remove` takes away what one lab has, or what all killed owners left.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import uuid
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.lab.leftovers import is_there

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LABEL, _OWNER = "mirrortest.lab", "mirrortest.owner"
_STOP_SECONDS = 10
KAFKA_IMAGE = "apache/kafka:4.3.1"
"""The lab's own version of Kafka, as Apache publishes it."""


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Docker's errors as the lab's own: LabError says what could not be done, and why."""
    import docker  # noqa: PLC0415  # an extra

    try:
        yield
    except docker.errors.DockerException as error:
        reason = getattr(error, "explanation", None) or error
        raise LabError(f"Docker cannot {what}: {reason}") from error


def client() -> Any:
    """The SDK's client, by the environment as the docker command reads it.

    Raises:
        LabError: the SDK is not installed, or no engine answers.
    """
    if not importlib.util.find_spec("docker"):
        raise LabError("--runtime docker needs its SDK: pip install 'mirrortest[lab]'")
    import docker  # noqa: PLC0415  # an extra

    try:
        found = docker.from_env()
        found.ping()
    except docker.errors.DockerException as error:
        raise LabError(f"no Docker Engine answers: {error}") from error
    return found


def engine_answers() -> bool:
    """Whether an engine answers, and its SDK is installed."""
    try:
        client().close()
    except LabError:
        return False
    return True


def remove(lab: str | None = None) -> list[str]:
    """Remove the containers, networks and volumes of one lab; returns their names.

    Without a name: of all labs whose owner ran on this machine, and runs no more.

    Raises:
        LabError: no engine answers, or it refuses.
    """
    engine = client()
    wanted = {"label": LABEL if lab is None else f"{LABEL}={lab}"}
    gone: list[str] = []

    def ours(labels: Mapping[str, str]) -> bool:
        return lab is not None or _is_orphan(labels.get(_OWNER, ""))

    with told("remove what the lab left"):
        for container in engine.containers.list(all=True, filters=wanted):
            if ours(container.labels):
                container.remove(force=True, v=True)
                gone.append(container.name)
        for network in engine.networks.list(filters=wanted):
            if ours(network.attrs["Labels"]):
                network.remove()
                gone.append(network.name)
        for volume in engine.volumes.list(filters=wanted):
            if ours(volume.attrs["Labels"]):
                volume.remove(force=True)
                gone.append(volume.name)
    engine.close()
    return gone


def _is_orphan(owner: str) -> bool:
    host, _, pid = owner.rpartition(":")
    return host == socket.gethostname() and pid.isdigit() and not is_there(int(pid))


class Engine:
    """One lab's share of a Docker Engine.

    Attributes:
        lab: the value of the label of all that it makes.
        image: with Kafka in it, as Apache's own is laid out.
    """

    def __init__(self, image: str = KAFKA_IMAGE) -> None:
        self.lab = f"mirrortest-{uuid.uuid4().hex[:8]}"
        self.image = image
        self._client = client()
        self._labels = {LABEL: self.lab, _OWNER: f"{socket.gethostname()}:{os.getpid()}"}
        with told(f"find or pull the image {image}"):
            self._have_image()
        with told("make a network"):
            self._network = self._client.networks.create(
                self.lab, driver="bridge", labels=self._labels
            )

    def _have_image(self) -> None:
        import docker  # noqa: PLC0415  # an extra

        try:
            self._client.images.get(self.image)
        except docker.errors.ImageNotFound:
            self._client.images.pull(self.image)

    def create(
        self,
        part: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        ports: Mapping[int, int],
        mounts: Mapping[Path, str],
        volume: str | None,
    ) -> Any:
        """Make a container for a part; the part's name in small letters is its host name.

        Args:
            part: its name in the lab.
            command: what runs as process 1.
            environment: variables.
            ports: port within -> port on this machine's loopback interface.
            mounts: directory here -> place within; those in `config` are read-only.
            volume: where a volume of its own is mounted that outlives its containers.
        """
        places = {
            str(here): {"bind": there, "mode": "ro" if here.name == "config" else "rw"}
            for here, there in mounts.items()
        }
        with told(f"make a container for {part}"):
            if volume is not None:
                name = f"{self.lab}-{part}"
                self._client.volumes.create(name, labels=self._labels)
                places[name] = {"bind": volume, "mode": "rw"}
            alias = host_name(part)
            container = self._client.containers.create(
                self.image,
                list(command[1:]),
                name=f"{self.lab}-{part}-{uuid.uuid4().hex[:4]}",
                entrypoint=[command[0]],
                hostname=alias,
                environment=dict(environment),
                labels=self._labels,
                volumes=places,
                ports={f"{inner}/tcp": ("127.0.0.1", outer) for inner, outer in ports.items()},
                network=self.lab,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
            )
            self._network.disconnect(container)
            self._network.connect(container, aliases=[alias])
        return container

    def run(self, command: Sequence[str]) -> str:
        """Run a program to its end on the host's network; what it said. Raises LabError."""
        with told(f"run {command[0]}"):
            said: bytes = self._client.containers.run(
                self.image,
                list(command[1:]),
                entrypoint=[command[0]],
                labels=self._labels,
                network_mode="host",
                remove=True,
                stderr=True,
            )
        return said.decode(errors="replace")

    def disconnect(self, container: Any) -> None:
        """Take a container off the lab's network: nobody reaches it, and it reaches nobody."""
        with told("disconnect it"):
            self._network.disconnect(container, force=True)

    def connect(self, container: Any, part: str) -> None:
        """Put a container back on the lab's network."""
        with told("connect it"):
            self._network.connect(container, aliases=[host_name(part)])

    def close(self) -> None:
        """Remove all that this lab has made."""
        remove(self.lab)
        self._client.close()


def host_name(part: str) -> str:
    """What other containers call a part."""
    return part.lower()
