"""Broker outages: consumers survive them and report them, and they cause no finding."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import (
    count,
    ids,
    judged_alike,
    read_topic,
    until,
    vouched,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOAD = ("--throughput", "400", "--message-size", "200")
IMPATIENT = (
    *("--command-property", "request.timeout.ms=2000"),
    *("--command-property", "session.timeout.ms=6000"),
    *("--command-property", "heartbeat.interval.ms=1000"),
)


def test_brokers_restarted(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """The destination's broker is away for longer than request.timeout.ms; this causes no finding.

    Consumers with and without a group wait for it. A consumer that gets one signal meanwhile
    reports what it read; one that gets a second signal ends at once.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(3)
    patient = [
        scene.consume("grouped", *IMPATIENT, "--consumer-group", "g"),
        # With the client's default timeouts, which are longer than a user waits.
        scene.consume("alone", "--shard", "1/1", "--state-topic", f"{scene.state}.a"),
    ]
    others = {
        name: scene.consume(
            name, *IMPATIENT, "--consumer-group", name, "--log-dir", str(scene.folder / name)
        )
        for name in ("once", "twice")
    }
    ann = scene.produce("ann", *LOAD)
    for consumer in (*patient, *others.values()):
        until(consumer.reads(3, 3), what=f"{consumer.name} has its share")
    until(lambda: scene.copied(topic) > 600, what="records come")

    broker = lab.destination.brokers[0]
    broker.terminate()
    for consumer in (*patient, *others.values()):
        until(
            lambda each=consumer: "destination cannot be reached" in each.stderr,
            seconds=30,
            what=f"{consumer.name} tells of the outage",
        )
    until(
        lambda: patient[1].stderr.count("destination unreachable since") >= 3,
        seconds=30,
        what="it goes on showing how it stands",
    )
    others["once"].signal(signal.SIGINT)
    # The kernel may merge two pending signals of one kind, and a later one may come after the end.
    # It also decides which of these two is delivered first.
    others["twice"].signal(signal.SIGINT)
    others["twice"].signal(signal.SIGTERM)
    assert others["twice"].wait(seconds=30) in {128 + signal.SIGINT, 128 + signal.SIGTERM}
    assert ": draining; a second signal" in others["twice"].stderr
    ended = others["once"].answer(code=3, seconds=60)
    assert ended["inconclusive"][0].startswith("the destination could not be read to its end")
    assert set(wrong(ended)) <= {"in_flight"}
    assert any("state could not be saved" in reason for reason in ended["inconclusive"])

    broker.start()
    stood = scene.copied(topic)
    until(lambda: scene.copied(topic) > stood + 300, what="the mirror goes on")
    ann.signal(signal.SIGTERM)
    sent = vouched(ann.answer())
    answers = [consumer.answer() for consumer in patient]
    again = scene.consume("once", "--consumer-group", "once", label="once-again").answer()
    recount = count(scene.copies())
    assert recount.seen == sent
    for answer in (*answers, again):
        assert answer["counts"]["delivered"] == len(sent)
        assert set(wrong(answer)) <= {"duplicated", "reordered"}
        assert ids(answer, "duplicated") == recount.duplicated  # by the mirror itself
        assert ids(answer, "reordered") == recount.reordered
    others_logs = (str(scene.folder / name) for name in others)
    judged_alike(scene.reconcile(*others_logs).answer(), answers[0])
    assert all("Traceback" not in command.stderr for command in scene.commands)


def test_the_ledgers_broker_and_the_states_topic_go_away(
    lab: Lab, make_scene: Callable[..., Scene]
) -> None:
    """Neither changes a finding or keeps a consumer from ending on SIGTERM."""
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(3)
    direct = (
        *("--ledger-bootstrap-server", lab.source.bootstrap_servers),
        *("--until", "forever", *IMPATIENT),
    )
    waiting = scene.consume("waiting", *direct)
    sent = vouched(scene.produce("ann", *LOAD, "--num-records", "600").answer())
    until(lambda: "600 delivered of 600" in waiting.stderr, what="all is judged")
    lab.destination.delete_topic(scene.state)
    until(lambda: lab.destination.partitions(scene.state) == 1, what="the states' topic is remade")

    broker = lab.source.brokers[0]
    broker.kill()
    try:
        waiting.signal(signal.SIGTERM)
        answer = waiting.answer(code=0, seconds=60)
    finally:
        broker.start()
    assert wrong(answer) == {}
    assert answer["counts"]["delivered"] == len(sent) == 600
    assert "Traceback" not in waiting.stderr
    again = scene.consume("again", *direct[:2]).answer()
    assert (again["counts"]["delivered"], wrong(again)) == (600, {})
    assert again["messages_read"] == 0
    assert {c.id for c in read_topic(lab.destination, f"A.{topic}", source=topic)} == sent


def test_sigint_while_the_destination_is_dead(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """SIGINT ends a consumer soon, with a report, while the broker is frozen or killed.

    A consumer that starts during the outage ends with a one-line error.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(2)
    vouched(scene.produce("ann", *LOAD, "--num-records", "400").answer())
    until(lambda: scene.copied(topic) >= 400, what="all is copied")
    begun = {
        name: scene.consume(
            name,
            *(*IMPATIENT, "--until", "forever", "--state-topic", f"{scene.state}.{name}"),
            *("--log-dir", str(scene.folder / name), *more),
        )
        for name, more in (
            ("frozen", ()),
            ("killed", ()),
            ("grouped", ("--consumer-group", scene.run)),
        )
    }
    for consumer in begun.values():
        until(consumer.reads(2, 2), what=f"{consumer.name} reads both partitions")

    broker = lab.destination.brokers[0]
    broker.stop()
    begun["frozen"].signal(signal.SIGINT)
    answers = [begun["frozen"].answer(code=3, seconds=90)]
    broker.kill()
    try:
        for name in ("killed", "grouped"):
            begun[name].signal(signal.SIGINT)
        answers += [begun[name].answer(code=3, seconds=90) for name in ("killed", "grouped")]
        never = scene.consume("never", *IMPATIENT, "--log-dir", str(scene.folder / "never"))
        assert never.wait(seconds=60) == 1
    finally:
        broker.start()
        broker.wait_ready()
    for answer in answers:
        assert answer["inconclusive"][0].startswith("the destination could not be read to its end")
        assert set(wrong(answer)) <= {"in_flight"}
    (line,) = (text for text in never.stderr.splitlines() if "rror" in text)
    assert lab.destination.bootstrap_servers in line
    assert all("Traceback" not in command.stderr for command in scene.commands)
