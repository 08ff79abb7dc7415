"""What the report of a failed lab test shows: how far the mirror copied, and the ends of the logs.

The lab's directory is removed, and of a run in CI only the output is left.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab import Lab
from mirrortest.lab.cluster import Broker, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.lab.part import Part
    from tests.lab.harness import Scene

SCENES = pytest.StashKey[list["Scene"]]()
"""The scenes of a test."""
LINES = 60
"""How many lines of a mirror's log are shown; a broker's or a command's has a third of them."""
WIDTH = 300
"""How many characters of a line: some name every partition."""
_ROUTINE = re.compile(
    r"(Scheduler|Metrics): |Heartbeat.* Committing|Set up the| (Seeking to|Resetting) offset "
    r"| elapsed[,;] "
)
"""What MirrorMaker 2 logs each second or for each partition, and what commands say meanwhile."""
_TROUBLE = re.compile(r" (WARN|ERROR|FATAL) ")


def sections(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The titles and texts of the report's sections."""
    for scene in item.stash.get(SCENES, []):
        yield f"records of run {scene.run}", _counts(scene)
    found = getattr(item, "funcargs", {})
    for part in _parts(found.values()):
        lines, most = part.tail(LINES * 100).splitlines(), LINES
        if isinstance(part, Broker):
            lines, most = [line for line in lines if _TROUBLE.search(line)], LINES // 3
        yield f"log of {part.name}, which is {part.state}", _end(lines, most)
    if isinstance(folder := found.get("tmp_path"), Path):
        for errors in sorted(folder.rglob("*.stderr")):
            lines = errors.read_text(errors="replace").splitlines()
            yield f"stderr of {errors.stem}", _end(lines, LINES // 3)


def _end(lines: list[str], most: int) -> str:
    """The last lines without routine, unless it is the very last."""
    shown = [line for line in lines[:-1] if not _ROUTINE.search(line)] + lines[-1:]
    return "\n".join(line[:WIDTH] for line in shown[-most:])


def _parts(found: Iterable[object]) -> Iterator[Part]:
    """The parts of a test's lab or cluster."""
    for each in found:
        if isinstance(each, Lab):
            yield from each.parts.values()
        elif isinstance(each, Cluster):
            yield from each.brokers


def _counts(scene: Scene) -> str:
    """How many records its topics have in the source and in the destination."""
    lines = []
    try:
        for topic in (*scene.topics, scene.ledger):
            written = scene.written(topic)
            lines.append(f"{topic}: {written:,}, its copy: {scene.copied(topic):,}")
    except Exception as error:  # noqa: BLE001  # it would end the session
        lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines)
