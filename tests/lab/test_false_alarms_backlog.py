"""Consumers that start late do not make the mirror's latency look high."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import until, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RATE, RECORDS = 200, 9_000


def test_a_consumer_that_starts_late_makes_no_mirror_slow(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """One starts when the producer has sent for 10 s, another of its group later.

    All messages are judged, a backlog has no latencies, and the latency threshold holds online and
    offline.
    """
    scene = make_scene("orders.eu")
    scene.create(2)
    (topic,) = scene.topics
    ann = scene.produce(
        "ann", "--throughput", str(RATE), "--num-records", str(RECORDS), "--message-size", "300"
    )
    judging = ("--consumer-group", "late", "--expect-producers", "ann", "--threshold", "p(99)<2s")
    until(lambda: scene.copied(topic) > 10 * RATE, what="ten seconds of messages are copied")
    carl = scene.consume("carl", *judging)
    until(carl.reads(2, 2), what="carl reads all")
    until(lambda: scene.copied(topic) > 30 * RATE, what="thirty seconds of messages are copied")
    dora = scene.consume("dora", *judging)
    ann.answer()
    answers = [consumer.answer() for consumer in (carl, dora)]
    for answer in answers:
        assert wrong(answer) == {}
        assert answer["counts"]["delivered"] == RECORDS
        assert answer["verdict"] == "passed"
    assert answers[0]["backlog"][topic] > 10 * RATE
    offline = scene.reconcile("--threshold", "p(99)<2s").answer()
    assert offline["verdict"] == "passed"
    assert offline["backlog"][topic] == sum(each["backlog"].get(topic, 0) for each in answers)
    assert offline["latency_seconds"][topic]["count"] == RECORDS - offline["backlog"][topic]
