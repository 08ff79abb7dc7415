"""The socket of a lab's owner: who may ask, what is answered, and names of labs."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.errors import LabError, UsageError
from mirrortest.lab import control
from mirrortest.lab.part import Part
from mirrortest.lab.testbed import Lab
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab.runtime import PartState


COMMAND = (sys.executable, "-c", "import signal; signal.pause()")


class Pair(Part):
    """A broker that is ready once another one runs, too."""

    other: Part

    def wait_ready(self) -> None:
        self.wait_until(lambda: self.other.alive, 30, lambda: "is not ready")


class FakeLab:
    """A lab of two parts, which only sleep; A2 is ready only with A1."""

    def __init__(self, directory: Path) -> None:
        self.only = Part("A1", COMMAND, directory / "A1.log")
        self.second = Pair("A2", COMMAND, directory / "A2.log")
        self.second.other = self.only

    def part(self, name: str) -> Part:
        return Lab.part(cast("Lab", self), name)

    @property
    def parts(self) -> dict[str, Part]:
        return {"A1": self.only, "A2": self.second}

    def describe(self) -> dict[str, dict[str, dict[str, PartState]]]:
        return {"parts": {"A1": {"state": self.only.state}}}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = control.socket_path("x")
    fake = FakeLab(tmp_path)
    with control.Control(cast("Lab", fake), path) as running:
        yield SimpleNamespace(path=path, lab=fake, control=running)
    fake.only.kill()
    fake.second.kill()


def test_wishes_reach_the_owner(served: SimpleNamespace) -> None:
    """The process that owns the parts injects the faults."""
    assert control.ask(served.path, "start", part="A1")["state"] == "running"
    assert control.ask(served.path, "stop", part="A1")["state"] == "stopped"
    assert control.ask(served.path, "continue", part="A1")["state"] == "running"
    assert control.ask(served.path, "status")["parts"]["A1"]["state"] == "running"
    assert control.ask(served.path, "kill", part="A1")["state"] == "down"


def test_what_cannot_be_done_is_told(served: SimpleNamespace) -> None:
    """The owner's errors are raised at the caller."""
    with pytest.raises(LabError, match="A1 is not running"):
        control.ask(served.path, "stop", part="A1")
    with pytest.raises(UsageError, match="no part Z9: there are A1, A2"):
        control.ask(served.path, "kill", part="Z9")
    with pytest.raises(LabError, match="has no command 'dance'"):
        control.ask(served.path, "dance")


def test_a_request_that_fails_unexpectedly_is_answered_and_so_is_the_next(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the caller waits forever. A request that is not an object fails like this."""

    def broken() -> None:
        raise KeyError("parts")

    with monkeypatch.context() as patched:
        patched.setattr(served.lab, "describe", broken)
        with pytest.raises(LabError, match="unexpectedly: the output of `lab up` has the error"):
            control.ask(served.path, "status")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(served.path))
        line.sendall(b"[]\n")
        assert b"unexpectedly" in line.makefile("rb").readline()
    assert control.ask(served.path, "status")["parts"]["A1"]["state"] == "down"


def test_a_start_that_waits_lets_other_requests_pass(served: SimpleNamespace) -> None:
    """A cluster that is down starts only with a majority: A1's start waited for A2's to fail."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(control.ask, served.path, "start", part="A2")
        until(lambda: served.lab.second.alive)
        assert control.ask(served.path, "status")["parts"]["A1"]["state"] == "down"
        control.ask(served.path, "down")
        assert served.control.ending.wait(10)
        assert not waiting.done()
        assert control.ask(served.path, "start", part="A1")["state"] == "running"
        assert waiting.result()["state"] == "running"


def test_requests_for_one_part_are_served_one_at_a_time(served: SimpleNamespace) -> None:
    """A kill never meets the same part's start halfway."""
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(control.ask, served.path, "start", part="A2")
        until(lambda: served.lab.second.alive)
        killing = pool.submit(control.ask, served.path, "kill", part="A2")
        control.ask(served.path, "start", part="A1")
        assert starting.result()["state"] == "running"
        assert killing.result()["state"] == "down"


def test_one_name_one_lab(served: SimpleNamespace) -> None:
    """A second lab of the name is refused while the first is up."""
    with pytest.raises(LabError, match="up already"), control.Control(served.lab, served.path):
        pass
    assert control.is_up(served.path)


def test_the_end_is_asked_for(served: SimpleNamespace) -> None:
    """Only the owner can end its lab: `down` sets its event `ending`."""
    control.ask(served.path, "down")
    assert served.control.ending.wait(10)


def test_who_asks_for_another_lab_is_told_which_are_up(served: SimpleNamespace) -> None:
    """The error does not claim that no lab is up."""
    with pytest.raises(LabError, match=r"^no lab other is up; running: --name x$"):
        control.ask(control.socket_path("other"), "status")


def test_no_lab_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing socket, or one that a killed owner left, is not a lab."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "x.sock"
    with pytest.raises(LabError, match="no lab is up"):
        control.ask(path, "status")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert not control.is_up(path)
    with pytest.raises(LabError, match="no lab is up"):
        control.ask(path, "status")


def test_names_of_labs_are_names_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path, an empty name, and a name too long for a socket's path are refused."""
    for name in ("", "../x", "a b"):
        with pytest.raises(UsageError):
            control.socket_path(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 30)))
    with pytest.raises(UsageError, match="too long"):
        control.socket_path("x")


def test_a_fault_in_force_whose_part_does_not_become_ready_is_distinguished(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart that times out has ended the program; a start that is refused has done nothing."""

    def fail() -> None:
        raise LabError("A1 did not answer within 120 s")

    control.ask(served.path, "start", part="A1")
    monkeypatch.setattr(served.lab.only, "wait_ready", fail)
    with pytest.raises(control.NotReadyError, match="did not answer"):
        control.ask(served.path, "restart", part="A1")
    with pytest.raises(LabError, match="already running") as refused:
        control.ask(served.path, "start", part="A1")
    assert not isinstance(refused.value, control.NotReadyError)
