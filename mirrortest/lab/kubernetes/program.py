"""A program in its own pod, whose files are fetched at its end."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from typing import TYPE_CHECKING

from mirrortest.errors import LabError
from mirrortest.host.user_files import replace_text
from mirrortest.lab.kubernetes.keeper import MODULE
from mirrortest.lab.kubernetes.manifest import CLIENT, KEEPER
from mirrortest.lab.runtime import PartState, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.kubernetes.pod_status import PodStatus
    from mirrortest.lab.kubernetes.pods import LogLine, Pods

_START_SECONDS = 300.0
"""The longest time that a pod waits for a node, its image or a volume."""
_FETCHES = 3
_FETCH_PAUSE = 2.0
_LATENCY = 20.0
"""Seconds until a container's end is seen; fetching its files takes longer."""


class PodProgram(Program):
    """A program that is the client's container of a pod; each start creates a new pod.

    Its state is DOWN once its files are on this machine and its pod is deleted.

    `followed` maps files in the pod, which are copied whenever they change, to files on this
    machine. At the end, the directories that it wrote are copied into `directory`.
    """

    def __init__(
        self,
        pods: Pods,
        name: str,
        *,
        followed: Mapping[str, Path],
        directory: Path,
    ) -> None:
        self._pods = pods
        self._name = name
        self._followed = followed
        self._directory = directory
        self._pod: str | None = None
        self._log: Path | None = None
        self._status: PodStatus | None = None
        self._began = 0.0
        self._stopped = False
        self._lock = threading.Lock()
        self._ending = False
        """Whether its end was seen, or waiting for it was given up."""
        self._ended = threading.Event()
        self._exit_code: int | None = None
        self._failure = ""

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Create a pod and return at once. Raises LabError."""
        self._log, self._status, self._stopped, self._failure = log, None, False, ""
        self._exit_code, self._began = None, time.monotonic()
        self._pod, self._ending = None, False
        self._ended.clear()
        keeper = ("python3", "-m", MODULE, "hold", *self._followed)
        try:
            self._pod = self._pods.create(self._name, command, environment, keeper, self.update)
        except LabError as error:
            raise LabError(f"has no pod: {error}") from None

    @property
    def state(self) -> PartState:
        """RUNNING (also before its container runs), STOPPED, or DOWN if it does not run."""
        if self._pod is None or self._ended.is_set():
            return PartState.DOWN
        return PartState.STOPPED if self._stopped else PartState.RUNNING

    @property
    def pid(self) -> int | None:
        """None: it does not run on this machine."""
        return None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the client's container."""
        return self._exit_code

    @property
    def awaited(self) -> str:
        """Kubernetes' reason why its container does not run yet."""
        if self._status is None:
            return self._pods.trouble
        return "" if self._status.started else self._status.reason

    def send(self, number: signal.Signals) -> None:
        """Send it a signal. Raises LabError."""
        if self.state is PartState.DOWN or self._pod is None or not self._is_up:
            raise LabError(f"{self._name} is not running")
        followed = next(iter(self._followed))
        words = ("python3", "-m", MODULE, "signal", str(int(number)), followed)
        try:
            self._pods.execute(self._pod, *words)
        except LabError as error:
            raise LabError(f"{self._name}: {number.name} cannot be sent: {error}") from None
        if number is signal.SIGCONT:
            self._stopped = False

    def stop(self) -> None:
        """Freeze it and its workers; all threads are stopped when this returns. Raises LabError."""
        self.send(signal.SIGSTOP)
        self._stopped = True

    def end(self, number: signal.Signals, timeout: float) -> None:
        """End it by a signal, and by SIGKILL after `timeout` seconds; fetches its files.

        Raises:
            LabError: its files could not be fetched.
        """
        if self._pod is not None and not self._ended.is_set():
            for each in (number, signal.SIGKILL):
                self._ask_to_end(each)
                if self._wait(timeout + _LATENCY):
                    break
            else:
                self._give_up(f"{self._name} did not end, and its pod was deleted")
        failure, self._failure = self._failure, ""
        if failure:
            raise LabError(failure)

    def update(self, pod: str, status: PodStatus | None, lines: Sequence[LogLine]) -> None:
        """Process the status of its pod, and its new log lines."""
        if self._ending or pod != self._pod:
            return
        self._take(lines)
        if status is None:
            self._give_up("its pod was deleted from outside; its files are lost")
            return
        self._status = status
        waited = time.monotonic() - self._began
        if status.hopeless or (not status.started and waited > _START_SECONDS):
            what = "cannot go on" if status.started else "does not start"
            self._give_up(f"its pod {what}: {status.reason or 'no reason is given'}")
        elif status.exit_code is not None and self._begins_to_end():
            self._exit_code = status.exit_code
            threading.Thread(
                target=self._finish, args=(pod, status), name=f"fetch {self._name}", daemon=True
            ).start()

    @property
    def _is_up(self) -> bool:
        return self._status is not None and self._status.started

    def _begins_to_end(self) -> bool:
        """Claim its end; True for the first caller, as the watch and a fault can both end it."""
        with self._lock:
            first, self._ending = not self._ending, True
        return first

    def _ask_to_end(self, number: signal.Signals) -> None:
        if not self._is_up and self._pod is not None:
            # It may have started since the last poll: then there are files to fetch.
            with contextlib.suppress(LabError):
                self._status = self._pods.status(self._pod)
        if not self._is_up:
            self._give_up("")
            return
        # A frozen process does not handle SIGTERM.
        for each in (number, signal.SIGCONT) if self._stopped else (number,):
            with contextlib.suppress(LabError):  # it has ended already
                self.send(each)

    def _wait(self, seconds: float) -> bool:
        """Wait for its end; once that was seen, wait for its files as long as they take."""
        if not self._ended.wait(seconds) and self._ending:
            self._ended.wait()
        return self._ended.is_set()

    def _take(self, lines: Sequence[LogLine]) -> None:
        printed: list[str] = []
        for line in lines:
            if line.container == CLIENT:
                printed.append(line.text)
            elif line.container == KEEPER:
                self._take_file(line.text)
        self._write(printed)

    def _take_file(self, text: str) -> None:
        """Replace a followed file; all other output of the keeper goes to the log."""
        try:
            found = json.loads(text)
            path, content = self._followed[found["file"]], str(found["text"])
        except (ValueError, KeyError, TypeError):
            self._write([text])
            return
        with contextlib.suppress(OSError):  # a file that cannot be written fails when it is fetched
            replace_text(path, content)

    def _write(self, lines: Sequence[str]) -> None:
        if lines and self._log is not None:
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.writelines(f"{line}\n" for line in lines)

    def _give_up(self, why: str) -> None:
        """End it without its files: they cannot be fetched, or do not exist yet."""
        if not self._begins_to_end():
            return
        if why:
            self._failure = f"{self._name}: {why}"
            self._write([why])
        self._end()

    def _finish(self, pod: str, status: PodStatus) -> None:
        if status.reason:
            self._write([f"its container ended: {status.reason}"])
        try:
            self._fetch(pod)
        except Exception as error:  # noqa: BLE001  # any failure: `_wait` waits for `_end`
            why = f"cannot fetch its files from pod {pod}: {error}"
            self._failure = f"{self._name}: {why}"
            self._write([why])
        self._end()

    def _fetch(self, pod: str) -> None:
        for attempt in range(1, _FETCHES + 1):
            try:
                self._pods.fetch(pod, self._directory)
            except LabError:
                if attempt == _FETCHES:
                    raise
                time.sleep(_FETCH_PAUSE)
            else:
                return

    def _end(self) -> None:
        with contextlib.suppress(LabError):  # all pods are removed at the end of the run
            if self._pod is not None:
                self._pods.delete(self._pod)
        self._ended.set()
