"""Topics that change under their readers: each change is reported as what it is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import ids, judged_alike, read_topic, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "600", "--message-size", "200")


def test_retention_overtakes_a_consumer(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Messages that were deleted before they were read are inconclusive, by id, and not lost.

    One consumer stops and finds a gap when it resumes; one starts late, in the middle of the log.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    copy = f"A.{topic}"
    scene.create(3)
    early = scene.consume("early", "--until", "forever")
    ann = vouched(scene.produce("ann", *LOAD, "--num-records", "600").answer())
    until(lambda: "600 delivered of 600" in early.stderr, what="early has read all")
    early.signal(signal.SIGTERM)
    early.answer(code=None)
    bob = vouched(scene.produce("bob", *LOAD, "--num-records", "600").answer())
    until(lambda: scene.copied(topic) == 1200, what="all is copied")
    ends = lab.destination.end_offsets(copy)
    before = scene.copies()
    lab.destination.delete_records(copy, {n: end - 50 for n, end in ends.items()})
    deleted = {each.id for each in before if each.offset < ends[each.partition] - 50}
    assert ann < deleted
    assert deleted - ann

    again = scene.consume("early", label="early-again")
    late = scene.consume(
        *("late", "--state-topic", f"{scene.state}.late"),
        *("--log-dir", str(scene.folder / "late")),
    )
    for consumer, unread in ((again, deleted - ann), (late, deleted)):
        answer = consumer.answer(code=3)
        assert ids(answer, "inconclusive") == unread
        assert wrong(answer) == {"inconclusive": len(unread)}
        assert answer["counts"]["delivered"] == len(ann | bob) - len(unread)
        assert answer["inconclusive"] == [
            f"{len(unread):,} messages may have been in offsets that no consumer could read"
        ]
    judged_alike(scene.reconcile().answer(code=3), again.answer(code=3))


def test_a_topic_made_again_and_partitions_added(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """A recreated topic is reported, also after a restart; added partitions are not.

    One recreated topic is the copy: what was read of the old one stays delivered. The other is the
    source topic: only its reader reports it. A third topic grows in the source, and the mirror
    follows; a fourth grows in the destination alone.
    """
    scene = make_scene("again.eu", "anew.eu", "grown.eu", "wider.eu")
    again, anew, grown, wider = scene.topics
    scene.create(2)
    consumer = scene.consume("carl", "--until", "forever", "--deadline", "20s")
    observer = scene.observe("olga", "--until", "forever", "--deadline", "20s")
    hashed = scene.consume(
        *("hashed", "--expect-partition", "murmur2", "--topics", f"A.{grown},A.{wider}"),
        *("--state-topic", f"{scene.state}.hashed", "--log-dir", str(scene.folder / "hashed")),
        *("--expect-producers", "ann,bob"),
    )
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "500").answer())
    readers = {consumer: "delivered", observer: "in the source"}
    for reader, there in readers.items():
        line = f"2,000 {there} of 2,000"
        until(lambda command=reader, line=line: line in command.stderr, what="all is read")

    for cluster, topic in ((lab.destination, f"A.{again}"), (lab.source, anew)):
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 2)
    lab.source.add_partitions(grown, 4)
    lab.destination.add_partitions(f"A.{wider}", 5)
    lab.mirror.wait_topic(grown)
    bob = scene.produce("bob", *LOAD, "--num-records", "400", "--destination-partitions", "2")
    sent |= vouched(bob.answer())
    for reader, there in readers.items():
        line = f"{len(sent):,} {there} of {len(sent):,}"
        until(lambda command=reader, line=line: line in command.stderr, what="all is read again")
        reader.signal(signal.SIGTERM)
    observed = observer.answer(code=3)
    answers = [consumer.answer(code=3), scene.consume("carl", label="carl-again").answer(code=3)]
    for answer, topic in ((observed, anew), *((each, f"A.{again}") for each in answers)):
        assert wrong(answer) == {}
        assert answer["counts"]["delivered"] == len(sent) == 4 * 500 + 4 * 400
        doubts = answer["inconclusive"]
        assert [note for note in answer["notes"] if "read no message of run" not in note] == doubts
        assert all("was deleted and recreated" in doubt for doubt in doubts)
        assert {doubt.split()[0] for doubt in doubts} == {f"{topic}-0", f"{topic}-1"}
    assert answers[1]["notes"][-1].startswith("this consumer read no message of run")
    offline = scene.reconcile().answer(code=3)
    judged_alike(offline, answers[-1])
    assert offline["online"]["partitions"] == 2 + 2 + 4 + 5
    recreated = [each.split(":")[0] for each in offline["inconclusive"] if "recreated" in each]
    assert recreated == [f"{again}-0", f"{again}-1"]
    moved = hashed.answer()
    assert wrong(moved) == {}
    assert moved["counts"]["delivered"] == 2 * (500 + 400)


def test_a_destination_that_is_compacted(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """A missing message that a later one of its key explains is compacted; none is lost."""
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    copy = f"A.{topic}"
    quickly = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "500",
    }
    lab.destination.create_topic(copy, 2, configs=quickly)
    lab.source.create_topic(topic, 2)
    sent = set()
    for label in ("first", "second", "third"):
        ann = scene.produce("ann", *LOAD, "--num-records", "300", label=label)
        sent |= vouched(ann.answer())
    until(lambda: scene.copied(topic) >= 900, what="all is copied")

    def remaining() -> set[tuple[str, str, int, int, int] | None]:
        return {each.id for each in read_topic(lab.destination, copy, source=topic)}

    until(lambda: len(remaining()) < 700, what="the destination has compacted")
    consumer = scene.consume("late")
    answer = consumer.answer()
    seen = remaining()
    assert answer["counts"]["delivered"] >= len(seen)
    assert set(wrong(answer)) == {"compacted"}
    compacted = ids(answer, "compacted")
    assert compacted <= sent - seen
    assert len(compacted) + answer["counts"]["delivered"] == len(sent) == 900

    offline = scene.reconcile().answer()
    judged_alike(offline, answer)
