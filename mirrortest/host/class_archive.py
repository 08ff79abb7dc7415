"""Class data archives (CDS) of Java programs, in this machine's cache."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import MirrortestError
from mirrortest.host.cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirrortest.host.java import Java


def archive_path(java: Java, program: str, jars: Iterable[str]) -> Path:
    """The path of the archive for a program, its jars in this order, and this Java."""
    executable = java.executable.resolve()
    # An update may replace a Java by another version at the same path.
    age = executable.stat().st_mtime_ns if executable.exists() else 0
    key = "\n".join([str(java.executable), str(age), *jars])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_directory() / f"{program}-{name}.archive"


def java_options(archive: Path) -> list[str]:
    """Java's options for a start with an archive of classes; none if the archive does not exist.

    Java ignores an archive that does not fit its version or its class path.
    """
    if not archive.is_file():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"]


def write_once(archive: Path, step: str, write: Callable[[Path, Path], None]) -> Path:
    """Write an archive, unless it exists; returns its path.

    `step` is printed before. `write` gets a temporary directory and the path of the draft, which is
    then renamed to the archive.
    """
    if archive.is_file():
        return archive
    sys.stderr.write(f"{step}\n")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mirrortest-archive-", dir=archive.parent) as name:
        draft = Path(name) / "draft"
        write(Path(name), draft)
        draft.rename(archive)
    return archive


def run(write_archive: Callable[[], Path]) -> None:
    """Run the command that writes an archive: print its path, or one line on its failure."""
    try:
        sys.stdout.write(f"{write_archive()}\n")
    except (MirrortestError, OSError) as error:
        sys.exit(f"error: {error}")
