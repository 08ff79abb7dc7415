"""A program as a process under a guard, which ends the program when this process ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import LabError
from mirrortest.lab.runtime import PartState, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GUARD = Path(__file__).with_name("guard.py")


class GuardedProcess(Program):
    """A process that leads a process group of its own, started and signalled by its guard.

    It runs in `directory`, by default the current one, with the environment `inherited`, by default
    this process's. What it leaves in the background at its end is killed, unless `leave_rest`.
    """

    def __init__(
        self,
        name: str,
        directory: Path | None = None,
        inherited: Mapping[str, str] = os.environ,
        *,
        leave_rest: bool = False,
    ) -> None:
        self._name = name
        self._directory = directory
        self._inherited = inherited
        self._rest = "leave" if leave_rest else "kill"
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._stopped = False

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it and return at once; its output is appended to `log`. Raises LabError."""
        self._close_pipes()  # of a program that ended by itself
        self._stopped = False
        with log.open("ab") as output:
            # With -S -E the interpreter loads only the standard library: it starts faster.
            guard = (sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), self._rest)
            self._guard = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                cwd=self._directory,
                env={**self._inherited, **environment},
                start_new_session=True,
            )
        line = self._answer()
        if not line.isdigit():
            self._guard.wait()
            raise LabError("could not be started")
        self._pid = int(line)

    @property
    def state(self) -> PartState:
        """RUNNING, STOPPED, or DOWN if it does not run."""
        guard = self._guard  # another thread may end it
        if guard is None or guard.poll() is not None:
            return PartState.DOWN
        return PartState.STOPPED if self._stopped else PartState.RUNNING

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return None if self.state is PartState.DOWN else self._pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or 128 + the signal that ended it."""
        return self._guard.returncode if self._guard else None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, through the guard. Raises LabError."""
        if self._guard is None or self._guard.stdin is None or self.state is PartState.DOWN:
            raise LabError(f"{self._name} is not running")
        try:
            self._guard.stdin.write(b"%d\n" % number)
        except BrokenPipeError:
            raise LabError(f"{self._name} is not running") from None
        if number is signal.SIGCONT:
            self._stopped = False

    def stop(self) -> None:
        """Freeze it and its workers; all threads are stopped when this returns. Raises LabError."""
        self.send(signal.SIGSTOP)
        if not self._answer():
            raise LabError(f"{self._name} is not running")
        self._stopped = True

    def end(self, number: signal.Signals, timeout: float) -> None:
        """End it by a signal, and by SIGKILL after `timeout` seconds."""
        guard = self._guard
        if guard is None:
            return
        # A frozen process does not handle SIGTERM.
        for each in (number, signal.SIGCONT) if self._stopped else (number,):
            with contextlib.suppress(LabError):  # it has ended already
                self.send(each)
        try:
            guard.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(LabError):
                self.send(signal.SIGKILL)
            guard.wait()
        self._close_pipes()
        self._guard, self._stopped = None, False

    def _answer(self) -> bytes:
        """The guard's next line; empty once it has ended."""
        if self._guard is None or self._guard.stdout is None:
            return b""
        return self._guard.stdout.readline().strip()

    def _close_pipes(self) -> None:
        for pipe in (self._guard.stdin, self._guard.stdout) if self._guard else ():
            if pipe is not None:
                pipe.close()
