"""The lab around its processes: Java, ports, properties, directories, endings."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.errors import LabError, UsageError
from mirrortest.host.java import Java
from mirrortest.host.user_files import read_properties
from mirrortest.lab import free_ports
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.mirrors import CommandMirror, CommandSettings, MirrorMaker2, MirrorSettings
from mirrortest.lab.part import Part, inject
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.properties_file import write_properties
from mirrortest.lab.temporary_directories import TemporaryDirectory, is_running, sweep
from mirrortest.lab.testbed import Lab

JAVA = Java(Path("/java"), 17, "PATH")
JVM = Jvm(JAVA, "a.jar")


def test_ports_are_free_distinct_and_not_for_outgoing_connections() -> None:
    """No port is in the system's range for outgoing connections."""
    found = free_ports.free_ports(50)
    assert len(set(found)) == 50
    if sys.platform == "linux":
        assert max(found) < int(free_ports._RANGE.read_text().split()[0])
    for port in found[:5]:
        with socket.socket() as listener:
            listener.bind((free_ports.ADDRESS, port))


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of sockets without files")
def test_ports_belong_to_one_process_until_it_ends() -> None:
    """Even before a process listens on them: two labs that start at once never share ports."""
    assert not _can_have(free_ports.free_ports(2))
    assert _can_have(_given_to_one_that_ended())


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of sockets without files")
def test_a_lab_that_starts_again_has_its_ports_for_itself(tmp_path: Path) -> None:
    """It reserves them before its brokers listen: once, another lab took them and one failed."""
    ports = [*_given_to_one_that_ended(), *_given_to_one_that_ended()]
    for _ in range(2):  # twice in one process
        Cluster("A", JVM, tmp_path, ports=ports[:2], link_ports=ports[2:])
    assert not _can_have(ports[:2])
    assert not _can_have(ports[2:])
    again = f"from mirrortest.lab.free_ports import reserve_ports; reserve_ports({ports})"
    other = subprocess.run(
        [sys.executable, "-c", again], capture_output=True, text=True, check=False
    )
    assert "another lab uses port" in other.stderr


def _can_have(ports: list[int]) -> bool:
    """Whether another process can reserve exactly these ports."""
    ask = f"""
import random
from mirrortest.lab import free_ports
random.sample = lambda *_: {ports}
print(*free_ports.free_ports(2))
"""
    asked = [sys.executable, "-c", ask]
    other = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert not other.returncode or "found fewer than 2 free ports" in other.stderr
    return not other.returncode


def _given_to_one_that_ended() -> list[int]:
    ask = "from mirrortest.lab import free_ports; print(*free_ports.free_ports(2))"
    output = subprocess.check_output([sys.executable, "-c", ask], text=True)
    return [int(word) for word in output.split()]


def test_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    """Keys may have an arrow or a colon, values backslashes."""
    path = tmp_path / "new" / "p.properties"
    write_properties(path, {"A->B.topics": "a\\..*, b", "k:=": " x"})
    assert path.read_text() == "A->B.topics=a\\\\..*, b\nk\\:\\==\\ x\n"


@given(st.dictionaries(st.sampled_from(["log.dirs", "A->B.é", "k:="]), st.text()))
def test_properties_in_any_script_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, properties: dict[str, str]
) -> None:
    """Java reads ISO 8859-1: once, a lab in /home/josé had its data in a wrong directory."""
    path = tmp_path_factory.getbasetemp() / "any.properties"
    write_properties(path, properties)
    expected = {key: text.replace("\b", "b") for key, text in properties.items()}
    assert read_properties(path) == expected


def test_a_tool_runs_in_the_users_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its locale, Java opens no file in /home/josé, and the lab does not start."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\necho "$LC_ALL $CLASSPATH"\n')
    java.chmod(0o755)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert Jvm(Java(java, 17, "PATH"), "a.jar").run("Tool") == "C.UTF-8 a.jar\n"


@pytest.fixture
def two(tmp_path: Path) -> SimpleNamespace:
    made = [Cluster(alias, JVM, tmp_path, brokers=2) for alias in ("A", "B")]
    return SimpleNamespace(directory=tmp_path, source=made[0], destination=made[1])


def test_a_cluster_listens_on_the_loopback_interface_alone(two: SimpleNamespace) -> None:
    """All its listeners do; each broker has its own ports and data directory."""
    brokers = [*two.source.brokers, *two.destination.brokers]
    for broker in brokers:
        for listener in broker.properties["listeners"].split(","):
            assert "://127.0.0.1:" in listener
    assert [broker.name for broker in brokers] == ["A1", "A2", "B1", "B2"]
    assert len({broker.data for broker in brokers}) == 4
    assert len({*two.source.ports, *two.destination.ports}) == 8
    assert two.source.bootstrap_servers == ",".join(b.address for b in two.source.brokers)


def test_the_mirror_is_told_what_was_asked_for(two: SimpleNamespace) -> None:
    """Its settings become properties; the user's own properties override them."""

    def properties(**settings: Any) -> dict[str, str]:
        mirror = MirrorMaker2(
            JVM,
            two.directory,
            source=two.source,
            destination=two.destination,
            settings=MirrorSettings(**settings),
        )
        return mirror.properties()

    defaults = properties()
    assert defaults["A.bootstrap.servers"] == two.source.bootstrap_servers
    assert defaults["B.offset.flush.interval.ms"] == "1000"
    patience = (
        defaults[f"B.{key}.timeout.ms"] for key in ("task.shutdown.graceful", "offset.flush")
    )
    assert set(patience) == {"20000"}  # on a busy machine, nothing is copied again
    assert defaults["A->B.topics"] == ".*"
    assert "A->B.topics.exclude" not in defaults
    assert not any("exactly" in key for key in defaults)
    other = properties(
        topics="a, b", exclude="c", offset_flush_ms=60000, properties={"tasks.max": "7"}
    )
    assert other["A->B.topics"] == "a, b"
    assert other["A->B.topics.exclude"] == "c"
    assert other["B.offset.flush.interval.ms"] == "60000"
    assert other["tasks.max"] == "7"
    assert not any("rebalance" in key or key == "listeners" for key in defaults)
    shared = properties(workers=2)
    assert shared["listeners"].startswith("http://127.0.0.1:")
    assert shared["B.scheduled.rebalance.max.delay.ms"] == "3000"
    assert "B.exactly.once.source.support" not in shared
    exact = properties(exactly_once=True)
    assert exact["B.exactly.once.source.support"] == "enabled"
    assert exact["listeners"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("there", [{1, 2}, {1}, set()])
def test_a_broker_stays_where_the_rest_is_no_majority(
    two: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, there: set[int]
) -> None:
    """Of all that ever joined: after one of three is removed, a second one cannot be."""
    monkeypatch.setattr("mirrortest.lab.cluster.ClusterClient.broker_ids", lambda _: there)
    cluster = Cluster("A", JVM, two.directory, brokers=3)
    left = len(there - {2})
    with pytest.raises(LabError, match=rf"^cannot remove A2: .* \({left} of 3 would be"):
        cluster.brokers[1].remove()


def test_over_links_the_mirror_alone_is_led(two: SimpleNamespace) -> None:
    """It bootstraps at the links, where brokers advertise links; clients connect directly."""
    ports = free_ports.free_ports(4)
    linked = Cluster("A", JVM, two.directory, brokers=2, link_ports=ports)
    sides = {"source": linked, "destination": two.destination}
    mirror = MirrorMaker2(JVM, two.directory, settings=MirrorSettings(), **sides).properties()
    links = [f"127.0.0.1:{port}" for port in ports[::2]]
    assert mirror["A.bootstrap.servers"] == linked.bootstrap_servers_over_link == ",".join(links)
    assert mirror["B.bootstrap.servers"] == two.destination.bootstrap_servers
    assert linked.routes == dict(zip(ports[::2], ports[1::2], strict=True))
    for number, broker in enumerate(linked.brokers):
        advertised = broker.properties["advertised.listeners"].split(",")
        assert advertised == [f"PLAINTEXT://{broker.address}", f"LINK://{links[number]}"]
        assert f"LINK://127.0.0.1:{ports[2 * number + 1]}," in broker.properties["listeners"]
        assert broker.address in linked.bootstrap_servers
    assert "advertised.listeners" not in two.source.brokers[0].properties


def test_any_command_can_be_the_mirror(two: SimpleNamespace) -> None:
    """It gets the addresses, over links if there are any; other braces stay as they are."""
    linked = Cluster("A", JVM, two.directory, link_ports=free_ports.free_ports(2))
    words = ["copy", "--from={source}", "{destination}", '{"a": 1}']

    def mirror(alias: str) -> CommandMirror:
        settings = CommandSettings(words, alias)
        return CommandMirror(
            two.directory, source=linked, destination=two.destination, settings=settings
        )

    assert mirror("")._command == (
        "copy",
        f"--from={linked.bootstrap_servers_over_link}",
        two.destination.bootstrap_servers,
        '{"a": 1}',
    )
    assert [mirror(alias).copy_of("orders") for alias in ("", "A")] == ["orders", "A.orders"]
    with pytest.raises(UsageError, match=r"command lacks \{destination\}: put it"):
        CommandSettings(["copy", "{source}"])


def test_a_broker_that_is_removed_gives_its_partitions_away_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's tools move the partitions; it ends once the new replicas are in sync."""
    line = "Topic: t\tPartition: 0\tLeader: 1\tReplicas: {}\tIsr: {}\tElr: \n".format
    before, moving, moved = line("3,1", "3,1"), line("2,1", "1"), line("2,1", "1,2")
    answers = iter([before, "started", moving, moved])
    asked = []

    class Tools(Jvm):
        def run(self, main: str, *arguments: str) -> str:
            asked.append((main.rpartition(".")[2], *arguments[2:]))
            return next(answers)

    monkeypatch.setattr("mirrortest.lab.cluster.ClusterClient.broker_ids", lambda _: {1, 2, 3})
    tools = Tools(JAVA, "a.jar")
    leaving = Cluster("A", tools, tmp_path, brokers=3).brokers[2]
    leaving.properties_file.parent.mkdir()
    leaving._command = (sys.executable, "-c", "import time; time.sleep(600)")
    Part.spawn(leaving)
    leaving.remove()
    plan = leaving.properties_file.with_name("A3-leaves.json")
    assert asked == [
        ("TopicCommand", "--describe"),
        ("ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(plan)),
        ("TopicCommand", "--describe"),
        ("TopicCommand", "--describe"),
    ]
    assert json.loads(plan.read_text())["partitions"] == [
        {"topic": "t", "partition": 0, "replicas": [2, 1]}
    ]
    assert not leaving.alive
    leaving.check()


def test_only_a_broker_is_removed(tmp_path: Path) -> None:
    """A mirror is refused."""
    with pytest.raises(LabError, match="mirror is not a broker: terminate it"):
        inject(Part("mirror", ["true"], tmp_path / "log"), "remove")


OWNER = """
from pathlib import Path
from mirrortest.lab.temporary_directories import TemporaryDirectory
with TemporaryDirectory(Path(), "mirrortest-lab-") as directory:
    print(directory, flush=True)
    input()
"""


def test_directories_of_killed_owners_are_swept(tmp_path: Path) -> None:
    """Those that are not locked are removed, as the owner has ended; ours and others' are not.

    Process ids do not decide: once, a lab in another container removed a running lab's directory.
    """
    (tmp_path / "else").mkdir()
    (tmp_path / "mirrortest-lab-file").touch()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as owner:
        assert owner.stdout is not None
        theirs = tmp_path / owner.stdout.readline().strip()
        with TemporaryDirectory(tmp_path, "mirrortest-lab-") as ours:
            sweep(tmp_path, "mirrortest-lab-")
            assert theirs.is_dir()
            owner.kill()
            owner.wait()
            assert theirs.is_dir()
            sweep(tmp_path, "mirrortest-lab-")
            assert not theirs.exists()
            assert ours.is_dir()
    assert {each.name for each in tmp_path.iterdir()} == {"else", "mirrortest-lab-file"}


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_dead_process_that_nobody_has_asked_after_is_not_there() -> None:
    """A zombie has ended: its directories are swept even if its parent never reaps it."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as owner:
        assert is_running(owner.pid)
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(owner.pid)


@pytest.mark.parametrize("alias", ["", "../x", "a b", "dc.1"])
def test_an_alias_that_cannot_stand_in_names_is_refused(alias: str) -> None:
    """MirrorMaker ended with a stack trace, or a broker's data left the lab's directory."""
    with pytest.raises(UsageError, match=r"--destination-alias .*: use letters, digits, _ and -"):
        Lab(destination_alias=alias)


@pytest.mark.parametrize(("source", "brokers", "shared"), [("B", 1, "B1"), ("B1", 11, "B11")])
def test_clusters_that_would_share_a_broker_are_refused(
    source: str, brokers: int, shared: str
) -> None:
    """Both clusters' brokers of that name had the same directory and properties."""
    with pytest.raises(UsageError, match=f"both clusters would have a broker {shared}; use"):
        Lab(source_alias=source, brokers=brokers)


def test_a_lab_of_any_alias_continues_in_its_directory(tmp_path: Path) -> None:
    """The alias v had the place of the file's version."""
    for alias in ("A", "v"):
        lab = Lab(tmp_path, source_alias=alias)
        lab.directory = tmp_path
        lab._build(JVM)
    ports = lab.source.ports
    lab._build(JVM)
    assert lab.source.ports == ports


@pytest.mark.parametrize("left", ["", "[]", '{"A": {"clus'])
def test_a_damaged_lab_json_is_one_clear_error(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill or a full disk left an empty one, and the next start ended in a traceback."""
    monkeypatch.setattr(Lab, "_find_runtime", lambda *_: JVM)
    (tmp_path / "lab.json").write_text(left)
    with pytest.raises(LabError, match=r"^\S+/lab.json is damaged: use another --directory"):
        Lab(tmp_path).up()


def test_a_lab_json_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk does not cost the clusters' ids and ports."""
    lab = Lab(tmp_path)
    lab.directory = tmp_path
    lab._build(JVM)
    saved = (tmp_path / "lab.json").read_text()

    def full(path: Path, *_: object, **__: object) -> None:
        path.open("w").close()
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space left"):
        lab._build(JVM)
    assert (tmp_path / "lab.json").read_text() == saved


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> tuple[Lab, list[str]]:
    """A lab of three parts, of which B1 cannot be ended; and which were asked to end."""
    ended: list[str] = []

    def kill(name: str) -> None:
        ended.append(name)
        if name == "B1":
            raise LabError("B1 cannot be ended")

    parts = {name: SimpleNamespace(kill=partial(kill, name)) for name in ("A1", "B1", "mirror")}
    monkeypatch.setattr(Lab, "parts", property(lambda _: parts))
    monkeypatch.setattr(Lab, "clusters", property(lambda _: []))
    monkeypatch.setattr(Lab, "_find_runtime", lambda *_: None)
    monkeypatch.setattr(Lab, "_build", lambda *_: None)
    return Lab(start_mirror=False), ended


def test_a_part_that_cannot_be_ended_keeps_no_other_from_its_end(
    stubborn: tuple[Lab, list[str]],
) -> None:
    """All parts are ended, and temporary files removed, before the error is raised."""
    lab, ended = stubborn
    lab.up()
    assert lab.directory.exists()
    with pytest.raises(LabError, match="B1 cannot be ended"):
        lab.down()
    assert ended == ["mirror", "B1", "A1"]
    assert not lab.directory.exists()
    lab.down()
    assert len(ended) == 3


@pytest.mark.parametrize("starting", [True, False])
def test_a_labs_first_error_is_the_one_that_is_raised(
    starting: bool, stubborn: tuple[Lab, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that fails, too, does not hide why the lab did not start, or why its user failed."""
    lab, ended = stubborn

    def fail(*_: object) -> None:
        raise LabError("A1 did not start")

    if starting:
        monkeypatch.setattr(Lab, "_write_targets", fail)
    with pytest.raises(LabError, match="A1 did not start"), lab:
        fail()
    assert ended == ["mirror", "B1", "A1"]
    assert not lab.directory.exists()
