"""`lab up --detach`: it ends with 0 only if the lab that it started is up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab import control
from mirrortest.lab.temporary_directories import is_running
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator

DOUBLE = """
import os, sys
from pathlib import Path
import mirrortest.lab.testbed
from mirrortest.cli import lab_up, start

class Lab:
    parts = {}
    def __init__(self, *_, **__): pass
    def __enter__(self):
        try:
            go = os.open("go", os.O_RDWR)
            print("owner", os.getpid(), flush=True)
            os.read(go, 1)
        except KeyboardInterrupt:
            print("ended in order", flush=True)
            raise
        return self
    def __exit__(self, *_): pass
    def down(self): pass
    def describe(self):
        cluster = {"alias": "A", "bootstrap_servers": "127.0.0.1:1"}
        return {"source": cluster, "destination": cluster, "alias": "A", "pid": os.getpid()}

mirrortest.lab.testbed.Lab = Lab
lab_up.RUN_MODULE = (sys.executable, __file__)
sys.argv = [word for word in sys.argv if word != "mirrortest"]
start.run()
"""
"""The real command with a lab of no parts, which is up once it reads a byte from the pipe `go`."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path must be short
        monkeypatch.setenv("XDG_STATE_HOME", short)
        monkeypatch.chdir(short)
        Path("double.py").write_text(DOUBLE)
        os.mkfifo("go")
        yield Path(short)


def up(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "double.py", "lab", "up", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def owner_in(place: Path) -> int:
    log = place / "mirrortest/lab-default.log"
    until(lambda: log.exists() and "owner" in log.read_text())
    return int(log.read_text().split()[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_no_lab(place: Path, number: Signals) -> None:
    """The lab came up all the same, and went on in the background."""
    with up("--detach") as starting:
        owner = owner_in(place)
        starting.send_signal(number)
        output, _ = starting.communicate()
    assert starting.returncode == 128 + number, output
    assert not is_running(owner)
    assert "ended in order" in (place / "mirrortest/lab-default.log").read_text()


def test_a_start_in_the_foreground_is_interrupted_in_order(place: Path) -> None:
    """At Ctrl-C it ended at once: its directory, or its containers, remained."""
    with up() as starting:
        assert starting.stdout is not None
        starting.stdout.readline()
        starting.send_signal(signal.SIGINT)
        output, _ = starting.communicate()
    assert (starting.returncode, output) == (128 + signal.SIGINT, "ended in order\n")


def test_of_two_starts_of_one_name_the_second_fails(place: Path) -> None:
    """It printed the first one's addresses and ended with 0, while its own lab failed."""
    with up("--detach") as first:
        owner = owner_in(place)
        with up("--detach") as second:
            output, _ = second.communicate()
        assert (second.returncode, output) == (
            1,
            "error: lab default is starting already: wait until it is up\n",
        )
        (place / "go").write_text("1")
        output, _ = first.communicate()
    assert first.returncode == 0, output
    assert control.ask(control.socket_path("default"), "status")["pid"] == owner
    control.bring_down(control.socket_path("default"))


def test_a_start_that_another_lab_overtakes_fails(place: Path) -> None:
    """The other one, in the foreground, is up first: its address is not the start's."""
    path = control.socket_path("default")
    with up("--detach") as starting:
        owner = owner_in(place)
        os.kill(owner, signal.SIGSTOP)
        (place / "go").write_text("12")
        with up() as other:
            until(lambda: control.is_up(path))
            os.kill(owner, signal.SIGCONT)
            output, _ = starting.communicate()
            assert starting.returncode == 1
            assert "a lab of this name is up already" in output
            assert control.ask(path, "status")["pid"] == other.pid
            control.bring_down(path)
