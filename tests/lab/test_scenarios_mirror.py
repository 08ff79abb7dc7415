"""A mirror that is killed: what it repeats, what it loses, and what never comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Command, count, ids, read_topic, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Scene

    from mirrortest.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "800", "--message-size", "200")


@pytest.fixture(autouse=True)
def mirror_runs_again(lab: Lab) -> Iterator[None]:
    """Whatever a test does to the mirror, the next one finds it running."""
    yield
    if not lab.mirror.alive:
        lab.mirror.start()
        lab.mirror.wait_ready()


def copied(lab: Lab, topic: str) -> int:
    """How many records a topic's copy has."""
    return sum(lab.destination.end_offsets(f"A.{topic}").values())


def written(lab: Lab, topic: str) -> int:
    """How many records a topic of the source has been given."""
    return sum(lab.source.end_offsets(topic).values())


def copies(lab: Lab, scene: Scene) -> list:
    """All the records of the scene's topics in the destination."""
    return [
        copy
        for topic in scene.topics
        for copy in read_topic(lab.destination, f"A.{topic}", source=topic)
    ]


def two_consumers(scene: Scene, *arguments: str) -> list[Command]:
    """Two that share the partitions, and wait for both producers."""
    return [scene.consume(name, "--consumer-group", "two", *arguments) for name in ("carl", "dora")]


def test_killed_and_restarted(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """SIGKILL in mid-run loses nothing; the replay is counted by exact id.

    A plain count over the destination's records names the same duplicates and reorders. They pass
    by default, fail under duplicated==0, and are found again offline.
    """
    scene = make_scene("orders.eu", "clicks.us")
    for topic in scene.topics:
        lab.source.create_topic(topic, 3)
        lab.mirror.wait_topic(topic)
    consumers = [
        *two_consumers(scene, "--expect-producers", "ann,bob"),
        scene.consume(
            "strict",
            *("--expect-producers", "ann,bob", "--threshold", "duplicated==0"),
            *("--log-dir", str(scene.folder / "strict")),
        ),
    ]
    producers = [scene.produce(name, *LOAD, "--duration", "12s") for name in ("ann", "bob")]
    until(
        lambda: all(copied(lab, topic) > 3000 for topic in scene.topics), what="the mirror copies"
    )
    lab.mirror.kill()
    stood = [copied(lab, topic) for topic in scene.topics]
    lab.mirror.start()
    lab.mirror.wait_ready()
    sent = set().union(*(vouched(producer.answer()) for producer in producers))
    first, second, strict = (
        consumer.answer(code=code) for consumer, code in zip(consumers, (0, 0, 99), strict=True)
    )
    plain = count(copies(lab, scene))
    assert plain.seen == sent
    assert plain.duplicated, f"the mirror repeated nothing after {stood}"
    for answer in (first, second, strict):
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
        assert set(wrong(answer)) <= {"duplicated", "reordered"}
        assert ids(answer, "duplicated") == plain.duplicated
        assert ids(answer, "reordered") == plain.reordered
        assert answer["copies"] == plain.copies
    failed = [each["expression"] for each in strict["thresholds"] if not each["passed"]]
    assert failed == ["duplicated==0"]

    offline = scene.reconcile().answer()
    assert offline["online"]["disagreements"] == []
    assert offline["counts"]["delivered"] == len(sent)
    assert offline["counts"]["duplicated"] == len(plain.duplicated)
    assert offline["counts"]["reordered"] == len(plain.reordered)
    assert offline["counts"]["surplus"] == plain.copies


def test_records_deleted_while_it_was_down(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """What the source deleted before a restarted mirror read it is lost: exactly that, by id.

    In one topic it is the head of each partition's rest, in the other one partition as a whole.
    """
    scene = make_scene("orders.eu", "clicks.us")
    head, whole = scene.topics
    for topic in scene.topics:
        lab.source.create_topic(topic, 3)
        lab.mirror.wait_topic(topic)
    consumers = two_consumers(
        scene, "--deadline", "10s", "--expect-producers", "ann,bob", "--state-interval", "2s"
    )
    ann = scene.produce("ann", *LOAD, "--num-records", "1500")
    acked = vouched(ann.answer())
    until(lambda: copied(lab, head) == copied(lab, whole) == 1500, what="all of ann's are copied")
    lab.mirror.kill()
    began = {topic: lab.source.end_offsets(topic) for topic in scene.topics}
    bob = scene.produce("bob", *LOAD, "--num-records", "1500")
    acked |= vouched(bob.answer())
    doomed = {head: {n: end + 100 for n, end in began[head].items()}}
    doomed[whole] = {1: lab.source.end_offsets(whole)[1]}
    lost = {
        copy.id
        for topic, ends in doomed.items()
        for copy in read_topic(lab.source, topic)
        if began[topic][copy.partition] <= copy.offset < ends.get(copy.partition, 0)
    }
    for topic, ends in doomed.items():
        lab.source.delete_records(topic, ends)
    lab.mirror.start()
    lab.mirror.wait_ready()
    answers = [consumer.answer(code=99) for consumer in consumers]
    assert len(lost) > 300 + 300
    for answer in answers:
        assert ids(answer, "lost") == lost
        assert answer["counts"]["acked"] == len(acked) == 6000
        assert answer["counts"]["delivered"] == 6000 - len(lost)
        assert set(wrong(answer)) <= {"lost", "duplicated"}
    assert {copy.id for copy in copies(lab, scene)} == acked - lost

    offline = scene.reconcile().answer(code=99)
    assert offline["online"]["disagreements"] == []
    assert offline["counts"]["lost"] == len(lost)
    assert lost == {
        (m["topic"], m["producer"], m["incarnation"], m["lane"], seq)
        for m in offline["undelivered"]
        if m["verdict"] == "lost"
        for seq in range(m["seq_lo"], m["seq_hi"])
    }
