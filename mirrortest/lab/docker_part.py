"""A part of the lab in a container: what `Part` does with a process, and what only Docker can."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.lab.docker_engine import told
from mirrortest.lab.process import Part, PartState

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab.docker_engine import Engine

_LOG_SECONDS = 10.0
"""How long a dead container's last lines may take to arrive."""


class Contained(Part):
    """Makes a part run in a container: a class to inherit from after the part's own.

    Each start makes a container anew; what must outlive it lies in a volume.

    Attributes:
        engine: where it runs.
        ports: port within -> port on this machine's loopback interface.
        mounts: directory here -> place within.
        volume: where its volume is mounted, if it has one.
    """

    engine: Engine
    ports: dict[int, int]
    mounts: dict[Path, str]
    volume: str | None = None
    _container: Any = None
    _follower: threading.Thread | None = None

    @property
    def state(self) -> PartState:
        """What the part is doing at this moment."""
        status = self._facts().get("Status")
        if status == "running":
            return PartState.STOPPED if self._stopped else PartState.RUNNING
        if status == "paused":
            return PartState.STOPPED
        return PartState.DOWN if self._expected_end else PartState.DEAD

    @property
    def pid(self) -> int | None:
        """The program's process id on this machine; None while it does not run."""
        return int(self._facts().get("Pid") or 0) or None

    def spawn(self) -> None:
        """Start a container and return at once.

        Raises:
            LabError: it runs already, or Docker refuses.
        """
        if self.alive:
            raise LabError(f"{self.name} is already running")
        self._remove()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
        container = self.engine.create(
            self.name,
            self._command,
            environment=self._environment,
            ports=self.ports,
            mounts=self.mounts,
            volume=self.volume,
        )
        with told(f"start {self.name}"):
            container.start()
        self._container, self._stopped, self._expected_end = container, False, False
        self._follower = threading.Thread(
            target=self._follow, args=(container,), name=f"{self.name}-log", daemon=True
        )
        self._follower.start()

    def stop(self) -> None:
        """Freeze its process (SIGSTOP) until `cont`."""
        self._send("SIGSTOP")
        self._stopped = True

    def cont(self) -> None:
        """Let it go on after `stop` (SIGCONT)."""
        self._send("SIGCONT")
        self._stopped = False

    def pause(self) -> None:
        """Freeze the whole container, by the kernel's freezer: no process in it sees a signal."""
        with told(f"pause {self.name}"):
            self._running().pause()

    def unpause(self) -> None:
        """Let it go on after `pause`."""
        with told(f"unpause {self.name}"):
            self._running().unpause()

    def disconnect(self) -> None:
        """Cut its network: it runs on, but reaches nobody and is reached by nobody."""
        self.engine.disconnect(self._running())

    def connect(self) -> None:
        """Give it its network back after `disconnect`, under its old name and ports."""
        self.engine.connect(self._running(), self.name)

    def check(self) -> None:
        """Raise if it ended by itself.

        Raises:
            LabError: it did; the text ends with its log's last lines.
        """
        if self.state is PartState.DEAD:
            if self._follower is not None:
                self._follower.join(_LOG_SECONDS)
            raise self.failure(f"died with exit code {self._facts().get('ExitCode')}")

    def _end(self, number: int, timeout: float) -> None:
        if self._container is None:
            return
        self._expected_end = True
        if self.alive:
            with told(f"end {self.name}"):
                if self._facts().get("Status") == "paused":
                    self._container.unpause()
                if number == signal.SIGKILL:
                    self._container.kill()
                else:
                    if self._stopped:
                        self._container.kill("SIGCONT")
                    self._container.stop(timeout=round(timeout))
                self._container.wait(timeout=timeout + 60)
        if self._follower is not None:
            self._follower.join(_LOG_SECONDS)
        self._remove()
        self._stopped = False

    def _send(self, name: str) -> None:
        with told(f"send {self.name} {name}"):
            self._running().kill(name)

    def _running(self) -> Any:
        if not self.alive:
            raise LabError(f"{self.name} is not running")
        return self._container

    def _facts(self) -> dict[str, Any]:
        """What the engine says of its state; nothing where there is no container."""
        import docker  # noqa: PLC0415  # an extra

        if self._container is None:
            return {}
        try:
            with told(f"look at {self.name}"):
                self._container.reload()
        except LabError as error:
            if isinstance(error.__cause__, docker.errors.NotFound):
                return {}
            raise
        facts: dict[str, Any] = self._container.attrs["State"]
        return facts

    def _remove(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            import docker  # noqa: PLC0415  # an extra

            with (
                told(f"remove {self.name}'s container"),
                contextlib.suppress(docker.errors.NotFound),
            ):
                container.remove(force=True, v=True)

    def _follow(self, container: Any) -> None:
        """Copy what it says to its log, until it ends or goes."""
        with contextlib.suppress(Exception), self.log.open("ab", buffering=0) as log:
            for chunk in container.logs(stream=True, follow=True):
                log.write(chunk)
