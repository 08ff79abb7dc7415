"""A program in a pod of its own, whose files come back at its end."""

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
from mirrortest.lab.kubernetes.manifest import CLIENT, KEEPER, POINT
from mirrortest.lab.runtime import PartState, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.kubernetes.pod_status import PodStatus
    from mirrortest.lab.kubernetes.pods import LogLine, Pods

_START_SECONDS = 300.0
"""How long a pod may wait for a node, its image or a volume."""
_FETCHES = 3
_FETCH_PAUSE = 2.0
_LATENCY = 20.0
"""Seconds for a container's end to be seen, besides the time that its files take."""


class PodProgram(Program):
    """A program that is the client's container of a pod; each start creates a new pod.

    Its state is DOWN once what it recorded is on this machine, and its pod is deleted.

    `followed` maps files of the pod that are copied whenever they change to files here;
    `directories` are those below POINT that are copied into `directory` at the end. The last of
    them come last: what is in it shows that all others came.
    """

    def __init__(
        self,
        pods: Pods,
        name: str,
        *,
        followed: Mapping[str, Path],
        directories: Sequence[str],
        directory: Path,
    ) -> None:
        self._pods = pods
        self._name = name
        self._followed = followed
        self._directories = directories
        self._directory = directory
        self._pod: str | None = None
        self._log: Path | None = None
        self._status: PodStatus | None = None
        self._began = 0.0
        self._stopped = False
        self._lock = threading.Lock()
        self._ending = False
        """Its end was seen, or is not waited for any more."""
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
        """RUNNING, also before its container does; STOPPED, or DOWN where it does not run."""
        if self._pod is None or self._ended.is_set():
            return PartState.DOWN
        return PartState.STOPPED if self._stopped else PartState.RUNNING

    @property
    def pid(self) -> int | None:
        """None: it does not run on this machine."""
        return None

    @property
    def exit_code(self) -> int | None:
        """How it ended: the container's exit code."""
        return self._exit_code

    @property
    def awaited(self) -> str:
        """Why its container does not run yet, as Kubernetes has it."""
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
            self._pods.execute(self._pod, KEEPER, *words)
        except LabError as error:
            raise LabError(f"{self._name}: {number.name} cannot be sent: {error}") from None
        if number is signal.SIGCONT:
            self._stopped = False

    def stop(self) -> None:
        """Freeze it; no thread of it runs any more when this returns. Raises LabError."""
        self.send(signal.SIGSTOP)
        self._stopped = True

    def end(self, number: signal.Signals, timeout: float) -> None:
        """End it by a signal, by SIGKILL after `timeout` seconds; its files are here then.

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
        """Take how its pod is, and what was printed."""
        if self._ending or pod != self._pod:
            return
        self._take(lines)
        if status is None:
            self._give_up("its pod was deleted by another, and what it had recorded with it")
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
        """Whether the caller is the one to end it: the watch and a fault may both want to."""
        with self._lock:
            first, self._ending = not self._ending, True
        return first

    def _ask_to_end(self, number: signal.Signals) -> None:
        if not self._is_up and self._pod is not None:
            # It may have started since the last look: then there is something to fetch.
            with contextlib.suppress(LabError):
                self._status = self._pods.status(self._pod)
        if not self._is_up:
            self._give_up("")
            return
        # A frozen process does not see SIGTERM.
        for each in (number, signal.SIGCONT) if self._stopped else (number,):
            with contextlib.suppress(LabError):  # it has ended already
                self.send(each)

    def _wait(self, seconds: float) -> bool:
        """Wait for its end; for its files, once it has ended, as long as they take."""
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
        """Replace a followed file; anything else that the keeper prints belongs into the log."""
        try:
            found = json.loads(text)
            path, content = self._followed[found["file"]], str(found["text"])
        except (ValueError, KeyError, TypeError):
            self._write([text])
            return
        with contextlib.suppress(OSError):  # what cannot be written here fails when it is fetched
            replace_text(path, content)

    def _write(self, lines: Sequence[str]) -> None:
        if lines and self._log is not None:
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.writelines(f"{line}\n" for line in lines)

    def _give_up(self, why: str) -> None:
        """Its end without its files: nothing of it can be fetched, or nothing is there yet."""
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
        except Exception as error:  # noqa: BLE001  # whatever it is, its end is waited for
            why = f"what it recorded cannot be fetched from pod {pod}: {error}"
            self._failure = f"{self._name}: {why}"
            self._write([why])
        self._end()

    def _fetch(self, pod: str) -> None:
        for attempt in range(1, _FETCHES + 1):
            try:
                self._pods.fetch(pod, KEEPER, POINT, self._directories, self._directory)
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
