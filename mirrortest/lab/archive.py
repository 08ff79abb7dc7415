"""What Java keeps of Kafka's classes from one start to the next: a lab is up in three quarters.

`python -m mirrortest.lab.archive` makes it, once for each Java and each Kafka, by starting a lab of
its own; from then on every lab finds it. What no longer fits Java leaves alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import LabError
from mirrortest.host import class_archive
from mirrortest.lab import jars
from mirrortest.lab.jvm import Jvm, lab_java
from mirrortest.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOPIC = "archive"
_SECONDS = 300.0
"""What Java may take to write it."""


def make() -> Path:
    """Make it, unless it is there; takes half a minute.

    Raises:
        LabError: the lab did not start, or Java could not write the archive.
        JavaMissingError: there is no Java 17 or newer.
    """
    jvm = Jvm(lab_java(), jars.class_path())
    final = jvm.archive
    if final.is_file():
        return final
    sys.stderr.write("starting a lab for Java to keep what it loads\n")
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mirrortest-archive-", dir=final.parent) as name:
        folder = Path(name)
        with Lab(jvm_options=[f"-XX:DumpLoadedClassList={folder}/%p.list"]) as lab:
            lab.source.create_topic(_TOPIC, 1)
            lab.mirror.wait_topic(_TOPIC)
        classes, draft = folder / "classes", folder / "draft"
        classes.write_text(_merged(folder.glob("*.list")))
        _dump(jvm, classes, draft)
        draft.rename(final)
    return final


def _merged(lists: Iterable[Path]) -> str:
    """One list of what several programs load; without the ids, which hold within one alone."""
    lines = {line.partition(" id:")[0] for path in lists for line in path.read_text().splitlines()}
    # What stands behind an @ is about classes that stand before it.
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
    class_archive.run(make)
