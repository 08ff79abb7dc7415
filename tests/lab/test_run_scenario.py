"""Tests from one scenario file, as a user runs them: real clusters, clients and faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import documented
from tests.lab.harness import until
from tests.lifetime import end_with_parent

PRODUCERS = """
[lab]
mirror = "none"
[[produce]]
topics = "load"
num-records = 2000
[vary]
repeats = 2
"""
LOSSES = """
thresholds = ["duplicated==0"]
expect = { verdict = "failed", findings = ["lost"] }

[lab]
mirror = "saboteur"
faults = "drops.toml"

[observe]
csv = true

[[produce]]
id = "ann"
topics = ["orders", "clicks.eu"]
throughput = 200
duration = "12s"

[[consume]]
id = "carl"
deadline = "10s"
state-interval = "500ms"

[[fault]]
do = "kill"
part = "carl"
at = "4s"
for = "1s"
"""


def _run(file: Path, output: Path) -> subprocess.Popen[str]:
    return _start(["run", str(file), "--output", str(output)])


def _start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mirrortest", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # it only makes a system call
    )


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.lab
@pytest.mark.slow
def test_a_run_that_is_killed_leaves_nothing_and_goes_on_at_the_next_point(tmp_path: Path) -> None:
    """Brokers and clients end with it; the next run does not repeat the point that had ended."""
    file, output = tmp_path / "producers.toml", tmp_path / "out"
    file.write_text(PRODUCERS)
    first = _run(file, output)
    begun = output / "point-002" / "clients" / "p1.log"
    until(begun.exists, seconds=300, what="the second point")

    def processes() -> list[psutil.Process]:
        """A broker and a client, each with its guard."""
        found = psutil.Process(first.pid).children(recursive=True)
        return found if len(found) >= 4 else []

    running = until(processes, what="the second point's processes")
    first.kill()
    first.communicate()
    until(lambda: not any(_is_running(each) for each in running), what="all have ended")
    before = _document(output / "point-001" / "point.json")
    assert not (output / "point-002" / "point.json").exists()

    again = _run(file, output)
    printed, _ = again.communicate()
    assert again.returncode == 0, printed
    document = _document(output / "scenario.json")
    assert [point["number"] for point in document["points"]] == [1, 2]
    assert document["points"][0] == before
    assert {point["figures"]["acked"] for point in document["points"]} == {2000}


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.spark
def test_a_mirror_that_loses_messages_fails_as_expected(tmp_path: Path) -> None:
    """The documented command finds only losses, though a killed consumer reads some again."""
    (shown,) = documented.commands("run", only="--output")
    output = tmp_path / "results"
    names = ("results", "my.toml", "matrix.toml")
    words = documented.adapted(shown.words, {name: str(tmp_path / name) for name in names})
    Path(words[1]).write_text(LOSSES)
    tmp_path.joinpath("drops.toml").write_text('[[acts]]\nkind = "drop"\nrate = 0.05\n')
    process = _start(words)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    point = _document(output / "point-001" / "point.json")
    assert (point["verdict"], point["as_expected"], point["reasons"]) == ("failed", True, [])
    assert set(point["findings"]) == {"lost"}
    assert point["clients"] == [
        {"name": "ann", "verb": "produce", "verdict": "passed"},
        {"name": "carl", "verb": "consume", "verdict": "failed"},
    ]
    events = next(output.glob("point-001/logs/run=*/events.jsonl")).read_text().splitlines()
    marks = [(event["what"], event["part"]) for event in map(json.loads, events)]
    assert marks == [("kill", "carl"), ("start", "carl"), ("ready", "carl")]
    report = (output / "point-001" / "report.html").read_text()
    assert "carl: kill" in report
    for section in ("machines", "jvms", "brokers"):
        assert f'<section id="{section}">' in report
    for kept in ("configuration.json", "lab/logs/A1.log", "clients/ann.csv", "clients/carl.json"):
        assert (output / "point-001" / kept).stat().st_size
    observed = {file.name for file in output.glob("point-001/observations/*/*.csv")}
    assert {"host.csv", "process.csv", "broker.csv", "gc.csv"} <= observed
    profile = _document(next(output.glob("point-001/observations/*/profile.json")))
    source, destination = profile["clusters"].values()
    assert source["topics"]["orders"]["retention.ms"]
    for cluster in (source, destination):
        assert cluster["brokers"]["1"]["num.io.threads"]
    processes = next(output.glob("point-001/observations/*/process.csv")).read_text()
    assert all(name in processes for name in ("/config/A1.,", "/config/B1.,", "/clients/ann.,"))


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_passes(tmp_path: Path) -> None:
    """The documented command, shortened: a killed mirror loses nothing; the report shows the kill.

    `make demo`, the first command of the README, runs the same scenario.
    """
    (shown,) = documented.commands("run", only="demo")
    changes = [word for word in shown.words if word.startswith("produce.duration=")]
    words = documented.adapted(shown.words, dict.fromkeys(changes, "produce.duration=12s"))
    process = _start([*words, "--set", "fault.at=4s", "--output", str(tmp_path / "out")])
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert "passed" in printed
    point = _document(tmp_path / "out" / "point-001" / "point.json")
    assert (point["verdict"], point["findings"].get("lost", 0)) == ("passed", 0)
    assert "mirror: kill" in (tmp_path / "out" / "point-001" / "report.html").read_text()


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
