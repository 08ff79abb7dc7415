"""deploy/compose.yaml runs two clusters, a mirror, a producer and a consumer, to the verdict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.lab.docker.engine import KAFKA_IMAGE
from mirrortest.lab.free_ports import free_ports
from tests.docker.images import ROOT, docker, has

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.images import Images

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]

LOCAL = {
    "KAFKA_IMAGE": "mirrortest-kafka:local",
    "PROMETHEUS_IMAGE": "mirrortest-prometheus:local",
    "GRAFANA_IMAGE": "mirrortest-grafana:local",
}
PUBLIC = {
    "KAFKA_IMAGE": KAFKA_IMAGE,
    "PROMETHEUS_IMAGE": "prom/prometheus:v3.5.0",
    "GRAFANA_IMAGE": "grafana/grafana:12.2.0",
}


def had(name: str) -> str | None:
    """A variable's image: the environment's, a local or a pulled one; None if there is none."""
    for image in (os.environ.get(name), LOCAL[name]):
        if image and has(image):
            return image
    pulled = subprocess.run(["docker", "pull", "-q", PUBLIC[name]], check=False, timeout=600)
    return PUBLIC[name] if pulled.returncode == 0 else None


def command() -> list[str]:
    """The command of the Compose that is installed here."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("there is no Docker Compose")


class Project:
    """A project of deploy/compose.yaml with its own images and ports."""

    def __init__(self, images: Images, found: dict[str, str]) -> None:
        self.images = found
        self.name = f"mirrortest-{uuid.uuid4().hex[:8]}"
        prometheus, grafana = free_ports(2)
        self.prometheus = f"http://127.0.0.1:{prometheus}"
        self._command = [*command(), "--project-name", self.name]
        self._environment = {
            **os.environ,
            **found,
            "MIRRORTEST_IMAGE": images.mirrortest,
            "RECONCILE_IMAGE": images.reconcile,
            "PROMETHEUS_PORT": str(prometheus),
            "GRAFANA_PORT": str(grafana),
            "DURATION": "30s",
            "THROUGHPUT": "500",
        }

    def __call__(self, *arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT / "deploy",
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def container(self, service: str) -> str:
        """The id of a service's container, ended or not."""
        wanted = ("--filter", f"label=com.docker.compose.service={service}")
        project = ("--filter", f"label=com.docker.compose.project={self.name}")
        return docker("ps", "--all", "--quiet", *project, *wanted)

    def asked(self, query: str) -> list[Any]:
        """Prometheus' answer to a query."""
        url = f"{self.prometheus}/api/v1/query?query={query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return found


@pytest.fixture
def project(images: Images) -> Iterator[Project]:
    """The project; all of it is removed afterwards, including volumes."""
    found = {name: image for name in LOCAL if (image := had(name))}
    if "KAFKA_IMAGE" not in found:
        pytest.skip(f"no image of Kafka: `make kafka-image` makes {LOCAL['KAFKA_IMAGE']}")
    made = Project(images, found)
    yield made
    made("--profile", "reconcile", "down", "--volumes", "--timeout", "5")
    assert not docker("volume", "ls", "--quiet", "--filter", f"name={made.name}")


def test_to_the_verdict(project: Project) -> None:
    """Though the mirror is killed, as in deploy/README.md, both verdicts are that all arrived."""
    watched = [
        service
        for service, name in (("prometheus", "PROMETHEUS_IMAGE"), ("grafana", "GRAFANA_IMAGE"))
        if name in project.images
    ]
    up = project("up", "-d", "source", "destination", "mirror", "producer", "consumer", *watched)
    assert up.returncode == 0, up.stderr[-3000:]
    if "prometheus" in watched:
        deadline = time.monotonic() + 120
        # Both have been scraped, even if they have ended by now.
        wanted = "max_over_time(up{job=%22mirrortest%22}[10m])%20==%201"
        while len(project.asked(wanted)) < 2:
            assert time.monotonic() < deadline, project.asked("up")
            time.sleep(1)
    for verb in ("kill", "start"):
        hurt = project(verb, "mirror")
        assert hurt.returncode == 0, hurt.stderr[-3000:]
    for service in ("producer", "consumer"):
        code = docker("wait", project.container(service), seconds=300)
        assert code == "0", project("logs", service).stdout[-3000:]
    done = project("run", "--rm", "-T", "reconcile", seconds=300)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    assert "run laptop: passed" in output
    assert "online verdict: the same" in output
    report = project("run", "--rm", "-T", "--entrypoint", "cat", "reconcile", "/logs/report.html")
    assert "<html" in report.stdout[:1000], report.stderr[-3000:]


def test_every_service_is_named_by_a_variable() -> None:
    """No image is fixed, so a site can pull all of them from its own registry."""
    lines = (ROOT / "deploy" / "compose.yaml").read_text().splitlines()
    every = [line.strip() for line in lines if line.strip().startswith("image:")]
    assert len(every) == 6
    assert all(line.startswith("image: ${") for line in every)
