"""Observes the parts of a lab with `mirrortest observe`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.lab.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab.testbed import Lab


def observing_table(lab: Lab) -> dict[str, list[str]]:
    """The options, without dashes, with which `mirrortest observe` reads all parts of a lab.

    A part's process is found by its configuration's path in the command line, and named after it.
    """
    return {
        "match": [*(f"{lab.directory}/config/{name}." for name in lab.parts), f"{lab.directory}/"],
        "log": [str(part.log) for part in lab.parts.values()],
        "gc-log": [str(log) for log in lab.gc_logs.values()],
        "scrape": [f"{name}=http://{at}/metrics" for name, at in lab.targets.items()],
        "bootstrap-server": [each.bootstrap_servers for each in lab.clusters],
        "config": [str(file) for file in sorted(lab.directory.glob("config/*.properties"))],
    }


@contextmanager
def observed(lab: Lab, output: Path | None, *, metrics: bool = False) -> Iterator[None]:
    """Observe a running lab into a folder of `output` until the context ends; None: do not.

    With `metrics` the observer serves its own metrics, and becomes one of the lab's targets.

    Raises:
        LabError: the observer cannot be started.
    """
    if output is None:
        yield
        return
    command = [*RUN_MODULE, "mirrortest", "observe", "--output", str(output.absolute())]
    command += [f"--{key}={each}" for key, every in observing_table(lab).items() for each in every]
    if metrics:
        (port,) = free_ports(1)
        command.append(f"--metrics-port={port}")
        lab.add_target("observe", f"{ADDRESS}:{port}")
    part = Part("observe", command, lab.directory / "logs" / "observe.log")
    part.spawn()
    try:
        yield
    finally:
        part.terminate()
