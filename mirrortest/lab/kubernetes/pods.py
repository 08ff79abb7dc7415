"""The pods of a run: created, watched by two calls of kubectl at a time, removed at its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeVar

import structlog

from mirrortest.errors import LabError
from mirrortest.lab.kubernetes.manifest import OWNER, RUN, client_pod, files_secret
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
"""Seconds between two looks at all pods."""
_SHOWN = 80
"""Characters of an answer that an error has."""
_MARGIN = 3.0
"""Seconds of logs that are asked for twice: a call may find what was written while it ran."""
_LINE = re.compile(r"\[pod/(?P<pod>[^/\]]+)/(?P<container>[^\]]+)\] (?P<time>\S+) ?(?P<text>.*)")


class LogLine(NamedTuple):
    """A line that a container printed, with the node's time of it."""

    container: str
    time: str
    text: str


Update: TypeAlias = "Callable[[str, PodStatus | None, Sequence[LogLine]], None]"
"""Takes a pod's name, its status, None where there is no such pod, and what it printed up to then.
"""


class Pods:
    """Creates, watches and removes the pods of one run; a context manager.

    Its start removes what a killed run with the same output directory left.

    Attributes:
        trouble: why the cluster cannot be asked at present; empty while it answers.
    """

    def __init__(self, kubectl: Kubectl, settings: PodSettings, files: Sequence[bytes]) -> None:
        self.trouble = ""
        self._kubectl = kubectl
        self._settings = settings
        self._files = files
        self._kinds = "pods,secrets" if files else "pods"
        self._watched: dict[str, Update] = {}
        self._seen: dict[str, set[LogLine]] = {}
        self._ending = threading.Event()
        self._watch = threading.Thread(target=self._watch_all, name="pods", daemon=True)

    def __enter__(self) -> Self:
        self._remove(OWNER)
        if self._settings.secret is not None:
            labels = self._settings.labels
            self._kubectl.create(files_secret(self._settings.secret, labels, self._files))
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ending.set()
        self._watch.join()
        try:
            self._remove(RUN)
        except LabError:
            if kind is None:  # else that is what the user is to see; the next run removes them
                raise

    def create(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        keeper: Sequence[str],
        update: Update,
    ) -> str:
        """Create a client's pod, which is watched from now on; its name. Raises LabError."""
        manifest = client_pod(self._settings, name, command, environment, keeper)
        pod = self._kubectl.create(manifest)
        self._watched[pod] = update
        return pod

    def status(self, pod: str) -> PodStatus:
        """How a pod is now. Raises LabError."""
        return self._asked(PodStatus.of, "pod", pod)

    def delete(self, pod: str) -> None:
        """Delete a pod, which is watched no more. Raises LabError."""
        self._watched.pop(pod, None)
        self._kubectl.delete("pod", pod, wait=False)

    def execute(self, pod: str, container: str, *command: str) -> str:
        """Run a command in a container; what it prints. Raises LabError."""
        return self._kubectl("exec", pod, f"--container={container}", "--", *command)

    def fetch(
        self, pod: str, container: str, directory: str, names: Sequence[str], into: Path
    ) -> None:
        """As `Kubectl.fetch`."""
        self._kubectl.fetch(pod, container, directory, names, into)

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
                # In this order: all that a container printed is there once it was seen to end.
                statuses = self._asked(_statuses, "pods", self._selector)
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
        except Exception:  # noqa: BLE001  # whatever it was, the other pods are watched on
            _log.exception("what a pod did could not be taken in", pod=pod)

    @property
    def _selector(self) -> str:
        return f"--selector={RUN}={self._settings.labels[RUN]}"

    def _asked(self, read: Callable[[Any], T], *which: str) -> T:
        """What kubectl has of these objects, as `read` has it.

        Raises:
            LabError: it failed, or its answer has another form.
        """
        answer = self._kubectl("get", *which, "--output=json")
        try:
            return read(json.loads(answer))
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = answer[:_SHOWN]
            raise LabError(f"kubectl get: its answer has an unexpected form: {shown!r}") from None

    def _lines(self, seconds: float) -> dict[str, list[LogLine]]:
        """What was printed in the last seconds, but for what was there the last time."""
        printed = self._kubectl(
            *("logs", self._selector, "--all-containers", "--prefix", "--timestamps"),
            # Containers that have not started are an error, which is to be ignored.
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
