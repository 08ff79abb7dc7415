"""Killed producers, and killed brokers of the source."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import PROGRAM, count, ids, read_topic, until, vouched, wrong
from tests.lab.portable import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "800", "--message-size", "200")


def test_a_producer_killed_and_restarted(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """It continues as incarnation 2, and duplicates none of its messages.

    What the first incarnation had not recorded as acknowledged is unknown: neither lost nor
    phantom.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(3)
    consumers = [scene.consume(name, "--consumer-group", "two") for name in ("carl", "dora")]
    ann = scene.produce("ann", *LOAD)
    until(lambda: scene.copied(topic) > 2000, what="records come")
    ann.signal(signal.SIGKILL)
    ann.wait()
    again = scene.produce("ann", *LOAD, "--num-records", "1000", label="ann-again").answer()
    assert again["incarnations"] == [2]
    recount = count(scene.copies())
    assert not recount.duplicated
    first = {each for each in recount.seen if each[2] == 1}
    assert vouched(again) == recount.seen - first
    for consumer in consumers:
        answer = consumer.answer()
        assert set(wrong(answer)) == {"unknown"}
        assert {stream["incarnation"] for stream in answer["streams"]} == {1, 2}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"]
        maybe = len(recount.seen) - answer["counts"]["delivered"]
        assert 0 <= maybe <= answer["counts"]["unknown"]


@pytest.mark.parametrize("how", [(), ("--portable",)], ids=["", "by public calls"])
def test_a_source_broker_killed_under_load(
    lab: Lab, make_scene: Callable[..., Scene], how: tuple[str, ...]
) -> None:
    """No acknowledged message is lost; every outcome agrees with the records of the source.

    The consumers find exactly the duplicates and reorders in the destination.
    """
    scene = make_scene("orders.eu", "clicks.us", program=PORTABLE if how else PROGRAM)
    scene.create(3)
    consumers = [
        scene.consume(name, *how, "--consumer-group", "two", "--expect-producers", "ann,bob")
        for name in ("carl", "dora")
    ]
    producers = [scene.produce(name, *how, *LOAD) for name in ("ann", "bob")]
    until(lambda: all(scene.copied(topic) > 1000 for topic in scene.topics), what="records come")
    until(lambda: scene.senders() == {"ann", "bob"}, what="both producers send")
    broker = lab.source.brokers[0]
    broker.kill()
    broker.start()
    before = {topic: scene.written(topic) for topic in scene.topics}
    until(
        lambda: all(scene.written(topic) > before[topic] + 1000 for topic in scene.topics),
        what="the producers go on",
    )
    for producer in producers:
        producer.signal(signal.SIGTERM)
    produced = [producer.answer(code=None) for producer in producers]
    assert {answer["exit_code"] for answer in produced} <= {0, 3}
    acked, failed, unknown = (
        set().union(*(ids(answer, outcome) for answer in produced))
        for outcome in ("acked", "failed", "unknown")
    )
    in_source = {copy.id for topic in scene.topics for copy in read_topic(lab.source, topic)}
    assert acked <= in_source <= acked | unknown
    assert not failed & in_source
    answers = [consumer.answer() for consumer in consumers]
    recount = count(scene.copies())
    assert recount.seen == in_source
    for answer in answers:
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(acked)
        assert set(wrong(answer)) <= {"unknown", "duplicated", "reordered"}
        assert ids(answer, "duplicated") == recount.duplicated
        assert ids(answer, "reordered") == recount.reordered
