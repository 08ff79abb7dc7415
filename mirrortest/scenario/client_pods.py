"""A scenario's clients as pods in Kubernetes, and the files that they need."""

from __future__ import annotations

import hashlib
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError
from mirrortest.lab.kubernetes.kubectl import Kubectl
from mirrortest.lab.kubernetes.manifest import (
    IMAGE,
    MOST_FILES_BYTES,
    OWNER,
    POINT,
    RUN,
    PodSettings,
)
from mirrortest.lab.kubernetes.pods import Pods
from mirrortest.lab.kubernetes.program import PodProgram
from mirrortest.scenario.clients import CLIENTS, LOGS, Place, here, status_file
from mirrortest.scenario.fields import named_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.scenario.specification import KubernetesSetup, Scenario

_SPARE_SECONDS = 900
"""Time to fetch files: after the point's timeout, before Kubernetes ends its pods."""


@contextmanager
def running_place(scenario: Scenario, run: str, point: Path, home: Path) -> Iterator[Place]:
    """Where the scenario's clients run; what was created for them is removed at the end.

    File names in the scenario are relative to `home`.

    Raises:
        UsageError: a file cannot be read.
        LabError: Kubernetes refuses a request.
    """
    setup = scenario.kubernetes
    if setup is None:
        yield here(point, home)
        return
    output = hashlib.blake2b(f"{socket.gethostname()}:{point.parent}".encode(), digest_size=8)
    settings = PodSettings(
        labels={
            "app.kubernetes.io/name": "mirrortest",
            "app.kubernetes.io/managed-by": "mirrortest",
            RUN: run,
            OWNER: output.hexdigest(),
        },
        # A fetched summary shows that the sequence log that it is about was fetched before.
        directories=(LOGS, CLIENTS),
        seconds=round(scenario.timeout or 0) + _SPARE_SECONDS,
        image=setup.image or IMAGE,
        pull_policy=setup.image_pull_policy,
        files=_files(scenario, setup, home),
        overlay=setup.pod,
    )
    with Pods(Kubectl(setup.context, setup.namespace), settings) as pods:

        def program(name: str) -> PodProgram:
            status = status_file(name)
            followed = {f"{POINT}/{CLIENTS}/{status}": point / CLIENTS / status}
            return PodProgram(pods, name, followed=followed, directory=point)

        yield Place(("mirrortest",), Path(POINT), program)


def check_pods(scenarios: Iterable[Scenario], home: Path) -> None:
    """Check kubectl, the contexts and the files, before anything is started.

    Raises:
        UsageError: there is no kubectl or no such context, or a file cannot be put into the pods.
    """
    with_pods = [(each, each.kubernetes) for each in scenarios if each.kubernetes is not None]
    for context in dict.fromkeys(setup.context for _, setup in with_pods):
        Kubectl(context).check()
    for each, setup in with_pods:
        _files(each, setup, home)


def _files(scenario: Scenario, setup: KubernetesSetup, home: Path) -> dict[str, bytes]:
    """The contents of the files that clients read, by their names in the scenario."""
    names = dict.fromkeys(setup.files)
    if (clusters := scenario.clusters) is not None:
        configs = (clusters.source_command_config, clusters.destination_command_config)
        names |= dict.fromkeys(each for each in configs if each and not Path(each).is_absolute())
    found = named_files([*scenario.produce, *scenario.consume], home)
    names |= dict.fromkeys(each for each in found if not Path(each).is_absolute())
    contents = {name: _read(name, home) for name in names}
    size = sum(map(len, contents.values()))
    if size > MOST_FILES_BYTES:
        raise UsageError(
            f"[kubernetes]: the files {', '.join(contents)} have {size:,} bytes, and a Secret "
            f"holds {MOST_FILES_BYTES:,}: put the largest on a volume, mount it by "
            "kubernetes.pod, and name them by their paths in the pod"
        )
    return contents


def _read(name: str, home: Path) -> bytes:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(
            f"[kubernetes]: {name}: a file that goes along must be in the scenario's directory"
        )
    try:
        return (home / path).read_bytes()
    except OSError as error:
        raise UsageError(f"[kubernetes]: {name} cannot be read: {error.strerror}") from None
