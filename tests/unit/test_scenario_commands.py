"""Commands of a scenario, its time limit, and what runs besides its clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab.temporary_directories import is_running
from mirrortest.scenario import deadline
from mirrortest.scenario.deadline import run_command
from tests.lab.harness import until
from tests.unit.scripted_clients import (
    PRODUCER,
    play,
    scripted_clients,  # noqa: F401  # a fixture
)

if TYPE_CHECKING:
    from pathlib import Path


HANG = "sleep 600 & echo $! > pid; touch hung; wait"


CONSUMER = "[[consume]]\n"


COMMAND = """
[[fault]]
do = "command"
command = "%s"
at = "produced"
"""


def leap_once_hung(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a client hangs, each reading of the deadline's clock is 1000 s later."""
    leaps = 0

    def monotonic() -> float:
        nonlocal leaps
        leaps += (folder / "hung").exists()
        return time.monotonic() + 1000 * leaps

    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=monotonic))


def test_clients_that_never_say_how_far_they_are_are_ended_without_a_timeout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may last for days, but its start may not."""
    leap_once_hung(tmp_path, monkeypatch)
    outcome = play(f"{PRODUCER}do = 'hang'\n", tmp_path / "out")
    assert outcome.reasons == [
        "after 300 s (timeout) still waiting for the first figures of p1",
    ]


@pytest.mark.parametrize(
    ("text", "awaited"),
    [
        (f"{PRODUCER}do = 'hang'\n", "the first figures of p1"),
        (f"[observe]\ndo = 'hang'\n{PRODUCER}", "what mirrortest observe writes first"),
        (PRODUCER + CONSUMER, "reconcile"),
        (f"set-up = ['{HANG}']\n{PRODUCER}", HANG),
        (f"tear-down = ['{HANG}']\n{PRODUCER}", HANG),
        (PRODUCER + COMMAND % HANG, HANG),
    ],
)
def test_whatever_a_point_waits_for_counts_into_its_timeout(
    text: str, awaited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs is ended with every process that it started."""
    leap_once_hung(tmp_path, monkeypatch)
    outcome = play(f'timeout = "500s"\n{text}', tmp_path / "out")
    assert outcome.exit_code == 1
    assert outcome.reasons == [f"after 500 s (timeout) still waiting for {awaited}"]
    if awaited == HANG:
        child = int((tmp_path / "pid").read_text())
        until(lambda: not is_running(child))


def test_a_command_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """It went on by itself, with the processes that it had started."""
    program = f"""
from pathlib import Path
from mirrortest.scenario.deadline import Deadline, run_command
run_command({HANG!r}, {{}}, Path(), Deadline(None))
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as run:
        until((tmp_path / "hung").exists)
        run.kill()
    child = int((tmp_path / "pid").read_text())
    until(lambda: not is_running(child))


def test_what_a_command_leaves_in_the_background_goes_on(tmp_path: Path) -> None:
    """For example, set-up starts a port-forward, and tear-down ends it."""
    up = "sleep 600 & echo $! > pid"
    run_command(up, {}, tmp_path, deadline.Deadline(None))
    child = int((tmp_path / "pid").read_text())
    assert is_running(child)
    run_command("kill $(cat pid)", {}, tmp_path, deadline.Deadline(None))
    until(lambda: not is_running(child))


def test_a_command_that_fails_after_the_clients_have_ended_is_an_error(tmp_path: Path) -> None:
    """The command is a part of the test."""
    outcome = play(PRODUCER + COMMAND % "echo no; exit 3", tmp_path / "out")
    assert outcome.reasons == ["echo no; exit 3: exit code 3: no"]


def test_names_of_files_count_from_the_scenario_s_directory(tmp_path: Path) -> None:
    """Both for clients and in commands."""
    text = f"set-up = ['pwd > \"$SCENARIO_DIRECTORY/told\"']\n{PRODUCER}"
    play(text, tmp_path / "out")
    point = tmp_path / "out" / "point-001"
    assert (point / "told").read_text().strip() == str(tmp_path)
    assert json.loads((point / "clients/p1.json").read_text())["directory"] == str(tmp_path)


def test_set_up_and_tear_down_are_run_around_a_point(tmp_path: Path) -> None:
    """Their environment has the point's directory; tear-down also runs after a failure."""
    up, down = 'echo up >> "$SCENARIO_DIRECTORY/told"', 'echo down >> "$SCENARIO_DIRECTORY/told"'
    text = f"set-up = ['{up}']\ntear-down = ['{down}']\n{PRODUCER}do = 'error'"
    play(text, tmp_path / "out")
    assert (tmp_path / "out/point-001/told").read_text() == "up\ndown\n"


def test_tear_down_removes_what_a_set_up_that_failed_had_created(tmp_path: Path) -> None:
    """It was skipped: topics that the first command creates in existing clusters remained.

    Each of its commands runs, also after one that finds nothing to remove.
    """
    down = "tear-down = ['rm missing', 'rm created']\n"
    outcome = play(f"set-up = ['touch created', 'exit 3']\n{down}{PRODUCER}", tmp_path / "out")
    assert outcome.reasons == ["exit 3: exit code 3: no output"]
    assert not (tmp_path / "created").exists()
