"""Programs of Debian's packages, unpacked into the cache; nothing is installed."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from mirrortest.host.cache import cache_directory
from tests.tools import ToolMissingError


def program(name: str, package: str, place: str = "usr/bin") -> Path:
    """The program from PATH, else from a package.

    Raises:
        ToolMissingError: neither has it.
    """
    found = shutil.which(name)
    return Path(found) if found else unpacked(package, f"{place}/{name}")


def unpacked(package: str, path: str) -> Path:
    """A file or folder of a package. apt checks what it downloads against its signed index.

    Raises:
        ToolMissingError: apt is missing, the package is unknown, or it lacks the file.
    """
    place = cache_directory() / f"{package}-{platform.machine()}"
    if not (place / path).exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        # One at a time: apt locks its own lists while it updates them.
        with (place.parent / ".apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():  # another process may have been quicker
                _unpack(package, place)
    if not (place / path).exists():
        raise ToolMissingError(f"Debian's package {package} has no {path}")
    return place / path


def _unpack(package: str, place: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ToolMissingError(
                f"{package} is not in PATH, and there is no {tool} to have it by"
            )
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{package}-") as folder:
        done = _downloaded(package, folder)
        if done.returncode != 0 and os.geteuid() == 0:  # the index may be outdated
            subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=False)
            done = _downloaded(package, folder)
        files = list(Path(folder).glob("*.deb"))
        if done.returncode != 0 or not files:
            output = (done.stderr or done.stdout).strip().splitlines()
            raise ToolMissingError(
                f"apt-get download {package}: {output[-1] if output else 'nothing'}"
            )
        content = Path(folder) / "unpacked"
        subprocess.run(["dpkg-deb", "-x", str(files[0]), str(content)], check=True)
        content.rename(place)


def _downloaded(package: str, folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "download", "-q", package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
