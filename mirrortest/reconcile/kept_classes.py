"""What Java keeps of Spark's classes from one start to the next: it starts in half the time.

`archive` makes it. What no longer fits Java leaves alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.host import class_archive
from mirrortest.reconcile.jvm import spark_home

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.host.java import Java

WHOLE_SINCE = 25
"""From this Java on an archive holds classes ready to run, and what was learnt of them."""


def place(java: Java) -> Path:
    """Where the archive of a Java and of the installed Spark lies, or would lie."""
    home = spark_home()
    jars = sorted(jar.name for jar in (home / "jars").glob("*.jar"))
    return class_archive.place(java, "spark", [str(home), *jars])


def reading(java: Java) -> list[str]:
    """Java's options for a start with the archive; none where there is no archive."""
    archive = place(java)
    if java.major >= WHOLE_SINCE:
        return [f"-XX:AOTCache={archive}", "-Xlog:aot*=off"] if archive.is_file() else []
    return class_archive.reading(archive)


def writing(java: Java, archive: Path) -> list[str]:
    """Java's options for a start that writes an archive when it ends."""
    if java.major >= WHOLE_SINCE:
        return [f"-XX:AOTCacheOutput={archive}", "-Xlog:aot*=off"]
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]
