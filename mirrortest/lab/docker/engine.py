"""The Docker Engine as the lab uses it: one network for each lab, and a label on everything.

A lab's containers, networks and volumes carry the labels `mirrortest.lab` and `mirrortest.owner`,
so that `remove` finds them even after a crash.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.lab.temporary_directories import is_running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LABEL, _OWNER = "mirrortest.lab", "mirrortest.owner"
KAFKA_IMAGE = "apache/kafka:4.3.1"
"""Apache's image of the Kafka version that the lab uses elsewhere."""


@contextlib.contextmanager
def docker_errors(action: str) -> Iterator[None]:
    """Raise Docker's errors as LabError: which action failed, and why."""
    import docker  # noqa: PLC0415  # an extra

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:  # OSError: no answer in time
        reason = getattr(error, "explanation", None) or error
        raise LabError(f"Docker cannot {action}: {reason}") from error


def client() -> Any:
    """The SDK's client, configured by the environment as the docker command is.

    Raises:
        LabError: the SDK is not installed, or no engine answers.
    """
    if not importlib.util.find_spec("docker"):
        raise LabError(
            "--runtime docker needs Docker's SDK for Python: pip install 'mirrortest[lab]'"
        )
    import docker  # noqa: PLC0415  # an extra

    try:
        found = docker.from_env()
        found.ping()
    except docker.errors.DockerException as error:
        raise LabError(f"no Docker Engine answers: {error}") from error
    return found


def engine_answers() -> bool:
    """Whether Docker's SDK is installed and an engine answers."""
    try:
        client().close()
    except LabError:
        return False
    return True


def remove(lab: str | None = None) -> list[str]:
    """Remove the containers, networks and volumes of one lab; returns their names.

    Without `lab`, of all labs whose owner ran on this machine and has ended.

    Raises:
        LabError: no engine answers, or it refuses.
    """
    engine = client()
    wanted = {"label": LABEL if lab is None else f"{LABEL}={lab}"}
    removed: list[str] = []
    with docker_errors("remove what a lab left"):
        containers = engine.containers.list(all=True, filters=wanted)
        networks = engine.networks.list(filters=wanted)
        volumes = engine.volumes.list(filters=wanted)
        for each in chain(containers, networks, volumes):
            labels = getattr(each, "labels", None) or each.attrs["Labels"]
            if lab is None and not _is_orphan(labels.get(_OWNER, "")):
                continue
            if each in containers:
                each.remove(force=True, v=True)
            else:
                each.remove()
            removed.append(each.name)
    engine.close()
    return removed


def _is_orphan(owner: str) -> bool:
    host, _, pid = owner.rpartition(":")
    return host == socket.gethostname() and pid.isdigit() and not is_running(int(pid))


class Engine:
    """One lab's share of a Docker Engine.

    Attributes:
        lab: the value of the label `mirrortest.lab`.
        image: the Kafka image, with the layout of Apache's.
    """

    def __init__(self, image: str) -> None:
        self._client = client()  # the first: without the SDK there is nothing to import below
        import docker  # noqa: PLC0415  # an extra

        self.lab = f"mirrortest-{uuid.uuid4().hex[:8]}"
        self.image = image
        self._labels = {LABEL: self.lab, _OWNER: f"{socket.gethostname()}:{os.getpid()}"}
        with docker_errors(f"find or pull the image {image}"):
            try:
                self._client.images.get(image)
            except docker.errors.ImageNotFound:
                self._client.images.pull(image)
        with docker_errors("create a network"):
            self._network = self._client.networks.create(
                self.lab, driver="bridge", labels=self._labels
            )

    def create(
        self,
        part: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        port: int | None,
        mounts: Mapping[Path, str],
        volume: str | None,
    ) -> Any:
        """Create a container for a part; see `Container` for the arguments.

        A mounted directory named `config` is read-only.
        """
        places = {
            str(here): {"bind": there, "mode": "ro" if here.name == "config" else "rw"}
            for here, there in mounts.items()
        }
        with docker_errors(f"create a container for {part}"):
            if volume is not None:
                name = f"{self.lab}-{part}"
                self._client.volumes.create(name, labels=self._labels)
                places[name] = {"bind": volume, "mode": "rw"}
            container = self._client.containers.create(
                self.image,
                list(command[1:]),
                name=f"{self.lab}-{part}-{uuid.uuid4().hex[:4]}",
                entrypoint=[command[0]],
                hostname=host_name(part),
                environment=dict(environment),
                labels=self._labels,
                volumes=places,
                ports={f"{port}/tcp": ("127.0.0.1", port)} if port else {},
                network=self.lab,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
            )
            # The SDK's `create` sets no alias on the network.
            self._network.disconnect(container)
            self._network.connect(container, aliases=[host_name(part)])
        return container

    def disconnect(self, container: Any) -> None:
        """Disconnect a container from the lab's network."""
        with docker_errors(f"disconnect {container.name}"):
            self._network.disconnect(container, force=True)

    def connect(self, container: Any, part: str) -> None:
        """Connect a container to the lab's network again."""
        with docker_errors(f"connect {part}"):
            self._network.connect(container, aliases=[host_name(part)])

    def close(self) -> None:
        """Remove everything that this lab created."""
        remove(self.lab)
        self._client.close()


def host_name(part: str) -> str:
    """The host name of a part on the lab's network."""
    return part.lower()
