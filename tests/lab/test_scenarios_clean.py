"""A mirror without faults: everything arrives, and nothing is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.wire.lanes import partition_of
from tests.lab.harness import ids, read_topic, until, vouched, wrong
from tests.lab.portable import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 3000


def test_all_arrives(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """All is delivered, nothing else is found, and the reconciliation finds the same.

    Both forms, two producers, and two topics with dots in their names; one has 3 partitions in the
    source and 5 in the destination. There a consumer that expects murmur2 finds the misrouted ids.
    """
    scene = make_scene("orders.eu", "clicks.us")
    wider, equal = scene.topics
    # The wider copy first: else the mirror creates it with the source's partition count.
    lab.destination.create_topic(f"A.{wider}", 5)
    lab.source.create_topic(wider, 3)
    lab.source.create_topic(equal, 4)
    # Judges by where murmur2 would put a key in the destination. It counts the partitions before
    # a message arrives: for earlier ones the producer's planned count would be valid, too.
    eve = scene.consume(
        "eve",
        *("--expect-partition", "murmur2", "--expect-producers", "ann,bob"),
        *("--log-dir", str(scene.folder / "eve")),
    )
    until(eve.reads(5 + 4, 5 + 4), what="eve reads all partitions")
    load = ("--num-records", str(RECORDS), "--throughput", "1000", "--message-size", "300")
    ann = scene.produce("ann", *load, "--destination-partitions", "5")
    bob = scene.produce("bob", *load, "--form", "headers")
    shared = [
        scene.consume(
            name,
            *("--consumer-group", "shared", "--expect-producers", "ann,bob", "--exactly-once"),
        )
        for name in ("carl", "dora")
    ]
    sent = [producer.answer() for producer in (ann, bob)]
    for answer in (consumer.answer() for consumer in shared):
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == 4 * RECORDS
        assert wrong(answer) == {}
        assert answer["verdict"] == "passed"
        assert len(answer["streams"]) == 5 + 5 + 3 + 4
    copies = [
        copy
        for topic in scene.topics
        for copy in read_topic(lab.destination, f"A.{topic}", source=topic)
    ]
    assert set().union(*(vouched(answer) for answer in sent)) == {copy.id for copy in copies}
    rekeyed = eve.answer(code=99)
    assert set(wrong(rekeyed)) == {"misrouted"}
    assert ids(rekeyed, "misrouted") == {
        copy.id
        for copy in copies
        if copy.id
        if copy.partition != partition_of(b"%d" % copy.id[3], 5 if copy.id[0] == wider else 4)
    }

    offline = scene.reconcile_alone("--exactly-once").answer()
    assert offline["counts"]["delivered"] == 4 * RECORDS
    assert offline["online"]["disagreements"] == []
    assert offline["online"]["partitions"] == 5 + 4
    latencies = {topic: each["count"] for topic, each in offline["latency_seconds"].items()}
    measured = [
        latencies.get(topic, 0) + offline["backlog"].get(topic, 0) for topic in scene.topics
    ]
    assert measured == [2 * RECORDS] * 2


def test_all_arrives_by_public_calls(make_scene: Callable[..., Scene]) -> None:
    """Both forms, compression, two workers and a group work without aiokafka's internals."""
    scene = make_scene("orders.eu", program=PORTABLE)
    scene.create(4)
    load = ("--portable", "--num-records", "2000", "--throughput", "1000", "--compression", "zstd")
    judge = ("--portable", "--consumer-group", "shared", "--exactly-once")
    consumers = [
        scene.consume(name, *judge, "--expect-producers", "ann.1,ann.2,bob")
        for name in ("carl", "dora")
    ]
    ann = scene.produce("ann", *load, "--workers", "2")
    bob = scene.produce("bob", *load, "--form", "headers")
    produced = [producer.answer() for producer in (ann, bob)]
    for answer in (consumer.answer() for consumer in consumers):
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == 4000
        assert wrong(answer) == {}
        assert answer["verdict"] == "passed"
    sent = set().union(*(vouched(answer) for answer in produced))
    assert len(sent) == 4000
    assert sent == {copy.id for copy in scene.copies()}
