"""The calls of kubectl that the tests need."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = {"resources": {"requests": {"cpu": "20m", "memory": "128Mi"}}}
"""The resources that pods request here: all are on one node."""

LOGS_CLASS = "mirrortest-e2e"
"""The storage class of `Kube.shared_volume`; no such object exists or is needed."""
_SHOWN = 10_000
"""Characters of each answer in the report of a failed test."""


def image(name: str) -> dict[str, str]:
    """NAME:TAG as values of the chart."""
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"}


def summary(printed: str) -> dict[str, Any]:
    """The reconciliation's JSON in a pod's log, which also contains progress."""
    found: dict[str, Any]
    found, _ = json.JSONDecoder().raw_decode(printed, printed.index('{\n  "version"'))
    return found


def until(condition: Callable[..., bool], what: str, timeout: float = 240) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: it was not within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout:g} s still not: {what}"
        time.sleep(0.5)


class Kube:
    """Talks to the cluster of KUBECONFIG, and removes what it created there.

    Attributes:
        preparing: the namespace of the test's own privileged pods; its name contains the pid, as
            two tests may run at once.
    """

    def __init__(self) -> None:
        self.preparing = f"mirrortest-e2e-{os.getpid()}"
        self._namespaces: list[str] = []
        self._volumes: list[str] = []

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """The output of kubectl. Raises AssertionError if it fails."""
        return self._asked(*arguments, given=given).stdout

    def dry_run(self, manifests: str) -> str:
        """The API server's warnings about these manifests, in a strict dry run.

        Raises:
            AssertionError: it rejects them.
        """
        strictly = ("--dry-run=server", "--validate=strict")
        warned = self._asked("apply", *strictly, "-f", "-", given=manifests).stderr
        return "\n".join(line for line in warned.splitlines() if "version difference" not in line)

    def _asked(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["kubectl", *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr[-2000:]}"
        return done

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create or change objects."""
        joined = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", given=json.dumps(joined))

    def will_have(self, *namespaces: str) -> None:
        """Register namespaces that the test will create and `clean` removes.

        Raises:
            AssertionError: one exists already.
        """
        for namespace in namespaces:
            assert not self.exists("namespace", namespace), (
                f"there is a namespace {namespace}: does another test run? If one was killed, "
                f"`kubectl delete namespace {namespace}`"
            )
            self._namespaces.append(namespace)

    def restricted_namespace(self, name: str) -> None:
        """Create a namespace that rejects pods that are not restricted."""
        self.will_have(name)
        self.kubectl("create", "namespace", name)
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        self.kubectl("label", "namespace", name, restricted)

    def state(self) -> str:
        """Volumes, claims, pods and events, to explain a failure.

        The end of each failed pod's log comes first: a reconciliation's is its verdict.
        """
        failed = json.loads(
            self.kubectl(
                "get",
                "pods",
                "--all-namespaces",
                "--field-selector=status.phase=Failed",
                "-o",
                "json",
            )
        )
        texts = []  # the most important first: the end may be cut off
        for pod in failed["items"]:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            texts.append(f"{name}:\n" + self.kubectl("logs", name, "-n", namespace, "--tail=100"))
        texts.append(self.kubectl("get", "pv,pvc,pods", "--all-namespaces", "--output=wide"))
        texts.append(
            self.kubectl(
                "get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"
            )
        )
        return "\n".join(text if len(text) < _SHOWN else f"...{text[-_SHOWN:]}" for text in texts)

    def items(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects, as parsed JSON."""
        answer = self.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        found: list[dict[str, Any]] = json.loads(answer)["items"]
        return found

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is such an object; for kinds without a namespace."""
        return bool(self.kubectl("get", kind, name, "--ignore-not-found"))

    def pods(self, namespace: str, part: str) -> dict[str, dict[str, Any]]:
        """Name -> pod, of one part."""
        found = self.items("pods", namespace, f"app.kubernetes.io/component={part}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def wait_ready(self, namespace: str, part: str, count: int) -> None:
        """Wait until `count` pods of a part are ready, and none is being deleted."""

        def ready() -> bool:
            found = self.pods(namespace, part).values()
            return len(found) == count and all(map(_ready, found))

        until(ready, f"{count} {part} ready in {namespace}")

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod as a node drain does: the API applies the budget, and the pod shuts down."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))

    def metrics(self, namespace: str, pod: str) -> dict[tuple[str, tuple[str, ...]], float]:
        """(name, values of its labels) -> value; empty while the pod does not answer."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}:9464/proxy/metrics"
        try:
            text = self.kubectl("get", "--raw", path)
        except AssertionError:
            return {}
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def stall(self, image: str, word: str) -> None:
        """Send SIGSTOP to the node's process that has this word in its command line."""
        program = (
            "import os, signal\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: words = open(f'/proc/{pid}/cmdline', 'rb').read().split(bytes(1))\n"
            "    except OSError: continue\n"
            f"    if {word.encode()!r} in words: os.kill(int(pid), signal.SIGSTOP); print(pid)\n"
        )
        assert self._as_root(image, program, {"hostPID": True}).strip(), f"no process has {word}"

    def shared_volume(self, image: str, namespaces: tuple[str, ...]) -> None:
        """A volume for each namespace, labelled `logs: NAMESPACE`, of one directory of the node.

        They have their own class: otherwise a claim of another test without a class would bind one.
        A privileged pod prepares the directory, because the pods under test may not.
        """
        self.will_have(self.preparing)
        self.kubectl("create", "namespace", self.preparing)
        path = f"/var/tmp/mirrortest-e2e-{time.time_ns()}"
        self._path, self._image = path, image
        self._prepare(image, f"import os; os.chmod({path!r}, 0o777)", path)
        for namespace in namespaces:
            name = f"{namespace}-logs-{time.time_ns()}"
            self._volumes.append(name)
            self.apply(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name, "labels": {"logs": namespace}},
                    "spec": {
                        "capacity": {"storage": "10Gi"},
                        "accessModes": ["ReadWriteMany"],
                        "storageClassName": LOGS_CLASS,
                        "persistentVolumeReclaimPolicy": "Retain",
                        "hostPath": {"path": path},
                    },
                }
            )
        available = "--for=jsonpath={.status.phase}=Available"
        self.kubectl("wait", "pv", *self._volumes, "--timeout=120s", available)

    def _prepare(self, image: str, program: str, path: str) -> None:
        directory = {"path": path, "type": "DirectoryOrCreate"}
        volumes = {"volumes": [{"name": "it", "hostPath": directory}]}
        self._as_root(
            image, program, volumes, {"volumeMounts": [{"name": "it", "mountPath": path}]}
        )

    def _as_root(
        self,
        image: str,
        program: str,
        of_pod: dict[str, Any],
        of_container: dict[str, Any] | None = None,
    ) -> str:
        """The output of a Python program that runs as root, unlike the pods under test."""
        container = {
            "name": "prepare",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-c", program],
            "securityContext": {"runAsUser": 0},
            **(of_container or {}),
        }
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "prepare", "namespace": self.preparing},
                "spec": {"restartPolicy": "Never", "containers": [container], **of_pod},
            }
        )
        at = ("-n", self.preparing)
        phase = "--for=jsonpath={.status.phase}=Succeeded"
        self.kubectl("wait", "pod/prepare", *at, "--timeout=170s", phase)
        printed = self.kubectl("logs", "prepare", *at)
        self.kubectl("delete", "pod", "prepare", *at)
        return printed

    def clean(self) -> None:
        """Remove the namespaces, the volumes and the directory on the node."""
        options = ("--ignore-not-found", "--timeout=120s")
        try:
            if self._volumes:
                program = f"import shutil; shutil.rmtree({self._path!r})"
                self._prepare(self._image, program, str(PurePosixPath(self._path).parent))
        finally:
            if self._namespaces:
                self.kubectl("delete", "namespace", *self._namespaces, *options)
            for name in self._volumes:
                self.kubectl("delete", "pv", name, *options)


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
