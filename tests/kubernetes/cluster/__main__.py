"""Runs a command with a Kubernetes that ends with it, for tests/kubernetes/with-cluster."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mirrortest.errors import LabError
from mirrortest.host.cache import cache_directory
from tests.chart.tools import helm, kubectl
from tests.kubernetes.cluster.cgroups import remove_cgroup
from tests.kubernetes.cluster.node import Node
from tests.kubernetes.cluster.programs import have
from tests.tools import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

COMMAND_ENDS_WITHIN = 120
"""Seconds that the command has to shut down after SIGTERM."""


def with_cluster(command: Sequence[str]) -> int:
    """Run the command; its exit code, or 128 + the signal that ended it.

    Raises:
        ToolMissingError: a program of the node is unavailable.
        LabError: the cluster does not start.
    """
    programs, tools = have(), {"helm": helm(4), "kubectl": kubectl()}
    with _folder() as folder:
        node = Node(folder, programs, tools["kubectl"])
        try:
            node.up()
            (folder / "bin").mkdir()
            for name, program in tools.items():
                (folder / "bin" / name).symlink_to(program)
            environment = {
                **os.environ,
                "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
                "KUBECONFIG": str(node.administrator),
                "MIRRORTEST_E2E_HOST": node.host,
                "MIRRORTEST_E2E_LOAD": shlex.join(node.loads),
            }
            code = _run(command, environment)
            if code:
                sys.stderr.write(
                    f"with-cluster: {command[0]} failed; its cluster:\n{node.last_lines()}\n"
                )
            return code
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            node.down()


@contextmanager
def _folder() -> Iterator[Path]:
    """A node's folder, removed afterwards; first removes folders that killed owners left."""
    every = cache_directory() / "clusters"
    every.mkdir(parents=True, exist_ok=True)
    with (every / "lock").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        for left in every.glob("mirrortest-*"):
            with (left / "owner").open("w") as owner:
                try:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                _remove(left)
        folder = Path(tempfile.mkdtemp(prefix="mirrortest-", dir=every))
        owner = (folder / "owner").open("w")
        fcntl.flock(owner, fcntl.LOCK_EX)
    with owner:
        try:
            yield folder
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    remove_cgroup(folder.name)
    shutil.rmtree(folder)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(command, env=environment) as running:
        try:
            code = running.wait()
        except SystemExit:
            running.terminate()
            try:
                running.wait(COMMAND_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                running.kill()
            raise
    return code if code >= 0 else 128 - code


def _on_signal(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    sys.exit(128 + number)


def main() -> int:
    """Run the command of the arguments; the exit code."""
    if os.geteuid() != 0:
        sys.stderr.write(
            "with-cluster: KUBECONFIG names no Kubernetes, and to start one takes root\n"
        )
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    try:
        return with_cluster(sys.argv[1:])
    except (ToolMissingError, LabError, OSError) as error:
        sys.stderr.write(f"with-cluster: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
