"""The lab in containers; `make test-docker` also runs other tests of the lab on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import LabError, UnreachableError
from mirrortest.lab import Lab, Part
from mirrortest.lab.cluster_client import ClusterClient
from mirrortest.lab.docker.engine import KAFKA_IMAGE, LABEL
from mirrortest.lab.docker.program import Container
from mirrortest.lab.runtime import PartState
from mirrortest.lab.temporary_directories import is_running
from tests.docker.images import docker, has

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

LOCAL = "mirrortest-kafka:local"


@pytest.fixture(scope="session")
def image() -> str:
    """An image of Kafka: the environment's, else the local one, else Apache's."""
    chosen = os.environ.get("MIRRORTEST_KAFKA_IMAGE") or (LOCAL if has(LOCAL) else KAFKA_IMAGE)
    if not has(chosen):
        pulled = subprocess.run(["docker", "pull", "-q", chosen], capture_output=True, check=False)
        if pulled.returncode != 0:
            pytest.skip(f"{chosen} cannot be pulled: `make kafka-image` makes {LOCAL}")
    return chosen


@pytest.fixture(scope="module")
def contained(image: str) -> Iterator[Lab]:
    """Two clusters of one broker each and MirrorMaker 2, in containers."""
    with Lab(image=image) as running:
        name = running.engine.lab if running.engine else ""
        yield running
    assert not left(name)


def left(lab: str) -> list[str]:
    """The ids of a lab's containers, networks and volumes; empty without a name."""
    if not lab:
        return []
    wanted = ("--filter", f"label={LABEL}={lab}", "--quiet")
    every = [docker("ps", "--all", *wanted), docker("network", "ls", *wanted)]
    return "\n".join([*every, docker("volume", "ls", *wanted)]).split()


def container_of(part: Part) -> Container:
    """The container of a part of this lab."""
    assert isinstance(part.program, Container)
    return part.program


def test_a_paused_broker_answers_nothing_until_it_goes_on(contained: Lab) -> None:
    """A paused broker counts as stopped, and answers no request in time."""
    broker = contained.destination.brokers[0]
    container_of(broker).pause()
    try:
        states = [broker.state]
        with pytest.raises(UnreachableError):
            ClusterClient(broker.address, timeout=1).broker_count()
    finally:
        container_of(broker).unpause()
    broker.wait_ready()
    states.append(broker.state)
    assert states == [PartState.STOPPED, PartState.RUNNING]


def test_a_broker_cut_off_comes_back_at_its_address(contained: Lab) -> None:
    """A disconnected broker runs but is unreachable; reconnected, it has the same pid and topic."""
    contained.source.create_topic("kept", 3)
    broker = contained.source.brokers[0]
    pid = broker.pid
    container_of(broker).disconnect()
    try:
        assert broker.state is PartState.RUNNING
        with pytest.raises(UnreachableError):
            ClusterClient(broker.address, timeout=1).broker_count()
    finally:
        container_of(broker).connect()
    broker.wait_ready()
    assert broker.pid == pid
    assert contained.source.partitions("kept") == 3


def test_a_mirror_cut_off_goes_on_when_it_is_connected(contained: Lab) -> None:
    """A topic that is created meanwhile is mirrored afterwards, by the same process."""
    mirror, pid = contained.mirror, contained.mirror.pid
    container_of(mirror).disconnect()
    contained.source.create_topic("meanwhile", 2)
    container_of(mirror).connect()
    assert mirror.wait_topic("meanwhile") == "A.meanwhile"
    assert mirror.pid == pid


def test_a_part_that_is_down_cannot_be_hurt(contained: Lab) -> None:
    """The error names the part, which can be started again."""
    mirror = contained.mirror
    mirror.kill()
    try:
        with pytest.raises(LabError, match="mirror is not running"):
            container_of(mirror).pause()
    finally:
        mirror.start()
        mirror.wait_ready()


def test_data_in_a_directory_outlive_the_lab(image: str, tmp_path: Path) -> None:
    """A lab that starts again has its address and its topics, and left nothing in Docker before."""
    with Lab(tmp_path / "lab", image=image, start_mirror=False) as first:
        first.source.create_topic("kept", 2)
        assert first.engine is not None
        address, name = first.source.bootstrap_servers, first.engine.lab
    assert not left(name)
    with Lab(tmp_path / "lab", image=image, start_mirror=False) as second:
        assert second.source.bootstrap_servers == address
        assert second.source.partitions("kept") == 2


def test_what_a_killed_owner_leaves_is_found(image: str) -> None:
    """The containers, network and volumes keep their label; `lab down --all` removes them."""
    with tempfile.TemporaryDirectory() as state:  # a socket's path has to be short
        environment = {**os.environ, "XDG_STATE_HOME": state, "NO_COLOR": "1"}

        def mirrortest(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "mirrortest", "lab", *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=200,
            )

        started = mirrortest(
            *("up", "--detach", "--no-mirror", "--runtime", "docker", "--kafka-image", image)
        )
        assert started.returncode == 0, started.stderr
        status = json.loads(mirrortest("status", "--json").stdout)
        pid = next(part["pid"] for part in status["parts"].values() if part["pid"])
        of_owner = f"label=mirrortest.owner={os.uname().nodename}:{status['pid']}"
        asked = ("ps", "--filter", of_owner, "--format", f'{{{{.Label "{LABEL}"}}}}')
        (lab,) = set(docker(*asked).split())
        paused = mirrortest("fault", "pause", "A1")
        assert paused.stdout == "A1 stopped\n", paused.stderr
        os.kill(status["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while is_running(status["pid"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(left(lab)) == 2 + 1 + 2
        assert pid
        ended = mirrortest("down", "--all")
        assert ended.returncode == 0, ended.stderr
        assert f"removed {lab}" in ended.stderr
        assert not left(lab)
