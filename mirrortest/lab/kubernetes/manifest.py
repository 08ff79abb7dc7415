"""The manifests of the objects that are created for clients in pods."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IMAGE = f"mirrortest/mirrortest:{__version__}"
"""The default image of the chart's pods."""
CLIENT, KEEPER = "client", "keeper"
"""The containers of a pod: the client's, and the sidecar that keeps its files."""
RUN, OWNER = "mirrortest.run", "mirrortest.output"
"""Labels: the run, and a hash of the output directory that it writes to."""
POINT = "/point"
"""The directory below which clients write; each directory in it is a volume."""
HOME = "/scenario"
"""The directory of the scenario's files, in which clients run."""
_TMP = "/tmp"  # noqa: S108  # a volume of the pod's own
MOST_FILES_BYTES = 1 << 20
"""The maximum size of a Secret."""
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "fsGroup": 10001,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The same as the chart's: what the Pod Security Standard "restricted" requires."""


@dataclass(frozen=True)
class PodSettings:
    """The settings that the pods of a run have in common.

    Attributes:
        labels: the labels of all objects.
        directories: the directories below POINT to which clients write. They are fetched in this
            order: the content of the last one shows that all others are there.
        seconds: the time after which Kubernetes itself ends a pod.
        image: the image of both containers.
        pull_policy: when the image is pulled; None: Kubernetes' default.
        files: the scenario's files, by their paths below HOME; they are put into a Secret.
        overlay: fields of a pod's spec that override those set here.
    """

    labels: Mapping[str, str]
    directories: Sequence[str]
    seconds: int
    image: str = IMAGE
    pull_policy: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    overlay: Mapping[str, Any] = field(default_factory=dict)

    @property
    def secret(self) -> str:
        """The name of the Secret with the files."""
        return f"mirrortest-{self.labels[RUN]}-files"


def client_pod(
    settings: PodSettings,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    keeper: Sequence[str],
) -> dict[str, Any]:
    """The manifest of one client's pod, whose name contains the run's and the client's.

    Kubernetes never restarts it: its end must be seen, and its files fetched.
    """
    volumes: list[dict[str, Any]] = [
        {"name": each, "emptyDir": {}} for each in (*settings.directories, "tmp")
    ]
    mounts: list[dict[str, Any]] = [
        {"name": each, "mountPath": f"{POINT}/{each}"} for each in settings.directories
    ]
    mounts.append({"name": "tmp", "mountPath": _TMP})
    of_client, home = list(mounts), _TMP
    if settings.files:
        home = HOME
        items = [{"key": f"file-{n}", "path": path} for n, path in enumerate(settings.files)]
        secret = {"secretName": settings.secret, "items": items}
        volumes.append({"name": "scenario", "secret": secret})
        of_client.append({"name": "scenario", "mountPath": HOME, "readOnly": True})
    variables = {"HOME": _TMP, "NO_COLOR": "1", **environment}
    common: dict[str, Any] = {
        "image": settings.image,
        "securityContext": _CONTAINER_SECURITY,
        **({"imagePullPolicy": settings.pull_policy} if settings.pull_policy else {}),
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": settings.seconds,
        "terminationGracePeriodSeconds": 120,
        "shareProcessNamespace": True,  # the keeper sends signals to the client
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": _POD_SECURITY,
        "containers": [
            {
                **common,
                "name": CLIENT,
                "command": list(command),
                "workingDir": home,
                "env": [{"name": each, "value": value} for each, value in variables.items()],
                "volumeMounts": of_client,
                "resources": {
                    "requests": {"cpu": "500m", "memory": "512Mi"},
                    "limits": {"memory": "2Gi"},
                },
            },
            {
                **common,
                "name": KEEPER,
                "command": list(keeper),
                "volumeMounts": mounts,
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"memory": "256Mi"},
                },
            },
        ],
        "volumes": volumes,
    }
    metadata = {
        "generateName": f"mirrortest-{settings.labels[RUN]}-{_name_part(name)}-",
        "labels": {**settings.labels},
        "annotations": {
            "mirrortest.client": name,
            "kubectl.kubernetes.io/default-container": CLIENT,
        },
    }
    overlaid = _override(spec, dict(settings.overlay))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": overlaid}


def files_secret(settings: PodSettings) -> dict[str, Any]:
    """The Secret with the scenario's files, numbered in their order."""
    contents = enumerate(settings.files.values())
    data = {f"file-{n}": base64.b64encode(each).decode() for n, each in contents}
    metadata = {"name": settings.secret, "labels": {**settings.labels}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _name_part(name: str) -> str:
    """A client's name in the form that a pod's name can contain."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:20].strip("-") or "client"


def _override(base: Any, over: Any) -> Any:
    """Override a value: mappings are merged by key, lists of named items by name."""
    if isinstance(base, dict) and isinstance(over, dict):
        changed = {key: _override(base.get(key), value) for key, value in over.items()}
        return {**base, **changed}
    if isinstance(base, list) and isinstance(over, list) and all(map(_has_name, (*base, *over))):
        named = {each["name"]: each for each in base}
        for each in over:
            named[each["name"]] = _override(named.get(each["name"], {}), each)
        return list(named.values())
    return over


def _has_name(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value
