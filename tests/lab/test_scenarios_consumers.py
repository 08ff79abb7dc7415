"""Consumers that share the work: killed, restarted, frozen, and never a finding from it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from harness import count, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Scene

    from mirrortest.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

QUICK = (
    *("--command-property", "session.timeout.ms=6000"),
    *("--command-property", "heartbeat.interval.ms=1000"),
)


def test_a_group_that_loses_members(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """One is killed and restarted, the other frozen past its session: no finding changes.

    Partitions move each time. The frozen one goes on as a zombie and overwrites nothing: a
    consumer that comes later finds every state at its partition's end, and reads nothing again.
    """
    scene = make_scene("orders.eu", "clicks.us")
    for topic in scene.topics:
        lab.source.create_topic(topic, 3)
        lab.mirror.wait_topic(topic)
    shared = ("--consumer-group", "shared", *QUICK)
    carl = scene.consume("carl", *shared)
    dora = scene.consume("dora", *shared)
    ann = scene.produce("ann", "--throughput", "500", "--message-size", "200")
    until(carl.holds(1, 5), what="carl has a share")
    until(lambda: all(scene.copied(topic) > 1000 for topic in scene.topics), what="records come")

    carl.signal(signal.SIGKILL)
    carl.wait()
    until(dora.holds(6, 6), what="dora reads all")
    carl = scene.consume("carl", *shared, label="carl-again")
    until(carl.holds(1, 5), what="carl has a share again")

    dora.signal(signal.SIGSTOP)
    until(carl.holds(6, 6), what="carl reads all")
    dora.signal(signal.SIGCONT)
    until(dora.holds(1, 5), what="dora has a share again")

    ann.signal(signal.SIGTERM)
    sent = vouched(ann.answer())
    answers = [consumer.answer() for consumer in (carl, dora)]
    answers.append(scene.consume("erin", *shared).answer())
    for answer in answers:
        assert wrong(answer) == {}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
    assert answers[-1]["messages_read"] == 0
    plain = count(scene.copies())
    assert plain.seen == sent
    assert not plain.duplicated

    offline = scene.reconcile("--exactly-once").answer()
    assert offline["online"]["disagreements"] == []
    assert offline["counts"]["delivered"] == len(sent)
