"""The jars of Kafka and MirrorMaker 2: pinned, checked, and downloaded once.

`jars.lock` lists each jar as ``group:artifact:version sha256``; no address stands in it, and no POM
is read to use it. A jar takes its final name in the cache only after its checksum was found right,
so a broken download costs the one jar it broke, and a partial file is never taken for a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from mirrortest.errors import LabError
from mirrortest.host.cache import cache_directory
from mirrortest.lab.leftovers import temporary_directory

# What the lab runs; everything else in the lock follows from these. kafka-tools are Kafka's own
# command line tools, for those who want to compare.
COORDINATES = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.kafka:connect-mirror:4.3.1",
    "org.apache.kafka:kafka-tools:4.3.1",
    "org.apache.kafka:kafka-clients:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
ATTEMPTS = 4
THREADS = 8

Progress = Callable[[int, int], None]
"""Called with the number of jars that are there and the number of all."""


class Jar(NamedTuple):
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """As Maven writes it."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """Its name in the cache: two groups may have an artifact of one name."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"


def read_lock(text: str | None = None) -> list[Jar]:
    """The pinned jars, in class path order."""
    if text is None:
        text = importlib.resources.files("mirrortest.lab").joinpath("jars.lock").read_text()
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinate, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group, artifact, version, sha256))
    return jars


def class_path(*, cache: Path | None = None, progress: Progress | None = None) -> str:
    """The class path of everything in the lock; what is missing is downloaded.

    Raises:
        LabError: a jar cannot be had; those that were stay in the cache for the next time.
    """
    paths = fetch(read_lock(), (cache or cache_directory()) / "jars", progress)
    return os.pathsep.join(map(str, paths))


def fetch(jars: Iterable[Jar], directory: Path, progress: Progress | None = None) -> list[Path]:
    """Have these jars in `directory`, each with its right checksum; returns their paths in order.

    Raises:
        LabError: one cannot be downloaded, or arrives with a wrong checksum.
    """
    jars = list(jars)
    paths = [directory / jar.file_name for jar in jars]
    with ThreadPoolExecutor(THREADS) as pool:
        whole = list(pool.map(_is_whole, paths, jars))
    missing = [jar for jar, there in zip(jars, whole, strict=True) if not there]
    if not missing:
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    there = len(jars) - len(missing)
    partial = temporary_directory(directory, ".partial-")
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            waiting = [pool.submit(_download, jar, directory, partial) for jar in missing]
            try:
                for done in as_completed(waiting):
                    done.result()
                    there += 1
                    if progress:
                        progress(there, len(jars))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return paths


def resolve_lock() -> str:
    """The text of a new lock for `COORDINATES`, resolved and downloaded afresh.

    Each coordinate is taken raw, or jgo would read the parents of all of them as one bill of
    materials: Log4j's pins an old kafka-clients.
    """
    with tempfile.TemporaryDirectory() as directory:
        context = _maven(Path(directory))
        wanted = [context.create_dependency(f"{name}!") for name in COORDINATES]
        inputs, others = context.resolver.resolve(wanted)
        every = [one for one in (*inputs, *others) if one.scope not in {"test", "provided"}]
        return _locked(every)


def pin(coordinates: Iterable[str]) -> str:
    """The text of a lock for exactly these jars, downloaded afresh; what they need is not added."""
    with tempfile.TemporaryDirectory() as directory:
        context = _maven(Path(directory))
        return _locked([context.create_dependency(name) for name in coordinates])


def _locked(dependencies: Iterable[Any]) -> str:
    lines = ["# Written by python -m mirrortest.lab.relock: group:artifact:version sha256"]
    for one in dependencies:
        digest = _sha256(Path(one.artifact.resolve()))
        lines.append(f"{one.groupId}:{one.artifactId}:{one.version} {digest}")
    return "\n".join(lines) + "\n"


def _maven(cache: Path, local: list[Path] | None = None) -> Any:
    if not importlib.util.find_spec("jgo"):
        raise LabError("the lab's jars are not cached yet: pip install 'mirrortest[lab]' first")
    from jgo.maven import MavenContext  # noqa: PLC0415  # an extra

    # A site's own mirror of Maven Central; jgo knows the public address.
    site = os.environ.get("MIRRORTEST_MAVEN_REPOSITORY")
    return MavenContext(
        repo_cache=cache,
        local_repos=local,
        remote_repos={"site": site.rstrip("/")} if site else None,
        timeout=30,
    )


def _local_repositories() -> list[Path]:
    """The user's own Maven repository: what it holds need not be downloaded."""
    chosen = os.environ.get("M2_REPO")
    return [Path(chosen) if chosen else Path.home() / ".m2" / "repository"]


def _download(jar: Jar, directory: Path, partial: Path) -> None:
    trouble: object = None
    for attempt in range(ATTEMPTS):
        if attempt > 1:
            time.sleep(2**attempt / 4)
        # A directory for each attempt: jgo takes a file that is there for whole.
        place = partial / f"{jar.file_name}-{attempt}"
        try:
            context = _maven(place, _local_repositories() if attempt == 0 else [])
            found = Path(
                context.create_dependency(jar.coordinate).artifact.resolve(),
            )
            arrived = partial / f"{jar.file_name}-{attempt}.jar"
            shutil.copyfile(found, arrived)
        except LabError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever broke a download, it is tried again
            trouble = error
            continue
        if _is_whole(arrived, jar):
            arrived.replace(directory / jar.file_name)
            return
        trouble = "its checksum is wrong"
    raise LabError(
        f"cannot download {jar.coordinate} after {ATTEMPTS} attempts: {trouble}; "
        "what has arrived is kept, so run it again to go on"
    )


def _is_whole(path: Path, jar: Jar) -> bool:
    with contextlib.suppress(OSError):
        return _sha256(path) == jar.sha256
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
