"""The images under test, and containers of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
LOCAL = {"BASE_IMAGE": "mirrortest-base:local", "BUILD_IMAGE": "mirrortest-build:local"}
"""The images that `make local-base` builds."""
PUBLIC = "python:3.13-slim-bookworm"

HARDENED = (
    "--read-only",
    *("--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges"),
    *("--tmpfs", "/tmp"),
)
"""The options of a container under the strictest policies of a cluster."""


def docker(*arguments: str, seconds: float = 300, check: bool = True) -> str:
    """Run the docker command; its stdout, stripped."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert not check or done.returncode == 0, f"docker {arguments}: {done.stderr[-3000:]}"
    return done.stdout.strip()


def why_no_engine() -> str | None:
    """Why there is no Docker Engine; None if there is one."""
    if shutil.which("docker") is None:
        return "no Docker Engine: there is no docker command"
    done = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no Docker Engine: {done.stderr.strip()[-200:]}"


def has(image: str) -> bool:
    """Whether the engine has an image."""
    asked = ["docker", "image", "inspect", image]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def bases() -> dict[str, str] | None:
    """The build's base images: the environment's, else local ones, else {} for the public one.

    None if no base image is available.
    """
    chosen = {name: os.environ[name] for name in LOCAL if os.environ.get(name)}
    if chosen:
        return chosen
    if all(map(has, LOCAL.values())):
        return LOCAL
    pulled = subprocess.run(
        ["docker", "pull", "-q", PUBLIC], capture_output=True, timeout=600, check=False
    )
    return {} if pulled.returncode == 0 else None


@dataclass(frozen=True)
class Images:
    """The images that `make images` built.

    Attributes:
        mirrortest: produce and consume.
        reconcile: with Spark and Java.
        base: the base of both.
    """

    mirrortest: str
    reconcile: str
    base: str


def build(name: str, tag: str) -> Images:
    """Build both images as a user does; unchanged layers come from the engine's cache."""
    given = bases()
    assert given is not None
    made = subprocess.run(
        ["make", "images", f"IMAGE={name}", f"TAG={tag}", *(f"{k}={v}" for k, v in given.items())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-4000:]
    return Images(f"{name}:{tag}", f"{name}-reconcile:{tag}", given.get("BASE_IMAGE", PUBLIC))


class Container:
    """A hardened container on the host's network, removed at the end; a context manager."""

    def __init__(self, image: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        self.name = f"mirrortest-test-{uuid.uuid4().hex[:12]}"
        docker(
            *("run", "--detach", "--name", self.name, "--network", "host"),
            *HARDENED,
            *options,
            image,
            *arguments,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        docker("rm", "--force", self.name)

    def wait(self, *, seconds: float = 120) -> int:
        """Wait for its end; its exit code."""
        return int(docker("wait", self.name, seconds=seconds))

    def stop(self, *, seconds: int = 60) -> int:
        """Send SIGTERM, as Kubernetes does, and SIGKILL after `seconds`; its exit code."""
        docker("stop", "--time", str(seconds), self.name, seconds=seconds + 60)
        return self.wait()

    @property
    def runs(self) -> bool:
        return bool(inspect(self.name)["State"]["Running"])

    def _logs(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "logs", self.name], capture_output=True, text=True, check=True
        )

    @property
    def stdout(self) -> str:
        return self._logs().stdout

    @property
    def stderr(self) -> str:
        return self._logs().stderr

    def answer(self, *, code: int = 0, seconds: float = 120) -> dict[str, Any]:
        """Wait for its end, check the exit code, and read the JSON answer."""
        got = self.wait(seconds=seconds)
        assert got == code, f"exited {got}, not {code}:\n{self.stderr[-3000:]}"
        answer: dict[str, Any] = json.loads(self.stdout)
        return answer


def inspect(what: str) -> dict[str, Any]:
    """The engine's description of an image or a container."""
    found: dict[str, Any] = json.loads(docker("inspect", what))[0]
    return found
