"""Sources of modules from Go's module proxy, and programs built from them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.tools import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Go must not derive a program's version from the repository that contains its sources.
_ENVIRONMENT = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}


def sources(module: str) -> Path:
    """The folder of MODULE@VERSION, read-only; Go checks it against its checksum database.

    Raises:
        ToolMissingError: Go is missing, or cannot download the module.
    """
    with tempfile.TemporaryDirectory() as nowhere:  # outside of any module
        done = _go("mod", "download", "-json", module, folder=Path(nowhere))
    answer = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in answer:
        raise ToolMissingError(f"{module}: {answer.get('Error', done.stderr.strip())}")
    return Path(answer["Dir"])


def build(folder: Path, packages: Sequence[str], place: Path, *, link: str = "-s -w") -> None:
    """Build programs from packages of the module in `folder` into `place`; all of them or none.

    Args:
        folder: where the module's go.mod is.
        packages: as `go build` takes them; each is one program.
        place: a folder that may exist already; another process may create it at the same time.
        link: flags for the linker.

    Raises:
        ToolMissingError: Go is missing, or cannot build them.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as made:
        wanted = ("-trimpath", "-ldflags", link, "-o", f"{made}/", *packages)
        done = _go("build", *wanted, folder=folder)
        if done.returncode != 0:
            raise ToolMissingError(f"go build {' '.join(packages)}: {done.stderr.strip()[-1000:]}")
        place.mkdir(exist_ok=True)
        for program in Path(made).iterdir():
            program.replace(place / program.name)


def _go(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    go = shutil.which("go")
    if go is None:
        raise ToolMissingError("there is no Go in PATH")
    return subprocess.run(
        [go, *arguments],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
