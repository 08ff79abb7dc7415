"""`mirrortest sabotage` as a command: an outage, deleted records, its end and its restart."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.faults.ground_truth import read_summary, read_truth
from tests.lab.harness import until, vouched

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def sabotage(scene: Scene, label: str, *arguments: str) -> Any:
    """The command as a user types it, for the scene's one topic."""
    return scene.start(
        label,
        "sabotage",
        *("--source-bootstrap-server", scene.lab.source.bootstrap_servers),
        *("--destination-bootstrap-server", scene.lab.destination.bootstrap_servers),
        *("--source-alias", scene.alias, "--topics", scene.topics[0], "--truth", "truth"),
        *arguments,
    )


def test_a_cluster_that_goes_away_is_waited_for(
    lab: Lab, make_aliased_scene: Callable[..., Scene]
) -> None:
    """A destination outage longer than the delivery timeout causes no loss and no extra copies."""
    scene = make_aliased_scene("orders")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 2)
    (scene.folder / "spec.toml").write_text(
        "".join(f'[[acts]]\nkind = "{kind}"\nrate = 0.01\n' for kind in ("hold", "duplicate"))
    )
    impatient = ("delivery.timeout.ms=1000", "request.timeout.ms=2000")
    mirror = sabotage(
        scene,
        "mirror",
        *("--spec", "spec.toml", "--json"),
        *(word for each in impatient for word in ("--command-property", each)),
    )
    until(lambda: "the mirror is ready" in mirror.stderr, what="ready")
    producer = scene.produce("ann", "--throughput", "1500")
    until(lambda: scene.copied(topic) > 1000, what="some copies")
    broker = lab.destination.brokers[0]
    broker.stop()
    try:
        until(lambda: "mirroring was interrupted" in mirror.stderr, what="the outage is noticed")
    finally:
        broker.cont()
    producer.signal(signal.SIGTERM)
    sent = vouched(producer.answer())
    until(lambda: scene.copied(topic) >= len(sent), what="all copies")
    mirror.signal(signal.SIGTERM)
    answer = mirror.answer()
    assert answer["read"] == {topic: len(sent)}
    assert answer["written"] == {f"S.{topic}": len(sent) + answer["acts"]["duplicate"]}
    assert scene.copied(topic) == answer["written"][f"S.{topic}"]
    copies = Counter(each.id for each in scene.copies())
    assert copies.keys() == sent
    twice = {
        tuple(row[name] for name in ("topic", "producer", "incarnation", "lane", "seq"))
        for row in read_truth(scene.folder / "truth").to_pylist()
        if row["kind"] == "duplicate"
    }
    assert {each for each, count in copies.items() if count == 2} == twice


def test_what_is_gone_from_the_source_is_told(
    lab: Lab, make_aliased_scene: Callable[..., Scene]
) -> None:
    """Records deleted while the mirror was down are listed as skipped; it continues after them."""
    scene = make_aliased_scene("orders")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 1)
    scene.produce("ann", "--num-records", "500").answer()
    first = sabotage(scene, "first", "--idle-timeout", "2s", "--json").answer()
    assert first["written"] == {f"S.{topic}": 500}
    scene.produce("bob", "--num-records", "500").answer()
    lab.source.delete_records(topic, 700)
    again = sabotage(scene, "again", "--idle-timeout", "2s", "--json").answer()
    assert again["written"] == {f"S.{topic}": 800}
    assert read_summary(scene.folder / "truth").skipped == [
        {"topic": topic, "partition": 0, "from": 500, "to": 700}
    ]


def test_the_command_alone(lab: Lab, make_aliased_scene: Callable[..., Scene]) -> None:
    """`mirrortest sabotage` ends by itself when all is quiet, and sums up what it did.

    It refuses another specification for the same truth, and a partition that does not exist.
    """
    scene = make_aliased_scene("orders")
    (topic,) = scene.topics
    lab.source.create_topic(topic, 2)
    scene.produce("ann", "--num-records", "1000").answer()
    file = scene.folder / "spec.toml"
    file.write_text('[[acts]]\nkind = "drop"\nwindow = { seq = [10, 20] }\n')

    first = sabotage(
        scene, "first", "--spec", "spec.toml", "--idle-timeout", "2s", "--json"
    ).answer()
    assert first["acts"] == {"drop": 20}
    assert (first["read"], first["written"]) == ({topic: 1000}, {f"S.{topic}": 980})
    other = sabotage(scene, "other", "--json")
    assert other.wait() == 2
    assert "belongs to another specification" in other.stderr
    again = sabotage(scene, "again", "--spec", "spec.toml", "--json")
    until(lambda: "the mirror is ready" in again.stderr, what="ready")
    again.signal(signal.SIGTERM)
    assert again.answer()["written"] == first["written"]
    assert scene.copied(topic) == 980
    file.write_text(f'[[acts]]\nkind = "reroute"\nrate = 1\ntopic = "{topic}"\nto_partition = 7\n')
    refused = sabotage(scene, "refused", "--spec", "spec.toml", "--truth", "new")
    assert refused.wait() == 2
    assert "to_partition is 7, but" in refused.stderr
