"""The CDS archive of Kafka's classes: with it a lab starts in three quarters of the time.

`python -m mirrortest.lab.archive` starts a lab of its own and writes the archive, once for each
Java and each Kafka. Every later lab uses it. Java ignores an archive that does not fit.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from mirrortest.errors import LabError
from mirrortest.host import class_archive
from mirrortest.lab.process.runtime import Jvm
from mirrortest.lab.testbed import Lab

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TOPIC = "archive"
_SECONDS = 300.0
"""The longest time in which Java must write the archive."""


def write_archive() -> Path:
    """Write the archive, unless it exists; this takes half a minute.

    Raises:
        LabError: the lab did not start, or Java could not write the archive.
        JavaMissingError: there is no Java 17 or newer.
    """
    jvm = Jvm.find()

    def write(folder: Path, draft: Path) -> None:
        with Lab(jvm_options=[f"-XX:DumpLoadedClassList={folder}/%p.list"]) as lab:
            lab.source.create_topic(_TOPIC, 1)
            lab.mirror.wait_topic(_TOPIC)
        classes = folder / "classes"
        classes.write_text(_merged(folder.glob("*.list")))
        _dump(jvm, classes, draft)

    return class_archive.write_once(jvm.archive, "starting a lab whose classes are archived", write)


def _merged(lists: Iterable[Path]) -> str:
    """Merge the class lists of several programs; ids are dropped, as each list has its own."""
    lines = {line.partition(" id:")[0] for path in lists for line in path.read_text().splitlines()}
    # Lines with @ refer to classes that must be listed before them.
    return "".join(
        f"{line}\n" for line in sorted(lines, key=lambda line: (line[:1] == "@", line))
        if not line.startswith("#")
    )  # fmt: skip


def _dump(jvm: Jvm, classes: Path, archive: Path) -> None:
    command = [
        str(jvm.java.executable),
        *("-XX:+UseSerialGC", "-Xshare:dump"),
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={archive}",
    ]
    try:
        done = subprocess.run(
            command,
            env=jvm.environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"Java wrote no archive within {_SECONDS:.0f} s") from None
    if done.returncode != 0 or not archive.is_file():
        raise LabError(f"Java wrote no archive: {(done.stdout + done.stderr).strip()[-2000:]}")


if __name__ == "__main__":
    class_archive.run(write_archive)
