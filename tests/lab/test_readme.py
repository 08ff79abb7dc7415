"""The README's four steps, as written, between two real clusters."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.model.verdict import ExitCode
from tests.lab.harness import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.harness import Scene

README = Path(__file__).parents[2] / "README.md"


def steps(scene: Scene) -> dict[str, list[str]]:
    """The arguments of each step by its verb, for this lab's clusters and a shorter run."""
    here = {
        "dc1:9092": scene.lab.source.bootstrap_servers,
        "dc2:9092": scene.lab.destination.bootstrap_servers,
        "--duration 10m": "--duration 60s",
        "p(99)<2s": "p(99)<1h",
        "logs-dc1 logs-dc2": str(scene.folder / "mirrortest-logs"),
        "n20261127.html": str(scene.folder / "n20261127.html"),
        "\\\n": " ",
    }
    text = README.read_text().partition("\n## Test your mirror\n")[2].partition("\n## ")[0]
    for written, meant in here.items():
        assert written in text, written
        text = text.replace(written, meant)
    found = re.findall(r"^ *mirrortest ([a-z]+) (.*)$", text, re.MULTILINE)
    return {verb: [verb, *shlex.split(words)] for verb, words in found}


def test_the_readmes_four_steps(make_scene: Callable[..., Scene]) -> None:
    """Each step does what the README says, in the order of the README."""
    scene = make_scene("orders")
    step = steps(scene)
    assert list(step) == ["doctor", "consume", "produce", "reconcile"]

    with Command(step["doctor"], scene.folder, "doctor") as doctor:
        assert doctor.wait() in {ExitCode.PASSED, ExitCode.ERROR}
        assert "--create-topics" in doctor.stdout
    with (
        Command(step["consume"], scene.folder, "consume") as consumer,
        Command(step["produce"], scene.folder, "produce") as producer,
    ):
        assert producer.wait() == ExitCode.PASSED, producer.stderr
        assert consumer.wait() == ExitCode.PASSED, consumer.stderr
    ended = scene.reconcile_as(step["reconcile"][1:])
    assert ended.code == ExitCode.PASSED, ended.stdout
    assert (scene.folder / "n20261127.html").exists()
