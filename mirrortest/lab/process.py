"""One part of the lab: a program under a guard, with a log, that can be hurt on purpose."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GUARD = Path(__file__).with_name("guard.py")
LOG_LINES_IN_ERRORS = 20


class PartState(StrEnum):
    """What a part is doing."""

    DOWN = "down"  # not started, or ended because it was asked to
    RUNNING = "running"
    STOPPED = "stopped"  # by SIGSTOP: it holds its sockets and answers nothing
    DEAD = "dead"  # it ended by itself


class Part:
    """A program of the lab; its output goes to its log.

    It leads a process group of its own under a guard, which kills it when the process that
    started it ends, in whatever way.

    Attributes:
        name: unique within the lab; what the command line calls it.
        log: the file that gets its output, over all its restarts.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._stopped = False
        self._expected_end = True
        self._log_start = 0

    @property
    def state(self) -> PartState:
        """What the part is doing at this moment."""
        if self._guard is None or self._guard.poll() is not None:
            return PartState.DOWN if self._expected_end else PartState.DEAD
        return PartState.STOPPED if self._stopped else PartState.RUNNING

    @property
    def pid(self) -> int | None:
        """The program's process id; None while it does not run."""
        return self._pid if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process is there, stopped or not."""
        return self.state in {PartState.RUNNING, PartState.STOPPED}

    def spawn(self) -> None:
        """Start the program and return at once.

        Raises:
            LabError: it runs already, or cannot be executed.
        """
        if self.alive:
            raise LabError(f"{self.name} is already running")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # The interpreter's -S -E leave out everything but the standard library.
            guard = subprocess.Popen(
                [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        self._close_pipes()  # of a former one that died by itself
        self._guard, self._stopped, self._expected_end = guard, False, False
        if guard.stdout is None:
            raise AssertionError
        line = guard.stdout.readline()
        if not line.strip().isdigit():
            guard.wait()
            raise self.failure("could not be started")
        self._pid = int(line)

    def start(self) -> None:
        """Start the program; a part says whether that waits until it is ready."""
        self.spawn()

    def wait_ready(self) -> None:
        """Wait until it is ready; a part says what that means."""
        self.check()

    def kill(self) -> None:
        """End it at once (SIGKILL): nothing is flushed, no peer is told."""
        self._end(signal.SIGKILL, timeout=60)

    def terminate(self, timeout: float = 30) -> None:
        """Ask it to end (SIGTERM), and kill it if it has not within `timeout` seconds."""
        self._end(signal.SIGTERM, timeout=timeout)

    def stop(self) -> None:
        """Freeze it (SIGSTOP): it keeps its sockets and answers nothing, until `cont`.

        It stands when this returns.

        Raises:
            LabError: it does not run, or ended meanwhile.
        """
        self._signal(signal.SIGSTOP)
        guard = self._guard
        if guard is None or guard.stdout is None or not guard.stdout.readline():
            raise LabError(f"{self.name} is not running")
        self._stopped = True

    def cont(self) -> None:
        """Let it go on after `stop` (SIGCONT)."""
        self._signal(signal.SIGCONT)
        self._stopped = False

    def restart(self) -> None:
        """End it in order, if it runs, and start it again."""
        self.terminate()
        self.start()

    def check(self) -> None:
        """Raise if it ended by itself.

        Raises:
            LabError: it did; the text ends with its log's last lines.
        """
        if self.state is PartState.DEAD:
            code = self._guard.returncode if self._guard else None
            raise self.failure(f"died with exit code {code}")

    def wait_until(
        self, ready: Callable[[], bool], timeout: float, what: Callable[[], str]
    ) -> None:
        """Wait until it is `ready`; `what` is asked for the error: "did not answer".

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise self.failure(f"{what()} within {timeout:g} s")
            time.sleep(0.1)

    def tail(self, lines: int = LOG_LINES_IN_ERRORS) -> str:
        """The last lines of its log."""
        return "\n".join(self._log_text()[-256 * 1024 :].splitlines()[-lines:])

    def log_since_start(self) -> str:
        """What it has logged since it was last started."""
        return self._log_text(self._log_start)

    def failure(self, what: str) -> LabError:
        """An error about this part that ends with its log's last lines."""
        return LabError(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")

    def _log_text(self, start: int = 0) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive or self._guard is None or self._guard.stdin is None:
            raise LabError(f"{self.name} is not running")
        try:
            self._guard.stdin.write(b"%d\n" % number)
        except BrokenPipeError:
            raise LabError(f"{self.name} is not running") from None

    def _end(self, number: signal.Signals, timeout: float) -> None:
        guard = self._guard
        if guard is None:
            return
        self._expected_end = True
        if guard.poll() is None:
            with contextlib.suppress(LabError):
                self._signal(number)
                if self._stopped:
                    self._signal(signal.SIGCONT)  # a stopped process sees no SIGTERM
            try:
                guard.wait(timeout)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(LabError):
                    self._signal(signal.SIGKILL)
                guard.wait()
        self._close_pipes()
        self._guard, self._pid, self._stopped = None, None, False

    def _close_pipes(self) -> None:
        for pipe in (self._guard.stdin, self._guard.stdout) if self._guard else ():
            if pipe is not None:
                pipe.close()
