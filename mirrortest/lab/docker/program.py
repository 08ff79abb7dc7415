"""A program in a container, with the faults that only Docker can inject."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.errors import LabError
from mirrortest.lab.docker.engine import docker_errors
from mirrortest.lab.runtime import PartState, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.docker.engine import Engine

_log = structlog.get_logger()

_PAUSE_TRIES, _FOLLOW_TRIES = 3, 5
"""How many times in a row pausing, and following a log, is tried."""
_RETRY_SECONDS = 1.0
_LOG_SECONDS = 10.0
"""The longest time in which a dead container's last lines arrive."""


class Container(Program):
    """A program that runs as the first process of a container; each start creates a new one.

    `port` is published on this machine's loopback interface. `mounts` maps directories of this
    machine to paths in the container. `volume` is the path at which a volume is mounted, which
    outlives the containers.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        port: int | None = None,
        mounts: Mapping[Path, str],
        volume: str | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._port = port
        self._mounts = mounts
        self._volume = volume
        self._container: Any = None
        self._follower: threading.Thread | None = None
        self._stopped = False

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start a container and return at once. Raises LabError."""
        self._remove()
        self._container = self._engine.create(
            self._name,
            command,
            environment=environment,
            port=self._port,
            mounts=self._mounts,
            volume=self._volume,
        )
        with docker_errors(f"start {self._name}"):
            self._container.start()
        self._stopped = False
        self._follower = threading.Thread(
            target=_follow,
            args=(self._container, log, self._name),
            name=f"{self._name}-log",
            daemon=True,
        )
        self._follower.start()

    @property
    def state(self) -> PartState:
        """RUNNING, STOPPED (also while it is paused), or DOWN if it does not run."""
        status = self._state().get("Status")
        if status == "paused" or (status == "running" and self._stopped):
            return PartState.STOPPED
        return PartState.RUNNING if status == "running" else PartState.DOWN

    @property
    def pid(self) -> int | None:
        """The program's process id on this machine; None while it does not run."""
        return int(self._state().get("Pid") or 0) or None

    @property
    def exit_code(self) -> int | None:
        """The exit code; first waits until the container's last lines are in the log."""
        if self._follower is not None:
            self._follower.join(_LOG_SECONDS)
        return self._state().get("ExitCode")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal. Raises LabError."""
        with docker_errors(f"send {self._name} {number.name}"):
            self._running().kill(number.name)
        if number is signal.SIGCONT:
            self._stopped = False

    def stop(self) -> None:
        """Freeze its process by SIGSTOP. Raises LabError."""
        self.send(signal.SIGSTOP)
        self._stopped = True

    def end(self, number: signal.Signals, timeout: float) -> None:
        """End it by SIGKILL, or as `docker stop` does, and remove its container."""
        status = self._state().get("Status")
        if status in {"running", "paused"}:
            with docker_errors(f"end {self._name}"):
                if status == "paused":
                    self._container.unpause()
                if number is signal.SIGKILL:
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

    def pause(self) -> None:
        """Freeze the container with the kernel's freezer; its processes receive no signal.

        On a busy machine the freezer can fail to finish in time: then it is tried again.
        """
        for attempt in range(1, _PAUSE_TRIES + 1):
            try:
                with docker_errors(f"pause {self._name}"):
                    self._running().pause()
            except LabError as error:
                if "freeze" not in str(error) or attempt == _PAUSE_TRIES:
                    raise
                _log.warning("a container was not paused, trying again", reason=str(error))
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def unpause(self) -> None:
        """Resume it after `pause`."""
        with docker_errors(f"unpause {self._name}"):
            self._running().unpause()

    def disconnect(self) -> None:
        """Disconnect its network: it keeps running, but cannot reach others or be reached."""
        self._engine.disconnect(self._running())

    def connect(self) -> None:
        """Restore its network after `disconnect`, under the same name and ports."""
        self._engine.connect(self._running(), self._name)

    def _running(self) -> Any:
        if self.state is PartState.DOWN:
            raise LabError(f"{self._name} is not running")
        return self._container

    def _state(self) -> dict[str, Any]:
        """The container's state as the engine reports it; empty without a container."""
        import docker  # noqa: PLC0415  # an extra

        container = self._container  # another thread may remove it
        if container is None:
            return {}
        with docker_errors(f"inspect {self._name}"):
            try:
                container.reload()
            except docker.errors.NotFound:
                return {}
        state: dict[str, Any] = container.attrs["State"]
        return state

    def _remove(self) -> None:
        container, self._container = self._container, None
        if container is None:
            return
        import docker  # noqa: PLC0415  # an extra

        with docker_errors(f"remove {self._name}"), contextlib.suppress(docker.errors.NotFound):
            container.remove(force=True, v=True)


def _follow(container: Any, log: Path, part: str) -> None:
    """Copy a container's output to its log, until it ends or is removed."""
    import docker  # noqa: PLC0415  # an extra

    copied = tries = 0
    while tries < _FOLLOW_TRIES:
        had = copied
        try:
            with log.open("ab", buffering=0) as file:
                passed = 0
                for chunk in container.logs(stream=True, follow=True):
                    new = chunk[max(0, copied - passed) :]
                    passed += len(chunk)
                    file.write(new)
                    copied += len(new)
        except docker.errors.NotFound:
            return
        except Exception as error:  # noqa: BLE001  # any failure: the log must not end silently
            tries = 1 if copied > had else tries + 1
            again = "trying again" if tries < _FOLLOW_TRIES else "giving up"
            _log.warning(f"a part's output cannot be read, {again}", part=part, reason=str(error))
            time.sleep(_RETRY_SECONDS)
        else:
            return
