"""Java's archive of Spark's classes, with which Java starts in half the time.

`archive` writes it. Java ignores an archive that no longer fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.host import class_archive
from mirrortest.reconcile.jvm import spark_home

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.host.java import Java

AOT_CACHE_SINCE = 25
"""From this Java on, an archive is an AOT cache: it contains linked classes and their profiles."""


def place(java: Java) -> Path:
    """The path of the archive of a Java and of the installed Spark; it need not exist."""
    home = spark_home()
    jars = sorted(jar.name for jar in (home / "jars").glob("*.jar"))
    return class_archive.archive_path(java, "spark", [str(home), *jars])


def reading(java: Java) -> list[str]:
    """Java's options for a start with the archive; none where there is no archive."""
    archive = place(java)
    if java.major >= AOT_CACHE_SINCE:
        return [f"-XX:AOTCache={archive}", "-Xlog:aot*=off"] if archive.is_file() else []
    return class_archive.java_options(archive)


def writing(java: Java, archive: Path) -> list[str]:
    """Java's options for a start that writes an archive when it ends."""
    if java.major >= AOT_CACHE_SINCE:
        return [f"-XX:AOTCacheOutput={archive}", "-Xlog:aot*=off"]
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]
