"""A node's programs: Kubernetes and CoreDNS, built with Go, and packages of Debian."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from mirrortest.host.cache import cache_directory
from tests.tools import debian, golang

SOURCES = Path(__file__).with_name("go")
_PACKAGES = ("kube", "dns", "pause")


@dataclass(frozen=True)
class Programs:
    """The paths of the programs.

    Attributes:
        servers: the folder of `kube` (every server, by its first argument), `dns` and `pause`.
        containerd: in a folder with `ctr` and the shim.
        runc: the runtime that containerd uses.
        cni: the folder of the network plugins.
    """

    servers: Path
    containerd: Path
    runc: Path
    cni: Path


def have() -> Programs:
    """Get all of them, into the cache if they are missing: minutes, the first time.

    Raises:
        ToolMissingError: one is unavailable.
    """
    return Programs(
        servers=_servers(),
        containerd=debian.program("containerd", "containerd"),
        runc=debian.program("runc", "runc", "usr/sbin"),
        cni=debian.unpacked("containernetworking-plugins", "usr/lib/cni"),
    )


def are_built() -> bool:
    """Whether the programs that take minutes to build are in the cache."""
    return all((_place() / name).exists() for name in _PACKAGES)


def _servers() -> Path:
    if not are_built():
        golang.build(SOURCES, [f"./{name}" for name in _PACKAGES], _place(), link=_stamped())
    return _place()


def _place() -> Path:
    """The programs' folder: another one when a source or a pinned version changes."""
    files = sorted(path for path in SOURCES.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    return cache_directory() / f"kubernetes-{digest}-{platform.machine()}"


def _stamped() -> str:
    """Linker flags that set the servers' version, as Kubernetes' own build does."""
    pinned = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)", (SOURCES / "go.mod").read_text())
    assert pinned is not None
    version, major, minor = pinned.groups()
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    at = "k8s.io/component-base/version"
    return " ".join(["-s -w", *(f"-X {at}.{name}={value}" for name, value in variables.items())])
