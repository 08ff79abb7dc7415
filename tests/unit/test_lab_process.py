"""A part of the lab takes faults, reports how it died, and never outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from signal import Signals
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil
import pytest

from mirrortest.errors import LabError
from mirrortest.lab.part import Part
from mirrortest.lab.process.program import GUARD, GuardedProcess
from mirrortest.lab.runtime import PartState
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")


def ended(pid: int) -> bool:
    """Whether a process has ended (or is a zombie)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Part]:
    made = Part("sleeper", SLEEP, tmp_path / "sleeper.log")
    yield made
    made.kill()


def assert_state(part: Part, state: PartState) -> None:
    assert part.state is state


def pid_of(part: Part) -> int:
    assert part.pid is not None
    return part.pid


def test_a_part_runs_and_is_killed(part: Part) -> None:
    """After a kill on purpose it is down, not dead, and its process has ended."""
    assert_state(part, PartState.DOWN)
    part.start()
    pid = pid_of(part)
    assert_state(part, PartState.RUNNING)
    part.kill()
    assert_state(part, PartState.DOWN)
    assert part.pid is None
    assert ended(pid)
    part.check()


def test_a_part_that_is_being_started_has_not_died(part: Part) -> None:
    """Another thread sees it as down while its process does not exist yet."""
    seen = []
    start = part.program.start

    def watched(*how: Any) -> None:
        seen.append(part.state)
        start(*how)

    with patch.object(part.program, "start", watched):
        part.start()
    assert seen == [PartState.DOWN]
    assert_state(part, PartState.RUNNING)


def test_a_part_is_frozen_and_goes_on(part: Part) -> None:
    """SIGSTOP and SIGCONT reach the program itself, which is stopped when `stop` returns."""
    part.start()
    for _ in range(20):
        part.stop()
        assert_state(part, PartState.STOPPED)
        assert psutil.Process(part.pid).status() == psutil.STATUS_STOPPED
        part.stop()  # a second time is allowed
        part.cont()
        until(lambda: psutil.Process(part.pid).status() != psutil.STATUS_STOPPED)
        assert_state(part, PartState.RUNNING)


WORKERS = """
import subprocess, sys
for _ in range(2):
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    print(worker.pid, flush=True)
worker.wait()
"""


def test_the_workers_of_a_part_are_frozen_with_it(tmp_path: Path) -> None:
    """Only the command's process was stopped: its workers went on to produce and consume."""
    part = Part("client", (sys.executable, "-c", WORKERS), tmp_path / "log")
    part.start()
    until(lambda: len(part.tail().split()) == 2)
    workers = [psutil.Process(int(pid)) for pid in part.tail().split()]
    for _ in range(20):
        part.stop()
        assert [each.status() for each in workers] == [psutil.STATUS_STOPPED] * 2
        part.cont()
        until(lambda: all(each.status() != psutil.STATUS_STOPPED for each in workers))
    part.stop()
    part.terminate()
    until(lambda: all(ended(each.pid) for each in workers))


def test_a_part_that_ends_instead_of_stopping_is_told(tmp_path: Path) -> None:
    """`stop` does not wait for a program that has ended."""
    part = Part("brief", ("sleep", "600"), tmp_path / "log")
    part.start()
    os.kill(pid_of(part), signal.SIGKILL)
    with pytest.raises(LabError, match="brief is not running"):
        part.stop()
    part.kill()


def test_a_frozen_part_can_be_ended_in_order(tmp_path: Path) -> None:
    """SIGTERM reaches a stopped program, because SIGCONT follows it."""
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('in order'));"
        "print('up', flush=True); signal.pause()"
    )
    part = Part("frozen", (sys.executable, "-c", script), tmp_path / "log")
    part.start()
    until(lambda: "up" in part.tail())
    part.stop()
    part.terminate()
    assert part.state is PartState.DOWN
    assert part.tail().endswith("in order")


def test_a_part_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    """A part that does not end in time after SIGTERM is killed."""
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); time.sleep(600)"
    )
    part = Part("deaf", (sys.executable, "-c", script), tmp_path / "log")
    part.start()
    until(lambda: "up" in part.tail())
    part.terminate(timeout=0.2)
    assert part.state is PartState.DOWN


def test_a_restart_makes_a_new_process(part: Part) -> None:
    """Its log is continued."""
    part.start()
    first = part.pid
    until(lambda: "up\n" in part.log_since_start())
    part.restart()
    assert part.pid != first
    until(lambda: "up\n" in part.log_since_start())
    assert part.tail().splitlines() == ["up", "up"]


def test_a_death_is_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    """A part that ends by itself is dead; the error has its exit code and last lines."""
    script = "import sys; print(*range(100), sep='\\n'); sys.exit(7)"
    part = Part("mortal", (sys.executable, "-c", script), tmp_path / "log")
    part.start()
    until(lambda: part.state is PartState.DEAD)
    with pytest.raises(LabError, match=r"mortal died with exit code 7.*\n80\n81\n(.*\n)*99$"):
        part.check()
    part.start()  # a dead part can be started again
    until(lambda: part.state is PartState.DEAD)
    part.kill()


def test_a_kill_from_outside_is_a_death(part: Part) -> None:
    """If another process kills it, it is dead, by signal 9."""
    part.start()
    os.kill(pid_of(part), signal.SIGKILL)
    until(lambda: part.state is PartState.DEAD)
    with pytest.raises(LabError, match="exit code 137"):
        part.check()


def test_a_program_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    """A missing program fails at once; the error names it."""
    part = Part("nothing", (str(tmp_path / "missing"),), tmp_path / "log")
    with pytest.raises(LabError, match=r"nothing could not be started(.*\n)*.*missing"):
        part.start()
    part.kill()


def test_what_does_not_run_cannot_be_signalled(part: Part) -> None:
    """A signal for a part that is down is refused, and a second start too."""
    with pytest.raises(LabError, match="sleeper is not running"):
        part.stop()
    part.start()
    with pytest.raises(LabError, match="already running"):
        part.start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_program_started_ends_with_it(tmp_path: Path, number: Signals) -> None:
    """A mirror behind a script does not keep running after the script has ended."""
    script = "sleep 600 & echo $!; wait"
    part = Part("script", ("sh", "-c", script), tmp_path / "log")
    part.start()
    until(part.tail)
    child = int(part.tail())
    assert not ended(child)
    (part.kill if number is signal.SIGKILL else part.terminate)()
    until(lambda: ended(child))


def _owner(tmp_path: Path, before_waiting: str = "") -> subprocess.Popen[bytes]:
    """A process that owns a part, prints the part's and its guard's pid, and waits."""
    script = f"""
        import os, sys, time
        from pathlib import Path
        from mirrortest.lab.part import Part
        part = Part("p", (sys.executable, "-c", "import time; time.sleep(600)"), Path("log"))
        part.start()
        {before_waiting}
        print(part.pid, part.program._guard.pid, flush=True)
        time.sleep(600)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=tmp_path
    )


def _pids(owner: subprocess.Popen[bytes]) -> list[int]:
    assert owner.stdout is not None
    with owner.stdout:
        part, guard = map(int, owner.stdout.readline().split())
    return [part, guard]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_part_ends_with_its_owner(tmp_path: Path, number: Signals) -> None:
    """However the owner ends, program and guard end, too."""
    owner = _owner(tmp_path)
    pids = _pids(owner)
    owner.send_signal(number)
    owner.wait()
    until(lambda: all(map(ended, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pidfd")
def test_a_fork_of_the_owner_does_not_keep_the_part_alive(tmp_path: Path) -> None:
    """A child that inherited the guard's pipe changes nothing."""
    fork = "child = os.fork()\n        if not child: os.close(1); time.sleep(600)"
    owner = _owner(tmp_path, fork)
    pids = _pids(owner)
    children = [c for c in psutil.Process(owner.pid).children() if c.pid not in pids]
    owner.kill()
    owner.wait()
    until(lambda: all(map(ended, pids)))
    for child in children:
        child.kill()


def test_an_owner_that_ended_before_it_was_watched_gets_nothing_started(tmp_path: Path) -> None:
    """The guard would not notice its owner's end, and the program would keep running."""
    ran = tmp_path / "ran"
    not_its_parent = str(os.getppid())
    guard = subprocess.Popen(
        [sys.executable, str(GUARD), not_its_parent, "kill", "touch", str(ran)],
        stdin=subprocess.PIPE,
    )
    assert guard.wait() == 128 + signal.SIGKILL
    assert guard.stdin is not None
    guard.stdin.close()
    assert not ran.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_the_part_ends_with_its_guard(part: Part) -> None:
    """If the guard is killed, its program ends."""
    part.start()
    pid = pid_of(part)
    assert isinstance(part.program, GuardedProcess)
    assert part.program._guard is not None
    part.program._guard.kill()
    until(lambda: ended(pid))
    until(lambda: part.state is PartState.DEAD)
