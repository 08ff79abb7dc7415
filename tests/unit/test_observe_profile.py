"""What a machine is, its configurations without secrets, and what changed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.observe.configuration import (
    HIDDEN,
    command_without_secrets,
    without_secrets,
)
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
    """As the kernel and a Java runtime write them."""
    assert processors(CPUINFO) == {"count": 2, "model": "AMD EPYC", "flags": ["fpu", "vme"]}
    assert limits(LIMITS) == {"open files": "20000", "realtime timeout": "unlimited"}
    text = r"/dev/vda /data\040one ext4 rw,noatime 0 0" "\nproc /proc proc rw 0 0\n"
    assert list(mounts(text)) == [("/dev/vda", "/data one", "ext4", "rw,noatime")]
    assert java_release('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nOS_NAME="Linux"\n') == {
        "implementor": "Debian",
        "java_version": "17.0.15",
    }


def test_this_machine_has_a_profile() -> None:
    """With this process's command and limits; it can be written as JSON."""
    profile = read_profile(ReadableFiles(), [os.getpid()])
    assert profile["processors"]["count"] == os.cpu_count()
    assert profile["kernel"]["release"] == os.uname().release
    assert profile["memory_bytes"] > 0
    own = profile["processes"][str(os.getpid())]
    assert own["command"]
    assert "open files" in own["limits"]
    assert json.loads(json.dumps(profile)) == profile


def test_a_process_that_has_ended_is_in_no_profile(tmp_path: Path) -> None:
    """One that ended after the last reading would be a change of all that it was."""
    for pid, line in (("7", "java\0kafka.Kafka\0"), ("8", "")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(line)  # a zombie's is empty
    profile = read_profile(ReadableFiles(tmp_path, tmp_path), [7, 8, 9])
    assert {pid: each["command"] for pid, each in profile["processes"].items()} == {
        "7": ["java", "kafka.Kafka"]
    }


@pytest.mark.parametrize(
    "key",
    [
        "ssl.key.password", "sasl.jaas.config", "ssl.keystore.key", "basic.auth.user.info",
        "listener.name.x.scram-sha-256.sasl.jaas.config", "aws.secret.access", "A.ssl.keystore.Key",
        "sasl.login.token", "api_key",
    ],
)  # fmt: skip
def test_values_of_secret_properties_are_hidden(key: str) -> None:
    """The key stays: that it was set is part of the configuration."""
    assert without_secrets({key: "geheim"}) == {key: HIDDEN}


def test_other_properties_stay_but_for_passwords_in_addresses() -> None:
    """Also those whose names are almost a secret's."""
    given = {
        "key.converter": "x.ByteArray",
        "log.dirs": "/data",
        "url": "http://ann:geheim@proxy:3128/x",
    }
    found = without_secrets(given)
    assert found == {**given, "url": f"http://{HIDDEN}@proxy:3128/x"}
    assert "geheim" not in str(found)


def test_a_command_line_keeps_its_options_and_loses_its_secrets() -> None:
    """Given as one word, or as the word that follows."""
    words = ["java", "-Xmx1g", "-Dssl.password=a", "--password", "b", "--topic", "c", "kafka.Kafka"]
    assert command_without_secrets(words) == [
        *("java", "-Xmx1g", f"-Dssl.password={HIDDEN}", "--password", HIDDEN, "--topic", "c"),
        "kafka.Kafka",
    ]


def test_changes_are_named_by_their_place() -> None:
    """What came and what went, too."""
    before = {"settings": {"vm/swappiness": "60"}, "disks": {"vda": {"bytes": 1}}, "same": [1]}
    now = {"settings": {"vm/swappiness": "1"}, "disks": {"vdb": {"bytes": 2}}, "same": [1]}
    assert list(changes(before, now)) == [
        ("disks.vda", {"bytes": 1}, None),
        ("disks.vdb", None, {"bytes": 2}),
        ("settings.vm/swappiness", "60", "1"),
    ]


def test_an_observation_has_the_profile_and_the_configurations(tmp_path: Path) -> None:
    """No secret of theirs is in any of its files."""
    config = tmp_path / "server.properties"
    config.write_text("broker.id=1\nssl.key.password=geheim\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "mirrortest", "observe", "--interval", "100ms"),
            *("--duration", "100ms", "--output", tmp_path / "o", "--config", config),
        ],
        capture_output=True,
        check=True,
    )
    (folder,) = (tmp_path / "o").iterdir()
    profile = json.loads((folder / "profile.json").read_text())
    assert profile["configurations"] == {
        str(config): {"broker.id": "1", "ssl.key.password": HIDDEN}
    }
    assert profile["processors"]["count"] >= 1
    assert all(b"geheim" not in path.read_bytes() for path in folder.iterdir())


def test_a_change_is_found_after_a_minute_and_is_an_event_of_the_run(tmp_path: Path) -> None:
    """Once, with both values; that a process came or went is no change of the machine."""
    now, swappiness, processes = [0.0], ["60"], {"1": {"limits": {"open files": "20"}}}

    def profile() -> dict[str, Any]:
        return {"settings": {"vm/swappiness": swappiness[0]}, "processes": dict(processes)}

    options = ObserveOptions(name="here", run="nightly", log_dir=tmp_path)
    watch = DriftWatch(options, profile, lambda: now[0])
    swappiness[0] = "1"
    processes["2"] = {"limits": {}}
    now[0] += 59
    watch.look_if_due()
    assert watch.found == []
    now[0] += 1
    watch.look_if_due()
    watch.look()
    (drift,) = watch.found
    assert (drift.what, drift.before, drift.after) == ("settings.vm/swappiness", '"60"', '"1"')
    (event,) = Events.read(Location.parse(tmp_path / "run=nightly" / "events.jsonl")).events
    assert (event.what, event.part) == ("changed: settings.vm/swappiness", "here")
    assert event.time_ns == drift.time_ns
    assert watch.first["settings"] == {"vm/swappiness": "60"}


def test_events_need_a_run() -> None:
    """They are in its directory."""
    with pytest.raises(UsageError, match="name it with --run"):
        ObserveOptions(name="here", log_dir=Path("logs"))
