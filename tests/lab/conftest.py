"""One lab for the whole session: two clusters and a MirrorMaker 2 that mirrors every topic.

Parts that a test leaves stopped or dead are restarted before the next one.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.sender import Sender
from mirrortest.lab import Lab
from mirrortest.lab.docker.engine import KAFKA_IMAGE
from mirrortest.lab.mirrors import MirrorSettings
from mirrortest.lab.runtime import PartState
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.lab import failure
from tests.lab.harness import Scene
from tests.scheduling import needs_lab

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator


_lab = ExitStack()
"""Closing it ends the session's lab."""
TIMEOUT = 600
"""Seconds for a test with its fixtures; a busy machine takes several times as long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests without their own timeout get `TIMEOUT`."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The session's lab: source alias A, destination alias B, one broker each, the mirror runs.

    With MIRRORTEST_LAB_RUNTIME=docker it runs in containers of the image MIRRORTEST_KAFKA_IMAGE.
    """
    image = None
    if os.environ.get("MIRRORTEST_LAB_RUNTIME") == "docker":
        image = os.environ.get("MIRRORTEST_KAFKA_IMAGE", KAFKA_IMAGE)
    with _lab:
        # Tests stop clusters for longer than the worker's session: by default Kafka Connect then
        # assigns nothing for 5 minutes.
        mirror = MirrorSettings(properties={"B.scheduled.rebalance.max.delay.ms": "3000"})
        yield _lab.enter_context(Lab(image=image, mirror=mirror))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """The lab ends with the last test that needs it: idle, it costs a tenth of a core."""
    yield
    if nextitem is None or not needs_lab(nextitem.nodeid):
        _lab.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Add to the report of a failed test what may show the cause; see `tests.lab.failure`."""
    report = yield
    if report.failed:
        report.sections += failure.sections(item)
    return report


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes unique topic names, with dots, so that the mirror's prefixes are tested."""
    numbers = itertools.count(1)
    unique = uuid.uuid4().hex[:8]
    test = request.node.originalname.removeprefix("test_")[:40].replace("_", "-")
    return lambda: f"{test}.{unique}.{next(numbers)}"


@pytest.fixture
def config(lab: Lab, request: pytest.FixtureRequest) -> ClientConfig:
    """A client of the destination that soon notices changes; a parameter sets `portable`."""
    return ClientConfig(
        portable=getattr(request, "param", False),
        bootstrap_servers=tuple(lab.destination.bootstrap_servers.split(",")),
        metadata_max_age_ms=500,
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
    )


@pytest.fixture
async def admin(config: ClientConfig) -> AsyncIterator[Admin]:
    """An admin client of the cluster of `config`."""
    async with Admin(config) as made:
        yield made


@pytest.fixture
async def send(config: ClientConfig) -> AsyncIterator[Callable[..., Any]]:
    """Sends batches with these counts of messages to a topic."""
    async with Sender(config) as sender:

        async def batches(topic: str, *counts: int, partition: int = 0) -> None:
            encoder = LaneEncoder(topic, ProducerId("p", "r", 1), 0, 0, 1, Form.BODY, 100)
            for count in counts:
                now = time.time_ns()
                batch = encoder.encode(0, np.full(count, now), now)
                sent = await sender.send(topic, partition, batch)
                assert sent.error is None

        yield batches


@pytest.fixture
def make_scene(
    lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Scene]]:
    """Makes a new run: `make_scene("orders", ...)`; a dotted suffix makes each topic unique."""
    scenes = request.node.stash[failure.SCENES] = []

    def make(*topics: str, **changes: Any) -> Scene:
        unique = uuid.uuid4().hex[:8]
        folder = tmp_path / unique
        folder.mkdir()
        names: dict[str, Any] = {
            "ledger": f"ledger.{unique}",
            "state": f"state.{unique}",
            **changes,
        }
        scene = Scene(
            lab,
            folder,
            f"r{unique}",
            tuple(f"{topic}.{unique}" for topic in topics),
            spark=lambda: request.getfixturevalue("spark"),
            **names,
        )
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture(autouse=True)
def _lab_runs_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restart what a test, even a failed one, stopped in the lab, before the next one."""
    lab = request.getfixturevalue("lab") if "lab" in request.fixturenames else None
    yield
    if not isinstance(lab, Lab):
        return
    assert needs_lab(request.node.nodeid), "OWN_CLUSTERS names a file that needs the lab"
    for part in lab.parts.values():
        if part.state is PartState.STOPPED:
            part.cont()
        if not part.alive:
            part.start()
            part.wait_ready()


@pytest.fixture
def make_aliased_scene(make_scene: Callable[..., Scene]) -> Callable[..., Scene]:
    """Makes scenes whose copies have a prefix that MirrorMaker 2 does not use."""
    return lambda *topics: make_scene(*topics, alias="S")
