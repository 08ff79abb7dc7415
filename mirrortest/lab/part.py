"""One part of the lab: a program with a log, and with faults on demand."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.lab.link import condition as link
from mirrortest.lab.process.program import GuardedProcess
from mirrortest.lab.runtime import PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.runtime import Program

LOG_LINES_IN_ERRORS = 20

CONTAINER_FAULTS = ("pause", "unpause", "disconnect", "connect")
REMOVE = "remove"
FAULTS = (
    *("kill", "stop", "continue", "restart", "start", "terminate", REMOVE),
    *CONTAINER_FAULTS,
    *link.FAULTS,
    link.HEAL,
)
"""The actions on a part; `delay` and `rate` need a value."""
CLEARED_BY = {
    "kill": "start",
    "terminate": "start",
    "stop": "continue",
    "pause": "unpause",
    "disconnect": "connect",
    **dict.fromkeys(link.FAULTS, link.HEAL),
}
"""Each fault that lasts -> the action that ends it."""


class NotAwaitedError(LabError):
    """A part was ended on request while something waited until it is ready."""


class Part:
    """A program of the lab.

    Attributes:
        name: unique within the lab; the command line uses it.
        log: the file to which its output is appended, over all restarts.
        program: what runs it; by default a process, which never outlives this one.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        program: Program | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.program = program or GuardedProcess(name)
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._end_is_expected = True
        self._log_start = 0
        self._ends = 0
        self._abandoned = False

    @property
    def state(self) -> PartState:
        """The current state of the part."""
        state = self.program.state
        if state is PartState.DOWN and not self._end_is_expected:
            return PartState.DEAD
        return state

    @property
    def pid(self) -> int | None:
        """The program's process id; None while it does not run."""
        return self.program.pid

    @property
    def alive(self) -> bool:
        """Whether the program runs, frozen or not."""
        return self.state in {PartState.RUNNING, PartState.STOPPED}

    def spawn(self) -> None:
        """Start the program and return at once.

        Raises:
            LabError: it runs already, or cannot be started.
        """
        if self.alive:
            raise LabError(f"{self.name} is already running")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._log_start = self.log.stat().st_size
        try:
            self.program.start(self._command, self._environment, self.log)
        except LabError as error:
            raise self.failure(str(error)) from None
        self._end_is_expected = False  # only now: another thread may read the state

    def start(self) -> None:
        """Start the program; in some subclasses also wait until it is ready."""
        self.spawn()

    def wait_ready(self) -> None:
        """Raise if it ended by itself; subclasses wait until it is ready."""
        self.check()

    def kill(self) -> None:
        """End it at once (SIGKILL), without a chance to flush or to notify its peers."""
        self._end(signal.SIGKILL, timeout=60)

    def terminate(self, timeout: float = 30) -> None:
        """Ask it to end (SIGTERM), and kill it after `timeout` seconds."""
        self._end(signal.SIGTERM, timeout=timeout)

    def stop(self) -> None:
        """Freeze it (SIGSTOP): it keeps its sockets and answers nothing, until `cont`.

        Raises:
            LabError: it does not run, or ended meanwhile.
        """
        self.program.stop()

    def cont(self) -> None:
        """Resume it after `stop` (SIGCONT).

        Raises:
            LabError: it does not run.
        """
        self.program.send(signal.SIGCONT)

    def restart(self) -> None:
        """Terminate it, if it runs, and start it again."""
        self.terminate()
        self.start()

    def check(self) -> None:
        """Raise if it ended by itself.

        Raises:
            LabError: it ended by itself; the text ends with its log's last lines.
        """
        if self.state is PartState.DEAD:
            raise self.failure(f"died with exit code {self.program.exit_code}")

    def wait_until(
        self, ready: Callable[[], bool], timeout: float, problem: Callable[[], str]
    ) -> None:
        """Wait until `ready()`; `problem()` is the text of a timeout, as "did not answer".

        Raises:
            NotAwaitedError: it was ended on request meanwhile, or `abandon` was called.
            LabError: it died, or `timeout` seconds have passed.
        """
        deadline, ends = time.monotonic() + timeout, self._ends
        while not ready():
            self.check()
            if self._abandoned or self._ends > ends:
                raise NotAwaitedError(f"{self.name} {problem()} before it was ended")
            if time.monotonic() > deadline:
                raise self.failure(f"{problem()} within {timeout:g} s")
            time.sleep(0.1)

    def abandon(self) -> None:
        """End each `wait_until`, also a later one: it is about to be ended for good."""
        self._abandoned = True

    def tail(self, lines: int = LOG_LINES_IN_ERRORS) -> str:
        """The last lines of its log."""
        return "\n".join(self._log_text()[-256 * 1024 :].splitlines()[-lines:])

    def log_since_start(self) -> str:
        """Its log since its last start."""
        return self._log_text(self._log_start)

    def failure(self, problem: str) -> LabError:
        """An error about this part; it ends with the last lines of its log, if there are any."""
        tail = self.tail()
        end = f"; the end of {self.log}:\n{tail}" if tail else ""
        return LabError(f"{self.name} {problem}{end}")

    def _log_text(self, start: int = 0) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _end(self, number: signal.Signals, timeout: float) -> None:
        self._end_is_expected = True
        self._ends += 1
        self.program.end(number, timeout)


def inject(part: Part, fault: str, /, **values: Any) -> None:
    """Apply one of `FAULTS` to a part; after a start, wait until it is ready.

    `values` are the arguments of the link's method of that name.

    Raises:
        LabError: the part is in the wrong state, did not start, or is not of the kind (a container,
            a broker, a link) that the fault is for.
    """
    owner = part.program if fault in CONTAINER_FAULTS else part
    method = getattr(owner, "cont" if fault == "continue" else fault, None)
    if method is None:
        if fault in CONTAINER_FAULTS:
            needed = f"a container: {fault} needs `lab up --runtime docker`"
        elif fault == REMOVE:
            needed = "a broker: terminate it"
        else:
            needed = f"a link: {fault} is for {' or '.join(link.LINKS)}, of `lab up --links`"
        raise LabError(f"{part.name} is not {needed}")
    method(**values)
    if fault in {"start", "restart"}:
        part.wait_ready()
