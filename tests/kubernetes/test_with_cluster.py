"""A cluster of with-cluster lives as long as its command, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mirrortest.host.cache import cache_directory
from tests.kubernetes.cluster import programs
from tests.kubernetes.cluster.enclosure import SETTINGS
from tests.kubernetes.kube import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = str(Path(__file__).with_name("with-cluster"))


@pytest.fixture
def without() -> dict[str, str]:
    """An environment without a cluster."""
    if os.geteuid() != 0 or not programs.are_built():
        pytest.skip("no cluster of our own is to be had: `tests/kubernetes/with-cluster true`")
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}


def _traces() -> set[str]:
    """The traces of clusters on this machine, and the kernel's settings."""
    groups = Path("/sys/fs/cgroup").glob("**/mirrortest-*")
    return {
        *_links(),
        *(str(group) for group in groups if "kubepods" not in str(group)),
        *map(str, (cache_directory() / "clusters").glob("mirrortest-*")),
        *(
            line.split()[1]
            for line in Path("/proc/mounts").read_text().splitlines()
            if "/clusters/" in line
        ),
        *(f"{name}={(Path('/proc/sys') / name).read_text().strip()}" for name in SETTINGS),
    }


def _links() -> set[str]:
    links = json.loads(subprocess.check_output(["ip", "-json", "link"], text=True))
    return {link["ifname"] for link in links if link["ifname"].startswith("mirrortest")}


def test_a_command_has_a_cluster_and_its_own_exit_code(without: dict[str, str]) -> None:
    """Afterwards nothing of the cluster is left, and nothing of the machine is changed."""
    before = _traces()
    script = "kubectl get node -o name && helm list && exit 7"
    done = subprocess.run(
        [COMMAND, "sh", "-c", script], env=without, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("node/node\n")
    assert _traces() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_owner_leaves_no_cluster(without: dict[str, str], number: int) -> None:
    """The cluster's processes end with its owner; the next owner removes what is left."""
    before = _traces()
    owner = subprocess.Popen(
        [COMMAND, "sh", "-c", "echo $$; exec sleep infinity"],
        env=without,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        command = int(owner.stdout.readline())
        assert _traces() > before
        owner.send_signal(number)
        assert owner.wait(180) == (143 if number == signal.SIGTERM else -number)
        if number == signal.SIGKILL:
            os.kill(command, signal.SIGKILL)  # nothing else ends it
            until(lambda: _links() <= before, "its network is gone, as its processes are")
            subprocess.run([COMMAND, "true"], env=without, check=True)
        assert _traces() == before
    finally:
        owner.terminate()
        owner.wait(180)
        owner.stdout.close()
