"""A lab under observation: `mirrortest observe` of its parts."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrortest.lab.part import Part
from mirrortest.lab.process.runtime import gc_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab.testbed import Lab


def observing_options(lab: Lab) -> list[str]:
    """The options by which `mirrortest observe` reads all parts of a lab."""
    found = [f"--match={lab.directory}"]
    for name, part in lab.parts.items():
        found += [f"--log={part.log}", f"--gc-log={gc_log(part.log.parent, name)}"]
    return [*found, *(f"--scrape={name}=http://{at}/metrics" for name, at in lab.targets.items())]


@contextmanager
def observed(lab: Lab, output: Path | None) -> Iterator[None]:
    """Observe a running lab into a folder of `output` until the context ends; None: do not.

    Raises:
        LabError: the observer cannot be started.
    """
    if output is None:
        yield
        return
    command = (sys.executable, "-m", "mirrortest", "observe", "--output", str(output.absolute()))
    part = Part(
        "observe", [*command, *observing_options(lab)], lab.directory / "logs" / "observe.log"
    )
    part.spawn()
    try:
        yield
    finally:
        part.terminate()
