"""A machine's profile, configurations without secrets, and changes during an observation."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.redaction import (
    HIDDEN,
)
from mirrortest.errors import UnreachableError, UsageError
from mirrortest.kafka.error_table import RequestError
from mirrortest.kafka.ports import Configuration
from mirrortest.observe import cluster_configuration, drift_watch, observer
from mirrortest.observe.cluster_configuration import ClusterConfigurations
from mirrortest.observe.drift_watch import DriftWatch
from mirrortest.observe.machine_profile import (
    changes,
    java_release,
    limits,
    mounts,
    processors,
    read_profile,
)
from mirrortest.observe.options import ObserveOptions
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.seqlog.events import Events
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.table_files import utc
from tests.unit.test_observe_recording import observed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.observe.observe_report import ObserveReport

CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu vme

processor\t: 1
model name\t: AMD EPYC
flags\t\t: fpu vme
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            20000                50000                files
Max realtime timeout      unlimited            unlimited            us
"""


def test_parts_of_a_profile() -> None:
    """Each is parsed from text as the kernel or a Java runtime writes it."""
    assert processors(CPUINFO) == {"count": 2, "model": "AMD EPYC", "flags": ["fpu", "vme"]}
    assert limits(LIMITS) == {"open files": "20000", "realtime timeout": "unlimited"}
    text = r"/dev/vda /data\040one ext4 rw,noatime 0 0" "\nproc /proc proc rw 0 0\n"
    assert list(mounts(text)) == [("/dev/vda", "/data one", "ext4", "rw,noatime")]
    assert java_release('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nOS_NAME="Linux"\n') == {
        "implementor": "Debian",
        "java_version": "17.0.15",
    }


def test_this_machine_has_a_profile() -> None:
    """It has this process's command and limits, and can be written as JSON."""
    profile = read_profile(ReadableFiles(), [os.getpid()])
    assert profile["processors"]["count"] == os.cpu_count()
    assert profile["kernel"]["release"] == os.uname().release
    assert profile["memory_bytes"] > 0
    own = profile["processes"][str(os.getpid())]
    assert own["command"]
    assert "open files" in own["limits"]
    assert json.loads(json.dumps(profile)) == profile


def test_a_process_that_has_ended_is_in_no_profile(tmp_path: Path) -> None:
    """Otherwise, all its fields would count as changes if it ended after the last reading."""
    for pid, line in (("7", "java\0kafka.Kafka\0"), ("8", "")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(line)  # a zombie's is empty
    profile = read_profile(ReadableFiles(tmp_path, tmp_path), [7, 8, 9])
    assert {pid: each["command"] for pid, each in profile["processes"].items()} == {
        "7": ["java", "kafka.Kafka"]
    }


def test_changes_are_named_by_their_place() -> None:
    """Added and removed entries are changes, too."""
    before = {"settings": {"vm/swappiness": "60"}, "disks": {"vda": {"bytes": 1}}, "same": [1]}
    now = {"settings": {"vm/swappiness": "1"}, "disks": {"vdb": {"bytes": 2}}, "same": [1]}
    assert list(changes(before, now)) == [
        ("disks.vda", {"bytes": 1}, None),
        ("disks.vdb", None, {"bytes": 2}),
        ("settings.vm/swappiness", "60", "1"),
    ]


def test_an_observation_has_the_profile_and_the_configurations(tmp_path: Path) -> None:
    """Its files contain no secret of theirs."""
    config = tmp_path / "server.properties"
    config.write_text("broker.id=1\nssl.key.password=geheim\n")
    times = ("--interval", "100ms", "--duration", "100ms")
    observed(*times, "--output", tmp_path / "o", "--config", config)
    (folder,) = (tmp_path / "o").iterdir()
    profile = json.loads((folder / "profile.json").read_text())
    assert profile["configurations"] == {
        str(config): {"broker.id": "1", "ssl.key.password": HIDDEN}
    }
    assert profile["processors"]["count"] >= 1
    assert all(b"geheim" not in path.read_bytes() for path in folder.iterdir())


async def test_a_change_is_found_after_a_minute_and_is_an_event_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noted once, with both values; a process that starts or ends is not a change."""
    swappiness, processes = ["60"], {"1": {"limits": {"open files": "20"}}}
    monkeypatch.setattr(drift_watch, "_SECONDS", 0.0)
    asked = 0

    def profile() -> dict[str, Any]:
        return {
            "settings": {"vm/swappiness": swappiness[0]},
            "processes": dict(processes),
            "file_systems": [],
        }

    options = ObserveOptions(name="here", run="nightly", log_dir=tmp_path)
    watch = DriftWatch(options, profile)

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            assert watch.found == []
            swappiness[0] = "1"
            processes["2"] = {"limits": {}}
        if asked == 4:
            raise UnreachableError("the test is over")

    with pytest.raises(UnreachableError):
        await watch.run(ask)
    (drift,) = watch.found
    assert (drift.what, drift.before, drift.after) == ("settings.vm/swappiness", '"60"', '"1"')
    (event,) = Events.read(Location.parse(tmp_path / "run=nightly" / "events.jsonl")).events
    assert (event.what, event.part) == ("changed: settings.vm/swappiness", "here")
    assert event.time_ns == drift.time_ns
    assert watch.first["settings"] == {"vm/swappiness": "60"}


def test_a_file_system_that_is_mounted_is_no_change(tmp_path: Path) -> None:
    """A login mounts one, and so does a container; a changed option of one that stays counts."""
    root = {"device": "/dev/vda", "mount": "/", "options": "rw"}
    login = {"device": "tmpfs", "mount": "/run/user/1000", "options": "rw"}
    mounted = [[root], [root, login], [root | {"options": "ro"}]]
    profiles = iter([{"processes": {}, "file_systems": each} for each in mounted])
    watch = DriftWatch(ObserveOptions(name="m", output=tmp_path), lambda: next(profiles))
    watch.compare()
    assert watch.found == []
    watch.compare()
    (drift,) = watch.found
    assert drift.what == "file_systems"
    assert ('"ro"' in drift.before, '"ro"' in drift.after) == (False, True)


def test_events_need_a_run() -> None:
    """They are written to its directory."""
    with pytest.raises(UsageError, match="--log-dir needs --run"):
        ObserveOptions(name="here", log_dir=Path("logs"))


class Cluster:
    """A cluster with given answers; properties of None mean that the request is refused."""

    def __init__(self, client: ClientConfig, answers: dict[str, dict[str, Any]]) -> None:
        del client
        self._answers = answers

    async def __aenter__(self) -> Self:
        if "down" in self._answers:
            raise UnreachableError("no broker answers")
        if "silent" in self._answers:
            await asyncio.sleep(60)
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def cluster_id(self) -> str:
        return "c"

    async def matching(self, _: str) -> dict[str, int]:
        return dict.fromkeys(self._answers["topics"], 1)

    async def configurations(self, topics: Iterable[str]) -> list[Configuration]:
        assert list(topics) == sorted(self._answers["topics"])
        refused = RequestError(31, "refused")
        return [
            Configuration(kind, name, refused if values is None else None, values or {})
            for kind, its in self._answers.items()
            for name, values in its.items()
        ]


async def test_changes_of_brokers_and_topics_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers and topics that come or go, and missing answers, are not changes.

    A broker's change counts also if it was down meanwhile; secrets stay hidden.
    """
    answers: dict[str, dict[str, Any]] = {
        "brokers": {"1": {"num.io.threads": "8", "ssl.key.password": "geheim"}, "2": {"a": "b"}},
        "topics": {"orders": {"retention.ms": "1000"}, "gone": {}},
    }
    monkeypatch.setattr(cluster_configuration, "Admin", lambda client: Cluster(client, answers))
    clusters = ClusterConfigurations([ClientConfig.load(bootstrap_server="a:1")])
    await clusters.ask()
    assert clusters.left_out == {}
    assert clusters.latest["a:1"]["brokers"]["1"]["ssl.key.password"] == HIDDEN
    watch = DriftWatch(
        ObserveOptions(name="m", output=tmp_path),
        lambda: {"processes": {}, "file_systems": [], "clusters": dict(clusters.latest)},
    )
    answers["brokers"] = {"1": {"num.io.threads": "4", "ssl.key.password": "geheim"}, "2": None}
    answers["topics"] = {"orders": {"retention.ms": "5"}, "new": {}}
    await clusters.ask()
    watch.compare()
    assert clusters.left_out == {"configuration of broker 2": "refused"}
    first = clusters.first["a:1"]
    assert first["brokers"]["1"]["num.io.threads"] == "8"
    assert first["topics"] == {"orders": {"retention.ms": "1000"}, "gone": {}, "new": {}}
    back = {"1": {"num.io.threads": "2", "ssl.key.password": "geheim"}}
    for answers["brokers"] in ({"3": {}}, back):
        await clusters.ask()
        watch.compare()
    answers["down"] = {}
    await clusters.ask()
    watch.compare()
    assert clusters.left_out == {"configuration of a:1": "no broker answers"}
    assert [(each.what, each.before, each.after) for each in watch.found] == [
        ("clusters.a:1.brokers.1.num.io.threads", '"8"', '"4"'),
        ("clusters.a:1.topics.orders.retention.ms", '"1000"', '"5"'),
        ("clusters.a:1.brokers.1.num.io.threads", '"4"', '"2"'),
    ]


def observed_cluster(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, dict[str, Any]], **options: Any
) -> ObserveOptions:
    """The options that observe a cluster `a:1` with these answers."""
    monkeypatch.setattr(cluster_configuration, "Admin", lambda client: Cluster(client, answers))
    clusters = (ClientConfig.load(bootstrap_server="a:1"),)
    return ObserveOptions(name="m", interval=0.1, clusters=clusters, **options)


async def test_an_observation_finds_what_changes_in_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its end; its profile has the cluster from the first answer on."""
    answers: dict[str, dict[str, Any]] = {"brokers": {"1": {"num.io.threads": "8"}}, "topics": {}}
    options = observed_cluster(monkeypatch, answers, output=tmp_path)
    stop = asyncio.Event()

    def on_progress(report: ObserveReport) -> None:
        if json.loads((report.path / "profile.json").read_text())["clusters"]:
            answers["brokers"] = {"1": {"num.io.threads": "4"}}
            stop.set()

    report = await observer.run(options, stop=stop, on_progress=on_progress)
    observation = json.loads((report.path / "observation.json").read_text())
    (drift,) = observation["drift"]
    assert drift["what"] == "clusters.a:1.brokers.1.num.io.threads"
    profile = json.loads((report.path / "profile.json").read_text())
    assert profile["clusters"]["a:1"]["brokers"] == {"1": {"num.io.threads": "8"}}


async def test_a_cluster_without_an_answer_delays_neither_readings_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the first row began before the cluster was asked, and its rates after it."""
    monkeypatch.setattr(observer, "_LAST_SECONDS", 0.1)
    answers: dict[str, dict[str, Any]] = {"silent": {}}
    options = observed_cluster(monkeypatch, answers, output=tmp_path, duration=0.3, csv=True)
    began = time.monotonic()
    report = await observer.run(options, stop=asyncio.Event())
    assert time.monotonic() - began < 5
    assert 1 <= report.intervals <= 3
    observation = json.loads((report.path / "observation.json").read_text())
    assert observation["left_out"]["configuration of a:1"] == "no answer within 0.1 s"
    assert observation["ended_ns"] - observation["started_ns"] < 5e9
    first = (report.path / "host.csv").read_text().splitlines()[1]
    assert first.startswith(utc(observation["started_ns"]))
