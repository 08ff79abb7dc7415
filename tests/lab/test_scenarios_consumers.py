"""Consumers of a group: being killed, restarted or frozen never causes a finding."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import count, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

QUICK = (
    *("--command-property", "session.timeout.ms=4000"),
    *("--command-property", "heartbeat.interval.ms=1000"),
)


def test_a_group_that_loses_members(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """One is killed and restarted, the other frozen past its session timeout: no finding changes.

    Partitions move each time. The frozen one continues as a zombie and overwrites nothing: a third
    that joins when all is delivered finds every state at its partition's end, and reads nothing
    again. Others read what it has at the end: offline, that is compared like the rest.
    """
    scene = make_scene("orders.eu", "clicks.us")
    scene.create(3)
    shared = ("--consumer-group", "shared", *QUICK)
    staying = (*shared, "--until", "forever")
    carl = scene.consume("carl", *staying)
    dora = scene.consume("dora", *staying)
    ann = scene.produce("ann", "--throughput", "500", "--message-size", "200")
    until(carl.reads(1, 5), what="carl has a share")
    until(lambda: all(scene.copied(topic) > 1000 for topic in scene.topics), what="records come")

    carl.signal(signal.SIGKILL)
    carl.wait()
    until(dora.reads(6, 6), what="dora reads all")
    carl = scene.consume("carl", *staying, label="carl-again")
    until(carl.reads(1, 5), what="carl has a share again")

    dora.signal(signal.SIGSTOP)
    until(carl.reads(6, 6), what="carl reads all")
    dora.signal(signal.SIGCONT)
    until(dora.reads(1, 5), what="dora has a share again")

    ann.signal(signal.SIGTERM)
    sent = vouched(ann.answer())
    delivered = f"{len(sent):,} delivered of {len(sent):,}"
    for consumer in (carl, dora):
        until(lambda each=consumer: delivered in each.stderr, what="all is delivered")
    erin = scene.consume("erin", *staying)
    until(erin.reads(1, 5), what="erin has a share")
    alone = erin.reads(6, 6)
    for consumer in (carl, dora):
        consumer.signal(signal.SIGTERM)
    answers = [consumer.answer() for consumer in (carl, dora)]
    until(alone, what="erin has all")
    erin.signal(signal.SIGTERM)
    answers.append(erin.answer())
    for answer in answers:
        assert wrong(answer) == {}
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
    assert answers[-1]["messages_read"] == 0
    recount = count(scene.copies())
    assert recount.seen == sent
    assert not recount.duplicated

    offline = scene.reconcile("--exactly-once").answer()
    assert offline["online"] == {"partitions": 6, "disagreements": []}
    assert offline["counts"]["delivered"] == len(sent)
