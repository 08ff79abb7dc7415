"""The socket of a lab's owner: who may ask, what is answered, and names of labs."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.errors import LabError, UsageError
from mirrortest.lab import control
from mirrortest.lab.part import Part
from mirrortest.lab.testbed import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab.runtime import PartState


class FakeLab:
    """A lab of one part, which only sleeps."""

    def __init__(self, directory: Path) -> None:
        command = (sys.executable, "-c", "import signal; signal.pause()")
        self.only = Part("A1", command, directory / "A1.log")

    def part(self, name: str) -> Part:
        return Lab.part(cast("Lab", self), name)

    @property
    def parts(self) -> dict[str, Part]:
        return {"A1": self.only}

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
    with pytest.raises(UsageError, match="no part Z9: there are A1"):
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


def test_one_name_one_lab(served: SimpleNamespace) -> None:
    """A second lab of the name is refused while the first is up."""
    with pytest.raises(LabError, match="up already"), control.Control(served.lab, served.path):
        pass
    assert control.is_up(served.path)


def test_the_end_is_asked_for(served: SimpleNamespace) -> None:
    """Only the owner can end its lab: `down` sets its event `ending`."""
    control.ask(served.path, "down")
    assert served.control.ending.is_set()


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
