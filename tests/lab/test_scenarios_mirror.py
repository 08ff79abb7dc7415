"""A killed mirror: what it copies twice, what it loses, and what it never copies."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import count, ids, read_topic, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "800", "--message-size", "200")


def two_consumers(scene: Scene, *arguments: str) -> list[Command]:
    """Two consumers that share the partitions in a group."""
    return [scene.consume(name, "--consumer-group", "two", *arguments) for name in ("carl", "dora")]


def test_killed_and_restarted(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """SIGKILL in mid-run loses nothing; the replay is reported by exact id.

    An independent count of the destination's records gives the same duplicates and reorders. They
    pass by default, fail under duplicated==0, and are found again offline.
    """
    scene = make_scene("orders.eu", "clicks.us")
    scene.create(3)
    consumers = [
        *two_consumers(scene, "--expect-producers", "ann,bob"),
        scene.consume(
            "strict",
            *("--expect-producers", "ann,bob", "--threshold", "duplicated==0"),
            *("--log-dir", str(scene.folder / "strict")),
        ),
    ]
    # They continue until it is up again: it had no time to commit what it copied last.
    producers = [scene.produce(name, *LOAD) for name in ("ann", "bob")]
    until(
        lambda: all(scene.copied(topic) > 3000 for topic in scene.topics), what="the mirror copies"
    )
    lab.mirror.kill()
    stood = [scene.copied(topic) for topic in scene.topics]
    lab.mirror.start()
    lab.mirror.wait_ready()
    for producer in producers:
        producer.signal(signal.SIGTERM)
    sent = set().union(*(vouched(producer.answer()) for producer in producers))
    first, second, strict = (
        consumer.answer(code=code) for consumer, code in zip(consumers, (0, 0, 99), strict=True)
    )
    recount = count(scene.copies())
    assert recount.seen == sent
    assert recount.duplicated, f"the mirror repeated nothing after {stood}"
    for answer in (first, second, strict):
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
        assert set(wrong(answer)) <= {"duplicated", "reordered"}
        assert ids(answer, "duplicated") == recount.duplicated
        assert ids(answer, "reordered") == recount.reordered
        assert answer["copies"] == recount.copies
    failed = [each["expression"] for each in strict["thresholds"] if not each["passed"]]
    assert failed == ["duplicated==0"]

    offline = scene.reconcile().answer()
    assert offline["online"]["disagreements"] == []
    assert offline["counts"]["delivered"] == len(sent)
    assert offline["counts"]["duplicated"] == len(recount.duplicated)
    assert offline["counts"]["reordered"] == len(recount.reordered)
    assert offline["counts"]["surplus"] == recount.copies


def test_records_deleted_while_it_was_down(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Exactly the records that the source deleted before a restarted mirror read them are lost.

    In one topic these are the first unread records of each partition, in the other all unread
    records of one partition.
    """
    scene = make_scene("orders.eu", "clicks.us")
    head, emptied = scene.topics
    scene.create(3)
    consumers = two_consumers(
        scene, "--deadline", "15s", "--expect-producers", "ann,bob", "--state-interval", "2s"
    )
    ann = scene.produce("ann", *LOAD, "--num-records", "1500")
    acked = vouched(ann.answer())
    until(lambda: acked <= {copy.id for copy in scene.copies()}, what="all of ann's are copied")
    lab.mirror.kill()
    began = {topic: lab.source.end_offsets(topic) for topic in scene.topics}
    bob = scene.produce("bob", *LOAD, "--num-records", "1500")
    acked |= vouched(bob.answer())
    doomed = {head: {n: end + 100 for n, end in began[head].items()}}
    doomed[emptied] = {1: lab.source.end_offsets(emptied)[1]}
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
    assert {copy.id for copy in scene.copies()} == acked - lost

    offline = scene.reconcile().answer(code=99)
    assert offline["online"]["disagreements"] == []
    assert offline["counts"]["lost"] == len(lost)
    assert lost == {
        (m["topic"], m["producer"], m["incarnation"], m["lane"], seq)
        for m in offline["undelivered"]
        if m["verdict"] == "lost"
        for seq in range(m["seq_lo"], m["seq_hi"])
    }


def test_what_never_comes_is_named(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """A lost tail, a lost producer and an unmirrored topic are reported while the mirror is down.

    The ledger is read from the source. What the mirror copies later is late and no longer lost.
    This is so for a consumer that starts later, and for the topic that had no copy when its
    messages were claimed lost.
    """
    scene = make_scene("orders.eu", "never.us")
    topic, never = scene.topics
    lab.source.create_topic(topic, 3)
    lab.mirror.wait_topic(topic)
    direct = (
        *("--ledger-bootstrap-server", lab.source.bootstrap_servers),
        # Longer than a running mirror needs for any message.
        *("--deadline", "15s", "--expect-producers", "ann,bob"),
    )
    consumers = two_consumers(scene, *direct)
    ann = scene.produce("ann", *LOAD, "--topics", topic)
    until(lambda: scene.copied(topic) > 1000, what="the mirror copies")
    lab.mirror.kill()
    copied = scene.copied(topic)
    until(lambda: scene.written(topic) > copied + 500, what="the source has more than the copy")
    ann.signal(signal.SIGTERM)
    lab.source.create_topic(never, 2)
    bob = scene.produce("bob", *LOAD, "--num-records", "500")
    sent = {name: vouched(each.answer()) for name, each in (("ann", ann), ("bob", bob))}
    acked = sent["ann"] | sent["bob"]
    arrived = {copy.id for copy in read_topic(lab.destination, f"A.{topic}", source=topic)}
    lost = acked - arrived
    assert lost > sent["bob"]
    assert len(sent["bob"]) == 2 * 500
    for consumer in consumers:
        answer = consumer.answer(code=99)
        assert ids(answer, "lost") == lost
        assert set(wrong(answer)) == {"lost"}
        assert answer["counts"]["delivered"] == len(arrived)
        tails = [
            (stream["lost"], stream["acked"])
            for stream in answer["streams"]
            if stream["producer"] == "ann"
        ]
        assert all(len(spans) == 1 and spans[0][1] == end for spans, end in tails), tails
    lab.mirror.start()
    lab.mirror.wait_ready()
    lab.mirror.wait_topic(never)
    until(
        lambda: scene.copied(topic) + scene.copied(never) >= len(acked),
        what="the mirror catches up",
    )
    repaid = scene.consume("erin", "--consumer-group", "two", *direct).answer()
    assert ids(repaid, "late") == lost
    assert ids(repaid, "lost") == set()
    assert repaid["counts"]["delivered"] == len(acked)


def test_without_a_ledger_nothing_is_passed(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Without the ledger's copy, or an expected producer's registration, a run is inconclusive.

    The answer names what is missing. MirrorMaker 2 excludes topics whose names end in .replica.
    """
    unheard = make_scene("orders.eu")
    silent = make_scene("clicks.us", ledger=f"{unheard.ledger}.replica")
    silent.create(3)
    unheard.create(3)
    producers = [scene.produce("ann", *LOAD, "--num-records", "500") for scene in (silent, unheard)]
    for producer in producers:
        producer.answer()
    # Consumers that end when nothing arrives are started when all has arrived.
    for scene in (silent, unheard):
        until(lambda s=scene: s.copied(s.topics[0]) == 500, what="all is copied")
    until(
        lambda: unheard.copied(unheard.ledger) >= unheard.written(unheard.ledger),
        what="the ledger is copied",
    )
    consumers = [
        silent.consume("carl", "--idle-timeout", "5s"),
        unheard.consume("carl", "--idle-timeout", "5s", "--expect-producers", "ann,ghost"),
    ]
    without, waiting = (consumer.answer(code=3) for consumer in consumers)
    assert any(f"A.{silent.ledger}" in reason for reason in without["inconclusive"])
    assert "lost" not in without["counts"]
    assert without["messages_read"] == 500
    assert any("ghost" in reason for reason in waiting["inconclusive"])
    assert waiting["counts"]["delivered"] == 500
