"""A scenario whose clients are pods: faults hit them, and their files are collected."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubernetes.kube import Kube
    from tests.kubernetes.outside import Outside

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(600)]

NAMESPACE = "mirrortest-scenario"
RATE, SECONDS = 200, 14
SCENARIO = """
thresholds = ["lost==0"]
timeout = "6m"

[clusters]
source-bootstrap-server = "{source}"
source-command-config = "source.properties"
destination-bootstrap-server = "{destination}"
destination-command-config = "destination.properties"
source-alias = "A"

[kubernetes]
namespace = "{namespace}"
image = "{image}"
image-pull-policy = "IfNotPresent"
files = ["source/ca.pem", "destination/ca.pem", "destination/client.pem"]

[[kubernetes.pod.containers]]
name = "client"
resources.requests = {{ cpu = "20m", memory = "128Mi" }}

[[produce]]
topics = "clicks.eu"
throughput = "replay(rate.csv)"
duration = "{seconds}s"

[[consume]]

[[fault]]
do = "stop"
part = "p1"
at = "1s"
for = "2s"

[[fault]]
do = "kill"
part = "c1"
at = "2s"
for = "1s"
"""


def _write(outside: Outside, image: str, folder: Path) -> Path:
    """Write the scenario and its clients' files, which refer to each other by relative paths."""
    for side, door in outside.doors.items():
        (folder / side).mkdir()
        for name, content in door.files.items():
            (folder / side / name).write_text(content)
        properties = door.client.replace(f"/etc/mirrortest/{side}/files/", f"{side}/")
        (folder / f"{side}.properties").write_text(properties)
    (folder / "rate.csv").write_text(f"time,rate\n0,{RATE}\n{SECONDS},{RATE}\n")
    file = folder / "pods.toml"
    file.write_text(
        SCENARIO.format(
            source=outside.source_for_pods,
            destination=outside.destination_for_pods,
            namespace=NAMESPACE,
            image=image,
            seconds=SECONDS,
        )
    )
    return file


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_scenario_s_clients_are_pods(
    kube: Kube, images: tuple[str, str], secured: Outside, tmp_path: Path
) -> None:
    """One is stopped, one killed and restarted: the run passes, and no pod or secret is left."""
    kube.restricted_namespace(NAMESPACE)
    file = _write(secured, images[0], tmp_path)
    output = tmp_path / "results"
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", "run", str(file), "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert kube.items("pods,secrets", NAMESPACE) == []

    point = output / "point-001"
    outcome = _read(point / "point.json")
    assert (outcome["verdict"], outcome["figures"]["acked"]) == ("passed", RATE * SECONDS)
    (noted,) = (point / "logs").rglob("events.jsonl")
    events = map(json.loads, noted.read_text().splitlines())
    assert {(each["what"], each["part"]) for each in events} >= {
        ("stop", "p1"),
        ("continue", "p1"),
        ("kill", "c1"),
        ("start", "c1"),
    }
    assert len(list((point / "logs").rglob("role=consumer/c1-*"))) == 2
    for name in ("p1", "c1"):
        assert _read(point / "clients" / f"{name}.json")["verdict"] == "passed"
        assert len((point / "clients" / f"{name}.csv").read_text().splitlines()) > 1
        assert "acknowledged" in (point / "clients" / f"{name}.log").read_text()
    assert (point / "report.html").stat().st_size > 0
