"""What Java keeps of a program's classes from one start to the next, in this machine's cache."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

from mirrortest.errors import MirrortestError
from mirrortest.host.cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mirrortest.host.java import Java


def place(java: Java, program: str, jars: Iterable[str]) -> Path:
    """Where the archive of a program, of these jars in this order and this Java, would lie."""
    executable = java.executable.resolve()
    # A Java of another version may come to lie in the same place.
    age = executable.stat().st_mtime_ns if executable.exists() else 0
    told = "\n".join([str(java.executable), str(age), *jars])
    name = hashlib.sha256(told.encode()).hexdigest()[:16]
    return cache_directory() / f"{program}-{name}.archive"


def reading(archive: Path) -> list[str]:
    """Java's options for a start with an archive of classes; none where there is no archive.

    What does not fit its Java or its class path Java leaves alone.
    """
    if not archive.is_file():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"]


def run(make: Callable[[], Path]) -> None:
    """The command that makes an archive: say where it is, or in a line why there is none."""
    try:
        sys.stdout.write(f"{make()}\n")
    except (MirrortestError, OSError) as error:
        sys.exit(f"error: {error}")
