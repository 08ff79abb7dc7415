"""Tests on a Docker Engine; without one they are skipped with the reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab import Lab
from tests.docker.images import LOCAL, PUBLIC, Images, bases, build, docker, why_no_engine

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need an engine if there is none."""
    ours = [item for item in items if item.get_closest_marker("docker")]
    if ours and (reason := why_no_engine()):
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    """Both images, built from the working tree, under names that only tests use."""
    if bases() is None:
        pytest.skip(f"{PUBLIC} cannot be pulled, and there is no {LOCAL['BASE_IMAGE']}: "
                    "`make local-base` makes one")  # fmt: skip
    made = build("mirrortest-under-test", os.environ.get("PYTEST_XDIST_WORKER", "local"))
    yield made
    docker("image", "rm", made.mirrortest, made.reconcile, check=False)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two clusters and MirrorMaker 2 on the host's loopback interface."""
    with Lab() as running:
        yield running
