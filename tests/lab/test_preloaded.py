"""A command run in a preloaded process behaves like the command that users start."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import Command

if TYPE_CHECKING:
    from pathlib import Path

ARGUMENTS = {
    "help": ["produce", "--help"],
    "mistake": ["consume", "--topics", "t", "--run", "r", "--shard", "9/3"],
    "nobody there": [
        *("produce", "--topics", "t", "--bootstrap-server", "127.0.0.1:1"),
        *("--run", "r", "--id", "p"),
    ],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_it_answers_as_one_that_starts_anew(name: str, tmp_path: Path) -> None:
    """Both give the same stdout, stderr and exit code."""
    both = [
        Command(ARGUMENTS[name], tmp_path, f"{name} {anew}", anew=anew) for anew in (False, True)
    ]
    preloaded, anew = ((each.wait(), each.stdout, each.stderr) for each in both)
    assert preloaded == anew


def test_it_has_the_environment_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not have that of the preloading server, which may be older."""
    for servers in ("127.0.0.1:1", "127.0.0.1:2"):
        monkeypatch.setenv("MIRRORTEST_BOOTSTRAP_SERVER", servers)
        command = Command(["produce", "--topics", "t"], tmp_path, servers)
        assert command.wait() == 1
        assert servers in command.stderr


def test_a_signal_ends_it(tmp_path: Path) -> None:
    """Its exit code names the signal, as that of a child process does."""
    asked = ["produce", "--topics", "t", "--bootstrap-server", "127.0.0.1:1"]
    with Command(asked, tmp_path, "killed") as command:
        command.signal(signal.SIGSTOP)
        assert command.process.poll() is None
        command.process.kill()
        assert command.wait() == -signal.SIGKILL
