"""One lab for the whole session: two clusters and a MirrorMaker 2 that mirrors every topic.

A test that hurts a part must leave it running, with `mirror.wait_ready()` where it is the mirror.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

import pytest
from harness import Scene

from mirrortest.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The session's lab: source alias A, destination alias B, one broker each, the mirror runs."""
    with Lab() as running:
        yield running


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes topic names that nobody else has, dotted, so that prefixes are put to the test."""
    numbers = itertools.count(1)
    unique = uuid.uuid4().hex[:8]
    test = request.node.originalname.removeprefix("test_")[:40].replace("_", "-")
    return lambda: f"{test}.{unique}.{next(numbers)}"


@pytest.fixture
def make_scene(
    lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Scene]]:
    """Makes a run of its own: `make_scene("orders", ...)`, each topic made unique and dotted."""
    scenes: list[Scene] = []

    def make(*topics: str, **changes: str) -> Scene:
        unique = uuid.uuid4().hex[:8]
        folder = tmp_path / unique
        folder.mkdir()
        names = {"ledger": f"ledger.{unique}", "state": f"state.{unique}", **changes}
        scene = Scene(
            lab, folder, f"r{unique}", tuple(f"{topic}.{unique}" for topic in topics), **names
        )
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def mirror_runs_again(lab: Lab) -> Iterator[None]:
    """Whatever a test does to the mirror, the next one finds it running."""
    yield
    if not lab.mirror.alive:
        lab.mirror.start()
        lab.mirror.wait_ready()
