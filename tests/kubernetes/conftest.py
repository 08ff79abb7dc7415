"""The Kubernetes to test on: that of KUBECONFIG, described by environment variables.

- `MIRRORTEST_E2E_HOST`: an address of this machine that pods reach; the clusters listen there.
- `MIRRORTEST_E2E_LOAD`: a command that loads an image archive, its last argument, into the nodes,
  for example `kind load image-archive`; without it the nodes must have the images.
- `MIRRORTEST_E2E_IMAGE`, `MIRRORTEST_E2E_RECONCILE_IMAGE`: the images, NAME:TAG.

The logs are in a directory of the node, so it must have one node (or share the directory). Without
a Kubernetes, `tests/kubernetes/with-cluster` starts one, and sets the variables for its command.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.kubernetes.kube import Kube
from tests.kubernetes.outside import Outside
from tests.kubernetes.secured import doors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

IMAGES = {
    "MIRRORTEST_E2E_IMAGE": "mirrortest:e2e",
    "MIRRORTEST_E2E_RECONCILE_IMAGE": "mirrortest-reconcile:e2e",
}


class WalkApart(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """The walk on one worker, all else on another: each takes minutes, most of them waiting."""

    def _split_scope(self, nodeid: str) -> str:
        return "walk" if "test_walk.py" in nodeid else "others"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WalkApart:
    """Used if only these tests are run."""
    return WalkApart(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the Kubernetes, before it is cleaned, to the report of a failed test."""
    report = yield
    kube = getattr(item, "funcargs", {}).get("kube")
    if call.when == "call" and report.failed and isinstance(kube, Kube):
        try:
            state = kube.state()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            state = f"it does not answer: {error}"
        report.sections.append(("Kubernetes", state))
    return report


@pytest.fixture(scope="session")
def host() -> str:
    """The address of this machine as pods see it; skips if there is no Kubernetes."""
    for program in ("kubectl", "helm"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no Kubernetes; tests/kubernetes/with-cluster has one")
    address = os.environ.get("MIRRORTEST_E2E_HOST")
    if not address:
        pytest.skip("MIRRORTEST_E2E_HOST must be an address of this machine that pods reach")
    return address


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, host: str, worker_id: str) -> tuple[str, str]:
    """The clients' and the reconciliation's image; one worker loads them into the nodes."""
    names = tuple(os.environ.get(variable, name) for variable, name in IMAGES.items())
    load = os.environ.get("MIRRORTEST_E2E_LOAD")
    if load:
        folder = tmp_path_factory.getbasetemp()
        shared = folder if worker_id == "master" else folder.parent
        with (shared / "images.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / "images.loaded").exists():
                _give(load, names, shared / "images.tar")
                (shared / "images.loaded").touch()
    return names[0], names[1]


def _give(load: str, names: tuple[str, ...], archive: Path) -> None:
    """Load images into the nodes. Raises AssertionError if that fails."""
    docker = os.environ.get("DOCKER", "docker")
    for command in (
        [docker, "save", *names, "-o", str(archive)],
        [*shlex.split(load), str(archive)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr[-2000:]}"
    archive.unlink()


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory, host: str) -> Iterator[Outside]:
    """Both clusters and the mirror; pods connect without authentication."""
    with Outside(tmp_path_factory.mktemp("kafka"), host).running() as running:
        yield running


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, host: str) -> Iterator[Outside]:
    """The same, but the clusters authenticate pods."""
    folder = tmp_path_factory.mktemp("kafka-secured")
    with Outside(folder, host, doors(folder, host)).running() as running:
        yield running


@pytest.fixture
def kube(host: str) -> Iterator[Kube]:
    """The Kubernetes; what the test creates there is removed afterwards."""
    found = Kube()
    try:
        yield found
    finally:
        found.clean()
