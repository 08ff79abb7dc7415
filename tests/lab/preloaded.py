"""Commands in processes that have imported the package already: most of a short one's CPU.

Each is a process of its own, forked from a server that does nothing but import. Its signals, exit
codes, streams and memory are those of a command that a shell starts. Tests of the start itself, and
code that must run before the imports, start a new Python.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Protocol
from unittest.mock import patch

from tests.lifetime import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.context import ForkServerContext, ForkServerProcess
    from pathlib import Path

VERBS = ("produce", "consume")
_IMPORTED = ("mirrortest.cli.main", *(f"mirrortest.cli.{verb}" for verb in VERBS))


class Process(Protocol):
    """The methods of a command's process that tests use; a `subprocess.Popen` has them."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative if a signal killed it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int) -> None:
        """Send a signal; no effect if it has ended."""

    def kill(self) -> None:
        """Send SIGKILL."""


class Preloaded:
    """A command in a process with everything imported; a `Process`."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[Path, Path],
    ) -> None:
        with patch.dict(os.environ, environment):
            context = _server()
        self._process: ForkServerProcess = context.Process(
            target=_run, args=(program, list(arguments), folder, dict(environment), streams)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("mirrortest", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


@functools.cache
def _server() -> ForkServerContext:
    """The server; its imports see the environment of the first command."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    forkserver.ensure_running()
    return context


def _run(
    program: str,
    arguments: list[str],
    folder: Path,
    environment: Mapping[str, str],
    streams: tuple[Path, Path],
) -> None:
    """Run a program in this process, as `python -c` does."""
    end_with_parent()
    for descriptor, path in enumerate((os.devnull, *map(str, streams))):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # it ends with the process
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115  # likewise
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(program, {"__name__": "__main__"})
