"""The pods of a run: created, polled with two calls of kubectl, and removed at its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeVar

import structlog

from mirrortest.errors import LabError
from mirrortest.lab.kubernetes.manifest import (
    KEEPER,
    OWNER,
    POINT,
    RUN,
    client_pod,
    files_secret,
)
from mirrortest.lab.kubernetes.pod_status import PodStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from mirrortest.lab.kubernetes.kubectl import Kubectl
    from mirrortest.lab.kubernetes.manifest import PodSettings

_log = structlog.get_logger()

T = TypeVar("T")

PAUSE = 1.0
"""Seconds between two polls of all pods."""
_SHOWN = 80
"""Maximum length of an answer in an error."""
_MARGIN = 3.0
"""Seconds by which two requests for logs overlap: lines can appear while a call runs."""
_LINE = re.compile(r"\[pod/(?P<pod>[^/\]]+)/(?P<container>[^\]]+)\] (?P<time>\S+) ?(?P<text>.*)")


class LogLine(NamedTuple):
    """A line that a container printed, with the node's timestamp."""

    container: str
    time: str
    text: str


Update: TypeAlias = "Callable[[str, PodStatus | None, Sequence[LogLine]], None]"
"""Takes a pod's name, its status (None if there is no such pod), and its new log lines."""


class Pods:
    """Creates, watches and removes the pods of one run; a context manager.

    On entry it removes what a killed run with the same output directory left.

    Attributes:
        trouble: why the pods cannot be watched at present; empty while they can.
    """

    def __init__(self, kubectl: Kubectl, settings: PodSettings) -> None:
        self.trouble = ""
        self._kubectl = kubectl
        self._settings = settings
        self._kinds = "pods,secrets" if settings.files else "pods"
        self._watched: dict[str, Update] = {}
        self._seen: dict[str, set[LogLine]] = {}
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._watch_all, name="pods", daemon=True)

    def __enter__(self) -> Self:
        self._remove(OWNER)
        if self._settings.files:
            self._kubectl.create(files_secret(self._settings))
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._watch.join()
        self._remove(RUN)

    def create(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        keeper: Sequence[str],
        update: Update,
    ) -> str:
        """Create a client's pod and watch it; returns its name. Raises LabError."""
        manifest = client_pod(self._settings, name, command, environment, keeper)
        pod = self._kubectl.create(manifest)
        self._watched[pod] = update
        return pod

    def status(self, pod: str) -> PodStatus:
        """The current status of a pod. Raises LabError."""
        return self._get(PodStatus.of, "pod", pod)

    def delete(self, pod: str) -> None:
        """Delete a pod, and stop watching it. Raises LabError."""
        self._watched.pop(pod, None)
        self._kubectl.delete("pod", pod, wait=False)

    def execute(self, pod: str, *command: str) -> None:
        """Run a command in a pod's keeper. Raises LabError."""
        self._kubectl("exec", pod, f"--container={KEEPER}", "--", *command)

    def fetch(self, pod: str, into: Path) -> None:
        """Copy the directories that a client writes, in the settings' order. Raises LabError."""
        self._kubectl.fetch(pod, KEEPER, POINT, self._settings.directories, into)

    def _remove(self, label: str) -> None:
        value = self._settings.labels[label]
        self._kubectl.delete(self._kinds, f"--selector={label}={value}", wait=True)

    def _watch_all(self) -> None:
        since = time.monotonic()
        while not self._ending.wait(PAUSE):
            watched = dict(self._watched)
            if not watched:
                since = time.monotonic()
                continue
            began = time.monotonic()
            try:
                # In this order: once a container was seen to end, its logs are complete.
                statuses = self._get(_statuses, "pods", self._selector)
                lines = self._lines(began - since + _MARGIN)
            except LabError as error:
                self._note_trouble(str(error))
                continue
            self._note_trouble("")
            since = began
            for pod, each in watched.items():
                self._update(each, pod, statuses.get(pod), lines.get(pod, ()))

    def _note_trouble(self, why: str) -> None:
        before, self.trouble = self.trouble, why
        if why and not before:
            _log.warning("the pods cannot be watched, trying again", reason=why)
        elif before and not why:
            _log.info("the pods are watched again")

    def _update(
        self, update: Update, pod: str, status: PodStatus | None, lines: Sequence[LogLine]
    ) -> None:
        try:
            update(pod, status, lines)
        except Exception:  # noqa: BLE001  # any failure: other pods are still watched
            _log.exception("could not process a pod's status or logs", pod=pod)

    @property
    def _selector(self) -> str:
        return f"--selector={RUN}={self._settings.labels[RUN]}"

    def _get(self, read: Callable[[Any], T], *which: str) -> T:
        """Get these objects from kubectl, and parse them with `read`.

        Raises:
            LabError: kubectl failed, or its answer has an unexpected form.
        """
        answer = self._kubectl("get", *which, "--output=json")
        try:
            return read(json.loads(answer))
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = answer[:_SHOWN]
            raise LabError(f"kubectl get: its answer has an unexpected form: {shown!r}") from None

    def _lines(self, seconds: float) -> dict[str, list[LogLine]]:
        """The log lines of the last `seconds`, by pod, without those of the previous call."""
        printed = self._kubectl(
            *("logs", self._selector, "--all-containers", "--prefix", "--timestamps"),
            # A container that has not started is an error, which must be ignored.
            *("--tail=-1", f"--since={round(seconds)}s", "--ignore-errors"),
        )
        found: dict[str, list[LogLine]] = defaultdict(list)
        for line in map(_LINE.fullmatch, printed.splitlines()):
            if line is not None:
                found[line["pod"]].append(LogLine(line["container"], line["time"], line["text"]))
        seen, self._seen = self._seen, {pod: set(lines) for pod, lines in found.items()}
        return {
            pod: [line for line in lines if line not in seen.get(pod, ())]
            for pod, lines in found.items()
        }


def _statuses(answer: dict[str, Any]) -> dict[str, PodStatus]:
    return {pod["metadata"]["name"]: PodStatus.of(pod) for pod in answer["items"]}
