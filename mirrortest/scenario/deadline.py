"""The time limit of a point, and users' commands, which must end within it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from mirrortest.config.redaction import command_without_secrets
from mirrortest.errors import MirrortestError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S602  # the user's own command
            command,
            shell=True,
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline.wait(lambda: process.poll() is not None, shown_command(command))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "no output"
            shown = shown_command(command)
            raise MirrortestError(f"{shown}: exit code {process.returncode}: {last}")
