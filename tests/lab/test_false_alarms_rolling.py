"""A cluster of three brokers that are restarted one by one, as for an upgrade."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab.cluster import Cluster
from mirrortest.lab.process.runtime import Jvm
from tests.lab.harness import Scene, count, judged_alike, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, each with a replica of every topic."""
    made = Cluster("R", Jvm.find(), tmp_path / "cluster", brokers=3)
    try:
        made.start()
        yield made
    finally:
        for broker in made.brokers:
            broker.kill()


def test_brokers_restarted_one_by_one(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Leaders and group coordinators move; consumers in a group and with fixed shares find nothing.

    The cluster is source and destination at once, so only the brokers can be at fault.
    """
    both = SimpleNamespace(source=cluster, destination=cluster)
    scene = Scene(
        both,
        tmp_path,
        "rolling",
        ("orders.eu",),
        ledger="ledger",
        state="state",
        spark=lambda: request.getfixturevalue("spark"),
        alias="",
    )
    (topic,) = scene.topics
    cluster.create_topic(topic, 6)
    try:
        consumers = {
            name: scene.consume(
                *(name, "--state-topic", f"state.{name}", "--log-dir", str(tmp_path / name)), *more
            )
            for name, more in (("grouped", ("--consumer-group", "g")), ("alone", ()))
        }
        for consumer in consumers.values():
            until(consumer.reads(6, 6), what=f"{consumer.name} reads all")
        ann = scene.produce("ann", "--throughput", "400", "--message-size", "200")
        until(lambda: scene.copied(topic) > 400, what="records come")
        for broker in cluster.brokers:
            broker.terminate()
            stood = scene.copied(topic)
            until(lambda: scene.copied(topic) > stood + 200, what="the others go on")  # noqa: B023
            broker.start()
            broker.wait_ready(brokers=len(cluster.brokers))
        ann.signal(signal.SIGTERM)
        sent = vouched(ann.answer())
        answers = {name: consumer.answer() for name, consumer in consumers.items()}
    finally:
        scene.close()
    recount = count(scene.copies())
    assert recount.seen == sent
    assert not recount.duplicated
    for name, answer in answers.items():
        assert wrong(answer) == {}
        assert answer["counts"]["delivered"] == answer["counts"]["acked"] == len(sent)
        folder = tmp_path / name
        offline = scene.reconcile(str(folder), "--exactly-once", "--output", str(folder / "result"))
        judged_alike(offline.answer(), answer)
    assert all("Traceback" not in command.stderr for command in scene.commands)
