"""The jars that the lab runs: pinned, verified, and downloaded once.

A lock lists each jar as ``group:artifact:version sha256``. It contains no URL, and no POM is read
to use it. A jar gets its final name in the cache only after its checksum was verified: a broken
download affects that jar only, and a partial file is never used.

``python -m mirrortest.lab.jars`` rewrites all locks after a change of `COORDINATES`.
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
from mirrortest.host.user_files import expanded
from mirrortest.lab.temporary_directories import TemporaryDirectory

KAFKA, MIRROR_MAKER_1, JMX = "jars.lock", "mirrormaker1.lock", "jmx.lock"
COORDINATES = {
    # The lock has their dependencies, too. kafka-tools are Kafka's own command line tools.
    KAFKA: (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:connect-mirror:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.kafka:kafka-clients:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
    # Kafka 4 has no MirrorMaker 1. That of Kafka 3.9 works with the brokers of Kafka 4.
    MIRROR_MAKER_1: (
        "org.apache.kafka:kafka_2.13:3.9.2",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.kafka:kafka-server-common:3.9.2",
    ),
    # Prometheus's JMX exporter.
    JMX: ("io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",),
}
"""The jars for which each lock is written."""
ATTEMPTS = 4
THREADS = 8

Progress = Callable[[int, int], None]
"""Called with the number of cached jars and the number of all jars."""


class Jar(NamedTuple):
    """One line of a lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """The coordinate as Maven writes it."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name in the cache: artifacts of two groups can have the same name."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"


def read_lock(lock: str = KAFKA) -> list[Jar]:
    """The pinned jars, in class path order."""
    jars = []
    for line in importlib.resources.files("mirrortest.lab").joinpath(lock).read_text().splitlines():
        if line and not line.startswith("#"):
            coordinate, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group, artifact, version, sha256))
    return jars


def class_path(progress: Progress | None = None) -> str:
    """The class path of Kafka and MirrorMaker 2; missing jars are downloaded.

    Raises:
        LabError: a jar cannot be downloaded; the others stay in the cache.
    """
    return _class_path(read_lock(), progress)


def mirror_maker_1_class_path() -> str:
    """The class path of MirrorMaker 1: its own Kafka, and the lab's other jars. Raises LabError."""
    others = [jar for jar in read_lock() if jar.group != "org.apache.kafka"]
    return _class_path([*read_lock(MIRROR_MAKER_1), *others])


def jmx_agent() -> Path:
    """The jar of the JMX exporter's agent. Raises LabError."""
    (jar,) = fetch(read_lock(JMX), cache_directory() / "jars")
    return jar


def _class_path(jars: list[Jar], progress: Progress | None = None) -> str:
    return os.pathsep.join(map(str, fetch(jars, cache_directory() / "jars", progress)))


def fetch(jars: Iterable[Jar], directory: Path, progress: Progress | None = None) -> list[Path]:
    """Download the jars that `directory` lacks, and verify all; returns their paths in order.

    Raises:
        LabError: a jar cannot be downloaded, or its checksum is wrong.
    """
    jars = list(jars)
    paths = [directory / jar.file_name for jar in jars]
    with ThreadPoolExecutor(THREADS) as pool:
        verified = list(pool.map(_is_verified, paths, jars))
    missing = [jar for jar, cached in zip(jars, verified, strict=True) if not cached]
    if not missing:
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    cached = len(jars) - len(missing)
    with (
        TemporaryDirectory(directory, ".partial-") as partial,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        waiting = [pool.submit(_download, jar, directory, partial) for jar in missing]
        try:
            for done in as_completed(waiting):
                done.result()
                cached += 1
                if progress:
                    progress(cached, len(jars))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return paths


def write_lock(lock: str) -> None:
    """Resolve and download the coordinates of a lock afresh, and write the lock."""
    lines = ["# Written by python -m mirrortest.lab.jars: group:artifact:version sha256"]
    with tempfile.TemporaryDirectory() as directory:
        context = _maven(Path(directory))
        if lock == KAFKA:
            # Without "!" jgo would read their parent POMs as one bill of materials, and that of
            # Log4j pins an old kafka-clients.
            wanted = [context.create_dependency(f"{name}!") for name in COORDINATES[lock]]
            inputs, others = context.resolver.resolve(wanted)
            found = [one for one in (*inputs, *others) if one.scope not in {"test", "provided"}]
        else:
            found = [context.create_dependency(name) for name in COORDINATES[lock]]
        for one in found:
            digest = _sha256(Path(one.artifact.resolve()))
            lines.append(f"{one.groupId}:{one.artifactId}:{one.version} {digest}")
    Path(__file__).with_name(lock).write_text("\n".join(lines) + "\n")


def _maven(cache: Path, local: list[Path] | None = None) -> Any:
    if not importlib.util.find_spec("jgo"):
        raise LabError("the lab's jars are not cached yet: pip install 'mirrortest[lab]' first")
    from jgo.maven import MavenContext  # noqa: PLC0415  # an extra

    # A site's own mirror of Maven Central, instead of the public one.
    site = os.environ.get("MIRRORTEST_MAVEN_REPOSITORY")
    return MavenContext(
        repo_cache=cache,
        local_repos=local,
        remote_repos={"site": site.rstrip("/")} if site else None,
        timeout=30,
    )


def _user_repository() -> Path:
    return expanded(os.environ.get("M2_REPO") or "~/.m2/repository")


def _download(jar: Jar, directory: Path, partial: Path) -> None:
    reason: object = None
    for attempt in range(ATTEMPTS):
        if attempt > 1:
            time.sleep(2**attempt / 4)
        # A directory for each attempt: jgo does not verify a file that it finds.
        place = partial / f"{jar.file_name}-{attempt}"
        try:
            context = _maven(place, [_user_repository()] if attempt == 0 else [])
            found = context.create_dependency(jar.coordinate).artifact.resolve()
            arrived = partial / f"{jar.file_name}-{attempt}.jar"
            shutil.copyfile(found, arrived)
        except LabError:
            raise
        except Exception as error:  # noqa: BLE001  # any failure of a download is worth another attempt
            reason = error
            continue
        if _is_verified(arrived, jar):
            arrived.replace(directory / jar.file_name)
            return
        reason = "its checksum is wrong"
    raise LabError(
        f"cannot download {jar.coordinate} after {ATTEMPTS} attempts: {reason}; "
        "the jars downloaded so far are kept; run it again to continue"
    )


def _is_verified(path: Path, jar: Jar) -> bool:
    with contextlib.suppress(OSError):
        return _sha256(path) == jar.sha256
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    for each in COORDINATES:
        write_lock(each)
