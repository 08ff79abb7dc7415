"""The time limit of a point, and users' commands, which must end within it."""

from __future__ import annotations

import shlex
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.config.redaction import command_without_secrets
from mirrortest.errors import MirrortestError, WorkerError
from mirrortest.lab.process.program import GuardedProcess
from mirrortest.lab.runtime import PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_POLL = 0.1


class Deadline:
    """The time limit, in seconds, of all waiting of a point; None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End all waiting now."""
        self._cancelled.set()

    def check(self, awaited: str) -> None:
        """Raise WorkerError if time is up, or after `cancel`; `awaited` names what is missing."""
        if self._cancelled.is_set():
            raise WorkerError(f"given up: {awaited}")
        if self._seconds is not None and time.monotonic() - self._began > self._seconds:
            raise WorkerError(f"after {self._seconds:g} s (timeout) still waiting for {awaited}")

    def wait(self, done: Callable[[], bool], awaited: str) -> None:
        """Wait until `done()`; raises as `check` does."""
        while not done():
            self.check(awaited)
            self._cancelled.wait(_POLL)


def shown_command(command: str) -> str:
    """A user's command as results and errors show it: without the secrets that can be recognized.

    A command without secrets stays as it is.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # of a shell's own syntax, such as a comment with an apostrophe
        words = command.split()
    shown = command_without_secrets(words)
    return command if shown == words else " ".join(shown)


def run_command(
    command: str, environment: Mapping[str, str], directory: Path, deadline: Deadline
) -> None:
    """Run a user's command with a shell in `directory`, and wait for its end.

    Raises:
        MirrortestError: its exit code is not 0 (the text ends with its last line), or it took too
            long and was killed, with the processes that it started.
    """
    # A file, not a pipe: a process that the command leaves in the background could keep it open.
    with tempfile.NamedTemporaryFile() as output:
        # It ends with this process, also if that is killed.
        program = GuardedProcess("the command", directory, leave_rest=True)
        program.start(("/bin/sh", "-c", command), environment, Path(output.name))
        try:
            deadline.wait(lambda: program.state is PartState.DOWN, shown_command(command))
            exit_code = program.exit_code
        finally:
            program.end(signal.SIGKILL, timeout=60)
        if exit_code:
            lines = output.read().decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "no output"
            raise MirrortestError(f"{shown_command(command)}: exit code {exit_code}: {last}")
